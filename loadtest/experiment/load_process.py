"""The load of a run: Locust, started headless as a process of its own with a plan file."""

from __future__ import annotations

import sys
from pathlib import Path

import loadtest
from loadtest.experiment.processes import ChildProcess
from loadtest.experiment.topology import Topology
from loadtest.plan import LoadPlan
from loadtest.scenario import Scenario

__all__ = ["start_load"]


async def start_load(topology: Topology, scenario: Scenario, ops_port: int, *, gen_alone: bool = False) -> ChildProcess:
    """Start Locust against the topology's orchestrator, or its gen server; its results go into the run directory."""
    run_dir = topology.run_dir.absolute()
    host = topology.address("gen0", "listen") if gen_alone else topology.url
    plan = LoadPlan(
        host=host,
        settings=scenario.load,
        gen=scenario.gen,
        # What a cache of blocks holds is ctx's to know; the sums of both parties are compared at the end.
        cache_hit_ratio=scenario.ctx.cache_hit_ratio if scenario.ctx.prefix_cache == "ratio" else None,
        usage_by_ctx=not gen_alone,
        may_end_early=True,  # gen is drained at the end; its own count of such replies must equal the client's
        out=str(run_dir),
        ops=f"127.0.0.1:{ops_port}",
    )
    plan_path = run_dir / "plan.json"
    plan.write(plan_path)
    locustfile = Path(loadtest.__path__[0]) / "locustfile.py"
    argv = [
        *(sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "-u", "1", "-r", "1"),
        *("--only-summary", "--host", host, "--plan", str(plan_path)),
    ]
    log = run_dir / "logs" / "locust.log"
    return await ChildProcess.start("locust", argv, log, topology.pinning.others, announces=False)

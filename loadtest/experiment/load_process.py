"""The load of a run: Locust, started headless with a plan file, as one process or as a master and its workers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import loadtest
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import READY_TIMEOUT_S, STOP_TIMEOUT_S, ChildProcess
from loadtest.experiment.topology import Topology
from loadtest.plan import LoadPlan
from loadtest.scenario import Scenario

__all__ = ["start_load"]


async def start_load(
    topology: Topology,
    scenario: Scenario,
    ops_port: int,
    *,
    gen_alone: bool = False,
    workers: int = 1,
    stop_timeout_s: int = 0,
) -> ChildProcess:
    """Start Locust against the topology's orchestrator, or its gen server; its results go into the run directory.

    When asked to end, it stops sending and gives live streams ``stop_timeout_s`` to finish.
    With two ``workers`` or more the child is their master, and ends them when it is ended.  ChildFailedError if a
    worker does not reach it.
    """
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
    argv = [*_LOCUST, "--headless", "-u", "1", "-r", "1", "--only-summary", "--host", host, "--plan", str(plan_path)]
    argv += ["--stop-timeout", str(stop_timeout_s)] if stop_timeout_s else []
    logs, cpus = run_dir / "logs", topology.pinning.others
    if workers == 1:
        return await ChildProcess.start("locust", argv, logs / "locust.log", cpus, announces=False)
    port = str(free_ports(1)[0])
    argv += ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
    argv += ["--expect-workers", str(workers), "--expect-workers-max-wait", f"{READY_TIMEOUT_S:.0f}"]
    master = await LoadMaster.start("locust", argv, logs / "locust.log", cpus, announces=False)
    await master.start_workers(workers, port, logs, cpus)
    return master


_LOCUST = (sys.executable, "-m", "locust", "-f", str(Path(loadtest.__path__[0]) / "locustfile.py"))


@dataclass(slots=True)
class LoadMaster(ChildProcess):
    """Locust's master.  A worker that dies does not end the run: the master goes on with the others, and says so."""

    workers: list[ChildProcess] = field(default_factory=list)

    async def start_workers(self, count: int, port: str, logs: Path, cpus: frozenset[int]) -> None:
        """Start them, each with an operations port of its own; they announce themselves once they have their master.

        ChildFailedError if one does not, or if the master ends meanwhile; then none is left.
        """
        starts = [
            ChildProcess.start(
                f"load{index}",
                [
                    *(*_LOCUST, "--worker", "--master-host", "127.0.0.1", "--master-port", port),
                    *("--share", str(index), "--ops", f"127.0.0.1:{ops_port}"),
                ],
                logs / f"load{index}.log",
                cpus,
            )
            for index, ops_port in enumerate(free_ports(count))
        ]
        try:
            async with asyncio.TaskGroup() as group:
                ended = group.create_task(self._fail_if_it_ends())
                await asyncio.wait([group.create_task(self._add(start)) for start in starts])
                ended.cancel()
        except BaseException as error:
            await self.stop()
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise

    async def _add(self, start: Coroutine[None, None, ChildProcess]) -> None:
        self.workers.append(await start)

    async def _fail_if_it_ends(self) -> None:
        await self.process.wait()
        raise self.failure()

    def kill(self) -> None:
        """End it and its workers at once."""
        for child in self.workers:
            child.kill()
        ChildProcess.kill(self)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end, which ends its workers; kill whoever does not."""
        await ChildProcess.stop(self, timeout_s)
        await asyncio.gather(*(child.stop(timeout_s) for child in self.workers))

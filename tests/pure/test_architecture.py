"""The rules of structure, read off the source itself; each is first shown to catch a source that breaks it."""

import ast
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(p.relative_to(ROOT)): p.read_text() for top in ("sim", "loadtest", "bench") for p in (ROOT / top).rglob("*.py")
}
MAX_LINES = 280
BANNED_NAMES = {"utils", "common", "helpers", "misc", "base", "manager"}
SERVERS = ("sim.ctx_server", "sim.gen_server", "sim.orchestrator")
OPEN_TO_LOADTEST = ("sim.core", "sim.service.proc", "sim.service.health", "sim.service.metrics")
IMPURE = ("asyncio", "aiohttp", "uvloop", "socket", "time", "logging", "os", "prometheus_client")
# What a part may not import, be it by way of other modules of ours; the longest name that fits a module counts.
BANNED_IMPORTS = {
    "sim.core": (*IMPURE, "sim.service", *SERVERS, "loadtest"),
    "sim.service": (*SERVERS, "loadtest"),
    **{server: (*(other for other in SERVERS if other != server), "loadtest") for server in SERVERS},
    "loadtest": ("asyncio", "aiohttp", "uvloop", "loadtest.experiment"),
    "loadtest.experiment": ("locust", "gevent", "geventhttpclient"),
    "bench": (*SERVERS, "sim.service", "locust", "gevent", "geventhttpclient"),
    "bench.candidates": SERVERS,  # programs written for the bench among them, each a process of its own
}
BY_THEIR_NAME = {"bench.candidates"}  # packages whose functions are called by the package's name
WANT_A_REGISTRY = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum", "generate_latest", "make_wsgi_app"}
RANDOM, REGISTRY = "uses the global random generator", "uses prometheus_client's default registry"


def within(name, *parts):
    return any(f"{name}.".startswith(f"{part}.") for part in parts)


def imports_of(nodes, package):
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = "." * getattr(node, "level", 0) + (getattr(node, "module", "") or "")
            yield from (f"{resolve_name(origin, package)}.{alias.name}".lstrip(".") for alias in node.names)


def reach_of(module, imports, seen):
    for name in imports[module] - seen:
        seen.add(name)
        for target in {name, name.rpartition(".")[0]} & imports.keys():
            reach_of(target, imports, seen)
    return seen


def problems(sources):
    """One line for each breach in ``sources`` (path: text)."""
    trees = {path.removesuffix(".py").replace("/", "."): (path, ast.parse(text)) for path, text in sources.items()}
    imports = {name: set(imports_of(ast.walk(tree), name.rpartition(".")[0])) for name, (_, tree) in trees.items()}
    for module, (path, tree) in trees.items():
        part = max((part for part in BANNED_IMPORTS if within(module, part)), key=len, default="")
        reach = reach_of(module, imports, set())
        banned = [ban for ban in BANNED_IMPORTS.get(part, ()) if any(within(name, ban) for name in reach)]
        if within(module, "loadtest"):
            banned += [name for name in imports[module] if within(name, "sim") and not within(name, *OPEN_TO_LOADTEST)]
        nodes = list(ast.walk(tree))
        names = imports[module] | {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))}
        lasts = {name.rpartition(".")[2] for name in names if within(name, "prometheus_client")} & WANT_A_REGISTRY
        calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).rpartition(".")[2] in lasts]
        bare = any("registry" not in ast.unparse(call) for call in calls)
        found = {
            **{f"imports {name}": True for name in banned},
            RANDOM: part == "sim.core" and {n for n in names if n.rpartition(".")[0] == "random"} - {"random.Random"},
            REGISTRY: bare or any(name.rpartition(".")[2] == "REGISTRY" for name in names),
            "is more than a docstring": "__init__" in path
            and module.removesuffix(".__init__") not in BY_THEIR_NAME
            and not (len(tree.body) == 1 and ast.get_docstring(tree)),
            "has a name that says nothing": BANNED_NAMES & set(module.split(".")),
            f"has more than {MAX_LINES} lines": sources[path].count("\n") > MAX_LINES,
        }
        yield from (f"{path}: {problem}" for problem, is_so in found.items() if is_so)


CASES = [
    *(("sim/core/a.py", f"def f():\n    from {name} import x", f"imports {name}") for name in IMPURE),
    ("sim/core/a.py", "from ..service import proc", "imports sim.service"),
    *(("sim/core/a.py", source, RANDOM) for source in ("import random\nrandom.random()", "from random import gauss")),
    *(("sim/gen_server/a.py", f"from {name} import x", f"imports {name}") for name in BANNED_IMPORTS["sim.gen_server"]),
    *(("loadtest/a.py", f"import {name}.x", f"imports {name}") for name in BANNED_IMPORTS["loadtest"]),
    *(("loadtest/experiment/a.py", f"import {n}", f"imports {n}") for n in ("locust", "sim.gen_server", "sim.service")),
    *(("bench/a.py", f"import {n}", f"imports {n}") for n in ("locust", "sim.gen_server", "sim.service")),
    *(("sim/service/a.py", f"from prometheus_client import {x}", REGISTRY) for x in ("REGISTRY", "Gauge\nGauge('a')")),
    ("sim/core/__init__.py", '"""Doc."""\nx = 1', "is more than a docstring"),
    *((f"loadtest/{name}.py", "", "has a name that says nothing") for name in sorted(BANNED_NAMES)),
    ("sim/core/a.py", "\n" * (MAX_LINES + 1), f"has more than {MAX_LINES} lines"),
    ("sim/core/a.py", "import random\nrandom.Random(1).gauss(0, 1)\nfrom collections import Counter\nCounter()", None),
    ("loadtest/a.py", "import sim.service.health\nfrom prometheus_client import Gauge\nGauge('a', registry=r)", None),
]


@pytest.mark.parametrize(("path", "source", "problem"), CASES, ids=[f"{p}: {what}" for p, _, what in CASES])
def test_a_rule_catches_what_breaks_it_and_nothing_else(path, source, problem):
    assert list(problems({path: source})) == ([f"{path}: {problem}"] if problem else [])


def test_an_import_by_way_of_another_module_is_caught():
    sources = {"loadtest/a.py": "from loadtest.b import f", "loadtest/b.py": "import asyncio"}
    assert list(problems(sources)) == [f"{path}: imports asyncio" for path in sources]


def test_every_source_keeps_the_rules():
    assert list(problems(SOURCES)) == []

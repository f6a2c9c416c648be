"""Scenarios: TOML files that say what the servers are like and what load they get.

Five tables: ``[scenario]`` (name, description), ``[ctx]``, ``[gen]``, ``[orchestrator]``, ``[load]``; a key that is
not there has its default.  A file is checked whole, with the overrides applied, and every fault is told at once, with
file, line, table, key and what is allowed.  Starting servers and sending load are not here.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.load_files import lengths_of, trace_of
from loadtest.load_settings import LoadSettings
from loadtest.toml_lines import error_line, key_lines
from sim.core.settings import CtxSettings, GenSettings, OrchestratorSettings, SettingError, from_mapping

__all__ = ["TABLES", "Scenario", "load_scenario", "scenario_names"]

TABLES: Mapping[str, type] = {
    "ctx": CtxSettings,
    "gen": GenSettings,
    "orchestrator": OrchestratorSettings,
    "load": LoadSettings,
}
_FOLDER = Path(__file__).parent / "scenarios"
_HEADER = ("name", "description")
_OVERRIDE = "--set"
_FILES = ("trace", "lengths_file")
"""Keys of the load that name a file, from the scenario file's folder on."""
_RIVALS = {("gen", "itl_ms"): "tok_s", ("gen", "tok_s"): "itl_ms"}
"""Two ways to say one thing: an override of the one takes the place of the file's other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A checked scenario."""

    name: str
    description: str
    ctx: CtxSettings
    gen: GenSettings
    orchestrator: OrchestratorSettings
    load: LoadSettings

    def tables(self) -> dict[str, Any]:
        """Table name -> settings, in the file's order."""
        return {table: getattr(self, table) for table in TABLES}


def scenario_names() -> list[str]:
    """Names of the scenarios that come with the project."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_scenario(name: str, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario of that name, or in that TOML file, with ``key=value`` overrides applied.

    A key may be bare (``streams=50``) when one table alone has it, else ``table.key``.  A relative ``trace`` or
    ``lengths_file`` in a file counts from the file's folder, in an override from the working directory.
    SettingError tells every fault, one a line.
    """
    path = _path_of(name)
    values, origin, faults = _read(path)
    for override in overrides:
        try:
            table, key, value = _split(override)
        except SettingError as error:
            faults.append(str(error))
            continue
        keys = values.setdefault(table, {})
        keys[key] = value
        origin.override(table, key)
        rival = _RIVALS.get((table, key))
        if rival in keys and origin.where(table, rival) != _OVERRIDE:
            del keys[rival]
    settings: dict[str, Any] = {}
    for table, cls in TABLES.items():
        found = _check_table(table, cls, values.get(table, {}), origin)
        if isinstance(found, list):
            faults += found
        else:
            settings[table] = found
    if faults:
        raise SettingError("\n".join(faults))
    header = values.get("scenario", {})
    return Scenario(name=header.get("name", path.stem), description=header.get("description", ""), **settings)


def _path_of(name: str) -> Path:
    if name in scenario_names():
        return _FOLDER / f"{name}.toml"
    path = Path(name)
    if path.suffix != ".toml" and not path.is_file():
        raise SettingError(f"unknown scenario {name!r}; there are {', '.join(scenario_names())}, or give a .toml file")
    return path


class _Origin:
    """Where each key of a scenario comes from: a line of the file, or an override."""

    def __init__(self, path: Path, lines: Mapping[tuple[str, ...], int]) -> None:
        self._path = path
        self._lines = lines
        self._overridden: set[tuple[str, str]] = set()

    def override(self, table: str, key: str) -> None:
        """The key's value is an override's from here on."""
        self._overridden.add((table, key))

    def where(self, table: str, key: str = "") -> str:
        """What a fault of that key begins with; of one that is given nowhere, its table's place."""
        if (table, key) in self._overridden:
            return _OVERRIDE
        line = self._lines.get((table, key)) or self._lines.get((table,))
        return str(self._path) if line is None else f"{self._path}:{line}"


def _read(path: Path) -> tuple[dict[str, dict[str, Any]], _Origin, list[str]]:
    """Tables of the file, where they are, and what is wrong with their outline.  SettingError if it is no TOML."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{path}: cannot read: {error.strerror}") from None
    try:
        text = raw.decode()
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}:{error_line(error, raw)}: not TOML: {error}") from None
    origin = _Origin(path, key_lines(text))
    tables: dict[str, dict[str, Any]] = {}
    faults = []
    allowed = ("scenario", *TABLES)
    for name, table in content.items():
        if name not in allowed:
            faults.append(f"{origin.where(name)}: [{name}]: unknown table; known: {', '.join(allowed)}")
        elif not isinstance(table, dict):
            faults.append(f"{origin.where(name)}: {name}: {table!r} is not a table")
        else:
            tables[name] = table
    for key, value in tables.get("scenario", {}).items():
        where = origin.where("scenario", key)
        if key not in _HEADER:
            faults.append(f"{where}: scenario.{key}: unknown key; known: {', '.join(_HEADER)}")
        elif not isinstance(value, str):
            faults.append(f"{where}: scenario.{key}: {value!r} is not a string")
    for key in _FILES:
        file = tables.get("load", {}).get(key)
        if isinstance(file, str) and file:
            tables["load"][key] = str(path.parent / file)
    return tables, origin, faults


def _split(override: str) -> tuple[str, str, str]:
    """Table, key and value of one ``--set``."""
    name, equals, value = override.partition("=")
    name = name.strip()
    if not equals or not name:
        raise SettingError(f"--set {override!r}: not of the form key=value")
    table, dot, key = name.partition(".")
    if dot:
        if table not in TABLES:
            raise SettingError(f"--set {name}: unknown table {table!r}; known: {', '.join(TABLES)}")
        return table, key, value.strip()
    tables = [table for table, cls in TABLES.items() if name in _keys(cls)]
    if not tables:
        known = sorted({key for cls in TABLES.values() for key in _keys(cls)})
        raise SettingError(f"--set {name}: unknown key; known: {', '.join(known)}")
    if len(tables) > 1:
        choices = " or ".join(f"{table}.{name}" for table in tables)
        raise SettingError(f"--set {name}: more than one table has it; say {choices}")
    return tables[0], name, value.strip()


def _check_table(table: str, cls: type, values: Mapping[str, Any], origin: _Origin) -> Any:
    """The settings, or the list of their faults: each key on its own, then all together, then the trace's rows."""
    faults = []
    for key, value in values.items():
        where = origin.where(table, key)
        if key not in _keys(cls):
            faults.append(f"{where}: {table}.{key}: unknown key; known: {', '.join(_keys(cls))}")
            continue
        try:
            _check_key(table, cls, key, value)
        except SettingError as error:
            faults.append(f"{where}: {error}")
    if faults:
        return faults
    try:
        settings: Any = from_mapping(cls, values, table)
    except SettingError as error:
        # One a line, each beginning with "table.key:".
        return [f"{origin.where(*fault.partition(':')[0].split('.', 1))}: {fault}" for fault in str(error).split("\n")]
    if isinstance(settings, LoadSettings):
        key, read = ("trace", trace_of) if settings.trace else ("lengths_file", lengths_of)
        try:
            read(settings)
        except SettingError as error:
            return [f"{origin.where(table, key)}: load.{key}: {error}"]
    return settings


def _check_key(table: str, cls: type, key: str, value: object) -> None:
    """Check one value without the rules that hold between keys.  SettingError."""
    declared = next(field for field in dataclasses.fields(cls) if field.name == key)
    field = dataclasses.field(default=declared.default, metadata=declared.metadata)
    alone = dataclasses.make_dataclass(cls.__name__, [(key, typing.get_type_hints(cls)[key], field)])
    from_mapping(alone, {key: value}, table)


def _keys(cls: type) -> list[str]:
    return sorted(field.name for field in dataclasses.fields(cls))

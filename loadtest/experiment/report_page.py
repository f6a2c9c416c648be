"""What every report page is made of besides its words: templates, figures as data, style and scripts inside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from loadtest.experiment.figures import Figure
from loadtest.experiment.number_formats import FILTERS

__all__ = ["REPORT_NAME", "page_parts", "plain", "template"]

REPORT_NAME = "report.html"
_HERE = Path(__file__).parent


def template(name: str) -> jinja2.Template:
    """One of this folder's templates, with the number formats as filters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters.update(FILTERS)
    return environment.get_template(name)


def page_parts(drawn: Mapping[str, Figure | None]) -> dict[str, Any]:
    """What every page is made of besides its words: the figures that there are, style, scripts."""
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    return {
        "figures": figures,
        "figures_json": _embedded(figures),
        "css": (_HERE / "report.css").read_text(),
        "script": (_HERE / "report.js").read_text(),
        "plotly": (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"),
    }


def plain(value: Any) -> str:
    """A value of a manifest in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(plain(item) for item in value) or "none"
    return "-" if value in (None, "") else str(value)


def _embedded(figures: Mapping[str, Figure]) -> str:
    """JSON that can stand inside a script element whatever a name holds; numbers need no more than 6 digits."""
    return json.dumps(_rounded(figures), separators=(",", ":")).replace("<", "\\u003c")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value

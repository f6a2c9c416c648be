"""docs/latency-model.md against the settings it describes, and its arithmetic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.core.settings import CtxSettings, GenSettings, describe

PAGE = (Path(__file__).parents[2] / "docs" / "latency-model.md").read_text()
SHAPE_ONLY = {
    "dialect", "usage", "usage_key", "finish", "chunk_bytes", "events_per_write", "split_at", "glue_done", "newline",
    "extras", "apply_ctx_usage", "stamp_sent",
}  # fmt: skip


@pytest.mark.parametrize(("section", "settings"), [("Context server", CtxSettings), ("Generation server", GenSettings)])
def test_every_setting_that_moves_time_is_listed_with_its_default(section, settings):
    text = PAGE.split(f"\n### {section}\n", 1)[1].split("\n### ", 1)[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))

    assert rows == {row.name: str(row.default) for row in describe(settings) if row.name not in SHAPE_ONLY}


def test_the_defaults_are_the_arithmetic_that_the_page_gives():
    gen = GenSettings()

    assert 2 * 32 * 8 * 128 * 2 == 131_072
    assert gen.kv_kb_per_token == pytest.approx(131_072 / 1e3, rel=0.03)
    assert gen.transfer_gb_per_s == 400 / 8
    assert 1_000 / gen.itl_s == pytest.approx(15_400, rel=0.002)

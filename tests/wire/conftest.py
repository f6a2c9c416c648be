"""What wire tests share: the relay engines, under each of which the relay's tests run."""

from __future__ import annotations

import pytest

from tests.wire import scripted


@pytest.fixture(params=["splice", "stream"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of every orchestrator that the test starts."""
    monkeypatch.setattr(scripted, "ENGINE", request.param)
    return request.param

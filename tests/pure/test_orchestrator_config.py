"""The orchestrator's command line: what it makes of one, and how it refuses what it cannot use."""

import pytest

from sim.orchestrator.config import parse_arguments
from sim.orchestrator.policies import BUILTIN

SERVERS = ["--ctx", "http://127.0.0.1:1", "--gen", "unix:/run/gen.sock"]


def test_servers_policies_and_settings_are_read():
    options = parse_arguments(
        [*SERVERS, "--ctx", "http://h:2/base", "--policies", "filter-off, prefilter-find", "--policy", "filter-on",
         "--usage-by", "gen", "--routing", "least_outstanding", "--listen", "127.0.0.1:9", "--retries", "0"]
    )  # fmt: skip
    assert options.ctx == ("http://127.0.0.1:1", "http://h:2/base")
    assert options.gen == ("unix:/run/gen.sock",)
    assert options.arms.names == ("parse", "prefilter-find", "prefilter")
    assert options.arms.policy == "prefilter"
    assert options.arms.usage_by_gen is True
    assert (options.settings.routing, options.settings.retries) == ("least_outstanding", 0)
    assert options.process.listen.port == 9


def test_all_built_in_policies_are_there_by_default():
    options = parse_arguments(SERVERS)
    assert options.arms.names == tuple(BUILTIN)
    assert options.arms.policy == "prefilter"
    assert options.process.listen.host == options.process.ops.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gen", "http://h:1"], "--ctx: give at least one ctx server"),
        (["--ctx", "http://h:1"], "--gen: give at least one gen server"),
        (["--ctx", "h:1", "--gen", "http://h:1"], "--ctx: 'h:1' is not http://HOST:PORT"),
        (["--ctx", "http://h:1", "--gen", "unix:"], "--gen: 'unix:' has no path"),
        (["--ctx", "http://h:1", "--gen", "http://h:x"], "--gen: 'http://h:x' is not a URL"),
        ([*SERVERS, *SERVERS], "--ctx: 'http://127.0.0.1:1' is given more than once"),
        ([*SERVERS, "--policy", "nope"], "unknown policy 'nope'; built-in: parse, prefilter,"),
        ([*SERVERS, "--policies", "parse,nope"], "unknown policy 'nope'; built-in: parse, prefilter,"),
        ([*SERVERS, "--policies", "no.such:thing"], "'no.such:thing' cannot be loaded: ModuleNotFoundError"),
        ([*SERVERS, "--policy", "verbatim"], "policy 'verbatim' needs usage_by=gen"),
        ([*SERVERS, "--engine", "warp"], "--engine: 'warp' is not one of splice, stream"),
        ([*SERVERS, "--retries", "-1"], "--retries: -1 is out of range"),
        ([*SERVERS, "--nope"], "unrecognized arguments: --nope"),
    ],
)
def test_a_bad_command_line_exits_with_status_2_and_names_what_is_allowed(arguments, message, capsys):
    with pytest.raises(SystemExit) as exited:
        parse_arguments(arguments)
    assert exited.value.code == 2
    assert message in capsys.readouterr().err


def test_verbatim_may_be_active_when_gen_does_the_usage():
    assert parse_arguments([*SERVERS, "--policy", "verbatim", "--usage-by", "gen"]).arms.policy == "verbatim"


def test_a_plugin_whose_module_exits_is_a_bad_command_line_and_not_the_end_it_asked_for(tmp_path, monkeypatch, capsys):
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit) as exited:
        parse_arguments([*SERVERS, "--policies", "parse,module_that_exits:policy"])
    assert exited.value.code == 2
    assert "'module_that_exits:policy' cannot be loaded: SystemExit: 0" in capsys.readouterr().err

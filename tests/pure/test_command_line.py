"""The servers' command lines: every setting is a flag, and a bad one says which, its value and what is allowed."""

from __future__ import annotations

import dataclasses

import pytest

from sim.core.settings import CtxSettings, GenSettings
from sim.ctx_server import config as ctx_config
from sim.gen_server import config as gen_config
from sim.service.config import Address, ProcessOptions

SERVERS = [
    pytest.param(ctx_config.read_command_line, CtxSettings, id="ctx"),
    pytest.param(gen_config.read_command_line, GenSettings, id="gen"),
]


@pytest.mark.parametrize(("read", "settings"), SERVERS)
def test_no_flag_means_the_defaults(read, settings):
    assert read([]) == (ProcessOptions(), settings())


@pytest.mark.parametrize(("read", "settings"), SERVERS)
def test_every_setting_has_a_flag(read, settings, capsys):
    with pytest.raises(SystemExit) as end:
        read(["--help"])

    text = capsys.readouterr().out
    assert end.value.code == 0
    for field in dataclasses.fields(settings):
        assert f"--{field.name.replace('_', '-')} " in text


def test_flags_are_read():
    process, settings = gen_config.read_command_line(
        [
            *("--listen", "0.0.0.0:8001", "--ops", "[::1]:9", "--log-level", "debug", "--tick-ms", "1000"),
            *("--tok-s", "15", "--glue-done", "no", "--reuse-port"),
        ]
    )

    assert process == ProcessOptions(
        Address("0.0.0.0", 8001), Address("::1", 9), "debug", 1_000_000_000, reuse_port=True
    )
    assert settings == GenSettings(tok_s=15, glue_done=False)
    assert process.ops.url == "http://[::1]:9"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--usage", "maybe"], "--usage: 'maybe' is not one of absent, null, final, continuous"),
        (["--slots", "0"], "--slots: 0 is out of range; allowed: 1 to 1000000"),
        (["--slots", "many"], "--slots: 'many' is not a number"),
        (["--glue-done", "perhaps"], "--glue-done: 'perhaps' is not a boolean (true or false)"),
        (["--itl-ms", "5", "--tok-s", "3"], "--itl-ms: 5 and tok_s 3 are both set; give one of the two"),
        (["--listen", "8000"], "--listen: '8000' is not HOST:PORT (port 0 to 65535) or unix:PATH"),
        (["--ops", "localhost:70000"], "--ops: 'localhost:70000' is not HOST:PORT (port 0 to 65535) or unix:PATH"),
        (["--listen", "unix:"], "--listen: 'unix:' has no path; give unix:PATH"),
        (["--log-level", "loud"], "--log-level: 'loud' is not one of debug, info, warning, error"),
        (["--tick-ms", "0"], "--tick-ms: '0' is not a whole number from 1 to 60000"),
        (
            ["--listen", "unix:/a", "--reuse-port"],
            "--reuse-port: a Unix socket has one listener; give --listen HOST:PORT",
        ),
        (["--tok", "15"], "unrecognized arguments: --tok 15"),
    ],
)
def test_a_bad_flag_ends_with_status_2_and_says_why(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        gen_config.read_command_line(arguments)

    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(f"python -m sim.gen_server: error: {message}\n")


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80), "http://127.0.0.1:80"),
        ("[::1]:80", Address("::1", 80), "http://[::1]:80"),
        ("unix:/run/gen.sock", Address(path="/run/gen.sock"), "unix:/run/gen.sock"),
    ],
)
def test_addresses_are_read_and_written(text, address, url):
    assert Address.parse(text) == address
    assert (str(address), address.url) == (text, url)

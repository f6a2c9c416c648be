"""The relays beside ours: nginx, two Rust routers, two relays in ordinary asyncio style; one hop, to gen, each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.candidate import Addresses, Candidate, Load
from bench.candidates.environment import PROGRAMS, Environment, with_all_fds

__all__ = ["RELAYS"]

_FASTAPI, _SGLANG, _VLLM = Environment("fastapi"), Environment("sglang"), Environment("vllm")

# `proxy_buffering off` makes nginx pass on each read at once.  No master: one process to start, measure and end.
# Requests per connection are unlimited in effect: the default 1,000 would show as reconnects under short requests.
_NGINX_CONF = """\
{user}daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    server_tokens off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 100000000;
    upstream gen {{
        server {gen} max_fails=0;
        keepalive 4096;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        client_max_body_size 64m;
        client_body_buffer_size 1m;
        location / {{
            proxy_pass http://gen;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"""


def _nginx_path() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin")


def _nginx_missing() -> str | None:
    return None if _nginx_path() else "no nginx: `apt-get install nginx-light` (or your system's nginx)"


def _nginx_version() -> str:
    path = _nginx_path()
    if path is None:
        return "not installed"
    told = subprocess.run([path, "-v"], capture_output=True, text=True, timeout=10, check=False).stderr  # noqa: S603
    found = re.search(r"nginx/(\S+)", told)
    return found[1] if found else told.strip()


def _nginx_argv(addresses: Addresses, directory: Path, _load: Load | None) -> Sequence[str]:
    config = directory / "nginx.conf"
    user = "user root root;\n" if os.geteuid() == 0 else ""  # else it could not write into a directory of root's
    gen = addresses.gen_url.removeprefix("http://")
    config.write_text(_NGINX_CONF.format(user=user, gen=gen, port=addresses.port))
    return with_all_fds(
        _nginx_path() or "nginx", "-p", str(directory.resolve()), "-e", "stderr", "-c", str(config.resolve())
    )


def _router(environment: Environment, module: str, *flags: str) -> Callable[..., Sequence[str]]:
    """A router with one worker, without what would speak to gen beside the requests: health checks, retries.

    Round robin, since the cache-aware default keeps a tree of all prompts, which is not what is compared.
    """

    def argv(addresses: Addresses, _directory: Path, _load: Load | None) -> Sequence[str]:
        return with_all_fds(
            *(environment.python, "-m", module, "--host", "127.0.0.1", "--port", str(addresses.port)),
            *("--worker-urls", addresses.gen_url, "--policy", "round_robin"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(addresses.second_port)),
            *("--worker-startup-check-interval", "1", "--disable-retries", "--disable-circuit-breaker"),
            *flags,
        )

    return argv


def _fastapi(program: str) -> Callable[..., Sequence[str]]:
    def argv(addresses: Addresses, _directory: Path, _load: Load | None) -> Sequence[str]:
        script = str(PROGRAMS / program)
        return with_all_fds(_FASTAPI.python, script, "--port", str(addresses.port), "--gen-url", addresses.gen_url)

    return argv


def _fastapi_version() -> str:
    return ", ".join(f"{name} {_FASTAPI.version_of(name)()}" for name in ("fastapi", "uvicorn", "aiohttp", "httpx"))


RELAYS = (
    Candidate("nginx", "relay", _nginx_version, _nginx_missing, _nginx_argv),
    # Asks gen for /server_info, /get_server_info, /model_info and /get_model_info and goes on without them; speaks
    # HTTP/2 to it once to see whether it is gRPC, which our gen logs as a malformed request.
    # /health answers before the worker is known: a request would get 503.
    Candidate(
        "sglang-router",
        "relay",
        _SGLANG.version_of("sglang-router"),
        _SGLANG.missing,
        _router(
            _SGLANG,
            "sglang_router.launch_router",
            *("--log-level", "warn", "--disable-health-check", "--shutdown-grace-period-secs", "1"),
        ),
        ready_path="/readiness",
    ),
    # Has no switch for health checks: one in an hour is none.
    Candidate(
        "vllm-router",
        "relay",
        _VLLM.version_of("vllm-router"),
        _VLLM.missing,
        _router(
            _VLLM,
            "vllm_router.launch_router",
            *("--log-level", "warning", "--health-check-interval-secs", "3600"),
        ),
        ready_path="/readiness",
    ),
    Candidate("fastapi-trtllm-shape", "relay", _fastapi_version, _FASTAPI.missing, _fastapi("relay_trtllm_shape.py")),
    Candidate("fastapi-httpx", "relay", _fastapi_version, _FASTAPI.missing, _fastapi("relay_httpx.py")),
)

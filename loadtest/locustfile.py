"""What Locust loads: the command line, the operations port, signals, and the end of a run.

By our commands::

    locust -f loadtest/locustfile.py --headless -u 1 -r 1 --host URL --plan FILE

The plan says everything; results go where it says, and the exit code is 0 when they were written, whatever became
of the streams: judging them is the reader's business.

By hand, with the web UI or with ``--headless -u 2 -r 1 -t 10s``::

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 [--scenario NAME|FILE] [--set key=value]...

Then only the scenario's load is used (default: smoke).  Nothing is known of the servers, so usage is noted and not
judged, no bytes are compared, and no files are written; Locust's own tables, CSV and exit code are as ever.  A reply
with fewer tokens than asked has failed then, one that a gen server was told to drain included.

In Locust's tables a reply has up to four rows: E2E (type POST), TTFT and TTFT from sent (type TTFT), ITL (stream mean)
(type ITL).  Only E2E is a request, with its failure and bytes; Locust's row Aggregated sums all four.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gevent
from gevent.pywsgi import WSGIServer
from locust import events
from locust.exception import StopTest
from locust.runners import LocalRunner, MasterRunner
from prometheus_client import CollectorRegistry
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from loadtest import client_ops, socket_limits
from loadtest.client_metrics import LoadCollector
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from loadtest.scenario import load_scenario
from loadtest.session import LoadSession
from loadtest.settler import Told
from loadtest.ticker import start_loop_health
from loadtest.users import StreamUser
from sim.core.settings import SettingError
from sim.service.metrics import LoopHealthCollector

__all__ = ["StreamUser"]

DEFAULT_SCENARIO = "smoke"


class StreamFailedError(Exception):
    """What a failed stream shows as in Locust's tables: its outcome word."""


def _add_arguments(parser: Any) -> None:
    hidden = {"include_in_web_ui": False}
    parser.add_argument("--plan", metavar="FILE", default=None, help="run this load plan (JSON)", **hidden)
    parser.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        default=DEFAULT_SCENARIO,
        help=f"without a plan: the scenario whose load to send (default {DEFAULT_SCENARIO})",
        **hidden,
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="overrides",
        action="append",
        default=[],
        help="without a plan: override a key of the scenario, such as streams=50 or load.seed=2",
        **hidden,
    )


def _init(environment: Any, runner: Any, web_ui: Any, **_: Any) -> None:
    """Make the session, unless this process only directs others.  Exits with code 2 on bad input."""
    options = environment.parsed_options
    if options.plan and not isinstance(runner, LocalRunner):
        _exit_usage("--plan: a plan is run by one process; drop --master, --worker and --processes")
    if isinstance(runner, MasterRunner):
        return
    try:
        plan = _plan_of(options, environment.host)
        _check_limits(plan.settings, 1 if options.plan else options.num_users or 1)
        environment.host = plan.host
        health, stop_health = start_loop_health()
        session = LoadSession(plan, health, _teller(environment))
    except SettingError as error:
        _exit_usage(str(error))
    StreamUser.session = session
    registry = CollectorRegistry()
    registry.register(LoopHealthCollector(health))
    registry.register(LoadCollector(session.recorder, session.live_readers))
    app = client_ops.ops_app(registry, health, session.recorder, session.live_readers)
    if web_ui is not None:
        web_ui.app.wsgi_app = DispatcherMiddleware(web_ui.app.wsgi_app, dict.fromkeys(client_ops.ROUTES, app))
    ops_url = None if plan.ops is None else _serve(app, plan.ops)
    environment.events.test_start.add_listener(_Starter(session))
    environment.events.quitting.add_listener(_Closer(session, stop_health, judged_elsewhere=plan.out is not None))
    if options.headless and isinstance(runner, LocalRunner):
        gevent.signal_handler(signal.SIGINT, _Interrupt(runner))
    if options.plan:
        print(json.dumps({"ready": True, "server": "load", "ops": ops_url, "pid": os.getpid()}), flush=True)


def _plan_of(options: argparse.Namespace, host: str | None) -> LoadPlan:
    if options.plan:
        return LoadPlan.read(Path(options.plan))
    if not host:
        raise SettingError("--host: say where to send the load, such as --host http://127.0.0.1:8000")
    scenario = load_scenario(options.scenario, options.overrides)
    return LoadPlan(host=host, settings=scenario.load, usage_by_ctx=False)


def _check_limits(settings: LoadSettings, users: int) -> None:
    """Refuse a load that cannot fit, as far as it is known how many streams there are at once."""
    streams = settings.streams_at_once * users
    descriptors = socket_limits.raise_descriptor_limit(streams + socket_limits.SPARE_DESCRIPTORS)
    reason = socket_limits.shortfall(streams, descriptors, socket_limits.local_ports())
    if reason is not None:
        raise SettingError(f"streams: {reason}")


def _teller(environment: Any) -> Callable[[Told], None]:
    """Puts figures into Locust's tables; a failed stream once, in its E2E row, the only one of type POST."""

    def tell(told: Told) -> None:
        environment.events.request.fire(
            request_type=told.kind,
            name=told.name,
            response_time=told.seconds * 1e3,
            response_length=told.response_bytes,
            exception=None if told.failure is None else StreamFailedError(told.failure),
            context={},
        )

    return tell


def _serve(app: client_ops.WsgiApp, address: str) -> str:
    host, _, port = address.rpartition(":")
    server = WSGIServer((host.strip("[]"), int(port)), app, log=None)
    try:
        server.start()
    except OSError as error:
        _exit_usage(f"cannot listen on {address}: {os.strerror(error.errno or 0).lower()}")
    return f"http://{host}:{server.server_port}"


class _Starter:
    """At a test's start: the session begins anew, with the host that the web UI's form may have changed."""

    def __init__(self, session: LoadSession) -> None:
        self._session = session

    def __call__(self, environment: Any, **_: Any) -> None:
        StreamUser.over = 0
        try:
            self._session.begin(environment.host)
        except SettingError as error:
            raise StopTest(str(error)) from None


class _Interrupt:
    """Ctrl-C of a headless run: stop the test, once; Locust then fires ``quitting`` and exits in order.

    Python's own KeyboardInterrupt could strike inside a read and lose what it brought.
    """

    def __init__(self, runner: LocalRunner) -> None:
        self._runner = runner
        self._struck = False

    def __call__(self) -> None:
        if not self._struck:
            self._struck = True
            self._runner.quit()


class _Closer:
    """At Locust's end: write the results, and set the exit code if the results are judged elsewhere."""

    def __init__(self, session: LoadSession, stop_health: Callable[[], None], *, judged_elsewhere: bool) -> None:
        self._session = session
        self._stop_health = stop_health
        self._judged_elsewhere = judged_elsewhere

    def __call__(self, environment: Any, **_: Any) -> None:
        if self._session.closed:
            return
        # From here on a signal would only lose what is being written.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._session.close()
        except OSError as error:
            print(f"locust: cannot write the results: {error}", file=sys.stderr)
            environment.process_exit_code = 1
            return
        finally:
            self._stop_health()
        if self._judged_elsewhere:
            environment.process_exit_code = 0


def _exit_usage(message: str) -> NoReturn:
    print(f"locust: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


events.init_command_line_parser.add_listener(_add_arguments)
events.init.add_listener(_init)

"""What Locust loads: the command line, the operations port, signals, and the end of a run.

By our commands::

    locust -f loadtest/locustfile.py --headless -u 1 -r 1 --host URL --plan FILE

The plan says everything; results go where it says, and the exit code is 0 when they were written, whatever became
of the streams: judging them is the reader's business.

By hand, with the web UI or with ``--headless -u 2 -r 1 -t 10s``::

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 [--scenario NAME|FILE] [--set key=value]...

or with several processes, where the master alone knows the load and every worker sends its share of each copy::

    locust -f loadtest/locustfile.py --host URL --processes 4 ...
    locust -f loadtest/locustfile.py --host URL --master ...
    locust -f loadtest/locustfile.py --worker --master-host HOST [--ops HOST:PORT]

Then only the scenario's load is used (default: smoke).  Nothing is known of the servers, so usage is noted and not
judged, no bytes are compared, and no files are written; Locust's own tables, CSV and exit code are as ever.  A reply
with fewer tokens than asked has failed then, one that a gen server was told to drain included.

In Locust's tables a reply has up to four rows: E2E (type POST), TTFT and TTFT from sent (type TTFT), ITL (stream mean)
(type ITL).  Only E2E is a request, with its failure and bytes; Locust's row Aggregated sums all four.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import gevent
from gevent.pywsgi import WSGIServer
from locust import events
from locust.runners import MasterRunner, Runner, WorkerRunner
from prometheus_client import CollectorRegistry
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from loadtest import client_ops
from loadtest.client_metrics import LoadCollector
from loadtest.copy_dispatch import CopyDispatcher, keep_missing_workers
from loadtest.load_arguments import add_arguments, check_limits, ops_address, plan_of
from loadtest.load_files import notes_of
from loadtest.load_view import LoadView
from loadtest.local_load import LocalLoad
from loadtest.master_load import MasterLoad
from loadtest.plan import LoadPlan
from loadtest.session import LoadSession
from loadtest.settler import Told
from loadtest.ticker import start_loop_health
from loadtest.users import StreamUser
from loadtest.worker_load import WorkerLoad
from sim.core.settings import SettingError
from sim.service.health import LoopHealth
from sim.service.metrics import LoopHealthCollector

__all__ = ["StreamUser"]


class StreamFailedError(Exception):
    """What a failed stream shows as in Locust's tables: its outcome word."""


def _init(environment: Any, runner: Any, web_ui: Any, **_: Any) -> None:
    """Make the load of this process, and its operations port.  Exits with code 2 on bad input."""
    options = environment.parsed_options
    try:
        health, stop_health = start_loop_health()
        plan = None if isinstance(runner, WorkerRunner) else plan_of(options, environment.host)
        address = ops_address(options, plan)
        load = _load(environment, runner, plan, health)
        if plan is not None and not options.plan:  # a plan's maker has told them
            for note in notes_of(plan.settings):
                print(f"locust: {note}", file=sys.stderr, flush=True)
    except SettingError as error:
        _exit_usage(str(error))
    registry = CollectorRegistry()
    registry.register(LoopHealthCollector(health))
    registry.register(LoadCollector(load.view))
    app = client_ops.ops_app(registry, health, load.view)
    if web_ui is not None:
        web_ui.app.wsgi_app = DispatcherMiddleware(web_ui.app.wsgi_app, dict.fromkeys(client_ops.ROUTES, app))
    ops_url = None if address is None else _serve(app, address)
    judged_elsewhere = plan is None or plan.out is not None
    environment.events.quitting.add_listener(_Closer(load.close, stop_health, judged_elsewhere=judged_elsewhere))
    if options.headless or isinstance(runner, WorkerRunner):
        gevent.signal_handler(signal.SIGINT, _Interrupt(runner))
    if isinstance(load.view, WorkerLoad):
        load.view.ops = ops_url
        load.view.report()
    if options.plan or address is not None:
        ready = {"ready": True, "server": "load", "ops": ops_url, "pid": os.getpid()}
        # In one write: forked workers share this output, and an unbuffered print would end its line in a second one.
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Made:
    """What its operations port shows, and how it ends."""

    view: LoadView
    close: Callable[[], None]


def _load(environment: Any, runner: Any, plan: LoadPlan | None, health: LoopHealth) -> _Made:
    options = environment.parsed_options
    if plan is None:
        worker = WorkerLoad(environment, runner, health, _teller(environment), options.share)
        StreamUser.load = worker
        return _Made(worker, worker.close)
    environment.host = plan.host
    if isinstance(runner, MasterRunner):
        environment.dispatcher_class = CopyDispatcher
        keep_missing_workers()
        master = MasterLoad(environment, runner, plan, health)
        return _Made(master, master.close)
    check_limits(plan.settings, 1 if options.plan else options.num_users or 1)
    session = LoadSession(plan, health, _teller(environment))
    local = LocalLoad(environment, runner, session)
    StreamUser.load = local
    return _Made(session, local.close)


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


class _Interrupt:
    """Ctrl-C of a headless run or a worker: stop the test, once; Locust then fires ``quitting`` and exits in order.

    Python's own KeyboardInterrupt could strike inside a read and lose what it brought.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._struck = False

    def __call__(self) -> None:
        if not self._struck:
            self._struck = True
            self._runner.quit()


class _Closer:
    """At Locust's end: write the results, and set the exit code if the results are judged elsewhere."""

    def __init__(self, close: Callable[[], None], stop_health: Callable[[], None], *, judged_elsewhere: bool) -> None:
        self._close = close
        self._stop_health = stop_health
        self._judged_elsewhere = judged_elsewhere
        self._closed = False

    def __call__(self, environment: Any, **_: Any) -> None:
        if self._closed:
            return
        self._closed = True
        # From here on a signal would only lose what is being written.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._close()
        except OSError as error:
            print(f"locust: cannot write the results: {error}", file=sys.stderr)
            environment.process_exit_code = 1
            return
        finally:
            self._stop_health()
        if self._judged_elsewhere and environment.process_exit_code is None:
            environment.process_exit_code = 0


def _exit_usage(message: str) -> NoReturn:
    print(f"locust: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


events.init_command_line_parser.add_listener(add_arguments)
events.init.add_listener(_init)

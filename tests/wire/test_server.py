"""What every server does alike: listening, refusing bad input in OpenAI's shape, its operations port, its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket

import pytest
from aiohttp import web

from sim.service.config import Address, ProcessOptions
from sim.service.http_json import json_response, read_json
from sim.service.openai_app import data_app
from sim.service.server import ListenError, Service, started
from tests.wire.fakes import CHAT_PATH, TEXT_PATH, ctx_server, gen_server, on_uvloop
from tests.wire.scripted import until

BOTH = pytest.mark.parametrize("server", [ctx_server, gen_server], ids=["ctx", "gen"])
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        pytest.param(CHAT_PATH, b"{", None, "not JSON", id="bad json"),
        pytest.param(CHAT_PATH, b"", None, "not JSON", id="no body"),
        pytest.param(CHAT_PATH, b'{"model": "\xff"}', None, "not JSON", id="not UTF-8"),
        pytest.param(CHAT_PATH, b"[" * 100_000, None, "not JSON", id="nested without end"),
        pytest.param(CHAT_PATH, [], None, "JSON object", id="no object"),
        pytest.param(CHAT_PATH, {}, "messages", "messages", id="no messages"),
        pytest.param(CHAT_PATH, {"messages": "Hi"}, "messages", "array", id="messages of a wrong type"),
        pytest.param(CHAT_PATH, {**CHAT, "max_tokens": "5"}, "max_tokens", "whole number", id="max_tokens a string"),
        pytest.param(CHAT_PATH, {**CHAT, "max_tokens": 0}, "max_tokens", "from 1 to", id="max_tokens zero"),
        pytest.param(CHAT_PATH, {**CHAT, "stream": "yes"}, "stream", "boolean", id="stream a string"),
        pytest.param(CHAT_PATH, {**CHAT, "model": 5}, "model", "string", id="model a number"),
        pytest.param(CHAT_PATH, {**CHAT, "disagg_sim": {"x": 1}}, "disagg_sim", "unknown", id="unknown script key"),
        pytest.param(TEXT_PATH, {"prompt": {}}, "prompt", "string", id="prompt an object"),
        pytest.param(TEXT_PATH, {"prompt": []}, "prompt", "string", id="prompt empty"),
    ],
)
@BOTH
@on_uvloop
async def test_a_bad_body_is_a_400_that_says_what_is_wrong(server, path, body, param, words):
    async with server() as fake:
        answer = await fake.ask(body, path)

        error = answer.json["error"]
        assert answer.status == 400
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert words in error["message"]
        assert fake.counters["refused"]["bad_request"] == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "message"),
    [
        ("POST", "/nowhere", 404, "unknown_path", "unknown path /nowhere"),
        ("GET", CHAT_PATH, 405, "method_not_allowed", f"GET is not allowed on {CHAT_PATH}; allowed: POST"),
        ("POST", "/v1/models", 405, "method_not_allowed", "POST is not allowed on /v1/models; allowed: GET, HEAD"),
    ],
)
@BOTH
@on_uvloop
async def test_unknown_paths_and_methods_are_told_apart(server, method, path, status, code, message):
    async with server() as fake:
        answer = await fake.ask(None, path, method)

    assert (answer.status, answer.code) == (status, code)
    assert answer.json["error"]["message"] == message
    assert (b"\r\nallow: " in answer.head.lower()) is (status == 405)


@BOTH
@on_uvloop
async def test_health_and_models(server):
    async with server() as fake:
        health = await fake.ask(None, "/health", "GET")
        models = await fake.ask(None, "/v1/models", "GET")
        ops_health = await fake.ops("/health")

    assert (health.status, health.json, ops_health.json) == (200, {"status": "ok"}, {"status": "ok"})
    assert [model["id"] for model in models.json["data"]] == ["sim"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"GARBAGE\r\n\r\n", id="malformed head"),
        pytest.param(
            b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % CHAT_PATH.encode(),
            id="bad chunk coding",
        ),
    ],
)
@BOTH
@on_uvloop
async def test_what_is_not_http_gets_a_plain_400_and_no_traceback(server, raw):
    async with server() as fake:
        client = await fake.client()
        client.writer.write(raw)
        answer = await client.reader.read()

        assert fake.counters["requests"] == 0
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"\r\nContent-Type: text/plain" in answer
    assert b"Traceback" not in answer


@on_uvloop
async def test_a_body_over_the_limit_is_a_413():
    async def complete(request, endpoint):
        return json_response(await read_json(request))

    async with serving(complete, max_body_bytes=1000) as ask:
        head, body = await ask(CHAT_PATH, b"x" * 1001)

    assert b" 413 " in head
    assert json.loads(body)["error"]["code"] == "body_too_large"


@on_uvloop
async def test_a_mistake_of_ours_is_a_500_without_its_traceback(caplog):
    async def complete(request, endpoint):
        raise ZeroDivisionError("secret detail")

    async with serving(complete) as ask:
        head, body = await ask(CHAT_PATH, b"{}")

    assert b" 500 " in head
    assert json.loads(body)["error"] == {
        "message": "internal error",
        "type": "server_error",
        "param": None,
        "code": None,
    }
    assert "secret detail" in caplog.text


@on_uvloop
async def test_a_client_that_hung_up_is_no_failure(caplog):
    async def complete(request, endpoint):
        request.transport.abort()
        raise ConnectionResetError("Cannot write to closing transport")

    async with serving(complete) as ask:
        with pytest.raises((ConnectionError, ValueError)):  # no answer at all
            await ask(CHAT_PATH, b"{}")

    assert caplog.records == []


@on_uvloop
async def test_accepted_connections_have_nodelay():
    """Without it, headers and first token in two writes cost a delayed ACK, 40 ms."""

    async def complete(request, endpoint):
        sock = request.transport.get_extra_info("socket")
        return json_response({"nodelay": sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)})

    async with serving(complete) as ask:
        _, body = await ask(CHAT_PATH, b"{}")

    assert json.loads(body)["nodelay"] != 0


@BOTH
@on_uvloop
async def test_the_operations_port_serves_samples_and_counters(server):
    async with server() as fake:
        samples = (await fake.ops("/admin/samples")).json
        counters = (await fake.ops("/admin/counters")).json
        unknown = await fake.ops("/admin/nothing")
        data_port = await fake.ask(None, "/admin/counters", "GET")

    assert set(samples) == {"samples", "lag", "lag_loop", "lag_kernel", "late_ticks", "late_ticks_kernel"}
    assert counters == fake.counters
    assert (unknown.status, unknown.code) == (404, "unknown_path")
    assert data_port.status == 404


@on_uvloop
async def test_the_loop_of_a_server_is_watched():
    watched = []
    callbacks = list(gc.callbacks)

    def build(runtime):
        watched.append(runtime.health)
        return Service(data=web.Application(), counters=dict)

    async with started(ProcessOptions(), build):
        (health,) = watched
        await until(lambda: health.total.lag.count >= 3)
        assert health.loop_cpu_ns > 0
        collections = health.gc.count[2]
        gc.collect()
        assert health.gc.count[2] == collections + 1
    assert gc.callbacks == callbacks


@BOTH
@on_uvloop
async def test_a_unix_socket_serves_and_is_removed(server, tmp_path):
    path = tmp_path / "s.sock"
    async with server(path=path) as fake:
        assert (await fake.ask(None, "/health", "GET")).status == 200
        with pytest.raises(ListenError, match=f"cannot listen on unix:{path}: address in use"):
            async with server(path=path):
                pass
        assert (await fake.ask(None, "/health", "GET")).status == 200

    assert not path.exists()


@on_uvloop
async def test_a_socket_that_a_dead_server_left_is_taken_over(tmp_path):
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with gen_server(path=path) as fake:
        assert (await fake.ask(None, "/health", "GET")).status == 200


@on_uvloop
async def test_a_path_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(ListenError, match="something that is no socket"):
        async with gen_server(path=path):
            pass

    assert path.read_text() == "precious"


@pytest.mark.parametrize("which", ["listen", "ops"])
@on_uvloop
async def test_a_port_in_use_is_named(which):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ProcessOptions(**{which: Address("127.0.0.1", port)})
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: address in use"):
            async with started(options, lambda runtime: Service(data=web.Application(), counters=dict)):
                pass


@on_uvloop
async def test_processes_that_agree_to_it_share_a_data_port_and_no_other_joins():
    def build(_runtime):
        return Service(data=web.Application(), counters=dict)

    async with started(ProcessOptions(reuse_port=True), build) as first:
        shared = ProcessOptions(listen=first.listen, reuse_port=True)
        async with started(shared, build) as second:
            assert second.listen == first.listen
            assert second.ops != first.ops
        with pytest.raises(ListenError, match="address in use"):
            async with started(ProcessOptions(listen=first.listen), build):
                pass


@contextlib.asynccontextmanager
async def serving(complete, **options):
    """A server with the given completion; gives a function (path, body) -> (head, body) of the answer."""

    def build(_runtime):
        return Service(data=data_app(complete, lambda: True, **options), counters=dict)

    async with started(ProcessOptions(), build, grace_s=0.05) as running:

        async def ask(path, body):
            reader, writer = await asyncio.open_connection(running.listen.host, running.listen.port)
            head = b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % (path.encode(), len(body)) + body)
            answer = await reader.read()
            writer.close()
            head, body = answer.split(b"\r\n\r\n", 1)
            return head, body

        yield ask

"""Refusals in the shape of the API that was called, and what the ground truth says of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from deploy.local.engine import server
from deploy.local.engine.errors import error_body
from deploy.local.engine.timing import Speeds
from tests.deploy.local.engine.conftest import ENDLESS, PATHS, Serve, limit, request


def kind(route: str, answer: dict[str, Any]) -> str:
    """Return the type of an error after checking the body's shape."""
    if route == "messages":
        assert set(answer) == {"type", "error"}
        assert answer["type"] == "error"
        assert set(answer["error"]) == {"type", "message"}
    else:
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["message"]
    return str(answer["error"]["type"])


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "BadRequestError", "invalid_request_error"),
        (401, "UnauthorizedError", "authentication_error"),
        (404, "NotFoundError", "not_found_error"),
        (429, "RateLimitError", "rate_limit_error"),
        (500, "InternalServerError", "api_error"),
        (503, "ServiceUnavailableError", "api_error"),
        (529, "InternalServerError", "overloaded_error"),
    ],
)
def test_every_status_has_the_name_that_its_api_gives_it(status: int, openai: str, anthropic: str) -> None:
    body = error_body("/v1/responses", status, "why", "field")
    assert body == {"error": {"message": "why", "type": openai, "param": "field", "code": status}}
    body = error_body("/v1/messages", status, "why")
    assert body == {"type": "error", "error": {"type": anthropic, "message": "why"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_bad_json_is_a_400_that_the_truth_keeps(serve: Serve, route: str, stream: bool) -> None:
    running = await serve()
    raw = b'{"stream": true,' if stream else b"\xff"
    status, answer = await running.post(PATHS[route], raw)
    expected = "invalid_request_error" if route == "messages" else "BadRequestError"
    assert (status, kind(route, answer)) == (400, expected)
    (record,) = running.engine.truth.records
    assert (record.status, record.body_sha256) == (400, hashlib.sha256(raw).hexdigest())
    assert record.ended_us is not None
    assert record.ended_us >= record.started_us


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_a_prompt_that_is_too_long_is_a_400_and_shows_in_no_metric(
    serve: Serve, route: str, stream: bool
) -> None:
    running = await serve(max_model_len=64, capacity_blocks=10)
    status, answer = await running.post(PATHS[route], request(route, "word " * 100, stream=stream))
    assert status == 400
    assert kind(route, answer) in {"BadRequestError", "invalid_request_error"}
    expected = "prompt is too long" if route == "messages" else "maximum context length is 64 tokens"
    assert expected in answer["error"]["message"]
    assert await running.sample("prefix_cache_queries_total") == 0
    (record,) = running.engine.truth.records
    assert (record.status, record.aborted, record.output_tokens) == (400, False, 0)


@pytest.mark.parametrize("route", PATHS)
async def test_prompt_and_answer_together_must_fit(serve: Serve, route: str) -> None:
    running = await serve(max_model_len=64, capacity_blocks=10)
    length = (await running.ask(route, **limit(route, 1))) and running.engine.truth.records[0].input_tokens
    await running.ask(route, **limit(route, 64 - length))
    status, answer = await running.post(PATHS[route], request(route, **limit(route, 65 - length)))
    assert (status, "65" in answer["error"]["message"]) == (400, True)


async def test_an_answer_without_a_limit_ends_where_the_model_does(serve: Serve) -> None:
    running = await serve(max_model_len=64, capacity_blocks=10)
    usage = (await running.ask("chat", "word " * 20))["usage"]
    assert usage["total_tokens"] == 64


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_a_marked_request_fails_once_with_its_status(serve: Serve, route: str, stream: bool) -> None:
    running = await serve()
    for name, code in (("a", 503), ("b", 429)):
        body = request(route, f"go [[standin:fail-once:{name}:{code}]]", **limit(route, 2))
        status, answer = await running.post(PATHS[route], {**body, "stream": stream})
        assert status == code
        assert kind(route, answer)
        for _ in range(2):
            assert (await running.post(PATHS[route], body))[0] == 200
    assert [r.status for r in running.engine.truth.records] == [503, 200, 200, 429, 200, 200]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("PUT", "/v1/models", 405), ("GET", "/v1/messages", 405)],
)
async def test_unknown_pages_and_methods_are_errors_of_the_api(
    serve: Serve, method: str, path: str, status: int
) -> None:
    running = await serve()
    async with running.http.request(method, running.url + path) as answer:
        assert answer.status == status
        kind("messages" if "messages" in path else "chat", await answer.json())
        assert ("allow" in answer.headers) == (status == 405)


async def test_a_body_that_is_too_large_is_a_413(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY_BYTES", 1000)
    running = await serve()
    status, answer = await running.post("/v1/messages", request("messages", "x" * 2000))
    assert (status, kind("messages", answer)) == (413, "request_too_large")


async def test_a_fault_of_the_engine_is_a_500_that_is_logged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = await serve()

    def broken(*_: object, **__: object) -> None:
        raise LookupError("a secret detail")

    monkeypatch.setattr(running.engine.scheduler, "job", broken)
    status, answer = await running.post(PATHS["chat"], request("chat"))
    assert (status, kind("chat", answer)) == (500, "InternalServerError")
    assert "secret" not in json.dumps(answer)
    assert "a secret detail" in caplog.text
    assert running.engine.truth.records[0].status == 500


@pytest.mark.parametrize("route", PATHS)
async def test_a_fault_in_the_middle_of_a_stream_ends_it_with_an_error_event(
    serve: Serve, route: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = await serve()

    def broken(*_: object) -> None:
        raise LookupError("a secret detail")

    monkeypatch.setattr(Speeds, "token_s", broken)
    events = await running.events(route, **limit(route, 5))
    name, last = events[-1]
    assert (name, kind(route, last)) == (
        ("error", "api_error") if route == "messages" else (None, "InternalServerError")
    )
    assert len(events) > 1
    assert "a secret detail" in caplog.text
    (record,) = running.engine.truth.records
    assert (record.aborted, record.output_tokens) == (True, 1)
    assert running.engine.scheduler.cache("coder-large").used_blocks == 0


@pytest.mark.parametrize("body", [b"{", {}, {"prompt_tokens_details": 1}, []])
async def test_control_refuses_what_it_does_not_understand(serve: Serve, body: Any) -> None:
    running = await serve()
    status, answer = await running.post("/control", body)
    assert (status, kind("chat", answer)) == (400, "BadRequestError")
    assert running.engine.details is True


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/embeddings"])
async def test_bad_json_is_a_400_on_the_smaller_routes_too(serve: Serve, path: str) -> None:
    running = await serve()
    for raw in (b"{", b"[" * 100_000, b"null"):
        status, answer = await running.post(path, raw)
        assert status == 400
        kind("messages" if "messages" in path else "chat", answer)


async def test_a_slow_mark_that_makes_no_sense_is_a_400(serve: Serve) -> None:
    running = await serve()
    text = ENDLESS.replace("1000000000", "much")
    assert (await running.post(PATHS["chat"], request("chat", text)))[0] == 400

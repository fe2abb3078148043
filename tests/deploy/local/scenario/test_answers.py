from __future__ import annotations

import pytest

from deploy.local.scenario.answers import AnswerReader


def test_a_line_may_be_split_anywhere() -> None:
    data = b'data: {"choices":[{"delta":{"tool_calls":[{"id":"t1"}]}}]}\r\n\r\ndata: [DONE]\n\n'
    for cut in range(len(data)):
        reader = AnswerReader("chat")
        reader.feed(data[:cut])
        reader.feed(data[cut:])
        assert reader.tool_ids == ("t1",)
        assert (reader.finished, reader.content_events, reader.error) == (True, 1, None)


def test_a_chunk_without_choices_is_no_content() -> None:
    reader = AnswerReader("chat")
    reader.feed(b'data: {"choices":[],"usage":{}}\n\n: comment\n\n')
    assert (reader.content_events, reader.finished) == (0, False)


@pytest.mark.parametrize("route", ["messages", "responses"])
def test_the_end_mark_of_chat_does_not_end_another_stream(route: str) -> None:
    reader = AnswerReader(route)
    reader.feed(b"data: [DONE]\n\n")
    assert not reader.finished


@pytest.mark.parametrize(
    ("route", "event"),
    [
        ("chat", b'{"error":{"message":"x"}}'),
        ("messages", b'{"type":"error","error":{"message":"x"}}'),
        ("responses", b'{"type":"response.failed"}'),
        ("chat", b"{broken"),
    ],
)
def test_error_events_and_broken_events_are_reported(route: str, event: bytes) -> None:
    reader = AnswerReader(route)
    reader.feed(b"data: " + event + b"\n\n")
    assert reader.error


def test_a_response_that_carries_a_null_error_is_not_an_error() -> None:
    reader = AnswerReader("responses")
    reader.feed(b'data: {"type":"response.completed","error":null,"response":{"error":null}}\n\n')
    assert reader.finished
    assert reader.error is None


def test_whole_answers_give_their_tool_ids_once_and_in_order() -> None:
    chat = AnswerReader("chat")
    chat.whole(b'{"choices":[{"message":{"tool_calls":[{"id":"a"},{"id":"b"},{"id":"a"}]}}]}')
    assert (chat.tool_ids, chat.finished) == (("a", "b"), True)
    messages = AnswerReader("messages")
    messages.whole(b'{"type":"message","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"c"}]}')
    assert (messages.tool_ids, messages.finished) == (("c",), True)
    responses = AnswerReader("responses")
    responses.whole(b'{"status":"incomplete","output":[{"type":"function_call","id":"fc","call_id":"d"}]}')
    assert (responses.tool_ids, responses.finished) == (("d",), True)


@pytest.mark.parametrize("data", [b"<html>", b"{}"])
def test_a_whole_answer_of_another_shape_is_an_error(data: bytes) -> None:
    for route in ("chat", "messages", "responses"):
        reader = AnswerReader(route)
        reader.whole(data)
        assert reader.error
        assert not reader.finished

"""Embeddings: the same text gives the same unit vector, and the usage is exact."""

from __future__ import annotations

import base64
import math
from array import array
from typing import Any

import pytest

from deploy.local.engine.tokenizer import CachingTokenizer
from tests.deploy.local.engine.conftest import Serve

PATH = "/v1/embeddings"


async def test_vectors_depend_on_the_text_alone(serve: Serve, tokenizer: CachingTokenizer) -> None:
    running = await serve()
    status, answer = await running.post(PATH, {"model": "e", "input": ["one", "two words", "one"]})
    assert status == 200
    first, second, third = (item["embedding"] for item in answer["data"])
    assert first == third != second
    assert math.hypot(*first) == pytest.approx(1.0, rel=1e-6)
    tokens = sum(len(tokenizer.encode(text)) for text in ("one", "two words", "one"))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]


async def test_tokens_are_as_good_as_their_text_and_base64_as_good_as_numbers(
    serve: Serve, tokenizer: CachingTokenizer
) -> None:
    running = await serve()
    _, by_text = await running.post(PATH, {"model": "e", "input": "two words"})
    ids = tokenizer.encode("two words").tolist()
    body = {"model": "e", "input": ids, "encoding_format": "base64"}
    _, by_tokens = await running.post(PATH, body)
    vector = array("f", base64.b64decode(by_tokens["data"][0]["embedding"]))
    assert vector.tolist() == by_text["data"][0]["embedding"]
    assert by_tokens["usage"] == by_text["usage"]


@pytest.mark.parametrize(
    "wrong", [None, [], 5, [None], [[]], [["a"]], [-1], [1 << 32], [True], {"text": "a"}, ["a", []]]
)
async def test_other_inputs_are_refused(serve: Serve, wrong: Any) -> None:
    running = await serve()
    status, answer = await running.post(PATH, {"model": "e", "input": wrong})
    assert (status, answer["error"]["param"]) == (400, "input")


async def test_a_model_must_be_named(serve: Serve) -> None:
    running = await serve()
    status, answer = await running.post(PATH, {"input": "text"})
    assert (status, answer["error"]["param"]) == (400, "model")

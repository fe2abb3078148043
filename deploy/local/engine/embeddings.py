"""OpenAI embeddings: vectors that depend on the tokens alone, and a usage that is exact."""

from __future__ import annotations

import base64
import json
import math
from array import array
from collections.abc import Callable
from typing import Any, Final

import xxhash

from deploy.local.engine.errors import BadRequest
from deploy.local.engine.prompt import model_name

DIMENSIONS: Final = 16


def embed(raw: bytes, encode: Callable[[str], array[int]]) -> dict[str, Any]:
    """Return the answer to the JSON body *raw*.

    Raises:
        BadRequest: not JSON, or without model or input.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    model = model_name(body)
    inputs = [tokens if isinstance(tokens, array) else encode(tokens) for tokens in _inputs(body)]
    in_base64 = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _base64(v) if in_base64 else v.tolist()}
        for i, v in enumerate(map(_vector, inputs))
    ]
    tokens = sum(map(len, inputs))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _inputs(body: dict[str, Any]) -> list[str | array[int]]:
    """Return the texts or token lists to embed: one or several of either."""
    given = body.get("input")
    if isinstance(given, str) or _is_tokens(given):
        given = [given]
    if not isinstance(given, list) or not given:
        raise BadRequest("input: text, tokens or a list of either is required", "input")
    found: list[str | array[int]] = []
    for item in given:
        if isinstance(item, str):
            found.append(item)
        elif _is_tokens(item):
            found.append(array("I", item))
        else:
            raise BadRequest("input: text, tokens or a list of either is required", "input")
    return found


def _is_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(t, int) and not isinstance(t, bool) and 0 <= t < 1 << 32 for t in value)
    )


def _vector(tokens: array[int]) -> array[float]:
    raw = tokens.tobytes()
    values = [xxhash.xxh3_64_intdigest(raw, seed=i) / 2**63 - 1 for i in range(DIMENSIONS)]
    length = math.sqrt(sum(v * v for v in values)) or 1.0
    return array("f", (v / length for v in values))


def _base64(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode()

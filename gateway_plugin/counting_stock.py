"""LiteLLM's own counter, seen through its private parts: found, checked, or refused with a reason.

Nothing here runs at import; :func:`load` reaches into an installed LiteLLM and raises :class:`UnknownShape`
when the version or any name, signature or constant differs from what was read in 1.102.4 to 1.108.7.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

#: Versions whose counter was read and tested: first, and first that was not.
TESTED_FROM: Final = (1, 102)
TESTED_BELOW: Final = (1, 109)
#: First version with a counter that stops at a threshold.
REACH_FROM: Final = (1, 106)

COUNTER_ARGUMENTS: Final = (
    "model",
    "custom_tokenizer",
    "text",
    "messages",
    "count_response_tokens",
    "tools",
    "tool_choice",
    "use_default_image_token_count",
    "default_token_count",
)
REACH_ARGUMENTS: Final = ("model", "messages", "threshold", "tools", "use_default_image_token_count")
_MESSAGES_ARGUMENTS: Final = ("params", "messages", "use_default_image_token_count", "default_token_count")
_EXTRA_ARGUMENTS: Final = ("count_function", "tools", "tool_choice", "includes_system_message")

#: Modules that call the counter by another way than the one that can be replaced, as far as known.
_DIRECT_CALLERS: Final = (
    "litellm.compression.compress",
    "litellm.llms.openai.common_utils",
    "litellm.llms.bedrock.passthrough.transformation",
    "litellm.llms.openai_like.passthrough.transformation",
)

LAZY_MODULE: Final = "litellm._lazy_imports"
COUNTER_MODULE: Final = "litellm.litellm_core_utils.token_counter"
RESERVATION_MODULE: Final = "litellm.proxy.spend_tracking.budget_reservation"
RESERVATION_FUNCTION: Final = "count_request_input_tokens"


class UnknownShape(RuntimeError):
    """This LiteLLM is not built as expected; the message says what differs."""


@dataclass(frozen=True, slots=True)
class Stock:
    """The parts of LiteLLM's counter that the sum is made of.

    ``params(model)`` returns an object with ``tokens_per_message``, ``tokens_per_name`` and
    ``count_function``; ``tokenizer(model)`` the kind (``tiktoken`` or ``huggingface``) and the object itself.
    """

    token_counter: Callable[..., int]
    reach: Callable[..., bool] | None
    params: Callable[[str], Any]
    tokenizer: Callable[[str], tuple[str, object]]
    count_messages: Callable[..., int]
    count_extra: Callable[..., int]
    convert: Callable[[Any], list[dict[str, Any]]]
    disabled: Callable[[], bool]
    version: str = "unknown"


def parse_version(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version; raises UnknownShape when it has none."""
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        raise UnknownShape(f"version {text[:32]!r} is not understood") from None


def check_version(text: str) -> tuple[int, int]:
    """Return (major, minor) when it is a tested version; raises UnknownShape otherwise."""
    version = parse_version(text)
    if not TESTED_FROM <= version < TESTED_BELOW:
        raise UnknownShape(
            f"LiteLLM {text[:32]} is outside the tested versions "
            f"{TESTED_FROM[0]}.{TESTED_FROM[1]} to {TESTED_BELOW[0]}.{TESTED_BELOW[1] - 1}"
        )
    return version


def _get(module: ModuleType, name: str) -> Any:
    value = getattr(module, name, None)
    if value is None:
        raise UnknownShape(f"{module.__name__} has no {name}")
    return value


def check_arguments(function: Callable[..., Any], expected: tuple[str, ...]) -> None:
    """Raise UnknownShape when *function* does not take exactly the *expected* arguments in this order."""
    try:
        found = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise UnknownShape(f"{function!r} has no signature") from None
    if found != expected:
        raise UnknownShape(f"{getattr(function, '__name__', 'function')} takes {found}, not {expected}")


def load() -> Stock:
    """Find and check LiteLLM's counter.

    Raises:
        UnknownShape: LiteLLM is absent, of an untested version, or built otherwise.
    """
    try:
        text = importlib.metadata.version("litellm")
        version = check_version(text)
        litellm = importlib.import_module("litellm")
        utils = importlib.import_module("litellm.utils")
        lazy = importlib.import_module(LAZY_MODULE)
        core = importlib.import_module(COUNTER_MODULE)
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        raise UnknownShape(f"LiteLLM cannot be imported: {error}") from None
    counter = _get(core, "token_counter")
    check_arguments(counter, COUNTER_ARGUMENTS)
    if not hasattr(lazy, "_token_counter_new_func"):
        raise UnknownShape(f"{LAZY_MODULE} has no _token_counter_new_func")
    if lazy._token_counter_new_func not in (None, counter):
        raise UnknownShape("something else has replaced the counter already")
    reach = None
    if version >= REACH_FROM:
        reach = _get(core, "messages_reach_token_count")
        check_arguments(reach, REACH_ARGUMENTS)
        if not hasattr(lazy, "_messages_reach_token_count_func"):
            raise UnknownShape(f"{LAZY_MODULE} has no _messages_reach_token_count_func")
    count_messages, count_extra = _get(core, "_count_messages"), _get(core, "_count_extra")
    check_arguments(count_messages, _MESSAGES_ARGUMENTS)
    check_arguments(count_extra, _EXTRA_ARGUMENTS)
    params = _get(core, "_MessageCountParams")
    check_arguments(params, ("model", "custom_tokenizer"))
    select, encoding = _get(utils, "_select_tokenizer"), _get(core, "openai_tokenizer_encoding")

    def tokenizer(model: str) -> tuple[str, object]:
        selected = select(model=model)
        if selected["type"] == "huggingface_tokenizer":
            return "huggingface", selected["tokenizer"]
        return "tiktoken", encoding(model)

    stock = Stock(
        token_counter=counter,
        reach=reach,
        params=lambda model: params(model, None),
        tokenizer=tokenizer,
        count_messages=count_messages,
        count_extra=count_extra,
        convert=_get(utils, "convert_list_message_to_dict"),
        disabled=lambda: litellm.disable_token_counter is True,
        version=text,
    )
    check_additive(stock)
    return stock


def check_additive(stock: Stock) -> None:
    """Count a small prompt whole and in pieces, with a stand-in for the tokenizer.

    Raises:
        UnknownShape: the constants or the sum differ from those of the tested versions.
    """

    class Params:
        tokens_per_message = 3
        tokens_per_name = 1
        count_function = staticmethod(len)

    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello", "name": "ann"},
    ]
    try:
        whole = stock.count_messages(Params, messages, False, None)
        pieces = sum(stock.count_messages(Params, [m], False, None) for m in messages)
        base = stock.count_extra(len, None, None, False)
        with_tool = stock.count_extra(len, [tool], None, False)
        with_system = stock.count_extra(len, [tool], None, True)
        named = stock.count_extra(len, None, {"function": {"name": "read"}}, True)
        alone = stock.count_extra(len, None, "none", True)
    except Exception as error:  # noqa: BLE001 - whatever it is, this is not the counter that was read
        raise UnknownShape(f"the counter fails on a plain prompt: {type(error).__name__}") from None
    if whole != pieces or whole != 3 + 6 + 8 + 3 + 4 + 5 + 3 + 1:
        raise UnknownShape("the count of messages is not the sum over its messages")
    if (base, with_system - with_tool, named, alone) != (3, -4, 3 + 7 + 4, 4) or with_tool <= base + 9:
        raise UnknownShape("the constants for reply, system message or tool choice have changed")


def direct_callers() -> tuple[str, ...]:
    """Return loaded or known modules that call the counter directly, so that their counts are not seen."""
    core = sys.modules.get(COUNTER_MODULE)
    function = getattr(core, "token_counter", None)
    found = {
        name
        for name, module in list(sys.modules.items())
        if name.startswith("litellm.")
        and name not in (COUNTER_MODULE, LAZY_MODULE)
        and function is not None
        and vars(module).get("token_counter") is function
    }
    root = list(getattr(sys.modules.get("litellm"), "__path__", []))
    for name in _DIRECT_CALLERS if root else ():
        path = Path(root[0], *name.split(".")[1:]).with_suffix(".py")
        try:
            # Imported at the call, so only the source tells.
            if COUNTER_MODULE in path.read_text(encoding="utf-8"):
                found.add(name)
        except (OSError, UnicodeDecodeError):
            continue
    return tuple(sorted(found))

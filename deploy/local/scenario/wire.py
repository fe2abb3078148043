"""Request bodies: a planned call in the form of the API that its session speaks.

The neutral form is the message list of the OpenAI chat API. ``ids`` maps planned ids of tool calls to the ids
that the model really returned, for the whole history, so that every tool result answers a call that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from deploy.local.scenario.plan import Message, PlannedCall, PlannedSession

Body = dict[str, Any]

PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}

CLAUDE_CODE_VERSION: Final = "2.1.283"
CLAUDE_CODE_LEGACY_VERSION: Final = "2.0.76"

_IDENTITY: Final = "You are Claude Code, Anthropic's official CLI for Claude."
_CACHE: Final = {"type": "ephemeral"}


def path(session: PlannedSession) -> str:
    """Return path and query of the session's API below the base URL."""
    if session.client == "claude-code":
        return PATHS["messages"] + "?beta=true"
    return PATHS[session.route]


def body(session: PlannedSession, call: PlannedCall, ids: Mapping[str, str]) -> Body:
    """Return the request body of *call*."""
    if session.route == "chat":
        return chat_body(session, call, ids)
    if session.route == "messages":
        return messages_body(session, call, ids)
    return responses_body(session, call, ids)


def chat_body(session: PlannedSession, call: PlannedCall, ids: Mapping[str, str]) -> Body:
    """Return the body of an OpenAI chat completion."""
    result: Body = {
        "model": call.model_group,
        "messages": [
            {"role": "system", "content": call.system},
            *(_chat_message(message, ids) for message in call.messages),
        ],
        "max_tokens": call.max_tokens,
    }
    if call.tools:
        result["tools"] = list(call.tools)
        result["tool_choice"] = "auto"
    if session.stream:
        result["stream"] = True
        result["stream_options"] = {"include_usage": True}
    return result


def messages_body(session: PlannedSession, call: PlannedCall, ids: Mapping[str, str]) -> Body:
    """Return the body of an Anthropic message: system apart, alternating roles, moving cache marks."""
    claude_code = session.client == "claude-code"
    messages = _anthropic_messages(call.messages, ids)
    users = [message for message in messages if message["role"] == "user"]
    # The end of the request and the end of the previous one: the first is written to the cache, the second
    # is read from it. The marks move forward with every call.
    for message in users[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": _CACHE}
    system = [{"type": "text", "text": call.system, "cache_control": _CACHE}]
    if claude_code:
        system = [
            {"type": "text", "text": _attribution(session)},
            {"type": "text", "text": _IDENTITY},
            *system,
        ]
    result: Body = {
        "model": call.model_group,
        "max_tokens": call.max_tokens,
        "system": system,
        "messages": messages,
    }
    if call.tools:
        result["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
            }
            for tool in call.tools
        ]
    if claude_code:
        result["metadata"] = {"user_id": _claude_code_user_id(session)}
    if session.stream:
        result["stream"] = True
    return result


def responses_body(session: PlannedSession, call: PlannedCall, ids: Mapping[str, str]) -> Body:
    """Return the body of an OpenAI response: instructions apart, a flat list of input items."""
    items: list[Body] = []
    for message in call.messages:
        items.extend(_response_items(message, ids))
    result: Body = {
        "model": call.model_group,
        "instructions": call.system,
        "input": items,
        "max_output_tokens": call.max_tokens,
        "store": False,
        "stream": session.stream,
    }
    if call.tools:
        result["tools"] = [
            {
                "type": "function",
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "parameters": tool["function"]["parameters"],
                "strict": False,
            }
            for tool in call.tools
        ]
        result["tool_choice"] = "auto"
        result["parallel_tool_calls"] = True
    if session.session_id is not None:
        result["prompt_cache_key"] = session.session_id
    return result


def claude_code_version(session: PlannedSession) -> str:
    """Return the release of Claude Code that the session stands for."""
    return CLAUDE_CODE_LEGACY_VERSION if session.legacy else CLAUDE_CODE_VERSION


def _chat_message(message: Message, ids: Mapping[str, str]) -> Message:
    if message["role"] == "tool":
        return {**message, "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"])}
    if not message.get("tool_calls"):
        return message
    calls = [{**call, "id": ids.get(call["id"], call["id"])} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _anthropic_messages(messages: tuple[Message, ...], ids: Mapping[str, str]) -> list[Message]:
    """Return *messages* as content blocks, neighbours of one role merged into one message."""
    merged: list[Message] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if not merged or merged[-1]["role"] != role:
            merged.append({"role": role, "content": []})
        merged[-1]["content"].extend(_anthropic_blocks(message, ids))
    return merged


def _anthropic_blocks(message: Message, ids: Mapping[str, str]) -> list[Body]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        planned = message["tool_call_id"]
        return [{"type": "tool_result", "tool_use_id": ids.get(planned, planned), "content": content}]
    # The API refuses empty text blocks: an answer that only calls tools has none.
    blocks: list[Body] = [{"type": "text", "text": content}] if content else []
    for call in message.get("tool_calls") or ():
        blocks.append(
            {
                "type": "tool_use",
                "id": ids.get(call["id"], call["id"]),
                "name": call["function"]["name"],
                "input": orjson.loads(call["function"]["arguments"]),
            }
        )
    return blocks


def _response_items(message: Message, ids: Mapping[str, str]) -> list[Body]:
    content = message.get("content") or ""
    role = message["role"]
    if role == "tool":
        planned = message["tool_call_id"]
        return [{"type": "function_call_output", "call_id": ids.get(planned, planned), "output": content}]
    kind = "output_text" if role == "assistant" else "input_text"
    items: list[Body] = []
    if content:
        items.append({"type": "message", "role": role, "content": [{"type": kind, "text": content}]})
    for call in message.get("tool_calls") or ():
        items.append(
            {
                "type": "function_call",
                "call_id": ids.get(call["id"], call["id"]),
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
        )
    return items


def _attribution(session: PlannedSession) -> str:
    """Return Claude Code's first system entry: version and a fingerprint, stable per conversation."""
    version = f"{claude_code_version(session)}.{session.device_id[:3]}"
    return f"x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli;"


def _claude_code_user_id(session: PlannedSession) -> str:
    if session.legacy:
        return f"user_{session.device_id}_account__session_{session.session_id}"
    identity = {"device_id": session.device_id, "account_uuid": "", "session_id": session.session_id}
    return orjson.dumps(identity).decode()

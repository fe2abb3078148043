from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import identity
from gateway_plugin.clients import client_of, tool_durations_ms
from gateway_plugin.identity import Auth, Identity
from gateway_plugin.sessions import SESSION_RULES, Request, canonical_headers
from tests.gateway_plugin.builders import AUTH, CLAUDE_SESSION, HASHER

SID = "ses_0123456789"


def resolve(
    headers: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    auth: Auth = AUTH,
    proxy_session: str | None = None,
    head: tuple[str, str] = ("sys", "first"),
    precedence: tuple[str, ...] = ("end_user", "user_id", "key"),
) -> Identity:
    request = Request(canonical_headers(headers or {}), body or {}, metadata or {}, proxy_session)
    return identity.resolve(request, auth, HASHER, head_material=head, user_precedence=precedence)


CASES: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any], str | None, str]] = [
    (
        "Claude Code header",
        {"x-claude-code-session-id": CLAUDE_SESSION},
        {},
        {},
        CLAUDE_SESSION,
        "x-claude-code-session-id",
    ),
    (
        "Claude Code, old body id",
        {},
        {},
        {"user_id": f"user_abc_account__session_{CLAUDE_SESSION}"},
        CLAUDE_SESSION,
        "metadata.user_id",
    ),
    (
        "Claude Code, body id as JSON text",
        {},
        {},
        {"user_id": orjson.dumps({"device_id": "d", "session_id": CLAUDE_SESSION}).decode()},
        CLAUDE_SESSION,
        "metadata.user_id",
    ),
    ("Codex, hyphens", {"session-id": SID}, {}, {}, SID, "session-id"),
    ("Codex, underscores", {"session_id": SID}, {}, {}, SID, "session-id"),
    ("Codex thread", {"thread-id": SID}, {}, {}, SID, "thread-id"),
    (
        "Codex turn metadata",
        {"x-codex-turn-metadata": orjson.dumps({"session_id": SID}).decode()},
        {},
        {},
        SID,
        "codex-turn-metadata",
    ),
    (
        "Codex turn metadata in the body",
        {"user-agent": "codex_cli_rs/0.1"},
        {"client_metadata": {"x-codex-turn-metadata": orjson.dumps({"session_id": SID}).decode()}},
        {},
        SID,
        "codex-turn-metadata",
    ),
    ("OpenCode", {"X-Session-Id": SID}, {}, {}, SID, "x-session-id"),
    ("OpenCode affinity", {"x-session-affinity": SID}, {}, {}, SID, "x-session-affinity"),
    (
        "OpenCode child names its parent",
        {"x-parent-session-id": SID, "x-session-id": "ses_child00001"},
        {},
        {},
        SID,
        "x-parent-session-id",
    ),
    ("Copilot", {"X-Client-Session-Id": SID}, {}, {}, SID, "x-client-session-id"),
    ("Copilot interaction", {"x-interaction-id": SID}, {}, {}, SID, "x-interaction-id"),
    ("any vendor's session header", {"x-acme-session-id": SID}, {}, {}, SID, "x-any-session-id"),
    ("LiteLLM session header", {"x-litellm-session-id": SID}, {}, {}, SID, "x-litellm-session-id"),
    ("LiteLLM trace header", {"x-litellm-trace-id": SID}, {}, {}, SID, "x-litellm-trace-id"),
    ("body metadata", {}, {}, {"session_id": SID}, SID, "metadata.session_id"),
    ("body field", {}, {"litellm_session_id": SID}, {}, SID, "body.litellm_session_id"),
    ("Responses conversation", {}, {"conversation": {"id": SID}}, {}, SID, "body.conversation"),
    ("Responses conversation as text", {}, {"conversation": SID}, {}, SID, "body.conversation"),
    ("W3C baggage", {"baggage": f"a=b, session.id={SID};p=1"}, {}, {}, SID, "baggage"),
    ("OTel baggage", {"baggage": f"gen_ai.conversation.id={SID}"}, {}, {}, SID, "baggage"),
    ("prompt cache key", {}, {"prompt_cache_key": SID}, {}, SID, "body.prompt_cache_key"),
]


@pytest.mark.parametrize(
    ("name", "headers", "body", "metadata", "expected", "source"), CASES, ids=[c[0] for c in CASES]
)
def test_each_client_names_its_session(
    name: str,
    headers: dict[str, str],
    body: dict[str, Any],
    metadata: dict[str, Any],
    expected: str,
    source: str,
) -> None:
    who = resolve(headers, body, metadata)
    assert (who.session_id, who.session_source, who.session_evidence) == (expected, source, "E1")


def test_a_session_of_the_proxy_is_the_last_resort_before_inference() -> None:
    assert resolve(proxy_session=SID).session_source == "proxy"
    assert resolve({"x-session-id": "ses_header0001"}, proxy_session=SID).session_source == "x-session-id"


def test_the_session_rules_are_a_closed_list_of_names() -> None:
    names = [r.name for r in SESSION_RULES]
    assert len(names) == len(set(names))


def test_the_same_id_of_two_users_is_two_sessions() -> None:
    one = resolve({"x-session-id": "default-session"}, auth=Auth(key_hash="k1"))
    two = resolve({"x-session-id": "default-session"}, auth=Auth(key_hash="k2"))
    assert one.session_id == two.session_id
    assert one.session_key != two.session_key


def test_without_an_id_the_session_is_inferred_from_its_head_and_says_so() -> None:
    one, again, other = resolve(), resolve(), resolve(head=("sys", "another first message"))
    assert one.session_evidence == "E4"
    assert one.session_key == again.session_key != other.session_key


def test_without_any_message_there_is_no_session() -> None:
    who = resolve(head=("", ""))
    assert (who.session_key, who.session_source, who.session_evidence) == (None, "none", "E5")


def test_free_text_in_an_id_field_is_never_stored() -> None:
    who = resolve({"x-session-id": "ada@example.org"})
    assert who.session_id is not None
    assert who.session_id.startswith("h:")


def test_a_huge_session_id_is_bounded_and_still_tells_two_apart() -> None:
    one, two = resolve({"x-session-id": "a" * 10_000_000}), resolve({"x-session-id": "a" * 9_999_999})
    assert len(str(one.session_id)) == 34
    assert one.session_key != two.session_key


@pytest.mark.parametrize("blank", ["", "   ", "\t"])
def test_a_blank_id_is_no_id(blank: str) -> None:
    assert resolve({"x-session-id": blank}).session_source == "inferred"


def test_the_main_agent_has_no_id_on_the_wire() -> None:
    assert resolve({"x-claude-code-session-id": CLAUDE_SESSION}).agent_id == "main"


def test_a_claude_code_subagent_is_named_with_its_parent() -> None:
    who = resolve({"x-claude-code-session-id": CLAUDE_SESSION, "x-claude-code-agent-id": "agent-0001"})
    assert (who.agent_id, who.agent_kind, who.parent_agent_id) == ("agent-0001", "subagent", "main")
    nested = resolve({"x-claude-code-agent-id": "agent-0002", "x-claude-code-parent-agent-id": "agent-0001"})
    assert nested.parent_agent_id == "agent-0001"


def test_an_opencode_child_session_is_a_subagent_of_its_parent_session() -> None:
    parent = resolve({"user-agent": "opencode/1.2", "x-session-id": SID})
    child = resolve(
        {"user-agent": "opencode/1.2", "x-parent-session-id": SID, "x-session-id": "ses_child00001"}
    )
    assert child.session_key == parent.session_key
    assert (child.agent_id, child.agent_kind) == ("ses_child00001", "subagent")


def test_a_codex_child_thread_is_a_subagent() -> None:
    meta = orjson.dumps({"session_id": SID, "thread_id": "thread-000002", "turn_id": "turn-000001"}).decode()
    who = resolve(
        {"user-agent": "codex_cli_rs/0.1", "x-codex-turn-metadata": meta, "x-codex-parent-thread-id": SID}
    )
    assert (who.agent_id, who.agent_kind, who.parent_agent_id) == ("thread-000002", "subagent", SID)
    assert who.hints.turn_id == "turn-000001"


@pytest.mark.parametrize(
    ("cls", "initiator", "compaction"),
    [
        ("main", None, False),
        ("subagent", "agent", False),
        ("workflow", "agent", False),
        ("auxiliary", "auxiliary", False),
        ("compaction", "compaction", True),
        ("brand-new", None, False),
    ],
)
def test_claude_code_request_classes_name_the_initiator(
    cls: str, initiator: str | None, compaction: bool
) -> None:
    hints = resolve({"x-claude-code-session-id": CLAUDE_SESSION, "x-claude-code-request-class": cls}).hints
    assert (hints.initiator, hints.compaction) == (initiator, compaction)


@pytest.mark.parametrize(
    ("kind", "initiator"),
    [("turn", None), ("compaction", "compaction"), ("prewarm", "auxiliary"), ("memory", "auxiliary")],
)
def test_codex_request_kinds_name_the_initiator(kind: str, initiator: str | None) -> None:
    meta = orjson.dumps({"request_kind": kind}).decode()
    assert resolve({"x-codex-turn-metadata": meta}).hints.initiator == initiator


@pytest.mark.parametrize(
    ("value", "initiator"), [("user", "user"), ("agent", "agent"), ("AGENT", "agent"), ("bot", None)]
)
def test_the_initiator_header_of_copilot_is_taken(value: str, initiator: str | None) -> None:
    assert resolve({"x-initiator": value}).hints.initiator == initiator


@pytest.mark.parametrize(
    ("agent", "named"),
    [
        ("claude-cli/2.1.283 (external, cli)", True),
        ("claude-cli/2.1.139", True),
        ("claude-cli/2.1.138", False),
        ("claude-cli/2.0.76", False),
        ("opencode/1.3.4", True),
        ("OpenAI/Python 2.8.1", False),
    ],
)
def test_clients_that_name_their_subagents_are_known_by_release(agent: str, named: bool) -> None:
    assert resolve({"user-agent": agent}).hints.names_agents is named


@pytest.mark.parametrize(
    ("headers", "client", "version"),
    [
        ({"user-agent": "claude-cli/2.1.283 (external, cli)"}, "claude-code", "2.1.283"),
        ({"user-agent": "codex_cli_rs/0.153.0 (Ubuntu)"}, "codex", "0.153.0"),
        ({"user-agent": "opencode/1.3.4 ai-sdk"}, "opencode", "1.3.4"),
        ({"user-agent": "GitHubCopilotChat/0.30"}, "copilot", "0.30"),
        ({"user-agent": "OpenAI/Python 2.8.1"}, "other", None),
        ({}, "unknown", None),
    ],
)
def test_clients_are_a_closed_list(headers: dict[str, str], client: str, version: str | None) -> None:
    assert client_of(headers) == (client, version)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bash=742;Read=9", 742.0),
        ("a%3Db=5", 5.0),
        ("", None),
        (None, None),
        ("Bash=", None),
        ("Bash=-1", None),
        ("Bash=nan", None),
        ("Bash=inf", None),
        ("x=1e99", None),
    ],
)
def test_the_longest_tool_duration_counts(text: str | None, expected: float | None) -> None:
    assert tool_durations_ms(text) == expected


def test_the_person_is_the_first_of_the_declared_precedence() -> None:
    auth = Auth(key_hash="k", user_id="u", end_user="e")
    assert resolve(auth=auth).user_source == "end_user"
    assert resolve(auth=auth, precedence=("key", "user_id")).user_source == "key"
    assert resolve(auth=Auth(key_hash="k", user_id="default_user_id")).user_source == "key"
    assert resolve(auth=Auth()).user_source == "none"


def test_claude_codes_user_id_names_one_person_over_many_sessions() -> None:
    def person(session: str) -> str | None:
        return resolve(auth=Auth(end_user=f"user_abc_account_x_session_{session}")).user_hash

    assert person(CLAUDE_SESSION) == person("99999999-2222-3333-4444-555555555555") != None  # noqa: E711


def test_the_json_form_of_claude_codes_user_id_names_the_person_without_the_session() -> None:
    def person(session: str) -> str | None:
        value = orjson.dumps({"device_id": "d1", "account_uuid": "", "session_id": session}).decode()
        return resolve(auth=Auth(end_user=value)).user_hash

    assert person("a") == person("b")
    assert person("a") is not None


def test_headers_of_odd_types_are_dropped_and_names_are_made_uniform() -> None:
    assert canonical_headers({"X_Session_ID": " a ", 7: "b", "n": None, b"x": "y"}) == {"x-session-id": "a"}
    assert canonical_headers(None) == {}
    assert canonical_headers([("a", "b")]) == {}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_header_names = st.sampled_from(
    [
        "user-agent",
        "x-claude-code-session-id",
        "x-claude-code-agent-id",
        "x-claude-code-prompt-id",
        "x-claude-code-request-class",
        "x-claude-code-prev-tool-durations",
        "x-codex-turn-metadata",
        "baggage",
        "x-session-id",
        "x-parent-session-id",
        "x-initiator",
        "session_id",
    ]
)
_body_names = st.sampled_from(
    [
        "conversation",
        "prompt_cache_key",
        "client_metadata",
        "litellm_session_id",
        "user_id",
        "session_id",
        "x-codex-turn-metadata",
    ]
)


@given(
    st.dictionaries(_header_names, st.text(alphabet=st.characters(), max_size=40), max_size=6),
    st.dictionaries(_body_names, _json, max_size=4),
    st.dictionaries(_body_names, _json, max_size=4),
)
def test_hostile_headers_and_bodies_always_give_an_identity_that_can_be_stored(
    headers: dict[str, str], body: dict[str, Any], metadata: dict[str, Any]
) -> None:
    who = resolve(headers, body, metadata)
    stored = [
        who.session_key,
        who.session_id,
        who.session_source,
        who.agent_id,
        who.parent_agent_id,
        who.client_version,
    ]
    for value in stored:
        assert value is None or (value.isascii() and len(value) <= 128 and "\x00" not in value)
    assert who.session_evidence in ("E1", "E4", "E5")

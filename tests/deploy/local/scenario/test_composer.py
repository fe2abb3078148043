from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest

from deploy.local.recordings import NOTICE
from deploy.local.scenario import Cast, PlannedCall, PlannedSession, Scenario, Turn, compose, compose_casts
from deploy.local.scenario.casts import CONFIG, INDEX, KUBERNETES, SIZES
from deploy.local.scenario.catalogue import CATALOGUE_SIZE, connected_tools, full_catalogue
from deploy.local.truth import SPECIALS

pytestmark = pytest.mark.usefixtures("recordings")


def _streams(scenario: Scenario) -> Iterator[tuple[PlannedSession, list[PlannedCall]]]:
    for session in scenario.sessions:
        streams: dict[str, list[PlannedCall]] = defaultdict(list)
        for call in session.calls():
            streams[call.agent].append(call)
        for calls in streams.values():
            yield session, calls


def _history(call: PlannedCall) -> list[dict[str, object]]:
    """The messages of a call without the transient notice of the harness."""
    messages = list(call.messages)
    if NOTICE.match(str(messages[-1]["content"])):
        messages.pop()
    return messages


def test_the_same_seed_gives_the_same_scenario_and_another_seed_another(scenario: Scenario) -> None:
    assert compose(scenario.size, scenario.seed) == scenario
    other = compose(scenario.size, scenario.seed + 1)
    assert other != scenario
    assert [session.name for session in other.sessions] == [session.name for session in scenario.sessions]


def test_a_session_does_not_change_when_another_one_is_added() -> None:
    casts = SIZES["small"]
    alone = compose_casts(casts[1:2], 1).sessions[0]
    beside = compose_casts(casts[:2], 1).sessions[1]
    assert alone.session_id == beside.session_id
    assert [call.messages for call in alone.calls()] == [call.messages for call in beside.calls()]


def test_every_special_situation_occurs(scenario: Scenario) -> None:
    found = Counter(call.special for _, call in scenario.calls())
    assert set(SPECIALS) <= set(found)
    assert found["compaction"] == found["post_compaction"]
    assert any(call.parent_agent for _, call in scenario.calls())
    assert {call.initiator for _, call in scenario.calls()} == {"user", "agent", "auxiliary", "compaction"}


def test_the_sizes_hold_about_as_many_calls_as_promised() -> None:
    assert 50 <= sum(1 for _ in compose("small").calls()) <= 60
    assert 150 <= sum(1 for _ in compose("full").calls()) <= 200


def test_half_of_the_full_scenario_is_chat_and_half_messages_with_some_responses() -> None:
    routes = Counter(session.route for session, _ in compose("full").calls())
    total = sum(routes.values())
    assert 0.35 < routes["chat"] / total < 0.55
    assert 0.35 < routes["messages"] / total < 0.55
    assert 0 < routes["responses"] / total < 0.2


def test_the_full_scenario_contains_only_a_few_very_long_prompts() -> None:
    def size(call: PlannedCall) -> int:
        return len(call.system) + len(str(call.messages)) + len(str(call.tools))

    long = sum(1 for _, call in compose("full").calls() if size(call) > 120_000)
    assert 1 <= long <= 10


def test_claude_standin_is_reached_only_over_the_messages_api(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        assert call.model_group in {"coder-large", "coder-small", "claude-standin"}
        assert call.model_group != "claude-standin" or session.route == "messages"


def test_call_numbers_are_unique_and_without_gaps(scenario: Scenario) -> None:
    numbers = [call.number for _, call in scenario.calls()]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_turns_and_calls_count_from_one_without_gaps_in_every_stream(scenario: Scenario) -> None:
    for session, calls in _streams(scenario):
        positions = [(call.turn, call.call_in_turn) for call in calls]
        assert positions[0] == (1, 1), session.name
        for (turn, index), following in pairwise(positions):
            assert following in {(turn, index + 1), (turn + 1, 1)}, session.name


def test_exactly_the_first_call_of_every_main_turn_is_initiated_by_the_user(scenario: Scenario) -> None:
    for _, calls in _streams(scenario):
        for call in calls:
            expected = call.parent_agent is None and call.call_in_turn == 1
            assert (call.initiator == "user") is expected
            if expected:
                assert call.wait_kind in {"start", "human"}
                assert _history(call)[-1]["role"] == "user"


def test_subagents_are_initiated_by_agents_and_share_nothing_with_their_parent(scenario: Scenario) -> None:
    children = [(session, call) for session, call in scenario.calls() if call.parent_agent]
    assert {session.client for session, _ in children} >= {"claude-code", "opencode", "none"}
    for session, call in children:
        parents = [other for other in session.calls() if other.agent == "main"]
        assert call.initiator == "agent"
        assert call.system not in {parent.system for parent in parents}
        assert call.tools not in [parent.tools for parent in parents]
        assert call.prompt_id in {parent.prompt_id for parent in parents}


def test_every_call_extends_the_previous_one_of_its_stream_unless_the_history_was_compacted(
    scenario: Scenario,
) -> None:
    compared = 0
    for session, calls in _streams(scenario):
        working = [call for call in calls if call.initiator != "auxiliary"]
        for previous, call in pairwise(working):
            if call.special == "post_compaction":
                assert len(call.messages) < len(previous.messages)
                continue
            kept = _history(previous)
            if previous.special == "compaction":
                pytest.fail(f"{session.name}: a compaction is not followed by its continuation")
            assert _history(call)[: len(kept)] == kept, (session.name, call.number)
            compared += 1
    assert compared > 30


def test_a_compaction_leaves_less_than_70_percent_of_a_long_prompt(scenario: Scenario) -> None:
    def size(call: PlannedCall) -> int:
        return len(call.system) + len(str(call.messages)) + len(str(call.tools))

    for _, calls in _streams(scenario):
        for before, call in pairwise(calls):
            if call.special == "post_compaction":
                assert before.special == "compaction"
                assert (call.turn, call.initiator) == (before.turn, "agent")
                assert size(before) > 40_000
                assert size(call) < 0.7 * size(before)
                assert call.messages[-1]["role"] == "tool"
                assert call.window == before.window + 1


def test_a_model_switch_changes_the_model_inside_one_session_and_stays(scenario: Scenario) -> None:
    switches = 0
    for _, calls in _streams(scenario):
        for before, call in pairwise(calls):
            changed = before.model_group != call.model_group
            assert changed is (call.special == "model_switch")
            if changed:
                switches += 1
                assert (before.model_group, call.model_group) == ("coder-large", "coder-small")
    assert switches == 1


def test_the_notices_of_the_harness_stay_as_recorded_and_never_enter_the_history(scenario: Scenario) -> None:
    notices = 0
    for _, call in scenario.calls():
        texts = [str(message.get("content")) for message in call.messages]
        assert not any(NOTICE.match(text) for text in texts[:-1])
        if NOTICE.match(texts[-1]):
            notices += 1
            assert call.initiator in {"user", "agent"}
            assert call.parent_agent is None
    assert notices > 15


def test_the_large_catalogue_has_200_distinct_tools_and_is_offered_by_one_whole_session(
    scenario: Scenario,
) -> None:
    sessions = {session.name for session, call in scenario.calls() if len(call.tools) == CATALOGUE_SIZE}
    assert sessions == {"connected-tools"}
    for session, call in scenario.calls():
        assert (call.special == "tool_catalogue_200") is (session.name == "connected-tools")
        names = [tool["function"]["name"] for tool in call.tools]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 64 for name in names)


def test_generated_tools_have_schemas_whose_required_parameters_exist() -> None:
    assert full_catalogue(connected_tools()[:1])[0] == connected_tools()[0]
    for tool in connected_tools():
        schema = tool["function"]["parameters"]
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(parameter["description"] for parameter in schema["properties"].values())


def test_only_the_interrupted_call_is_slow_and_it_is_the_last_of_its_session(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        slow = "[[standin:slow:" in str(call.messages)
        assert slow is (call.special == "aborted") is (call.expected_outcome == "aborted")
        if slow:
            assert call is list(session.calls())[-1]
            assert session.stream
            assert call.abort_after_events


def test_the_failing_call_names_an_id_of_its_own_seed_and_session() -> None:
    markers = set()
    for seed in (1, 2):
        retries = [call for _, call in compose("small", seed).calls() if call.special == "upstream_retry"]
        assert len(retries) == 1
        text = str(retries[0].messages[-1]["content"])
        assert retries[0].expected_outcome == "success"
        markers.add(text[text.index("[[standin:fail-once:") :])
    assert len(markers) == 2
    assert all(marker.endswith(":500]]") for marker in markers)


def test_ids_of_tool_calls_are_unique_over_all_sessions(scenario: Scenario) -> None:
    ids = [tool_id for _, call in scenario.calls() for tool_id in call.emits]
    assert len(set(ids)) == len(ids) > 20


def test_the_next_call_of_a_stream_answers_the_tool_calls_that_the_previous_one_emitted(
    scenario: Scenario,
) -> None:
    for _, calls in _streams(scenario):
        working = [call for call in calls if call.initiator in {"user", "agent"}]
        for previous, call in pairwise(working):
            answered = [str(m["tool_call_id"]) for m in call.messages if m["role"] == "tool"]
            if previous.emits:
                assert sorted(answered[-len(previous.emits) :]) == sorted(previous.emits)
            else:
                assert call.initiator == "user"


def test_service_users_are_declared_and_never_share_a_key_with_people(scenario: Scenario) -> None:
    assert scenario.service_users == ("ci-bot",)
    assert {s.user for s in scenario.sessions if not s.service}.isdisjoint(scenario.service_users)
    assert len(scenario.users) >= 5


def test_sessions_without_an_id_of_one_user_can_be_told_apart_by_their_first_messages(
    scenario: Scenario,
) -> None:
    heads = [
        (session.user, session.client, next(session.calls()).system, str(next(session.calls()).messages[0]))
        for session in scenario.sessions
        if session.session_id is None
    ]
    assert len(set(heads)) == len(heads)


def test_human_gaps_lie_within_their_bounds_and_tool_delays_are_the_recorded_ones(scenario: Scenario) -> None:
    for _, call in scenario.calls():
        if call.wait_kind == "human":
            assert 15 <= call.wait_s <= 45
        if call.wait_kind == "tool":
            assert 0.03 < call.wait_s < 5


def test_unknown_sizes_repeated_names_and_too_long_turns_are_refused() -> None:
    with pytest.raises(ValueError, match="sizes are"):
        compose("huge")
    cast = Cast("a", "alice", "none", "chat", "coder-small", (Turn(CONFIG, 2),))
    with pytest.raises(ValueError, match="share a name"):
        compose_casts((cast, cast), 1)
    too_long = Cast("a", "alice", "none", "chat", "coder-small", (Turn(KUBERNETES, 6),))
    with pytest.raises(ValueError, match="has no 6 calls"):
        compose_casts((too_long,), 1)


def test_a_follow_up_goes_on_where_the_turn_before_it_stopped() -> None:
    def last_results(*turns: Turn) -> list[object]:
        cast = Cast("a", "alice", "none", "chat", "coder-small", turns)
        *_, last = compose_casts((cast,), 1).sessions[0].calls()
        return [message["content"] for message in last.messages if message["role"] == "tool"]

    assert last_results(Turn(INDEX, 3), Turn(INDEX, 2, follow_up=True)) == last_results(Turn(INDEX, 4))

"""The whole path on recorded work: what was sent is what was counted, tagged, attributed and reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from deploy.local.scenario import compose
from deploy.local.truth import TruthCall
from tests.integration.conftest import Recorded
from tests.test_project import ROOT

pytestmark = pytest.mark.integration

Partition = set[frozenset[int]]


@pytest.fixture(scope="module")
def agents(recorded: Recorded) -> dict[str, Any]:
    """The figure beside the truth."""
    return recorded.run.agents_truth(recorded.out, recorded.truth)


def partition(recorded: Recorded, key: Callable[[TruthCall, dict[str, object]], Hashable]) -> Partition:
    groups: dict[Hashable, set[int]] = defaultdict(set)
    for call in recorded.truth:
        groups[key(call, recorded.finals[str(call.litellm_call_id)])].add(call.call)
    return {frozenset(group) for group in groups.values()}


def test_calls_sent_equal_upstream_calls_events_rows_and_facts(recorded: Recorded) -> None:
    calls = len(recorded.truth)
    answered = [r for r in recorded.engine if r["status"] == 200]
    opened = {e["event_id"] for e in recorded.events if e["stage"] == "open"}
    closed = [e["event_id"] for e in recorded.events if e["stage"] == "final"]
    facts = recorded.query(
        "SELECT count(*) AS n, count(DISTINCT call_id) AS ids FROM '$lake/facts/call/*/*.parquet'"
    )
    assert calls == len(answered) == len(opened) == len(closed) == len(recorded.rows)
    assert set(closed) == opened
    assert facts == [{"n": calls, "ids": calls}]


def test_attempts_equal_what_reached_the_engine(recorded: Recorded) -> None:
    assert sum(e["attempts"] for e in recorded.finals.values()) == len(recorded.engine)


def test_every_row_carries_our_tags(recorded: Recorded) -> None:
    finals = {e["event_id"]: e for e in recorded.finals.values()}
    for row in recorded.rows:
        ours = row["metadata"]["spend_logs_metadata"]["agentwatt"]
        event = finals[ours["event_id"]]
        for name in (
            "session_key",
            "turn_id",
            "call_index",
            "initiator",
            "outcome",
            "prompt_bytes",
            "cached_tokens",
        ):
            assert ours.get(name) == event[name], name


def test_every_fact_comes_from_both_sources(recorded: Recorded) -> None:
    sources = recorded.query(
        "SELECT source, count(*) AS n FROM '$lake/facts/call/*/*.parquet' GROUP BY source"
    )
    assert sources == [{"source": "both", "n": len(recorded.truth)}]


def test_sessions_are_those_of_the_scenario(recorded: Recorded) -> None:
    found = partition(recorded, lambda call, event: event["session_key"])
    assert found == partition(recorded, lambda call, event: call.session)


def test_session_ids_equal_the_headers(recorded: Recorded) -> None:
    sent = [c for c in recorded.truth if c.session_header]
    assert sent
    for call in sent:
        event = recorded.finals[str(call.litellm_call_id)]
        # OpenCode gives a subagent a session id of its own and names the parent's beside it.
        child = call.client == "opencode" and call.parent_agent is not None
        assert event["agent_id" if child else "session_id"] == call.session_header
        assert event["session_evidence"] == "E1"


def test_turns_are_those_of_the_scenario(recorded: Recorded) -> None:
    found = partition(
        recorded, lambda call, event: (event["session_key"], event["agent_id"], event["turn_id"])
    )
    assert found == partition(recorded, lambda call, event: (call.session, call.agent, call.turn))


@pytest.mark.parametrize(("truth", "event"), [("initiator", "initiator"), ("call_in_turn", "call_index")])
def test_initiator_and_call_index_are_those_of_the_scenario(
    recorded: Recorded, truth: str, event: str
) -> None:
    wrong = [
        (
            call.session,
            call.agent,
            call.turn,
            call.call_in_turn,
            recorded.finals[str(call.litellm_call_id)][event],
        )
        for call in recorded.truth
        if getattr(call, truth) != recorded.finals[str(call.litellm_call_id)][event]
    ]
    assert wrong == []


def test_the_facts_keep_the_partition_into_turns(recorded: Recorded) -> None:
    turns = recorded.query("SELECT count(*) AS n FROM '$lake/facts/turn/*/*.parquet'")
    assert turns[0]["n"] == len(
        partition(recorded, lambda call, event: (call.session, call.agent, call.turn))
    )


def test_cached_tokens_equal_what_the_engine_served(recorded: Recorded) -> None:
    served = Counter(
        (r["input_tokens"], r["cached_tokens"], r["output_tokens"])
        for r in recorded.engine
        if r["status"] == 200 and not r["aborted"]
    )
    counted = Counter(
        (e["input_tokens"], e["cached_tokens"], e["output_tokens"])
        for e in recorded.finals.values()
        if e["outcome"] == "success"
    )
    assert counted == served


def test_an_aborted_stream_has_unknown_cached_tokens(recorded: Recorded) -> None:
    aborted = [c for c in recorded.truth if c.expected_outcome == "aborted"]
    assert aborted
    for call in aborted:
        event = recorded.finals[str(call.litellm_call_id)]
        assert (event["outcome"], event["cached_tokens"], event["usage_source"]) == (
            "aborted",
            None,
            "estimated",
        )


def test_a_retried_failure_is_one_call_with_two_attempts(recorded: Recorded) -> None:
    retried = [c for c in recorded.truth if c.special == "upstream_retry"]
    assert retried
    for call in retried:
        event = recorded.finals[str(call.litellm_call_id)]
        assert (event["outcome"], event["attempts"]) == ("success", 2)


def test_breaks_are_named_where_the_scenario_makes_them(recorded: Recorded) -> None:
    for special, reason in (("model_switch", "model_switch"), ("post_compaction", "compaction")):
        calls = [c for c in recorded.truth if c.special == special]
        assert calls
        assert {recorded.finals[str(c.litellm_call_id)]["break_reason"] for c in calls} == {reason}


def test_the_catalogue_of_two_hundred_tools_is_counted(recorded: Recorded) -> None:
    calls = [c for c in recorded.truth if c.special == "tool_catalogue_200"]
    assert calls
    for call in calls:
        event = recorded.finals[str(call.litellm_call_id)]
        assert event["tool_count"] == call.tool_count >= 200
        assert event["tools_bytes"] > 20_000


def test_the_answer_of_every_route_and_form_tells_what_tools_it_calls(recorded: Recorded) -> None:
    names = ("tool_reads", "tool_edits", "tool_runs", "tool_others")
    called: dict[tuple[str, bool], int] = {}
    for call in recorded.truth:
        event = recorded.finals[str(call.litellm_call_id)]
        if event["outcome"] != "success":
            assert {event[name] for name in names} == {None}
            continue
        made = sum(event[name] for name in names)  # a count that is missing fails here
        assert made <= min(call.tool_count, 1)  # the engine calls the first of the tools on offer, if any
        if call.tool_count:
            cell = (call.route, call.stream)
            called[cell] = called.get(cell, 0) + made
    assert {route for route, _ in called} == {"chat", "messages", "responses"}
    assert all(called.values())
    told = recorded.query(
        "SELECT SUM(tool_runs) > 0 AS runs, SUM(tool_edits) AS edits FROM '$lake/facts/call/*/*.parquet'"
    )
    assert told == [{"runs": True, "edits": 0}]  # the recorded tool, a shell, stands first


def test_no_prompt_text_and_no_identity_is_stored(recorded: Recorded) -> None:
    needles = {call.user.encode() for call in recorded.truth if len(call.user) > 3}
    for _, call in compose("small", 1).calls():
        for message in (*call.messages, {"content": call.system}):
            content = message.get("content")
            for text in re.findall(r"[^\n\"\\]{40,}", content if isinstance(content, str) else ""):
                needles.add(text[:40].encode())
    stored = dict(recorded.redis_dump)
    assert len(needles) > 100
    assert stored
    for table in ("raw/events", "raw/spend_logs", "facts/call"):
        rows = recorded.query(f"SELECT * FROM '$lake/{table}/*/*.parquet'")
        stored[table.encode()] = repr(
            [{k: v for k, v in row.items() if k != "key_alias"} for row in rows]
        ).encode()
    stream = stored.pop(b"{agentwatt}:events")
    stored[b"stream"] = re.sub(rb'"key_alias":"[^"]*"', b"", stream)
    for place, content in stored.items():
        found = [needle for needle in needles if needle in content]
        assert not found, (place, found[:3])


def test_the_report_has_the_four_figures_with_their_conventions(recorded: Recorded) -> None:
    report = recorded.report
    for name in ("calls_per_human_hour", "prompt_length", "prefix_hit", "agents_per_megawatt"):
        figure = report[name]
        assert figure["unit"]
        assert "coverage" in figure
        assert figure.get("boundary") or figure.get("convention")


def test_the_realised_hit_is_the_engines_own(recorded: Recorded) -> None:
    reporting = [e for e in recorded.finals.values() if e["cached_tokens"] is not None]
    cached, total = (sum(int(e[n]) for e in reporting) for n in ("cached_tokens", "input_tokens"))
    served = [r for r in recorded.engine if r["status"] == 200 and not r["aborted"]]
    assert cached / total == sum(r["cached_tokens"] for r in served) / sum(r["input_tokens"] for r in served)
    assert recorded.report["prefix_hit"]["realised"]["value"] == pytest.approx(cached / total)


def test_the_html_report_needs_no_network(recorded: Recorded) -> None:
    page = (recorded.out / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?:https?:)?//""", page)
    assert "synthetic" in page.lower()


def test_the_engines_own_counters_and_the_boards_energy_reach_the_lake(recorded: Recorded) -> None:
    report = recorded.report
    served = [r for r in recorded.engine if r["status"] == 200]
    engine = report["prefix_hit"]["engine"]
    ratio = sum(r["cached_tokens"] for r in served) / sum(r["input_tokens"] for r in served)
    # The first and the last scrape do not lie exactly on the first and the last call.
    assert engine["value"] == pytest.approx(ratio, abs=0.03)
    assert report["agents_per_megawatt"]["synthetic"] is True


def test_a_plan_is_made_from_the_recorded_week(recorded: Recorded) -> None:
    command = ["plan", "--from-week", str(recorded.out / "report.json"), "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["results"]["fleet"]["gpus"] >= 2
    people = recorded.report["calls_per_human_hour"]["values"][1]
    assert plan["results"]["concurrency"]["mean"] == pytest.approx(people["d_rho_a"], rel=1e-3)


@pytest.mark.parametrize("state", ["open", "in_turn", "llm_active"])
def test_the_measurement_interval_holds_what_the_engine_itself_knows(
    recorded: Recorded, agents: dict[str, Any], state: str
) -> None:
    """Concurrent agents by the engine's instants over its own energy, in the window of the figure."""
    rows = [r for r in agents["rows"] if r["state"] == state]
    assert [r["tier"] for r in rows] == ["20 tok/s, 10 s", "60 tok/s, 5 s", "180 tok/s, 3 s", None]
    for row in rows:
        low, high = row["measurement_interval"]
        assert 0 <= low <= row["measured"] <= high
        assert row["within"], row
    # the gateway sees a call before the engine does, and sees it end later
    assert 0 < rows[-1]["engine"][0] < rows[-1]["measured"]


def test_the_energy_is_the_engines_own(agents: dict[str, Any]) -> None:
    assert agents["energy"]["measured_joules"] == pytest.approx(agents["energy"]["engine_joules"], rel=0.01)


def test_the_comparison_is_left_beside_the_report(recorded: Recorded, agents: dict[str, Any]) -> None:
    stored = json.loads((recorded.out / "ground_truth.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(agents))

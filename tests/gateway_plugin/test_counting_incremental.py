"""The incremental counter over a stand-in for LiteLLM: bookkeeping, self-check, never a harmed count."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from gateway_plugin.counting_check import Background, Sampler
from gateway_plugin.counting_incremental import IncrementalCounter
from gateway_plugin.counting_stock import Stock, check_additive
from gateway_plugin.counting_sum import BLOCK

SECRET = "the merger closes on friday"


class StandIn:
    """A counter built like LiteLLM's, in which a token is a character; it counts how often it is asked."""

    tokens_per_message = 3
    tokens_per_name = 1

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokenizer = object()
        self.whole = 0

    def count_function(self, text: str) -> int:
        self.asked.append(text)
        return len(text)

    def count_messages(self, params: Any, messages: Any, images: Any, default: Any) -> int:
        total = 0
        for message in messages:
            total += params.tokens_per_message
            for key, value in message.items():
                if isinstance(value, str):
                    total += params.count_function(value) + (params.tokens_per_name if key == "name" else 0)
                elif isinstance(value, list):
                    total += sum(params.count_function(str(part["text"])) for part in value)
        return total

    def count_extra(self, count_function: Any, tools: Any, choice: Any, has_system: bool) -> int:
        total = 3 + (count_function(str(tools)) + 9 - 4 * has_system if tools else 0)
        if choice == "none":
            return total + 1
        return total + (
            7 + count_function(str(choice["function"]["name"])) if isinstance(choice, dict) else 0
        )

    def token_counter(
        self,
        model: Any = "",
        custom_tokenizer: Any = None,
        text: Any = None,
        messages: Any = None,
        count_response_tokens: Any = False,
        tools: Any = None,
        tool_choice: Any = None,
        images: Any = False,
        default: Any = None,
    ) -> int:
        self.whole += 1
        if text is not None:
            return self.count_function("".join(text))
        total = self.count_messages(self, self.convert(messages), images, default)
        if count_response_tokens is False:
            has_system = any(message.get("role") == "system" for message in messages)
            total += self.count_extra(self.count_function, tools, tool_choice, has_system)
        return total

    def reach(
        self, model: Any, messages: Any, threshold: Any, tools: Any = None, images: Any = False
    ) -> bool:
        return self.token_counter(model, messages=messages, tools=tools) >= threshold

    def convert(self, messages: Any) -> list[dict[str, Any]]:
        return [{k: v for k, v in message.items() if v is not None} for message in messages]

    def stock(self) -> Stock:
        return Stock(
            token_counter=self.token_counter,
            reach=self.reach,
            params=lambda model: self,
            tokenizer=lambda model: ("tiktoken", self.tokenizer),
            count_messages=self.count_messages,
            count_extra=self.count_extra,
            convert=self.convert,
            disabled=lambda: False,
        )


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def counter(stand_in: StandIn) -> IncrementalCounter:
    return IncrementalCounter(stand_in.stock(), check_share=0.0)


def conversation(length: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": "system", "content": "be brief"}] + [
        {"role": roles[n % 2], "content": f"message {n}"} for n in range(length - 1)
    ]


def test_the_stand_in_is_additive_like_litellm(stand_in: StandIn) -> None:
    check_additive(stand_in.stock())


def test_a_later_call_tokenises_only_what_is_new(stand_in: StandIn, counter: IncrementalCounter) -> None:
    tools = [{"name": "read"}]
    counter.token_counter("m", messages=conversation(50), tools=tools)
    stand_in.asked.clear()
    messages = [*conversation(50), {"role": "user", "content": "the new one"}]
    total = counter.token_counter("m", messages=messages, tools=tools)
    assert stand_in.asked == ["user", "the new one"]
    assert total == StandIn().token_counter("m", messages=messages, tools=tools)


def test_an_edit_in_the_middle_costs_one_message_not_the_block(
    stand_in: StandIn, counter: IncrementalCounter
) -> None:
    counter.token_counter("m", messages=conversation(3 * BLOCK))
    edited = conversation(3 * BLOCK)
    edited[BLOCK + 2]["content"] = "edited"
    stand_in.asked.clear()
    assert counter.token_counter("m", messages=edited) == StandIn().token_counter("m", messages=edited)
    assert "edited" in stand_in.asked
    assert len(stand_in.asked) == 2


def test_dropping_the_first_message_costs_no_tokenising(
    stand_in: StandIn, counter: IncrementalCounter
) -> None:
    messages = conversation(3 * BLOCK)
    counter.token_counter("m", messages=messages)
    stand_in.asked.clear()
    assert counter.token_counter("m", messages=messages[1:]) == StandIn().token_counter(
        "m", messages=messages[1:]
    )
    assert stand_in.asked == []


def test_a_system_message_inside_a_remembered_block_still_counts_with_tools(
    counter: IncrementalCounter,
) -> None:
    messages = conversation(BLOCK)
    for tools in (None, [{"name": "read"}], None, [{"name": "read"}]):
        expected = StandIn().token_counter("m", messages=messages, tools=tools)
        assert counter.token_counter("m", messages=messages, tools=tools) == expected


def test_the_order_of_keys_is_part_of_a_piece(stand_in: StandIn, counter: IncrementalCounter) -> None:
    for tools in ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]):
        counter.token_counter("m", messages=[], tools=tools)
    assert counter.counts["catalogue_missed"] == 2


def test_another_tokenizer_or_other_constants_share_no_counts(
    stand_in: StandIn, counter: IncrementalCounter
) -> None:
    counter.token_counter("m", messages=conversation(3))
    missed = counter.counts["piece_missed"]
    stand_in.tokenizer = object()
    counter.token_counter("m", messages=conversation(3))
    assert counter.counts["piece_missed"] == 2 * missed
    stand_in.tokens_per_message = 4
    counter.token_counter("m", messages=conversation(3))
    counter.token_counter("m", messages=conversation(3), use_default_image_token_count=True)
    counter.token_counter("m", messages=conversation(3), default_token_count=5)
    assert counter.counts["piece_missed"] == 5 * missed


def test_ever_new_tokenizers_do_not_grow_the_memory(stand_in: StandIn) -> None:
    counter = IncrementalCounter(stand_in.stock(), max_bytes=1 << 20, check_share=0.0)
    for _ in range(300):
        stand_in.tokenizer = object()
        counter.token_counter("m", messages=conversation(10))
    assert counter.store.entries <= 48 * 10


def test_a_list_of_texts_goes_to_litellm_because_its_parts_do_not_add_up(
    stand_in: StandIn, counter: IncrementalCounter
) -> None:
    assert counter.token_counter("m", text=["ab", "c"]) == 3
    assert (counter.counts["stock_text"], stand_in.whole) == (1, 1)


def test_the_same_text_is_tokenised_once_and_a_response_is_not_remembered(
    stand_in: StandIn, counter: IncrementalCounter
) -> None:
    assert [counter.token_counter("m", text="abc") for _ in range(3)] == [3, 3, 3]
    assert stand_in.asked == ["abc"]
    counter.token_counter("m", text="abc", count_response_tokens=True)
    assert stand_in.asked == ["abc", "abc"]


def test_threads_counting_the_same_conversation_all_get_the_same_number(stand_in: StandIn) -> None:
    counter = IncrementalCounter(stand_in.stock(), max_bytes=40_000, check_share=0.0)
    expected = [StandIn().token_counter("m", messages=conversation(n)) for n in range(1, 60)]
    found: list[list[int]] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        counts = [counter.token_counter("m", messages=conversation(n)) for n in range(1, 60)]
        found.append(counts)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
    assert counter.counts["own_error"] == 0


# -- errors


def test_litellm_s_error_comes_through_as_the_same_object(stand_in: StandIn) -> None:
    error = ValueError("refused")

    def refuse(*args: Any) -> int:
        raise error

    counter = IncrementalCounter(replace(stand_in.stock(), count_messages=refuse), check_share=0.0)
    with pytest.raises(ValueError, match="refused") as caught:
        counter.token_counter("m", messages=conversation(2))
    assert caught.value is error
    with pytest.raises(ValueError, match="refused"):
        counter.messages_reach_token_count("m", conversation(2), 10)
    assert (counter.counts["stock_raised"], counter.counts["own_error"]) == (2, 0)


def test_a_fault_of_ours_falls_back_to_litellm_with_one_warning(
    stand_in: StandIn,
    counter: IncrementalCounter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: Any) -> int:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(counter.store, "put", fail)
    expected = StandIn().token_counter("m", messages=conversation(3))
    assert [counter.token_counter("m", messages=conversation(3)) for _ in range(3)] == [expected] * 3
    assert counter.messages_reach_token_count("m", conversation(3), expected)
    assert (counter.counts["own_error"], stand_in.whole) == (4, 4)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert SECRET not in caplog.text


# -- self-check


def test_one_mismatch_switches_the_cache_off_and_names_the_smallest_piece_by_shape(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    counter = IncrementalCounter(stand_in.stock(), check_share=1.0)
    messages = [*conversation(3), {"role": "user", "content": [{"type": "text", "text": SECRET}], SECRET: 1}]
    counter.token_counter("m", messages=messages)
    counter.background.drain()
    assert counter.active
    for space in counter.pieces._spaces.values():
        for key in space.parts.young:
            space.parts.young[key] += 5
    wrong = counter.token_counter("m", messages=messages)
    with caplog.at_level(logging.ERROR):
        counter.background.drain()
    assert not counter.active
    assert counter.counts["mismatched"] == 1
    right = StandIn().token_counter("m", messages=messages)
    assert (wrong, counter.token_counter("m", messages=messages)) == (right + 5, right)
    assert counter.messages_reach_token_count("m", messages, right)
    assert counter.store.entries == 0
    [record] = caplog.records
    text = record.getMessage()
    assert "message {role: user, content: [{type: text, text: str[27]}], key: int}" in text
    assert SECRET not in text
    counter.background.close()


def test_a_wrong_catalogue_is_found_by_the_check_of_the_threshold_counter_too(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    counter = IncrementalCounter(stand_in.stock(), check_share=1.0)
    tools = [{"name": "read"}]
    assert not counter.messages_reach_token_count("m", conversation(2), 10_000, tools)
    counter.background.drain()
    for space in counter.pieces._spaces.values():
        for key in space.catalogues.young:
            space.catalogues.young[key] += 1
    counter.messages_reach_token_count("m", conversation(2), 1, tools)
    counter.background.drain()
    assert not counter.active
    assert "catalogue [{name: str[4]}]" in caplog.text
    counter.background.close()


def test_a_sum_that_is_wrong_without_a_wrong_piece_is_told_so(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    stock = replace(stand_in.stock(), token_counter=lambda *args: stand_in.token_counter(*args) + 1)
    counter = IncrementalCounter(stock, check_share=1.0)
    counter.token_counter("m", messages=conversation(2))
    counter.background.drain()
    assert not counter.active
    assert "no single piece: the sum of 2 messages and 0 tools" in caplog.text
    counter.background.close()


def test_the_check_uses_a_copy_so_that_later_changes_of_the_messages_are_no_mismatch(
    stand_in: StandIn,
) -> None:
    release = threading.Event()
    background = Background()
    background.submit(lambda: bool(release.wait(10)))
    counter = IncrementalCounter(stand_in.stock(), check_share=1.0, background=background)
    messages = conversation(4)
    counter.token_counter("m", messages=messages)
    messages[1]["content"] = "changed by the proxy after the count"
    release.set()
    background.drain()
    assert (counter.counts["checked"], counter.active) == (1, True)
    background.close()


def test_a_check_that_fails_is_counted_and_the_next_one_runs(stand_in: StandIn) -> None:
    background = Background()
    background.submit(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    done = threading.Event()
    background.submit(done.set)
    background.drain()
    assert done.is_set()
    assert (background.counts["failed"], background.counts["run"]) == (1, 1)
    background.close()


def test_a_full_queue_skips_the_check_instead_of_waiting() -> None:
    background = Background(max_jobs=2)
    release, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(10)

    background.submit(block)
    started.wait(10)
    taken = [background.submit(lambda: None) for _ in range(4)]
    assert taken == [True, True, False, False]
    assert background.counts["skipped"] == 2
    release.set()
    background.close()


def test_closing_without_waiting_drops_the_queued_checks() -> None:
    background = Background(max_jobs=3)
    release, started, ran = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(10)

    background.submit(block)
    started.wait(10)
    background.submit(ran.set)
    background.close(wait=False)
    release.set()
    background.drain()
    assert not ran.is_set()
    assert background.counts["skipped"] == 1


def test_messages_that_cannot_be_copied_are_counted_but_not_checked(stand_in: StandIn) -> None:
    counter = IncrementalCounter(stand_in.stock(), check_share=1.0)
    messages = [{"role": "user", "content": "x", "extra": object()}]
    assert counter.token_counter("m", messages=messages) == StandIn().token_counter("m", messages=messages)
    assert (counter.counts["check_opaque"], counter.counts["piece_opaque"]) == (1, 1)


def test_the_sampler_checks_the_first_requests_and_then_about_its_share() -> None:
    sampler = Sampler(0.1, seed=7)
    assert all(sampler.wants(n) for n in range(3))
    assert 60 < sum(sampler.wants(3) for _ in range(1000)) < 140
    assert not any(Sampler(0.0).wants(n) for n in range(10))
    with pytest.raises(ValueError, match="between 0 and 1"):
        Sampler(-0.1)


# -- catalogue for the meter


def test_a_catalogue_is_learned_in_the_background_and_known_afterwards(stand_in: StandIn) -> None:
    counter = IncrementalCounter(stand_in.stock(), check_share=0.0)
    for tools in ([{"name": "read"}], [{"name": "read", "description": None}]):
        assert counter.learn_catalogue("m", tools) is None
        counter.background.drain()
        assert counter.learn_catalogue("m", tools) == len(str(tools)) + 9
    assert counter.learn_catalogue("m", [object()]) is None
    counter.background.close()


def test_the_last_catalogue_belongs_to_the_last_count_of_the_thread(counter: IncrementalCounter) -> None:
    tools = [{"name": "read"}]
    counter.token_counter("m", messages=conversation(2), tools=tools)
    assert counter.last_catalogue == len(str(tools)) + 9
    counter.token_counter("m", messages=conversation(2))
    assert counter.last_catalogue is None

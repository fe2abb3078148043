from __future__ import annotations

import logging

import pytest

from gateway_plugin.guard import Guard


def test_errors_are_swallowed_and_counted_by_hook(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    for _ in range(3):
        with guard("pre_call"):
            raise ValueError("prompt text that must not be logged")
    with guard("success"):
        pass
    assert guard.counts == {"pre_call": 3}


def test_one_line_a_minute_is_logged_without_the_message(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    with caplog.at_level(logging.ERROR, "agentwatt"):
        for _ in range(5):
            with guard("pre_call"):
                raise ValueError("canary-text")
    assert len(caplog.records) == 1
    assert "ValueError in pre_call at" in caplog.text
    assert "canary" not in caplog.text


def test_an_interrupt_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt), Guard()("pre_call"):
        raise KeyboardInterrupt

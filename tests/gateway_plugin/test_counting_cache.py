"""The store of counts: bounded, two generations, kinds apart."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway_plugin.counting_cache import ENTRY_BYTES, PieceStore


def test_a_remembered_count_is_found_under_its_own_kind_only() -> None:
    store = PieceStore(1 << 20)
    first, second = store.new_kinds(2)
    store.put(first, first.key(b"x"), 7)
    assert store.get(first, first.key(b"x")) == 7
    assert store.get(second, first.key(b"x")) is None
    assert first.key(b"x") != second.key(b"x")


def test_entries_never_exceed_the_bound_and_the_newest_stay() -> None:
    store = PieceStore(100 * ENTRY_BYTES)
    (kind,) = store.new_kinds(1)
    for number in range(1000):
        store.put(kind, number.to_bytes(16, "big"), number)
        assert store.entries <= 100
    assert store.bytes <= store.max_bytes
    assert store.get(kind, (999).to_bytes(16, "big")) == 999
    assert store.get(kind, (0).to_bytes(16, "big")) is None


def test_an_entry_that_is_used_survives_while_others_come_and_go() -> None:
    store = PieceStore(100 * ENTRY_BYTES)
    (kind,) = store.new_kinds(1)
    store.put(kind, b"used", 1)
    for number in range(1000):
        store.put(kind, number.to_bytes(16, "big"), number)
        assert store.get(kind, b"used") == 1
    assert store.rotations > 10


def test_the_real_memory_stays_below_the_bound() -> None:
    bound = 8 << 20
    tracemalloc.start()
    try:
        store = PieceStore(bound)
        kinds = store.new_kinds(3)
        for number in range(3 * bound // ENTRY_BYTES):
            kind = kinds[number % 3]
            store.put(kind, kind.key(number.to_bytes(8, "big")), number + 1000)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < bound
    assert peak < 1.1 * bound
    assert held > bound / 8


def test_dropped_kinds_give_their_room_back() -> None:
    store = PieceStore(100 * ENTRY_BYTES)
    kinds = store.new_kinds(2)
    for kind in kinds:
        for number in range(20):
            store.put(kind, number.to_bytes(16, "big"), number)
    store.drop(kinds)
    assert store.entries == 0
    (kind,) = store.new_kinds(1)
    for number in range(50):
        store.put(kind, number.to_bytes(16, "big"), number)
    assert (store.entries, store.rotations) == (50, 0)


def test_clearing_forgets_everything() -> None:
    store = PieceStore(1 << 20)
    (kind,) = store.new_kinds(1)
    store.put(kind, b"k", 1)
    store.clear()
    assert (store.entries, store.get(kind, b"k")) == (0, None)


def test_a_bound_that_holds_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        PieceStore(ENTRY_BYTES)

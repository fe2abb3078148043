from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.hashing import Hasher

_any_text = st.text(alphabet=st.characters(), max_size=50)


def test_equal_secrets_give_equal_digests_and_other_secrets_others() -> None:
    assert Hasher(b"a").digest("user", "ada") == Hasher(b"a").digest("user", "ada")
    assert Hasher(b"a").digest("user", "ada") != Hasher(b"b").digest("user", "ada")


def test_digests_of_different_domains_differ() -> None:
    hasher = Hasher(b"a")
    assert hasher.digest("user", "x") != hasher.digest("session", "x")


def test_parts_are_bounded_by_their_length() -> None:
    hasher = Hasher(b"a")
    assert hasher.digest("d", "ab", "c") != hasher.digest("d", "a", "bc")
    assert hasher.digest("d", "ab") != hasher.digest("d", "ab", "")


def test_digests_have_the_asked_size() -> None:
    assert [len(Hasher(b"a").digest("d", "x", size=n)) for n in (8, 12, 16)] == [16, 24, 32]


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Hasher(b"")


@given(st.lists(_any_text, max_size=4))
def test_any_text_hashes_to_the_same_digest_twice(parts: list[str]) -> None:
    hasher = Hasher(b"a")
    assert hasher.digest("d", *parts) == hasher.digest("d", *parts)


@pytest.mark.parametrize(
    "value", ["ses_abcdef123456", "11111111-2222-3333-4444-555555555555", "a.b:c-d_e", "default1"]
)
def test_machine_made_ids_are_kept(value: str) -> None:
    assert Hasher(b"a").keep_or_hash(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "ada@example.org",
        "Ada Lovelace",
        "short",
        "a" * 129,
        "naïve-identifier",
        "\ud83d-lone",
        "a\x00bcdefgh",
        "12345678\n",
    ],
)
def test_anything_else_is_hashed(value: str) -> None:
    kept = Hasher(b"a").keep_or_hash(value)
    assert kept.startswith("h:")
    assert len(kept) == 34
    assert value not in kept

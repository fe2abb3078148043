"""A prompt's token count as a sum: remembered counts of messages, of the tool catalogue, of a tool choice.

LiteLLM's counter is additive: a prompt's count is the sum over its messages and, unless it counts a response,
3 for the reply, the tool catalogue as one text + 9, − 4 when there are tools and a system message, and a few
tokens for a tool choice. An agent's prompt extends its previous one, so all but its last messages have been
counted before. Here every piece is counted once, by LiteLLM's own functions, and remembered under a digest
that keeps the order of keys (sorting them changes most catalogues' count).

This module does not import LiteLLM: it is given a :class:`~gateway_plugin.counting_stock.Stock`.
"""

from __future__ import annotations

import marshal
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway_plugin.counting_cache import ALWAYS_STOCK, LOOK_EXACT, Kind, PieceStore
from gateway_plugin.counting_pieces import catalogue_is_plain, why_stock
from gateway_plugin.counting_stock import Stock

#: Refuse what orjson would otherwise turn into plain JSON.
_STRICT: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
_SPACES_MAX: Final = 48
#: Messages that are looked up together: enough to make the look-up cheap, few enough to fill soon.
BLOCK: Final = 16


class StockRaised(Exception):
    """LiteLLM's own function raised: its error is the result, not a fault of ours."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def faithful(value: Any) -> bytes:
    """Serialise *value* so that equal bytes mean equal values of equal types in equal order.

    The format is the last one without back references, which depend on reference counts.

    Raises:
        ValueError: *value* holds something else than plain data, or is nested too deeply or in a circle.
    """
    return marshal.dumps(value, 2)


def _words_only(messages: Sequence[dict[str, Any]]) -> bool:
    """Return whether all values are strings or None: types that JSON text tells apart."""
    for message in messages:
        for value in message.values():
            if type(value) is not str and value is not None:
                return False
    return True


class Space:
    """The remembered counts of one tokenizer and one set of options.

    It holds the tokenizer, so that the id in its name stays that tokenizer's.
    """

    __slots__ = (
        "blocks",
        "catalogues",
        "checked",
        "choices",
        "exact_catalogues",
        "kinds",
        "parts",
        "texts",
        "tokenizer",
        "word_blocks",
        "words",
    )

    def __init__(self, tokenizer: object, store: PieceStore) -> None:
        self.tokenizer = tokenizer
        self.checked = 0
        self.kinds = store.new_kinds(8)
        # words: messages of strings alone; parts: any other message; a block's count carries a system bit
        self.words, self.parts, self.word_blocks, self.blocks, *others = self.kinds
        self.catalogues, self.exact_catalogues, self.choices, self.texts = others


@dataclass(slots=True)
class Frame:
    """What stays the same during one count: LiteLLM's parameters of the model, options, and the space."""

    params: Any
    space: Space
    default_images: bool
    default_count: int | None
    catalogue: int | None = None
    missed: int = 0
    #: a message of the current block must be counted the stock way every time
    volatile: bool = False


class PieceCounter:
    """Counts pieces through a :class:`PieceStore`. Thread-safe."""

    def __init__(self, stock: Stock, store: PieceStore) -> None:
        self.stock = stock
        self.store = store
        self.counts: Counter[str] = Counter()
        self._spaces: OrderedDict[tuple[object, ...], Space] = OrderedDict()
        self._lock = threading.Lock()

    def tally(self, name: str, number: int = 1) -> None:
        """Count *number* occurrences of *name*."""
        with self._lock:
            self.counts[name] += number

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of LiteLLM's; its error comes back as :class:`StockRaised`."""
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - any error of LiteLLM's is its answer
            raise StockRaised(error) from None

    def frame(self, model: str, *, default_images: bool = False, default_count: int | None = None) -> Frame:
        """Look up parameters and tokenizer of *model* as LiteLLM would now, and the space they select."""
        params = self.ask(self.stock.params, model)
        _, tokenizer = self.ask(self.stock.tokenizer, model)
        name = (
            id(tokenizer),
            params.tokens_per_message,
            params.tokens_per_name,
            default_images,
            default_count,
        )
        space = self._spaces.get(name) or self._new_space(name, tokenizer)
        return Frame(params, space, default_images, default_count)

    def _new_space(self, name: tuple[object, ...], tokenizer: object) -> Space:
        with self._lock:
            space = self._spaces.get(name)
            if space is None:
                space = self._spaces[name] = Space(tokenizer, self.store)
                if len(self._spaces) > _SPACES_MAX:
                    _, oldest = self._spaces.popitem(last=False)
                    self.store.drop(oldest.kinds)
        return space

    # -- messages

    def plain(self, messages: Any) -> Any:
        """Return *messages* as exact dicts; LiteLLM's own conversion is skipped when they are already."""
        if set(map(type, messages)) <= {dict}:
            return messages
        return self.ask(self.stock.convert, messages)

    def messages(self, frame: Frame, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        """Return the sum over *messages* and whether one of them is a system message.

        Whole blocks are looked up first: a conversation grows at its end, so its first blocks stay the same.
        """
        try:
            return self._messages(frame, messages)
        finally:
            if frame.missed:
                self.tally("piece_missed", frame.missed)
                frame.missed = 0

    def _messages(self, frame: Frame, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        total, has_system, start, new = 0, False, 0, False
        for start in range(BLOCK, len(messages) + 1, BLOCK):
            block, missed = messages[start - BLOCK : start], frame.missed
            # After a block of new messages the next is new too: it is entered as a block when it comes again.
            count, system = self._each(frame, block) if new else self._block(frame, block)
            total, has_system = total + count, has_system or system
            new = frame.missed - missed > BLOCK // 2
        count, system = self._each(frame, messages[start:])
        return total + count, has_system or system

    def _each(self, frame: Frame, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        count = sum([self._one(frame, message) for message in messages])
        return count, any(message.get("role") == "system" for message in messages)

    def _block(self, frame: Frame, block: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        try:
            if _words_only(block):
                kind, raw = frame.space.word_blocks, orjson.dumps(block)
            else:
                kind, raw = frame.space.blocks, faithful(block)
        except (TypeError, ValueError):
            kind, raw = frame.space.blocks, None
        key = None if raw is None else kind.key(raw)
        if key is not None:
            known = kind.young.get(key)
            if known is None:
                known = self.store.recall(kind, key)
            if known is not None:
                return known >> 1, bool(known & 1)
        before, frame.volatile = frame.volatile, False
        count, system = self._each(frame, block)
        if key is not None and not frame.volatile:
            self.store.put(kind, key, count << 1 | system)
        frame.volatile = frame.volatile or before
        return count, system

    def _one(self, frame: Frame, message: dict[str, Any]) -> int:
        """Count one message: under its JSON text when it consists of strings, else under its exact bytes."""
        if not _words_only((message,)):
            return self._structured(frame, message)
        words = frame.space.words
        try:
            key = words.key(orjson.dumps(message))
        except TypeError:  # a lone surrogate, or a key that is not a string
            return self._structured(frame, message)
        count = words.young.get(key)
        if count is None:
            count = self.store.recall(words, key)
        return self._message(frame, words, key, message) if count is None or count < 0 else count

    def _structured(self, frame: Frame, message: dict[str, Any]) -> int:
        kind = frame.space.parts
        try:
            key = kind.key(faithful(message))
        except ValueError:
            self.tally("piece_opaque")
            frame.volatile = True
            return self.stock_message(frame, message)
        count = kind.young.get(key)
        if count is None:
            count = self.store.recall(kind, key)
        return self._message(frame, kind, key, message) if count is None or count < 0 else count

    def _message(self, frame: Frame, kind: Kind, key: bytes, message: dict[str, Any]) -> int:
        reason = why_stock(message, default_images=frame.default_images)
        count = self.stock_message(frame, message)
        if reason is None:
            frame.missed += 1
            self.store.put(kind, key, count)
        else:
            frame.volatile = True
            self.tally(f"piece_{reason}")
            self.store.put(kind, key, ALWAYS_STOCK)
        return count

    def stock_message(self, frame: Frame, message: dict[str, Any]) -> int:
        """Count one message the stock way."""
        try:
            return self.stock.count_messages(
                frame.params, [message], frame.default_images, frame.default_count
            )
        except Exception as error:  # noqa: BLE001 - any error of LiteLLM's is its answer
            raise StockRaised(error) from None

    # -- beside the messages

    def beside(self, frame: Frame, tools: Any, tool_choice: Any, has_system: bool) -> int:
        """Return the tokens beside the messages: reply, catalogue, system adjustment, tool choice."""
        total = 3
        if tools:
            frame.catalogue = self.catalogue(frame, tools)
            total += frame.catalogue
            if has_system:
                total -= 4
        if tool_choice is not None and tool_choice != "auto":
            total += self._choice(frame, tool_choice)
        return total

    def _choice(self, frame: Frame, tool_choice: Any) -> int:
        def count() -> int:
            arguments = (frame.params.count_function, None, tool_choice, False)
            return int(self.ask(self.stock.count_extra, *arguments)) - 3

        if type(tool_choice) is not dict:
            return count()
        kind = frame.space.choices
        try:
            key = kind.key(faithful(tool_choice))
        except ValueError:
            return count()
        known = self.store.get(kind, key)
        if known is None:
            known = count()
            self.store.put(kind, key, known)
        return known

    def catalogue(self, frame: Frame, tools: Any) -> int:
        """Return the tokens of the tool catalogue, its 9 for the definition included.

        The first time it is remembered under its exact bytes. When it comes again it is worth finding out
        whether its JSON text, three times as fast to write, is a key as good.
        """
        json_key, exact_key = self._catalogue_key(frame.space.catalogues, tools), None
        known = None if json_key is None else self.store.get(frame.space.catalogues, json_key)
        if known is not None and known >= 0:
            return known
        try:
            exact_key = frame.space.exact_catalogues.key(faithful(tools))
        except ValueError:
            self.tally("piece_opaque")
            return self.stock_catalogue(frame, tools)
        count = self.store.get(frame.space.exact_catalogues, exact_key)
        if count is None:
            count = self.stock_catalogue(frame, tools)
            self.tally("catalogue_missed")
            self.store.put(frame.space.exact_catalogues, exact_key, count)
        elif known is None and json_key is not None:
            mark = count if catalogue_is_plain(tools) else LOOK_EXACT
            self.store.put(frame.space.catalogues, json_key, mark)
        return count

    def peek_catalogue(self, frame: Frame, tools: Any) -> int | None:
        """Return the tokens of a catalogue when they are remembered; counts nothing.

        Raises:
            ValueError: *tools* is not plain data.
        """
        json_key = self._catalogue_key(frame.space.catalogues, tools)
        known = None if json_key is None else self.store.get(frame.space.catalogues, json_key)
        if known is None or known < 0:
            known = self.store.get(
                frame.space.exact_catalogues, frame.space.exact_catalogues.key(faithful(tools))
            )
        return known

    @staticmethod
    def _catalogue_key(kind: Kind, tools: Any) -> bytes | None:
        try:
            return kind.key(orjson.dumps(tools, option=_STRICT))
        except TypeError:
            return None

    def stock_catalogue(self, frame: Frame, tools: Any) -> int:
        """Count a catalogue the stock way."""
        return int(self.ask(self.stock.count_extra, frame.params.count_function, tools, None, False)) - 3

    def text(self, frame: Frame, text: str) -> int:
        """Count one string, whole: parts of a string do not add up."""
        kind = frame.space.texts
        key = kind.key(text.encode("utf-8", "surrogatepass"))
        known = self.store.get(kind, key)
        if known is None:
            known = int(self.ask(frame.params.count_function, text))
            self.tally("text_missed")
            self.store.put(kind, key, known)
        return known

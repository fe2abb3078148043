"""The incremental counter: a drop-in for LiteLLM's two counting functions, with a continuous self-check.

Exactness: same integer and same exception as LiteLLM. What is not a sum of pieces (``text=[…]``), what needs
the network or an optional library (high-detail images behind a URL, PDFs) and custom tokenizers are counted
the stock way. A sample of requests is counted both ways off the event loop; one difference switches the
cache off until restart, logs the smallest differing piece by its shape, and is counted.
:attr:`IncrementalCounter.counts` tells misses and every reason for the stock way.
"""

from __future__ import annotations

import logging
import marshal
import threading
from collections import Counter
from typing import Any

from gateway_plugin.counting_cache import PieceStore
from gateway_plugin.counting_check import Background, Sampler
from gateway_plugin.counting_pieces import shape
from gateway_plugin.counting_stock import Stock
from gateway_plugin.counting_sum import Frame, PieceCounter, StockRaised, faithful

log = logging.getLogger("agentwatt")


class IncrementalCounter:
    """Drop-in for LiteLLM's ``token_counter`` and ``messages_reach_token_count``. Thread-safe."""

    def __init__(
        self,
        stock: Stock,
        *,
        max_bytes: int = 32 << 20,
        check_share: float = 0.01,
        background: Background | None = None,
        seed: int | None = None,
    ) -> None:
        """Make a counter over *stock*.

        Args:
            stock: LiteLLM's own functions.
            max_bytes: bound of the remembered counts, bytes.
            check_share: share of requests that are also counted the stock way; 0 switches the check off.
            background: worker for the checks; one of its own when None.
            seed: of the sampler (tests); random when None.

        Raises:
            ValueError: *max_bytes* or *check_share* is out of range.
        """
        self._stock = stock
        self.store = PieceStore(max_bytes)
        self.pieces = PieceCounter(stock, self.store)
        self._sampler = Sampler(check_share, seed=seed)
        self.background = background or Background()
        self._last = threading.local()
        self.active = True

    @property
    def counts(self) -> Counter[str]:
        """Occurrences by name: ``summed``, ``piece_missed``, ``stock_…``, ``checked``, ``mismatched``, …."""
        return self.pieces.counts

    # -- the two functions that LiteLLM calls

    def token_counter(
        self,
        model: Any = "",
        custom_tokenizer: Any = None,
        text: Any = None,
        messages: Any = None,
        count_response_tokens: Any = False,
        tools: Any = None,
        tool_choice: Any = None,
        use_default_image_token_count: Any = False,
        default_token_count: Any = None,
    ) -> int:
        """Return LiteLLM's count of the same arguments; raises what LiteLLM raises."""
        self._last.catalogue = None
        total: int | None = None
        stock_error: Exception | None = None
        if self.active and not self._stock.disabled():
            reason = _why_not(model, messages, tools) if text is None else _why_not_text(model, text)
            if custom_tokenizer is not None:
                reason = "stock_custom_tokenizer"
            elif default_token_count is not None and type(default_token_count) is not int:
                reason = "stock_default"
            elif text is not None and (messages is not None or tools or tool_choice or count_response_tokens):
                reason = "stock_text"
            try:
                if reason is not None:
                    self.pieces.tally(reason)
                elif text is not None:
                    total = self.pieces.text(self.pieces.frame(model), text)
                    self.pieces.tally("summed")
                else:
                    with_extra = count_response_tokens is False
                    images = bool(use_default_image_token_count)
                    request = (model, messages, tools, tool_choice, with_extra, images, default_token_count)
                    total, frame = self._sum(*request)
                    self._last.catalogue = frame.catalogue
                    self._sample(frame, request)
            except StockRaised as raised:
                stock_error = raised.error
            except Exception as error:  # noqa: BLE001 - ours: LiteLLM's own count must go on
                self._own_error(error)
        if stock_error is not None:
            self.pieces.tally("stock_raised")
            raise stock_error
        if total is not None:
            return total
        return self._stock.token_counter(
            model,
            custom_tokenizer,
            text,
            messages,
            count_response_tokens,
            tools,
            tool_choice,
            use_default_image_token_count,
            default_token_count,
        )

    def messages_reach_token_count(
        self,
        model: Any,
        messages: Any,
        threshold: Any,
        tools: Any = None,
        use_default_image_token_count: Any = False,
    ) -> bool:
        """Return whether the prompt has *threshold* tokens, stopping at the message that reaches it."""
        assert self._stock.reach is not None
        self._last.catalogue = None
        reached: bool | None = None
        stock_error: Exception | None = None
        if self.active and not self._stock.disabled():
            reason = _why_not(model, messages, tools)
            try:
                if reason is not None:
                    self.pieces.tally(reason)
                else:
                    images = bool(use_default_image_token_count)
                    reached = self._reach(model, messages, threshold, tools, images)
            except StockRaised as raised:
                stock_error = raised.error
            except Exception as error:  # noqa: BLE001 - ours: LiteLLM's own count must go on
                self._own_error(error)
        if stock_error is not None:
            self.pieces.tally("stock_raised")
            raise stock_error
        if reached is not None:
            return reached
        return self._stock.reach(model, messages, threshold, tools, use_default_image_token_count)

    # -- for the meter

    @property
    def last_catalogue(self) -> int | None:
        """Tokens of the tool catalogue in this thread's last count; None when it had none or is unknown."""
        return getattr(self._last, "catalogue", None)

    def learn_catalogue(self, model: str, tools: list[Any]) -> int | None:
        """Return the tokens of *tools* when they are remembered; else have them counted in the background."""
        try:
            known = self.pieces.peek_catalogue(self.pieces.frame(model), tools)
            if known is not None:
                return known
            snapshot = faithful(tools)
        except (StockRaised, ValueError):
            return None

        def learn() -> None:
            copy = marshal.loads(snapshot)  # noqa: S302 - written above, never leaves the process
            self.pieces.catalogue(self.pieces.frame(model), copy)

        self.background.submit(learn)
        return None

    # -- sums

    def _sum(
        self,
        model: str,
        messages: Any,
        tools: Any,
        tool_choice: Any,
        with_extra: bool,
        default_images: bool,
        default_count: int | None,
    ) -> tuple[int, Frame]:
        # In LiteLLM's order, so that the first error is the one that LiteLLM would meet first.
        plain = self.pieces.plain(messages)
        frame = self.pieces.frame(model, default_images=default_images, default_count=default_count)
        total, has_system = self.pieces.messages(frame, plain)
        if with_extra:
            total += self.pieces.beside(frame, tools, tool_choice, has_system)
        return total, frame

    def _reach(self, model: str, messages: Any, threshold: Any, tools: Any, default_images: bool) -> bool:
        plain = self.pieces.plain(messages)
        frame = self.pieces.frame(model, default_images=default_images)
        has_system = any(message.get("role") == "system" for message in plain)
        total = self.pieces.beside(frame, tools, None, has_system)
        self._last.catalogue = frame.catalogue
        self._sample(frame, (model, messages, tools, None, True, default_images, None))
        if total >= threshold:
            return True
        for message in plain:
            total += self.pieces.messages(frame, (message,))[0]
            if total >= threshold:
                return True
        return False

    def _own_error(self, error: Exception) -> None:
        self.pieces.tally("own_error")
        if self.counts["own_error"] == 1:
            log.warning(
                "agentwatt: the incremental token counter failed (%s); such prompts are counted by LiteLLM",
                type(error).__name__,
            )

    # -- self-check

    def _sample(self, frame: Frame, request: tuple[Any, ...]) -> None:
        self.pieces.tally("summed")
        if not self._sampler.wants(frame.space.checked):
            return
        frame.space.checked += 1
        try:
            # A copy of its own: the proxy may change messages after the count.
            snapshot = faithful(request)
        except ValueError:
            self.pieces.tally("check_opaque")
            return
        self.background.submit(lambda: self._check(snapshot))

    def _check(self, snapshot: bytes) -> None:
        request = marshal.loads(snapshot)  # noqa: S302 - written by _sample, never leaves the process
        model, messages, tools, tool_choice, with_extra, images, default_count = request
        try:
            ours, frame = self._sum(*request)
            theirs = self._stock.token_counter(
                model, None, None, messages, not with_extra, tools, tool_choice, images, default_count
            )
        except StockRaised:
            return
        self.pieces.tally("checked")
        if ours == theirs or not self.active:
            return
        self.active = False
        self.pieces.tally("mismatched")
        piece = self._smallest_difference(frame, messages, tools)
        self.store.clear()
        log.error(
            "agentwatt: the incremental token count differs from LiteLLM's (%d, not %d) at %s; "
            "the cache is off until restart and all counts are LiteLLM's own",
            ours,
            theirs,
            piece,
        )

    def _smallest_difference(self, frame: Frame, messages: Any, tools: Any) -> str:
        found: list[tuple[int, str]] = []
        for message in messages:
            ours, _ = self.pieces.messages(frame, (message,))
            if ours != self.pieces.stock_message(frame, message):
                found.append((len(faithful(message)), "message " + shape(message)))
        if tools and self.pieces.catalogue(frame, tools) != self.pieces.stock_catalogue(frame, tools):
            found.append((len(faithful(tools)), "catalogue " + shape(tools)))
        if found:
            return min(found)[1]
        return f"no single piece: the sum of {len(messages)} messages and {len(tools or ())} tools itself"


def _why_not(model: object, messages: object, tools: object) -> str | None:
    """Return why a prompt goes to LiteLLM's counter as a whole; None when it is a sum of pieces."""
    if type(model) is not str:
        return "stock_model"
    if type(messages) not in (list, tuple) or (tools and type(tools) not in (list, tuple)):
        return "stock_shape"
    return None


def _why_not_text(model: object, text: object) -> str | None:
    """Return why a text goes to LiteLLM's counter; a list of texts is joined first and not a sum."""
    if type(model) is not str:
        return "stock_model"
    return None if type(text) is str else "stock_text"

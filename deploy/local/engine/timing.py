"""How long the parts of a request take.

    time to first token = queue + overhead + uncached prompt tokens ÷ prefill rate
    time per later token = slowness ÷ decode rate × (1 + co_batching × (requests that decode together − 1))

Every time is divided by the speed-up. Prefills do not slow each other down or the decoding of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Speeds:
    """Timing of the engine before any speed-up. Rates in tokens per second, times in seconds.

    ``co_batching`` is the share by which one more decoding request slows every other one down. ``chunk_s`` is
    how often a decoding request reports its tokens, in real seconds.

    Raises:
        ValueError: a rate is not positive and finite, or a time or share is negative.
    """

    prefill_tok_s: float = 12_000.0
    decode_tok_s: float = 60.0
    overhead_s: float = 0.05
    co_batching: float = 0.02
    speed_up: float = 1.0
    chunk_s: float = 0.02

    def __post_init__(self) -> None:
        rates = (self.prefill_tok_s, self.decode_tok_s, self.speed_up)
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError("rates and the speed-up must be positive and finite")
        if not all(0 <= value < math.inf for value in (self.overhead_s, self.co_batching, self.chunk_s)):
            raise ValueError("overhead, co-batching and chunk must be finite and not negative")

    def prefill_s(self, uncached_tokens: int) -> float:
        """Real seconds from admission to the first token."""
        return (self.overhead_s + uncached_tokens / self.prefill_tok_s) / self.speed_up

    def token_s(self, decoding: int, slow: float = 1.0) -> float:
        """Real seconds per later token when *decoding* requests decode together, this one included."""
        slowdown = 1 + self.co_batching * max(0, decoding - 1)
        return slowdown * slow / self.decode_tok_s / self.speed_up

    def step(self, left: int, token_s: float) -> int:
        """Tokens of the next report: as many as fit into a chunk, at least one, at most *left*."""
        return min(left, max(1, round(self.chunk_s / token_s)))

"""Sizes and speeds of the stand-in engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from deploy.local.engine.timing import Speeds


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and speeds of one engine; blocks are those of each model.

    Raises:
        ValueError: a size is not positive, or the cache cannot hold the longest request.
    """

    models: tuple[str, ...] = ("coder-large", "coder-small", "claude-standin")
    block_size: int = 32
    capacity_blocks: int = 40_000
    max_running: int = 32
    max_model_len: int = 131_072
    boards: int = 2
    prompt_tokens_details: bool = True
    speeds: Speeds = field(default_factory=Speeds)

    def __post_init__(self) -> None:
        sizes = (self.block_size, self.capacity_blocks, self.max_running, self.max_model_len, self.boards)
        if min(sizes) < 1:
            raise ValueError("block size, capacity, running requests, length and boards must be at least 1")
        tokens = self.block_size * self.capacity_blocks
        if tokens < self.max_model_len:
            raise ValueError(
                f"the cache holds {tokens} tokens, a request up to {self.max_model_len}: "
                "raise --capacity-blocks or lower --max-model-len"
            )

"""Answers in the shape of each API: one body, or a faithful sequence of server-sent events."""

from __future__ import annotations

from typing import Final

from deploy.local.engine.answers.base import Answer, Counts, Event, Filler
from deploy.local.engine.answers.chat import ChatAnswer
from deploy.local.engine.answers.messages import MessagesAnswer
from deploy.local.engine.answers.responses import ResponsesAnswer

ANSWERS: Final[dict[str, type[Answer]]] = {
    "chat": ChatAnswer,
    "messages": MessagesAnswer,
    "responses": ResponsesAnswer,
}

__all__ = ["ANSWERS", "Answer", "Counts", "Event", "Filler"]

"""Texts of the composed parts: what users, clients and models say between the recorded messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deploy.local.scenario.plan import Message

#: How clients begin the request for a summary, and the message that takes the place of the history. The
#: openings are those of the real clients, because gateways recognise such calls by them.
_SUMMARY_OPENINGS: Final = {
    "opencode": (
        "Provide a detailed prompt for continuing our conversation above.",
        "The conversation history before this point was compacted into the following summary:",
    ),
    "claude-code": (
        "Your task is to create a detailed summary of the conversation so far.",
        "This session is being continued from a previous conversation that ran out of context.",
    ),
}
_SUMMARY_BODY: Final = (
    "Name what the user asked for, what was done and found, the files that matter, open errors, and the step "
    "that comes next. Answer with text only and call no tool."
)
_TITLE_OPENINGS: Final = {
    "opencode": "You are a title generator.",
    "claude-code": "Summarize this coding conversation in under 50 characters.",
}
CHILD_SYSTEM: Final = (
    "You are a subagent of kind {kind}. You are given one part of a larger piece of work. Use the tools to "
    "find what was asked for, change nothing, and end with one report that your parent can use without "
    "seeing your steps. Paths in the report are absolute."
)
CHILD_PROMPT: Final = (
    "Look into one part of the work and report what you find: {topic} Name the files and lines that matter "
    "and say what you did not look at."
)
CLOSINGS: Final = (
    "This part is finished. I looked at the files involved, made the change where it belongs and checked it.",
    "Done. The change is small, the check that I ran passes, and nothing else in the workspace was touched.",
    "That is in place now. I verified the result once; tell me if you want it done differently.",
    "Finished for now. What remains open is listed above; the rest behaves as you described.",
)
FOLLOW_UPS: Final = (
    "Good. Please go on, and look at the neighbouring cases as well.",
    "Thanks, that looks right. Continue with the rest and keep the change as small as you can.",
    "Can you double-check that against the existing tests before we leave it?",
    "Fine so far. Go on with the next step, please.",
)


def summary_request(client: str) -> str:
    """Return the message by which *client* asks for a summary of the conversation."""
    opening, _ = _SUMMARY_OPENINGS.get(client, _SUMMARY_OPENINGS["claude-code"])
    return f"{opening} {_SUMMARY_BODY}"


def title_system(client: str) -> str:
    """Return the system prompt of *client*'s title call."""
    opening = _TITLE_OPENINGS.get(client, _TITLE_OPENINGS["claude-code"])
    return f"{opening} Name the work that the user's message asks for and answer with nothing else."


def summary(client: str, history: Sequence[Message]) -> str:
    """Return the text that takes the place of *history*: what was asked, and the commands that were run."""
    asked = next(str(message["content"]) for message in history if message["role"] == "user")
    commands = [
        call["function"]["arguments"][:160] for message in history for call in message.get("tool_calls") or ()
    ]
    lines = "\n".join(f"- {command}" for command in commands)
    _, opening = _SUMMARY_OPENINGS.get(client, _SUMMARY_OPENINGS["claude-code"])
    return (
        f"{opening}\n\nAsked for:\n{asked[:600]}\n\nCommands that were run, oldest first:\n{lines}\n\n"
        "Continue with the work where it stopped; do not ask the user again."
    )

"""Ground truth of a replay: what the client knows about every call that it sent.

One JSON object per line and logical call. The fields are fixed; a file with other fields is refused, because
a check against a half-understood truth proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import orjson

CLIENTS: Final = ("claude-code", "codex", "opencode", "none")
INITIATORS: Final = ("user", "agent", "auxiliary", "compaction")
ROUTES: Final = ("chat", "messages", "responses")
OUTCOMES: Final = ("success", "aborted", "failure")
SPECIALS: Final = (
    "compaction",
    "post_compaction",
    "model_switch",
    "tool_catalogue_200",
    "aborted",
    "upstream_retry",
)
MAIN: Final = "main"

#: (session, agent): one stream of calls with its own turns and its own prefix.
StreamKey = tuple[str, str]
#: (session, agent, turn number)
TurnKey = tuple[str, str, int]


class TruthError(ValueError):
    """A line of the ground truth is not a valid record."""


@dataclass(frozen=True, slots=True)
class TruthCall:
    """One call. Instants are UTC epoch microseconds; null means that it did not happen or is not known.

    ``call_in_turn`` counts the calls of ``(session, agent, turn)`` from 1 in the order of sending, auxiliary
    and compaction calls included. All calls of a subagent are initiated by an agent, its first one too.
    ``words_sha256`` is the digest of the conversation by which the stand-in engine's own record is found.
    """

    call: int
    litellm_call_id: str | None
    session: str
    session_header: str | None
    client: str
    agent: str
    parent_agent: str | None
    turn: int
    call_in_turn: int
    initiator: str
    route: str
    stream: bool
    model_group: str
    user: str
    expected_outcome: str
    special: str | None
    tool_count: int
    sent_us: int
    first_byte_us: int | None
    done_us: int
    status: int
    words_sha256: str

    def __post_init__(self) -> None:
        for name, allowed in (
            ("client", CLIENTS),
            ("initiator", INITIATORS),
            ("route", ROUTES),
            ("expected_outcome", OUTCOMES),
        ):
            if getattr(self, name) not in allowed:
                raise TruthError(f"{name} {getattr(self, name)!r} is not one of {', '.join(allowed)}")
        if self.special is not None and self.special not in SPECIALS:
            raise TruthError(f"special {self.special!r} is not one of {', '.join(SPECIALS)}")
        if self.turn < 1 or self.call_in_turn < 1:
            raise TruthError("turn and call_in_turn count from 1")

    @property
    def stream_key(self) -> StreamKey:
        """The (session, agent) that this call belongs to."""
        return (self.session, self.agent)

    @property
    def turn_key(self) -> TurnKey:
        """The (session, agent, turn) that this call belongs to."""
        return (self.session, self.agent, self.turn)


FIELD_NAMES: Final = tuple(field.name for field in fields(TruthCall))


def parse(record: dict[str, Any]) -> TruthCall:
    """Return the call that *record* describes.

    Raises:
        TruthError: a field is missing, unknown or outside its closed list.
    """
    missing = [name for name in FIELD_NAMES if name not in record]
    unknown = sorted(set(record) - set(FIELD_NAMES))
    if missing or unknown:
        raise TruthError(f"missing fields {missing}, unknown fields {unknown}")
    return TruthCall(**record)


def read(path: Path) -> list[TruthCall]:
    """Read a ground-truth file, in the order of its lines.

    Raises:
        TruthError: a line is not a valid record (the message names the line), or a call number repeats.
        OSError: the file cannot be read.
    """
    calls = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            if not isinstance(record, dict):
                raise TruthError("not an object")
            calls.append(parse(record))
        except (orjson.JSONDecodeError, TruthError) as error:
            raise TruthError(f"{path.name}:{number}: {error}") from error
    repeated = [call for call, count in Counter(call.call for call in calls).items() if count > 1]
    if repeated:
        raise TruthError(f"{path.name}: call numbers repeat: {repeated[:5]}")
    return calls


def dump(calls: Iterable[TruthCall]) -> bytes:
    """Return *calls* as JSON lines."""
    return b"".join(orjson.dumps(asdict(call)) + b"\n" for call in calls)


def sessions(calls: Iterable[TruthCall]) -> dict[str, list[TruthCall]]:
    """Return the expected partition into sessions, calls in order of sending."""
    partition: dict[str, list[TruthCall]] = {}
    for call in _by_time(calls):
        partition.setdefault(call.session, []).append(call)
    return partition


def turns(calls: Iterable[TruthCall]) -> dict[TurnKey, list[TruthCall]]:
    """Return the expected partition into turns, calls in order of sending."""
    partition: dict[TurnKey, list[TruthCall]] = {}
    for call in _by_time(calls):
        partition.setdefault(call.turn_key, []).append(call)
    return partition


def streams(calls: Iterable[TruthCall]) -> dict[StreamKey, list[TruthCall]]:
    """Return the expected partition into (session, agent) streams, calls in order of sending."""
    partition: dict[StreamKey, list[TruthCall]] = {}
    for call in _by_time(calls):
        partition.setdefault(call.stream_key, []).append(call)
    return partition


def by_litellm_call_id(calls: Iterable[TruthCall]) -> dict[str, TruthCall]:
    """Index the calls that the proxy answered by the id it gave them."""
    return {call.litellm_call_id: call for call in calls if call.litellm_call_id is not None}


def counts(calls: Sequence[TruthCall]) -> dict[str, dict[str, int]]:
    """Return the number of calls by session, user, route, client, initiator, special, outcome and model."""
    result = {
        name: dict(sorted(Counter(str(getattr(call, name)) for call in calls).items()))
        for name in (
            "session",
            "user",
            "route",
            "client",
            "initiator",
            "expected_outcome",
            "model_group",
        )
    }
    result["special"] = dict(sorted(Counter(call.special for call in calls if call.special).items()))
    return result


def _by_time(calls: Iterable[TruthCall]) -> list[TruthCall]:
    return sorted(calls, key=lambda call: (call.sent_us, call.call))

"""Player: sends the calls of a scenario as its clients would, and records the truth.

All sessions run concurrently; within one, calls keep their order and their gaps, which are recorded time
divided by the speed-up. Nothing is sent twice: retries are the business of the proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import orjson
from yarl import URL

from deploy.local import clients
from deploy.local.engine.prompt import parse
from deploy.local.scenario import wire
from deploy.local.scenario.answers import AnswerReader
from deploy.local.scenario.plan import Fork, PlannedCall, PlannedSession, Scenario
from deploy.local.truth import TruthCall

CALL_ID_HEADER: Final = "x-litellm-call-id"
DEFAULT_TIMEOUT_S: Final = 180.0


class UnreachableError(ConnectionError):
    """Nothing listens at the base URL."""


class KeysError(ValueError):
    """The keys do not fit the users of the scenario."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that did not end as the scenario expects."""

    truth: TruthCall
    reason: str

    def __str__(self) -> str:
        call = self.truth
        return (
            f"call {call.call} ({call.session}/{call.agent}, turn {call.turn}, call {call.call_in_turn}, "
            f"{call.route}, {call.model_group}, status {call.status}): {self.reason}"
        )


@dataclass(slots=True)
class ReplayResult:
    """Truth of every call that was sent, by call number, and the calls that did not end as expected."""

    calls: list[TruthCall] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class _SessionState:
    """What the client of one session remembers between calls."""

    ids: dict[str, str] = field(default_factory=dict)
    turn_started_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    fork_s: float = 0.0


class _Clock:
    """UTC microseconds that never run backwards: one reading of the wall clock, then the monotonic clock."""

    def __init__(self) -> None:
        self._wall_us = time.time_ns() // 1000
        self._origin_ns = time.perf_counter_ns()

    def now_us(self) -> int:
        return self._wall_us + (time.perf_counter_ns() - self._origin_ns) // 1000


async def replay(
    scenario: Scenario,
    base_url: str,
    keys: Mapping[str, str],
    *,
    speed_up: float = 10.0,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_call: Callable[[TruthCall], None] | None = None,
) -> ReplayResult:
    """Play *scenario* against *base_url* and return what happened.

    ``keys`` maps the users of the scenario to their API keys. ``on_call`` is told every call that ended.

    Raises:
        KeysError: a user has no key.
        UnreachableError: nothing listens at *base_url*.
        ValueError: *speed_up* is not positive.
    """
    if speed_up <= 0:
        raise ValueError("the speed-up must be positive")
    check_keys(scenario, keys)
    await _check_reachable(base_url)
    player = _Player(base_url.rstrip("/"), keys, speed_up, on_call)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    started = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        player.http = http
        await asyncio.gather(*(player.session(session) for session in scenario.sessions))
    result = player.result
    result.seconds = time.perf_counter() - started
    result.calls.sort(key=lambda call: call.call)
    result.failures.sort(key=lambda failure: failure.truth.call)
    return result


class _Player:
    """Plays sessions over one HTTP client."""

    http: aiohttp.ClientSession

    def __init__(
        self,
        base_url: str,
        keys: Mapping[str, str],
        speed_up: float,
        on_call: Callable[[TruthCall], None] | None,
    ) -> None:
        self.base_url = base_url
        self.keys = keys
        self.speed_up = speed_up
        self.on_call = on_call
        self.clock = _Clock()
        self.result = ReplayResult()

    async def session(self, session: PlannedSession) -> None:
        """Play one session; a call that fails does not end it."""
        state = _SessionState()
        for step in session.steps:
            if isinstance(step, Fork):
                started = time.perf_counter()
                await asyncio.gather(*(self._branch(session, state, branch) for branch in step.branches))
                state.fork_s = time.perf_counter() - started
            else:
                await self._call(session, state, step)

    async def _branch(
        self, session: PlannedSession, state: _SessionState, branch: Sequence[PlannedCall]
    ) -> None:
        for call in branch:
            await self._call(session, state, call)

    async def _call(self, session: PlannedSession, state: _SessionState, call: PlannedCall) -> None:
        if call.wait_s > 0:
            await asyncio.sleep(call.wait_s / self.speed_up)
        data = orjson.dumps(wire.body(session, call, state.ids))
        sent_us = self.clock.now_us()
        started_ms = state.turn_started_ms.setdefault((call.agent, call.turn), sent_us // 1000)
        headers = clients.headers(session, call, self._durations(state, call), started_ms)
        headers["authorization"] = f"Bearer {self.keys[session.user]}"
        headers["content-type"] = "application/json"
        exchange = _Exchange(AnswerReader(session.route))
        try:
            await self._exchange(exchange, session, call, data, headers)
        except TimeoutError:
            exchange.reason = "timed out"
        except aiohttp.ClientError as error:
            exchange.reason = f"{type(error).__name__}: {error}"
        state.ids.update(zip(call.emits, exchange.reader.tool_ids, strict=False))
        self._record(session, call, exchange, sent_us, parse(session.route, data).words_sha256)

    async def _exchange(
        self,
        exchange: _Exchange,
        session: PlannedSession,
        call: PlannedCall,
        data: bytes,
        headers: dict[str, str],
    ) -> None:
        """Send one request and read its answer into *exchange*."""
        reader = exchange.reader
        url = URL(self.base_url + wire.path(session), encoded=True)
        async with self.http.post(url, data=data, headers=headers) as response:
            exchange.status = response.status
            exchange.litellm_call_id = response.headers.get(CALL_ID_HEADER)
            streaming = session.stream and response.status == 200
            whole = bytearray()
            async for chunk in response.content.iter_any():
                if exchange.first_byte_us is None:
                    exchange.first_byte_us = self.clock.now_us()
                if not streaming:
                    whole += chunk
                    continue
                reader.feed(chunk)
                if call.abort_after_events is not None and reader.content_events >= call.abort_after_events:
                    exchange.aborted = not reader.finished
                    response.close()
                    break
            if response.status != 200:
                exchange.reason = whole[:300].decode(errors="replace")
            elif not streaming:
                reader.whole(bytes(whole))

    def _record(
        self,
        session: PlannedSession,
        call: PlannedCall,
        exchange: _Exchange,
        sent_us: int,
        words_sha256: str,
    ) -> None:
        truth = TruthCall(
            call=call.number,
            litellm_call_id=exchange.litellm_call_id,
            session=session.name,
            session_header=clients.session_id_sent(session, call),
            client=session.client,
            agent=call.agent,
            parent_agent=call.parent_agent,
            turn=call.turn,
            call_in_turn=call.call_in_turn,
            initiator=call.initiator,
            route=session.route,
            stream=session.stream,
            model_group=call.model_group,
            user=session.user,
            expected_outcome=call.expected_outcome,
            special=call.special,
            tool_count=len(call.tools),
            sent_us=sent_us,
            first_byte_us=exchange.first_byte_us,
            done_us=self.clock.now_us(),
            status=exchange.status,
            words_sha256=words_sha256,
        )
        self.result.calls.append(truth)
        reason = exchange.unexpected(call.expected_outcome)
        if reason is not None:
            self.result.failures.append(Failure(truth, reason))
        if self.on_call is not None:
            self.on_call(truth)

    def _durations(self, state: _SessionState, call: PlannedCall) -> list[tuple[str, int]]:
        """Return the tool durations as they passed: recorded ones sped up, subagents as measured."""
        return [
            (name, round(state.fork_s * 1000 if recorded is None else recorded / self.speed_up))
            for name, recorded in call.tools_before
        ]


@dataclass(slots=True)
class _Exchange:
    """One request and its answer."""

    reader: AnswerReader
    status: int = 0
    litellm_call_id: str | None = None
    first_byte_us: int | None = None
    aborted: bool = False
    reason: str | None = None

    def unexpected(self, expected: str) -> str | None:
        """Return why the exchange did not end as *expected*, or None when it did."""
        if expected == "failure":
            return None if self.status >= 400 else "succeeded, but a failure was expected"
        if self.reason is not None or self.status != 200:
            return self.reason or f"status {self.status} without a body"
        if self.reader.error is not None:
            return self.reader.error
        if expected == "aborted":
            return None if self.aborted else "the stream ended before the client could disconnect"
        return None if self.reader.finished else "the stream ended without its closing event"


def check_keys(scenario: Scenario, keys: Mapping[str, str]) -> None:
    """Raise :class:`KeysError` when a user of *scenario* has no key."""
    missing = [user for user in scenario.users if not keys.get(user)]
    if missing:
        raise KeysError(f"no key for {', '.join(missing)}")


async def _check_reachable(base_url: str) -> None:
    url = URL(base_url)
    if url.host is None or url.port is None:
        raise UnreachableError(f"not a URL with a host and a known scheme: {base_url!r}")
    try:
        _, writer = await asyncio.open_connection(url.host, url.port)
    except OSError as error:
        raise UnreachableError(f"nothing answers at {base_url}: {error}") from error
    writer.close()
    await writer.wait_closed()

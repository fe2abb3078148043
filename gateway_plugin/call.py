"""One call on its way through the gateway: how it arrives, what is kept while it is open, how it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway_plugin import identity as ident
from gateway_plugin import prefix
from gateway_plugin.shared_state import Lookup
from gateway_plugin.state import Entry
from gateway_plugin.tools import ToolCalls
from gateway_plugin.usage import Usage


class Arrival(NamedTuple):
    """What is known when a request is first seen. Times: UTC microseconds; queue in ms."""

    body: Mapping[str, Any]
    headers: object
    client_metadata: Mapping[str, Any]
    auth: ident.Auth
    proxy_session: str | None
    route: str
    call_type: str
    litellm_call_id: str | None
    received_us: int
    queue_ms: float | None


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call under way. ``mono`` is the monotonic clock at the pre-call hook, seconds.

    ``final`` is its final record once it ended. ``left_mono`` is when the proxy was done with the request's
    task, which is how a client that went away without any event is noticed. ``counting`` is what its token
    counts are added to, ``span`` the request's span when the proxy traces, and ``unplaced`` what a call
    without known headers waits with for its end.
    """

    record: dict[str, Any]
    mono: float
    seen_us: int
    entry: Entry | None = None
    lookup: Lookup | None = None
    tries: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    plugin_s: float = 0.0
    left_mono: float | None = None
    rank: int = -1
    counting: Any = None
    span: Any = None
    unplaced: tuple[Arrival, list[Any], prefix.Chain, str] | None = None
    final: dict[str, Any] | None = None

    @property
    def failed_attempts(self) -> int:
        """Failed tries against deployments."""
        return self._of_one_type(self.failures)

    @property
    def attempts(self) -> int:
        """Tries against deployments that LiteLLM began; 0 before the first."""
        return max(self._of_one_type(self.tries), self.failed_attempts)

    def _of_one_type(self, reports: dict[str, int]) -> int:
        """Count the reports of one call type.

        A route that LiteLLM bridges to another API reports one try once for each of the two call types, so
        the client's own call type counts, and where that is missing the one reported most often.
        """
        return reports.get(str(self.record.get("call_type")), 0) or max(reports.values(), default=0)

    def attempt_begun(self, call_type: object) -> None:
        """Enter one report of a try."""
        _count(self.tries, call_type)

    def attempt_failed(self, call_type: object) -> None:
        """Enter one report of a failed try."""
        _count(self.failures, call_type)

    @property
    def event_id(self) -> str:
        """The call's event id."""
        return str(self.record["event_id"])


def _count(reports: dict[str, int], call_type: object) -> None:
    name = str(getattr(call_type, "value", call_type))
    reports[name] = reports.get(name, 0) + 1


class Ending(NamedTuple):
    """How a call ended. ``None`` means unknown. Instants are UTC microseconds of this host's clock."""

    outcome: str
    ended_us: int | None = None
    first_token_us: int | None = None
    handoff_us: int | None = None
    usage: Usage = Usage()
    model: str | None = None
    deployment_id: str | None = None
    provider: str | None = None
    attempts: int | None = None
    error_class: str | None = None
    status_code: int | None = None
    response_cache_hit: bool | None = None
    litellm_call_id: str | None = None
    degraded: bool = False
    #: Ids of the tool calls in the answer.
    tool_call_ids: tuple[str, ...] = ()
    #: Its tool calls by class; None where the answer does not tell.
    tool_calls: ToolCalls | None = None


def now_us() -> int:
    """UTC epoch microseconds."""
    return time.time_ns() // 1000

"""Queueing checks: Erlang C, Allen-Cunneen, and the highest utilisation that a latency target allows.

The formulas are validated against a discrete-event simulation in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pipeline.sizing.units import OutOfRange, SizingError, exact, positive

#: Published table: TTFT P99 target in ms, highest utilisation (article of 16 June 2026).
RHO_MAX_TABLE: Final[tuple[tuple[float, float], ...]] = ((200, 0.55), (300, 0.63), (400, 0.70), (500, 0.75))


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/c, with ``offered`` = arrival rate x service time.

    Uses the recurrence of Erlang B, which stays in range for thousands of servers. Saturation waits surely.

    Raises:
        SizingError: fewer than one server, or a negative load.
    """
    if servers < 1:
        raise SizingError("at least one server is needed")
    if offered < 0:
        raise SizingError("offered load must not be negative")
    if offered >= servers:
        return 1.0
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = offered * blocking / (n + offered * blocking)
    rho = offered / servers
    return blocking / (1 - rho + rho * blocking)


def mean_wait_s(
    servers: int,
    arrivals_per_s: float,
    service_s: float,
    *,
    cv2_arrivals: float = 1.0,
    cv2_service: float = 1.0,
) -> float:
    """Mean time in queue of G/G/c by Allen and Cunneen; exact for M/M/c, infinite at saturation.

    ``cv2_*`` are squared coefficients of variation (1: exponential, 0: constant).
    """
    positive("service_s", service_s)
    offered = arrivals_per_s * service_s
    if offered >= servers:
        return math.inf
    mm = erlang_c(servers, offered) * service_s / (servers - offered)
    return mm * (cv2_arrivals + cv2_service) / 2


def wait_quantile_s(
    servers: int,
    arrivals_per_s: float,
    service_s: float,
    quantile: float,
    *,
    cv2_arrivals: float = 1.0,
    cv2_service: float = 1.0,
) -> float:
    """Quantile of the time in queue: the share that waits, with an exponential tail of the right mean.

    Exact for M/M/c; for other shapes the tail is stretched to the Allen-Cunneen mean, which is an
    approximation (within about 15 % at 0.5..0.9 utilisation in the simulations of the tests).
    """
    if not 0 <= quantile < 1:
        raise SizingError("quantile must lie in 0..1 (1 excluded)")
    offered = arrivals_per_s * service_s
    if offered >= servers:
        return math.inf
    waiting = erlang_c(servers, offered)
    if waiting <= 1 - quantile:
        return 0.0
    mean_given_wait = (
        mean_wait_s(servers, arrivals_per_s, service_s, cv2_arrivals=cv2_arrivals, cv2_service=cv2_service)
        / waiting
    )
    return mean_given_wait * math.log(waiting / (1 - quantile))


def smallest_servers(
    arrivals_per_s: float,
    service_s: float,
    *,
    target_wait_s: float,
    quantile: float = 0.95,
    limit: int = 100_000,
) -> int:
    """Fewest servers whose queue-time quantile stays within ``target_wait_s`` (M/M/c)."""
    servers = max(1, math.ceil(arrivals_per_s * service_s))
    while servers <= limit:
        if wait_quantile_s(servers, arrivals_per_s, service_s, quantile) <= target_wait_s:
            return servers
        servers += 1
    raise SizingError(f"more than {limit} servers would be needed")


def rho_max_published(ttft_p99_ms: float, table: Sequence[tuple[float, float]] = RHO_MAX_TABLE) -> float:
    """Highest utilisation for a TTFT P99 target from the published table, linear between its points.

    Raises:
        OutOfRange: the target lies outside the table; an extrapolated utilisation would be an invention.
    """
    low, high = table[0][0], table[-1][0]
    if not low <= ttft_p99_ms <= high:
        raise OutOfRange(
            f"ttft_p99_ms {ttft_p99_ms:g} lies outside the published table ({low:g} to {high:g} ms): "
            "measure the service time and use wait / (wait + service)"
        )
    for (x0, y0), (x1, y1) in pairwise(table):
        if ttft_p99_ms <= x1:
            # In exact arithmetic, so that 350 ms gives 0.665 and not its neighbour.
            slope = (exact(y1) - exact(y0)) / (exact(x1) - exact(x0))
            return float(exact(y0) + slope * (exact(ttft_p99_ms) - exact(x0)))
    raise AssertionError("unreachable: the range was checked")


def rho_max_mm1(wait_s: float, service_s: float) -> float:
    """Highest utilisation of M/M/1 whose mean wait is ``wait_s``: W / (W + s), s the measured service time.

    From W = s rho / (1 - rho). The article prints this relation inverted (1 - rho on the left).
    """
    positive("service_s", service_s)
    if wait_s < 0:
        raise SizingError("wait_s must not be negative")
    return wait_s / (wait_s + service_s)

"""The gateway: workers, limits, connections, spend queue and what a cold start leaves uncovered.

Almost all state of the proxy is per worker process, so most figures here are products of replicas and
workers. The ceiling of a worker is the token count before admission, not its request rate: it is bounded by
the limiter's slots and, because counting is computation, by the CPU it gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.sizing.units import SizingError, ceil_div, exact, positive

CounterKind = Literal["stock", "incremental"]

#: Proxy defaults that the arithmetic refers to (LiteLLM 1.102 to 1.108).
LIMITER_SLOTS: Final = 4
SPEND_QUEUE_BYTES: Final = 64_000_000
FLUSH_JITTER_S: Final = 5.0
DEFAULT_FLUSH_S: Final = 10.0
DEFAULT_POOL: Final = 10
STARTUP_S: Final = 300.0
REQUEST_TIMEOUT_S: Final = 600.0
#: Connections Postgres keeps for superusers and that other clients (migrations, exporters) need.
RESERVED_CONNECTIONS: Final = 10


@dataclass(frozen=True, slots=True)
class CountingCost:
    """Measured cost of the token counts of one request on a worker: wall seconds and CPU seconds."""

    wall_s: float
    cpu_s: float
    kind: CounterKind = "stock"


def admissions_per_s(slots: int, wall_s: float, vcpu: float, cpu_s: float) -> float:
    """Admissions per second that a worker can count: min(slots / wall time, vCPU / CPU time).

    The published ceiling of 40/s assumes four CPUs behind four slots; a worker with one vCPU counts 10/s.
    """
    for name, value in (("slots", slots), ("count_s", wall_s), ("vcpu", vcpu), ("cpu_s", cpu_s)):
        positive(name, value)
    return float(min(exact(slots) / exact(wall_s), exact(vcpu) / exact(cpu_s)))


def limit_without_redis(limit_rpm: int, workers: int, replicas: int) -> int:
    """Requests per minute that really pass when every worker counts alone."""
    return limit_rpm * workers * replicas


def postgres_connections(replicas: int, workers: int, pool: int) -> int:
    """Connections that the proxy opens: one pool per worker process."""
    return replicas * workers * pool


@dataclass(frozen=True, slots=True)
class Postgres:
    """Connections at rest and in a rollout, the room there is, and whether a pooler is needed."""

    connections: int
    connections_in_rollout: int
    max_connections: int
    share: float
    pgbouncer: bool
    pool_that_fits: int
    advice: str


def postgres(replicas: int, workers: int, pool: int, max_connections: int, surge: int = 1) -> Postgres:
    """Connections against ``max_connections``, counting the extra replicas of a rolling update."""
    at_rest = postgres_connections(replicas, workers, pool)
    rollout = postgres_connections(replicas + surge, workers, pool)
    room = max_connections - RESERVED_CONNECTIONS
    if room < 1:
        raise SizingError(
            f"max_connections {max_connections} leaves nothing beside {RESERVED_CONNECTIONS} reserved"
        )
    processes = (replicas + surge) * workers
    fits = room // processes
    needed = rollout > room
    if not needed:
        advice = f"{rollout} of {room} usable connections in a rollout: no pooler needed"
    elif fits >= 2:
        advice = f"PgBouncer in front, or a pool of {fits} per worker: {rollout} connections exceed {room}"
    else:
        advice = f"PgBouncer in front: {processes} workers exceed {room} usable connections with any pool"
    return Postgres(at_rest, rollout, max_connections, rollout / room, needed, fits, advice)


@dataclass(frozen=True, slots=True)
class SpendQueue:
    """Bytes waiting at a flush, share of the limit, and the database outage that loses the first row."""

    bytes_at_flush: float
    share: float
    outage_s: float | None


def spend_queue(
    rps: float, row_bytes: float, flush_s: float, workers: int, limit_bytes: int = SPEND_QUEUE_BYTES
) -> SpendQueue:
    """Spend queue of one worker at the peak; the oldest rows are dropped silently beyond the limit."""
    per_worker = rps / max(1, workers) * row_bytes
    waiting = per_worker * (flush_s + FLUSH_JITTER_S)
    return SpendQueue(waiting, waiting / limit_bytes, limit_bytes / per_worker if per_worker else None)


@dataclass(frozen=True, slots=True)
class Demand:
    """Load on the gateway: calls per second at the peak, calls in flight, and how fast the peak arrives."""

    peak_rps: float
    peak_in_flight: float
    burst_rps_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """One worker as deployed. ``overhead_cpu_s`` is everything a request costs beside counting."""

    vcpu: float = 1.0
    memory_gib: float = 4.0
    workers_per_replica: int = 1
    slots: int = LIMITER_SLOTS
    overhead_cpu_s: float = 0.02
    utilisation: float = 0.6


@dataclass(frozen=True, slots=True)
class Scaling:
    """Autoscaling thresholds and what a start-up of minutes leaves uncovered."""

    hpa_cpu_percent: int
    keda_in_flight_per_replica: int
    min_replicas: int
    max_replicas: int
    startup_s: float
    rps_added_during_startup: float
    warm_replicas_for_burst: int


@dataclass(frozen=True, slots=True)
class Gateway:
    """Size of the gateway and the settings that go with it."""

    counter: CounterKind
    admissions_per_s_worker: float
    request_rps_worker: float
    rps_worker: float
    workers: int
    replicas: int
    workers_per_replica: int
    vcpu_total: float
    memory_gib_total: float
    bound: Literal["counting", "requests", "availability", "burst"]
    max_in_flight_per_worker: int
    max_queued_per_worker: int
    postgres: Postgres
    spend_queue: SpendQueue
    scaling: Scaling
    limit_multiplier_without_redis: int


def size(
    demand: Demand,
    counting: CountingCost,
    shape: WorkerShape | None = None,
    *,
    pool: int = DEFAULT_POOL,
    max_connections: int = 100,
    flush_s: float = 60.0,
    row_bytes: float = 4096.0,
    spare_replicas: int = 1,
    startup_s: float = STARTUP_S,
) -> Gateway:
    """Replicas and workers for a demand.

    A worker admits the least of what it can count and what its CPU can serve, at ``utilisation`` of that.
    One replica more than needed stands by, so that a rolling update or a lost node costs no capacity; the
    limits are set so that the remaining ones carry the peak. Where the load climbs faster than a replica
    starts, the difference has to be warm already.
    """
    shape = shape or WorkerShape()
    counted = admissions_per_s(shape.slots, counting.wall_s, shape.vcpu, counting.cpu_s)
    served = shape.vcpu / (counting.cpu_s + shape.overhead_cpu_s)
    per_worker = min(counted, served) * shape.utilisation
    for_load = max(1, ceil_div(demand.peak_rps, per_worker * shape.workers_per_replica))
    added = demand.burst_rps_per_s * startup_s
    for_burst = max(1, ceil_div(demand.peak_rps + added, per_worker * shape.workers_per_replica))
    warm = max(for_load, for_burst)
    replicas = warm + spare_replicas
    workers = replicas * shape.workers_per_replica
    carrying = max(1, replicas - spare_replicas) * shape.workers_per_replica
    in_flight = max(2, math.ceil(demand.peak_in_flight * 1.25 / carrying))
    bound: Literal["counting", "requests", "availability", "burst"]
    if for_burst > for_load:
        bound = "burst"
    elif for_load == 1:
        bound = "availability"
    else:
        bound = "counting" if counted <= served else "requests"
    most = max(replicas + 1, 2 * warm + spare_replicas)
    return Gateway(
        counter=counting.kind,
        admissions_per_s_worker=counted,
        request_rps_worker=served,
        rps_worker=per_worker,
        workers=workers,
        replicas=replicas,
        workers_per_replica=shape.workers_per_replica,
        vcpu_total=workers * shape.vcpu,
        memory_gib_total=workers * shape.memory_gib,
        bound=bound,
        max_in_flight_per_worker=in_flight,
        max_queued_per_worker=2 * in_flight,
        postgres=postgres(replicas, shape.workers_per_replica, pool, max_connections),
        spend_queue=spend_queue(demand.peak_rps, row_bytes, flush_s, workers),
        scaling=Scaling(
            hpa_cpu_percent=round(shape.utilisation * 100),
            keda_in_flight_per_replica=max(
                1, math.floor(in_flight * shape.workers_per_replica * shape.utilisation)
            ),
            min_replicas=replicas,
            max_replicas=most,
            startup_s=startup_s,
            rps_added_during_startup=added,
            warm_replicas_for_burst=max(0, for_burst - for_load),
        ),
        limit_multiplier_without_redis=limit_without_redis(1, shape.workers_per_replica, replicas),
    )

from __future__ import annotations

import pytest

from pipeline.sizing import gateway, gateway_config
from pipeline.sizing.gateway import CountingCost, Demand, WorkerShape

STOCK = CountingCost(0.100, 0.100)
VALUES = {
    "gateway.flush_s": 60,
    "gateway.pool": 10,
    "gateway.slots": 4,
    "gateway.vcpu": 1.0,
    "gateway.memory_gib": 4.0,
}


def test_counting_on_one_cpu_bounds_a_worker_below_its_slots() -> None:
    assert gateway.admissions_per_s(4, 0.1, 1, 0.1) == 10
    assert gateway.admissions_per_s(4, 0.1, 8, 0.1) == 40


def test_two_workers_serve_the_example_and_one_replica_stands_by() -> None:
    found = gateway.size(Demand(3.0, 8), STOCK)
    assert (found.replicas, found.workers, found.bound) == (2, 2, "availability")
    assert found.postgres.connections == 20
    assert found.max_in_flight_per_worker == 10  # 8 calls and a quarter more, on the worker that stays


def test_incremental_counter_needs_fewer_workers() -> None:
    stock = gateway.size(Demand(60.0, 100), STOCK)
    incremental = gateway.size(Demand(60.0, 100), CountingCost(0.005, 0.005, "incremental"))
    assert stock.workers == 14
    assert stock.bound == "requests"
    assert incremental.workers == 4
    assert incremental.counter == "incremental"


def test_limiter_queues_before_the_cpu_when_counts_wait_rather_than_work() -> None:
    found = gateway.size(Demand(40.0, 50), CountingCost(0.8, 0.01), WorkerShape(overhead_cpu_s=0.001))
    assert found.bound == "counting"
    assert found.rps_worker == pytest.approx(5 * 0.6)


def test_burst_faster_than_a_start_up_has_to_be_warm() -> None:
    found = gateway.size(Demand(3.0, 8, burst_rps_per_s=0.05), STOCK)
    assert found.scaling.rps_added_during_startup == pytest.approx(15)
    assert found.bound == "burst"
    assert found.scaling.warm_replicas_for_burst == 3
    assert found.replicas == 5


@pytest.mark.parametrize(
    ("replicas", "workers", "allowed", "pooler", "word"),
    [(2, 1, 100, False, "no pooler"), (3, 4, 100, True, "pool of 5"), (60, 2, 100, True, "any pool")],
)
def test_pools_are_counted_per_worker_and_in_a_rollout(
    replicas: int, workers: int, allowed: int, pooler: bool, word: str
) -> None:
    found = gateway.postgres(replicas, workers, 10, allowed)
    assert found.connections == replicas * workers * 10
    assert found.connections_in_rollout == (replicas + 1) * workers * 10
    assert found.pgbouncer is pooler
    assert word in found.advice


def test_spend_queue_says_when_an_outage_loses_the_first_row() -> None:
    found = gateway.spend_queue(10.0, 4096, 60, 2)
    assert found.bytes_at_flush == 5 * 4096 * 65
    assert found.outage_s == pytest.approx(64_000_000 / (5 * 4096))
    assert gateway.spend_queue(0.0, 4096, 60, 2).outage_s is None


def test_fragments_carry_the_sized_limits_and_never_a_memory_target() -> None:
    found = gateway.size(Demand(30.0, 40), STOCK, WorkerShape(workers_per_replica=2, vcpu=1.0))
    parts = gateway_config.fragments(found, VALUES)
    general = parts["config_yaml"]["general_settings"]
    assert general["max_in_flight_requests_per_worker"] == found.max_in_flight_per_worker
    assert general["max_queued_requests_per_worker"] == 2 * found.max_in_flight_per_worker
    assert parts["config_yaml"]["litellm_settings"]["request_timeout"] == 600
    assert "session_affinity" in parts["config_yaml"]["router_settings"]["optional_pre_call_checks"]
    values = parts["values_yaml"]
    assert values["resources"]["requests"] == values["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert "targetMemoryUtilizationPercentage" not in values["autoscaling"]
    assert values["autoscaling"]["maxReplicas"] > values["autoscaling"]["minReplicas"] == found.replicas
    assert parts["environment"]["NUM_WORKERS"] == "2"


def test_engine_flags_name_the_cache_type_only_when_it_is_eight_bits() -> None:
    assert "--kv-cache-dtype fp8" in gateway_config.engine_flags(2, 8, 131_072, 1)
    assert not any("dtype" in flag for flag in gateway_config.engine_flags(2, 8, 131_072, 2))


def test_database_without_room_for_anybody_is_refused() -> None:
    with pytest.raises(ValueError, match="max_connections"):
        gateway.postgres(1, 1, 10, 10)
    with pytest.raises(ValueError, match="count_s"):
        gateway.admissions_per_s(4, 0.0, 1, 0.1)

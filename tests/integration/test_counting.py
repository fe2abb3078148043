"""Token counting in the real proxy on recorded work: measured, then replaced, with equal results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.recorded_run import CONFIG, Options, RecordedRun
from deploy.local.truth import TruthCall
from tests.integration.conftest import read_events

pytestmark = pytest.mark.integration


def _counting_config(folder: Path) -> Path:
    """Every check that counts: a context-window check, prompt-caching affinity, two deployments a group."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    for deployment in config["model_list"]:
        deployment["model_info"] = {"max_input_tokens": 200_000}
    config["model_list"] += [{**d, "model_info": {"max_input_tokens": 199_000}} for d in config["model_list"]]
    config["router_settings"] = {
        "enable_pre_call_checks": True,
        "optional_pre_call_checks": ["prompt_caching"],
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["stock", "incremental"])
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[TruthCall], list[dict[str, Any]], str]]:
    """(kind, truth, final records, proxy's log) of the small scenario with the exact meter on."""
    folder = tmp_path_factory.mktemp("counting")
    env = {"AGENTWATT_PLUGIN__COUNT_EXACT": "true"}
    if request.param == "incremental":
        env["AGENTWATT_PLUGIN__COUNT_INCREMENTAL"] = "true"
    options = Options(
        work=folder / "run",
        size="small",
        config=_counting_config(folder),
        plugin_env=env,
        key_properties={"max_budget": 1_000.0},
    )
    with RecordedRun(options) as run:
        truth = run.replay()
        run.pipeline()
        finals = [e for e in read_events(run.lake) if e["stage"] == "final"]
        yield request.param, truth, finals, run.stack.proxy.log.read_text(encoding="utf-8", errors="replace")


def test_every_call_is_counted_and_timed(counted: tuple[str, list[TruthCall], list[Any], str]) -> None:
    _, truth, finals, _ = counted
    assert len(finals) == len(truth)
    counting = [e for e in finals if (e["count_calls"] or 0) > 0]
    assert len(counting) == len(finals)
    assert all(e["count_ms"] > 0 and e["count_tokens"] > 0 for e in counting)


def test_the_incremental_counter_stays_on_and_finds_no_mismatch(
    counted: tuple[str, list[TruthCall], list[Any], str],
) -> None:
    _, _, finals, log = counted
    assert not any(e["count_reason"] for e in finals)
    assert "mismatch" not in log.lower()
    assert "agentwatt: " not in "\n".join(line for line in log.splitlines() if "ERROR" in line)

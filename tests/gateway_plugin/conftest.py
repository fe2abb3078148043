from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# Machines that run tests are shared; time bounds are asserted where they matter.
settings.register_profile("plugin", deadline=None)
settings.load_profile("plugin")

# LiteLLM otherwise tries to download its price list when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the machine that runs the tests must not reach them."""
    for name in list(os.environ):
        if name.startswith("AGENTWATT_PLUGIN__") or name in (
            "REDIS_URL",
            "CONFIG_FILE_PATH",
            "LITELLM_CONFIG_PATH",
            "LITELLM_SALT_KEY",
            "LITELLM_MASTER_KEY",
            "PROMETHEUS_MULTIPROC_DIR",
        ):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def logger_class() -> Any:
    """The callback class; importing it imports litellm, which takes seconds."""
    from gateway_plugin.hook import AgentwattLogger

    return AgentwattLogger

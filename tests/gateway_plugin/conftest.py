from __future__ import annotations

import os

import pytest


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

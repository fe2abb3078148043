"""Shared fixtures of the sizing tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def models() -> Any:
    """Reduced configurations of public models."""
    return _load("model_configs")


@pytest.fixture(scope="session")
def examples() -> Path:
    """Folder of the example plans."""
    return EXAMPLES


@pytest.fixture
def week_report() -> dict[str, Any]:
    """A figures report of a measured week."""
    found: dict[str, Any] = _load("figures").report()
    return found

"""Scenario: recorded agent work composed into sessions with known truth.

:func:`compose` gives the scenario of a fixed size; :mod:`deploy.local.replay` plays it against a proxy.
"""

from deploy.local.scenario.casts import SIZES, Cast, Subagent, Turn
from deploy.local.scenario.composer import compose, compose_casts
from deploy.local.scenario.plan import Fork, PlannedCall, PlannedSession, Scenario

__all__ = [
    "SIZES",
    "Cast",
    "Fork",
    "PlannedCall",
    "PlannedSession",
    "Scenario",
    "Subagent",
    "Turn",
    "compose",
    "compose_casts",
]

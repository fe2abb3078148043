"""Power and energy series by the names their usual exporters give them, and the sources a setting declares.

Names and units were read from the exporters' repositories and public configurations; docs/power.md lists
them. A CPU package (RAPL) is no node and an attributed process is no measurement, so neither is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipeline.sql import parameters

#: ± per cent assumed for a source that states none (board sensors are specified at about five).
DEFAULT_ACCURACY_PERCENT: Final = 5.0


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A series of a usual exporter; ``factor`` leads to watts (gauge) or joules (counter)."""

    name: str
    metric: str
    kind: str
    factor: float
    scope: str = "board"
    identity_labels: tuple[str, ...] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    accuracy_percent: float | None = None
    synthetic: bool = False
    devices: int | None = None


#: preset -> its series; the energy counter first, because it is preferred where both exist
PRESETS: Final[Mapping[str, tuple[KnownSource, ...]]] = {
    "dcgm": (
        KnownSource("dcgm energy counter", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", 1e-3,
                    identity_labels=("UUID",)),
        KnownSource("dcgm power gauge", "DCGM_FI_DEV_POWER_USAGE", "gauge", 1.0, identity_labels=("UUID",)),
    ),
    "nvidia_smi": (
        KnownSource("nvidia-smi exporter", "nvidia_smi_power_draw_watts", "gauge", 1.0,
                    identity_labels=("uuid",)),
    ),
    "nvml": (
        KnownSource("nvml energy counter", "agentwatt_gpu_energy_joules_total", "counter", 1.0,
                    identity_labels=("uuid",)),
        KnownSource("nvml power gauge", "agentwatt_gpu_power_watts", "gauge", 1.0, identity_labels=("uuid",)),
    ),
    "kepler": (
        KnownSource("kepler gpu counter", "kepler_node_gpu_joules_total", "counter", 1.0,
                    identity_labels=("gpu_uuid",)),
        KnownSource("kepler gpu gauge", "kepler_node_gpu_watts", "gauge", 1.0, identity_labels=("gpu_uuid",)),
        KnownSource("kepler platform", "kepler_platform_watts", "gauge", 1.0, scope="node",
                    identity_labels=("chassis_id", "source")),
    ),
    "ipmi": (KnownSource("ipmi dcmi", "ipmi_dcmi_power_consumption_watts", "gauge", 1.0, scope="node"),),
    "redfish": (
        KnownSource("redfish power control", "idrac_power_control_consumed_watts", "gauge", 1.0, scope="node",
                    identity_labels=("id",)),
    ),
    "scaphandre": (KnownSource("scaphandre", "scaph_host_power_microwatts", "gauge", 1e-6, scope="node"),),
    # hundredths of a kilowatt
    "apc_pdu": (KnownSource("apc pdu", "rPDU2DeviceStatusPower", "gauge", 10.0, scope="rack",
                            identity_labels=("rPDU2DeviceStatusIndex",)),),
    "servertech_pdu": (KnownSource("server technology pdu", "st4InputCordActivePower", "gauge", 1.0,
                                   scope="rack", identity_labels=("st4UnitIndex", "st4InputCordIndex")),),
}  # fmt: skip


def sources(settings: parameters.Conventions) -> Sequence[parameters.Source]:
    """Return the declared sources and presets, else those of the usual GPU exporter and our NVML reader."""
    declared: list[parameters.Source] = list(settings.power.sources)
    for name in settings.power.presets:
        declared += PRESETS[name]
    return declared or [*PRESETS["dcgm"], *PRESETS["nvml"]]

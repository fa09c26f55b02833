"""What our own reports say of a node that Slurm has faults on: their fault codes, and the report. Pure.

NodeD's codes begin with the type of what is faulty, and no type begins with F. Ours begin with FE, and never
change: somebody may have written them into a NodeDConfiguration.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segment_health.level import FaultLevel, NodeStatus

from .report import Device, Report

if TYPE_CHECKING:
    from segment_health.policy.assess import Assessment

DEVICE = "Slurm"
"""DeviceType of our reports. None of upstream's has this name, so that nobody takes one for the other."""

MARKER = ".segment-health-export"
"""Says when the last export was. With it the directory is never bare, as one that is not mounted."""

CODES = {
    "DOWN": "FE000001",
    "ERROR": "FE000002",
    "FUTURE": "FE000003",
    "DRAIN": "FE000011",
    "FAIL": "FE000012",
    "NOT_RESPONDING": "FE000013",
    "INVALID_REG": "FE000014",
    "REBOOT_ISSUED": "FE000015",
    "POWER_DOWN": "FE000021",
    "POWER_DRAIN": "FE000022",
    "POWERING_DOWN": "FE000023",
    "POWERED_DOWN": "FE000024",
}
"""One code for each word of Slurm's that is a fault by itself."""
BY_RULE = "FE0000FF"
"""The code of any other word: a site's rule made a fault of it."""

_OURS = frozenset({*CODES.values(), BY_RULE})


def is_ours(code: str) -> bool:
    """Tell whether our own reports use this code."""
    return code in _OURS


def wrote(report: Report) -> bool:
    """Tell whether a report is one of ours: nothing in it but one device that only we have."""
    if report.devices is None or len(report.devices) != 1:
        return False
    (device,) = report.devices
    named = device.type == DEVICE and device.level in FaultLevel.__members__
    return named and all(map(is_ours, device.codes or ("",)))


def report_of(assessment: Assessment) -> Report | None:
    """Return what to report of a node, None where there is nothing above NotHandleFault."""
    level = assessment.level
    if not level:
        return None
    faults = {CODES.get(finding.word, BY_RULE) for finding in assessment.findings if finding.level}
    device = Device(DEVICE, 0, tuple(sorted(faults)) or (BY_RULE,), level.name)
    return Report((device,), NodeStatus(level).name)


def level_of(report: Report) -> FaultLevel:
    """Return the level of a report of ours."""
    return max((FaultLevel[device.level] for device in report.devices or ()), default=FaultLevel.NotHandleFault)

from __future__ import annotations

import pytest

from segment_health.doctor.launcher import check_nvrx


@pytest.mark.parametrize(
    ("version", "is_array", "severity", "told"),
    [
        (None, None, "skipped", "no nvidia-resiliency-ext"),
        ("", True, "skipped", "no nvidia-resiliency-ext"),
        ("unknown", True, "skipped", "not a known version"),
        ("0.2.1", True, "error", "knows no UnhealthyNodeException"),
        ("0.3.0", True, "error", "exits 0"),
        ("0.4.1", False, "error", "exits 0"),
        ("0.5.0", None, "error", "exits 0"),
        ("0.6.0", True, "warning", "exits 1 when excluded"),
        ("0.6.0", False, "error", "outside arrays exits 0"),
        ("0.6.0", None, "error", "outside arrays exits 0"),
        ("0.7.0", True, "ok", "--ft-segment-health-check-dir"),
        ("0.7.0rc1+cu12", False, "ok", "exits 1"),
        ("0.10.0", None, "ok", "exits 1"),
        ("1.0", None, "ok", "exits 1"),
    ],
)
def test_a_version(version: str | None, is_array: bool | None, severity: str, told: str) -> None:
    """What an excluded process 0 ends with depends on the version, and for 0.6 on the kind of job."""
    check = check_nvrx(version, "/usr/bin/python3", is_array=is_array)
    assert check.severity == severity
    assert told in check.detail
    assert (check.remedy is None) == (severity in {"ok", "skipped"})

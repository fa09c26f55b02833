"""The launcher of this environment: what NVRx makes of an exclusion. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .check import error, ok, skipped, warning

if TYPE_CHECKING:
    from .check import Check

DISTRIBUTION = "nvidia-resiliency-ext"
_REMEDY = (
    f"{DISTRIBUTION} 0.7.0 or newer; or run `segment-health check` before the launcher, and end with its status"
)


def check_nvrx(version: str | None, python: str, *, is_array: bool | None) -> Check:
    """Judge whether an excluded process 0 ends with an error; `is_array` is None outside a job.

    By version: before 0.3 nothing looks; 0.3 to 0.5 swallow the exception and exit 0; 0.6 exits 1 in an array and
    0 in a regular job; from 0.7 on the launcher has the segment check and always exits 1.
    """
    name = "launcher.nvrx"
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None:
        why = f"{DISTRIBUTION} {version[:40]!a}: not a known version" if version else f"no {DISTRIBUTION}"
        return skipped(name, f"{why} for {python}; ask with the launcher's own Python")
    release, told = (int(found[1]), int(found[2])), f"{DISTRIBUTION} {version}"
    if release >= (0, 7):
        return ok(name, f"{told}: has --ft-segment-health-check-dir, and an excluded process 0 exits 1")
    if release >= (0, 6) and is_array:
        return warning(name, f"{told}: exits 1 when excluded, but does not look at decisions itself", _REMEDY)
    if release >= (0, 6):
        does = "does not look at decisions itself, and outside arrays exits 0 when excluded"
    elif release >= (0, 3):
        does = "swallows UnhealthyNodeException and exits 0, so no step ends by it"
    else:
        does = "knows no UnhealthyNodeException, so nothing excludes a node"
    return error(name, f"{told}: {does}", _REMEDY)

"""How an answer of nvhcd is read: the rule of seed 001, "Compatible service contract". Pure.

Two things make a node unhealthy: `success` is false, or `failed_checks` in the output of a success is a list
that is not empty. Nothing else does. An output that is no JSON, or has no such list, is a remark: a check that
cannot be understood takes no node away. `exit_code` decides nothing, and neither does `fail_count`, which may
count checks that the site ignores. NVRx 0.6 and 0.7 read it otherwise: docs/nodecheck.md has the table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from segment_health.record import brief

from .health_check import Finding

if TYPE_CHECKING:
    from .message import Response

_NAMES = 16
"""Failed checks, or remarks, that are shown."""
_NAME = 200
"""Characters of a name, or a remark, that are shown."""
_TEXT = 400
"""Characters of an output or an error that are shown."""


def read(answer: Response) -> Finding:
    """Return what an answer says of the node. What is quoted of it is cut and escaped; nothing is raised."""
    if not answer.success:
        return Finding(problems=(_failure(answer),))
    try:
        found = _object(answer.output)
        failed = _failed_checks(found)
    except ValueError as error:
        quoted = brief(answer.output.strip(), _TEXT) or "(empty)"
        return Finding(
            remarks=(f"nvhcd reports success, and its output {error}, so nothing is read there: {quoted}",)
        )
    if failed:
        return Finding(problems=(f"failed checks: {_list(failed)}",))
    return Finding(remarks=(*_ignored(found), *_remarks(found)))


def _failure(answer: Response) -> str:
    """Say all that an answer tells of a failure; what it tells of success does not count here."""
    told = [f"nvhcd reports a failure (exit code {answer.exit_code})"]
    try:
        failed = _failed_checks(_object(answer.output))
    except ValueError:
        failed = []
    if failed:
        told.append(f"failed checks: {_list(failed)}")
    elif answer.output.strip():
        told.append(f"output: {brief(answer.output.strip(), _TEXT)}")
    if answer.error.strip():
        told.append(f"error: {brief(answer.error.strip(), _TEXT)}")
    return "; ".join(told)


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object. ValueError, which goes on after `its output`, where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or a number that nobody counts to
        raise ValueError("is no JSON") from error
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - one kind for whatever cannot be read
    return found


def _failed_checks(found: dict[str, Any]) -> list[Any]:
    """Take the list that decides. ValueError, as of _object(), where it is none."""
    if "failed_checks" not in found:
        raise ValueError("has no failed_checks")
    failed = found["failed_checks"]
    if not isinstance(failed, list):
        raise ValueError("has failed_checks that are no list")  # noqa: TRY004 - as above
    return failed


def _ignored(found: dict[str, Any]) -> tuple[str, ...]:
    """Remark on a count that goes on beside an empty list: NVRx 0.6 and 0.7 exclude a node for that."""
    count = found.get("fail_count", 0)
    if not isinstance(count, int | float) or isinstance(count, bool) or not count > 0:
        return ()
    ignored = found.get("failed_checks_ignored")
    names = f" ({_list(ignored)})" if isinstance(ignored, list) and ignored else ""
    return (
        f"failed_checks is empty, and fail_count is {_shown(count)}: what failed is ignored by the site{names}",
    )


def _remarks(found: dict[str, Any]) -> tuple[str, ...]:
    """Take what our wrapper and our built-in checks say beside the verdict."""
    remarks = found.get("remarks")
    return tuple(map(_shown, remarks[:_NAMES])) if isinstance(remarks, list) else ()


def _list(items: list[Any]) -> str:
    more = f" and {len(items) - _NAMES} more" if len(items) > _NAMES else ""
    return ", ".join(map(_shown, items[:_NAMES])) + more


def _shown(value: object) -> str:
    """Show a value in a line: text as it is, all else as JSON."""
    try:
        return brief(value if isinstance(value, str) else json.dumps(value), _NAME)
    except RecursionError:
        return "(nested too deep to be shown)"

"""The answer of one check. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["ok", "warning", "error", "skipped"]


class Check(NamedTuple):
    """What was found, and what to do about it: `remedy` is None where nothing is to be done.

    "error" is what keeps decisions from being published or obeyed; "warning" what can, or delays them; "skipped"
    is no verdict, and `detail` says why there is none.
    """

    name: str
    severity: Severity
    detail: str
    remedy: str | None = None


def ok(name: str, detail: str) -> Check:
    """Return a check that found nothing to do."""
    return Check(name, "ok", detail)


def warning(name: str, detail: str, remedy: str) -> Check:
    """Return a check that found what a person should know."""
    return Check(name, "warning", detail, remedy)


def error(name: str, detail: str, remedy: str) -> Check:
    """Return a check that found what a person must mend."""
    return Check(name, "error", detail, remedy)


def skipped(name: str, why: str) -> Check:
    """Return a check that could not be made."""
    return Check(name, "skipped", why)


def needs_a_person(checks: Iterable[Check]) -> bool:
    """Whether any check is an error."""
    return any(check.severity == "error" for check in checks)


def seconds(value: float) -> str:
    """Write a time for people: `40 s`, `3 min`, `2 h`, `5 days`."""
    for size, unit in ((172_800, "days"), (7_200, "h"), (120, "min")):
        if value >= size:
            return f"{value / {'days': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{value:.3g} s"

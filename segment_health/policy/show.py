"""A policy as text: TOML that means the same when it is read again, and JSON. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .schema import NO_VERDICT
from .states import defaults

if TYPE_CHECKING:
    from segment_health.level import FaultLevel

    from .assess import Policy
    from .rule import Rule


def as_document(policy: Policy) -> dict[str, Any]:
    """Return the public JSON of a policy: the file's keys, each rule's place, and the table below the rules."""
    return {
        "policy": policy.name,
        "digest": policy.digest or None,
        **_head(policy),
        "rule": [{**_row(rule), "place": rule.place} for rule in policy.rules],
        "defaults": {word: _named(level) for word, level in defaults().items()},
    }


def as_toml(policy: Policy) -> str:
    """Return the policy as a file that `policy check` takes, the table below the rules as comments."""
    lines = [_comment(f"{policy}"), *(f"{key} = {_value(value)}" for key, value in _head(policy).items())]
    for rule in policy.rules:
        lines += ["", _comment(rule.place), "[[rule]]"]
        lines += [f"{key} = {_value(value)}" for key, value in _row(rule).items()]
    lines += ["", "# Where no rule matches, in a running allocation:"]
    lines += [f"#   {word:16} {_named(level)}" for word, level in defaults().items()]
    return "\n".join(lines)


def _head(policy: Policy) -> dict[str, Any]:
    limit = policy.max_new_exclusions
    return {
        "publish_at": policy.publish_at.name,
        "clear_after": str(policy.clear_after),
        "max_new_exclusions": "off" if limit is None else str(limit),
        "hold_passes": policy.hold_passes,
    }


def _row(rule: Rule) -> dict[str, Any]:
    reason = rule.reason
    told = {
        "name": rule.name,
        "state": sorted(rule.states),
        "reason": reason.text if reason is not None and not reason.literal else "",
        "reason_literal": reason.text if reason is not None and reason.literal else "",
        "reason_user": sorted(rule.reason_users),
        "node": rule.hostlist,
        "partition": sorted(rule.partitions),
        "min_duration": f"{rule.min_duration}s" if rule.min_duration else "",
        "level": _named(rule.level),
    }
    return {key: value for key, value in told.items() if value}


def _named(level: FaultLevel | None) -> str:
    return NO_VERDICT if level is None else level.name


def _value(value: Any) -> str:
    """Write a text, a number or a list of texts in ASCII: JSON's escapes are TOML's, but past U+FFFF."""
    return "".join(c if " " <= c <= "~" else _escaped(c) for c in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04X}" if character <= "\uffff" else f"\\U{ord(character):08X}"


def _comment(text: str) -> str:
    return "# " + "".join(c if c.isprintable() else "?" for c in text)

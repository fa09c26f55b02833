"""A node report of NodeD, both ways: what stands in key `NodeInfo` of ConfigMap `mindx-dl-nodeinfo-<node>`. Pure.

Written as NodeD writes it, byte for byte, and read as ClusterD reads it: into its structures, which are written
once more, and CheckCode has to be the SHA-256 of that. It is a check against damage, and no signature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from . import wire

PREFIX = "mindx-dl-nodeinfo-"
"""What the name of a report begins with; the node's follows."""
KEY = "NodeInfo"
"""The ConfigMap's key that holds the report."""
UPDATE_TIME = "updateTime"
"""The ConfigMap's key that says when it was written; CheckCode does not cover it."""

_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True, slots=True)
class Device:
    """A device with faults. `codes` None is Go's nil list; `level` ought to be a name of FaultLevel."""

    type: str
    id: int
    codes: tuple[str, ...] | None
    level: str


@dataclass(frozen=True, slots=True)
class Report:
    """What NodeD says of a node. `devices` None is Go's nil list; `status` ought to be a name of NodeStatus."""

    devices: tuple[Device, ...] | None
    status: str


def check_code(report: Report) -> str:
    """Return the CheckCode: the SHA-256, in lower-case hexadecimal digits, of what json.Marshal makes of a report.

    Raises ValueError for a device id of more than 64 bits.
    """
    return _digest(_marshal(report))


def encode(report: Report) -> bytes:
    """Return the JSON of key `NodeInfo`, without a newline. Raises ValueError as check_code()."""
    inner = _marshal(report)
    return f'{{"NodeInfo":{inner},"CheckCode":"{_digest(inner)}"}}'.encode()


def decode(content: bytes) -> Report:
    """Read the JSON of key `NodeInfo`.

    Raises ValueError, with a cause for people, for what ClusterD refuses, and for what two readers may read
    differently: a member that stands there twice, and null for a device.
    """
    outer, _ = wire.members(wire.loads(content), ("NodeInfo", "CheckCode"), "the report")
    inner, _ = wire.members(outer.get("NodeInfo"), ("FaultDevList", "NodeStatus"), "NodeInfo")
    told = wire.text(outer.get("CheckCode"), "CheckCode")
    listed = wire.items(inner.get("FaultDevList"), "FaultDevList")
    report = Report(
        devices=None if listed is None else tuple(_device(value) for value in listed),
        status=wire.text(inner.get("NodeStatus"), "NodeStatus"),
    )
    if not told:
        raise ValueError("CheckCode is missing")
    if told not in {check_code(report), _digest(_marshal(report, short=False))}:
        fits = check_code(report)[:8]
        raise ValueError(f"CheckCode is wrong (it begins {wire.shown(told[:8])}, and the content's is {fits})")
    return report


def time_of(text: str) -> int:
    """Read an `updateTime` (RFC 3339), in seconds since the epoch. Raises ValueError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{UPDATE_TIME} is not a time")
    return int(datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00")).timestamp())


def _device(value: object) -> Device:
    if value is None:
        raise ValueError("FaultDevList holds null for a device")
    told, _ = wire.members(value, ("DeviceType", "DeviceId", "FaultCode", "FaultLevel"), "a device")
    codes = wire.items(told.get("FaultCode"), "FaultCode")
    return Device(
        type=wire.text(told.get("DeviceType"), "DeviceType"),
        id=wire.integer(told.get("DeviceId"), "DeviceId"),
        codes=None if codes is None else tuple(wire.text(code, "a fault code") for code in codes),
        level=wire.text(told.get("FaultLevel"), "FaultLevel"),
    )


def _marshal(report: Report, *, short: bool = True) -> str:
    """Write the inner NodeInfo as json.Marshal does."""
    devices = "null" if report.devices is None else f"[{','.join(_written(d, short) for d in report.devices)}]"
    return f'{{"FaultDevList":{devices},"NodeStatus":{wire.quoted(report.status, short=short)}}}'


def _written(device: Device, short: bool) -> str:
    codes = "null"
    if device.codes is not None:
        codes = f"[{','.join(wire.quoted(code, short=short) for code in device.codes)}]"
    return (
        f'{{"DeviceType":{wire.quoted(device.type, short=short)},'
        f'"DeviceId":{wire.in_64_bits(device.id, "DeviceId")},'
        f'"FaultCode":{codes},'
        f'"FaultLevel":{wire.quoted(device.level, short=short)}}}'
    )


def _digest(inner: str) -> str:
    return sha256(inner.encode()).hexdigest()

"""The worst inputs that we know, each in a process of its own: every parser ends soon, and stays under 200 MB.

The sizes are what is promised: 4 MB of what Slurm's commands print, 1 MB of JSON, of files of ours and of what
people write (as much as ConfigMaps, policies and heartbeats may have). Larger answers need more in proportion: a
byte of JSON such as `[[],[],...]` becomes some 25 in Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_MEMORY = 200 << 20
MAX_SECONDS = 20
"""Of the processor; what is linear needs one or two."""
MB = 1 << 20

NODE = b"NodeName=n1 Boards=1 State=IDLE ThreadsPerCore=1 "
JOB = b"%d|%d|N/A|N/A|RUNNING|0|2026-11-29T19:50:07|al|1001|main|%s|\n"
BOMB = b",".join(b"%%dx%c[0-65535]" % letter for letter in b"abcd")
JOBS = b"".join(JOB % (job, job, BOMB % (job, job, job, job)) for job in range(1, 6))
OWNED = b"JobId=1 JobName=x UserId=a(1) GroupId=a(1) MCS_label=x Priority=1 Nice=0 Account=a QOS=q "
RULE = b'[[rule]]\nname = "r%d"\nlevel = "SeparateFault"\n'
IN_JOB = b"SLURM_PROCID=0\nNVRX_SEGMENT_HEALTH_CHECK_DIR=/x\nSLURM_JOB_ID="

WORST: list[tuple[str, int, bytes, bytes, bytes]] = [
    ("nodes", 4 * MB, b"\n", b"", b""),
    ("nodes", MB, b"\xff", NODE + b"Reason=", b"\n"),
    ("nodes", 4 * MB, b"x", NODE, b"\n"),
    ("nodes", 2 * MB, b"x\n", NODE + b"x" * (2 * MB) + b" Comment=x\n", b""),
    ("nodes", 4 * MB, b"[", NODE + b"Reason=", b"\n"),
    ("nodes", 4 * MB, b"@", NODE + b"Reason=[", b"\n"),
    ("nodes", 4 * MB, b"[r@2026-11-29T19:50:07]", NODE + b"Reason=", b"\n"),
    ("nodes", 4 * MB, b"A+", b"NodeName=n1 Boards=1 State=", b" ThreadsPerCore=1 \n"),
    ("nodes", MB, NODE.replace(b"n1", b"n%d") + b"\n", b"", b""),
    ("jobs", 4 * MB, b"|", b"", b"\n"),
    ("jobs", 4 * MB, (JOB % (0, 1, b"n1")).replace(b"0", b"1%d", 1), b"", b""),
    ("jobs", 0, b"x", JOBS, b""),
    ("records", 4 * MB, b" UserId=", b"JobId=1 JobName=", b"\n"),
    ("records", 4 * MB, b"JobId=1\n", b"", b""),
    ("records", 4 * MB, b" Dependency=", OWNED + b"JobState=RUNNING Reason=x", b"\n"),
    ("records", 4 * MB, b"x", OWNED + b"JobState=RUNNING Reason=x Dependency=", b"\n"),
    ("records", 4 * MB, b"1", b"JobId=1 ArrayJobId=1 ArrayTaskId=", b" JobName=x UserId=a(1) GroupId=a(1) x\n"),
    ("config", 4 * MB, b"k%d=\n", b"", b""),
    ("config", 4 * MB, b"=", b"", b""),
    ("json", MB, b"[", b'{"nodes":[', b""),
    ("json", MB, b"9", b'{"a":', b"}"),
    ("json", MB, b" ", b"{", b"}"),
    ("json", MB, b'{"":0},', b'{"a":[', b'0],"nodes":[]}'),
    ("json", MB // 4, b"[],", b'{"nodes":[', b"0]}"),
    ("json", MB // 4, b'"%d":0,', b"{", b'"nodes":[]}'),
    ("json", MB // 8, b"\xff", b'{"a":"', b'"}'),
    ("json", MB // 4, b'{"name":"n%d","state":["IDLE"]},', b'{"nodes":[', b'{"name":"n","state":["IDLE"]}]}'),
    ("json", MB, b'{"error":"%d"},', b'{"nodes":[],"errors":[', b"0]}"),
    ("json", MB, b'"A",', b'{"nodes":[{"name":"n","state":[', b'"A"]}]}'),
    ("stream", MB // 4, b"0,", b'{"rows":[', b"0]}"),
    ("stream", MB, "\U0001f600".encode(), b'{"a":"', b'"}'),
    ("pyslurm", MB, b'"n%d":{"name":"x","state":"IDLE"},', b"{", b'"n":{}}'),
    ("pyslurm", MB, b"[", b'{"n":', b""),
    ("worker", 1 << 15, b"\n", b"", b""),
    ("worker", 1 << 15, b"[", b"", b""),
    ("recording", MB, b'{"name":"n%d","state":["IDLE"]},', b'{"schema":1,"nodes":[', b"0]}"),
    ("hostlist", 0, b"x", BOMB % (1, 1, 1, 1), b""),
    ("hostlist", 0, b"x", b"[0-511]x[0-511]", b""),
    ("hostlist", MB, b"a,", b"", b"a"),
    ("hostlist", MB, b"9", b"n[", b"]"),
    ("hostlist", MB // 4, b"%d,", b"n[", b"0]"),
    ("hostlist", MB // 4, b"r%dn[1-2],", b"", b"r"),
    ("state", MB, b"*", b"", b""),
    ("state", MB, b"A+", b"", b"A"),
    ("name", MB, b"1", b"segment_health_check.", b".1"),
    ("scope", MB, b"1,", b"job:", b"1"),
    ("artifact", MB, b"[", b"", b""),
    ("artifact", MB, b'{"":0},', b'{"nodes":[', b"0]}"),
    ("artifact", MB, b"9", b"", b""),
    ("artifact", MB, b"[],", b"[", b"0]"),
    ("memory", MB, b'{"node":"n%d","word":"w","since":1},', b'{"units":[],"held":0,"seen":[', b"0]}"),
    ("toml", MB, b"[", b"a=", b""),
    ("toml", MB, b"{a=", b"a=", b""),
    ("toml", MB, b"[a%d]\n", b"", b""),
    ("toml", MB // 4, b"[[a]]\n", b"", b""),
    ("toml", MB // 4, b"[a.b%d]\n", b"", b""),
    ("toml", MB // 4, b"a.a.a.a.a.a.a.a.a.a.a.a.a.a.b%d=1\n", b"", b""),
    ("toml", MB, b".a", b"a", b"=1"),
    ("toml", MB, b'""x', b'a="""', b'"""'),
    ("toml", MB, b"f", b"a=0x", b""),
    ("toml", MB, b"9", b"a=", b""),
    ("toml", MB, b"\\", b'a="', b""),
    ("policy", MB, b'"QQQQ",', RULE % 1 + b"state = [", b"]"),
    ("policy", MB // 2, b'"n%d",', RULE % 1 + b"node = [", b"]"),
    ("policy", MB // 2, b"a%d=1\n", b"", b""),
    ("policy", MB, b"[],", b"rule = [", b"]"),
    ("policy", 0, b"x", RULE % 1 + b'node = "' + BOMB % (1, 1, 1, 1) + b'"', b""),
    ("policy", MB // 8, RULE + b'node = "n[0-255]"\nreason = "x{9%d}"\n'.replace(b"%d", b"00"), b"", b""),
    ("settings", MB, b"a%d=1\n", b"", b""),
    ("settings", MB, b"1,", b"job=[", b"]"),
    ("settings", MB, b"q", b"", b"=1"),
    ("environment", MB, b"Q", b"SEGMENT_HEALTH_", b"=1"),
    ("environment", MB, b"A%d=x\n", b"", b""),
    ("environment", MB, b"9", IN_JOB, b""),
    ("noded", MB // 4, b"{},", b'{"NodeInfo":{"FaultDevList":[', b'{}]},"CheckCode":"x"}'),
    ("noded", MB, b"[", b"", b""),
    ("noded", MB - 99, b'"":0,', b"{", b'"":0}'),
    ("noded-config", MB - 99, b'"28000037",', b'{"FaultTypeCode":{"SeparateFaultCodes":[', b'"28000037"]}}'),
    ("noded-config", MB - 99, b"q", b'{"', b'":1}'),
]
"""What is repeated, up to so many bytes (`%d` in it counts), between a beginning and an end."""

FEED = """
import json, os
from tests.fuzz.targets import TARGETS
from tests.fuzz.test_worst import WORST, made
told = []
for name, *parts in WORST:
    pid = os.fork()
    if not pid:
        TARGETS[name].feed(made(*parts))
        os._exit(0)
    _, status, used = os.wait4(pid, 0)
    told.append((status, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime))
print(json.dumps(told))
"""


def made(size: int, unit: bytes, head: bytes, tail: bytes) -> bytes:
    """Make an input."""
    if b"%d" not in unit:
        return head + unit * (size // len(unit)) + tail
    return head + b"".join(unit % number for number in range(size // (len(unit) + 4))) + tail


def test_the_worst(root: Path) -> None:
    """Nesting, long lines and numbers, many of everything, and hostlists that name a million nodes."""
    environ = {**os.environ, "PYTHONPATH": str(root)}
    ended = subprocess.run(
        [sys.executable, "-c", FEED], env=environ, cwd=root, stdout=subprocess.PIPE, timeout=280, check=True
    )
    told = json.loads(ended.stdout)
    assert len(told) == len(WORST)
    broken = [
        (name, unit, head[:40], used)
        for (name, _, unit, head, _), used in zip(WORST, told, strict=True)
        if used[0] or used[1] >= MAX_MEMORY or used[2] >= MAX_SECONDS
    ]
    assert broken == []

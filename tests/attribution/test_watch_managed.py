"""`segment-health attribution watch` with the endpoint `localhost`: a service of the job's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("attrsvc.py")
SCRIPT = str(Path(sys.executable).with_name("segment-health"))
KEY = "nvapi-0Kl1m2N3o4P5"

# What a launcher finds, and what the service says to it: that it has the key, and the workload has not.
LAUNCHER = """
import json, os, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
told = json.load(opener.open("http://127.0.0.1:50050/healthz", timeout=10))
found = [name for name in os.environ if name.startswith("LLM_API_KEY")]
open(sys.argv[1], "w").write(json.dumps([told["pid"], found]))
sys.exit(7)
"""


def watched(work: Path, key_file: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run a launcher under watch, with a service of its own."""
    installed = work / "bin/nvrx-attrsvc"
    installed.parent.mkdir()
    installed.write_text(f"#!{sys.executable}\n{PROGRAM.read_text()}")
    installed.chmod(0o755)
    flags = ("--ft-attribution-endpoint", "LocalHost", "--ft-per-cycle-applog-prefix", f"{work}/logs/train.log")
    launcher = (sys.executable, "-c", LAUNCHER, str(work / "found"))
    return subprocess.run(
        [
            *before,
            SCRIPT,
            "attribution",
            "watch",
            *flags,
            "--ft-attribution-startup-timeout",
            "60",
            "--",
            *launcher,
        ],
        env={
            "PATH": f"{installed.parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # of a product that was broken on purpose
            "LLM_API_KEY_FILE": key_file,
            "LLM_API_KEY": KEY,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.root
def test_a_service_of_its_own(tmp_path: Path) -> None:
    """It is ready when the launcher begins, which has no key, and nothing is left. In a network of its own."""
    (tmp_path / "key").write_text(KEY)
    alone = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
    ended = watched(tmp_path, str(tmp_path / "key"), *alone)
    assert ended.returncode == 7, ended.stderr
    pid, found = json.loads((tmp_path / "found").read_text())
    assert found == []
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    assert "attribution service: ready" in ended.stderr
    assert KEY not in ended.stderr
    assert (tmp_path / "logs/nvrx/train_attribution.log").exists()


def test_without_a_readable_key_nothing_is_started(tmp_path: Path) -> None:
    """Status 1, a line that says why, and the launcher has not run."""
    ended = watched(tmp_path, "/no/such/key")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "/no/such/key: the API key cannot be read: No such file or directory; no" in line
    assert line.endswith("; the launcher is not started")
    assert not (tmp_path / "found").exists()

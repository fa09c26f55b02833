"""The units that `template show` prints: judged by systemd-analyze, and run by a real systemd in namespaces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Site

ROOT = Path(__file__).parents[2]
UNITS = {
    "systemd": "segment-health.service",
    "systemd-oneshot": "segment-health-pass.service",
    "systemd-timer": "segment-health-pass.timer",
    "nvhcd-systemd": "nvhcd.service",
    "nvhcd-socket": "nvhcd.socket",
    "attribution-systemd": "segment-health-attribution.service",
}
OURS = "/shared/segment-health/venv/bin/segment-health"
NVHCD, ATTRIBUTION = "/opt/segment-health/bin/nvhcd", "/opt/segment-health/bin/segment-health"
MAX_EXPOSURE = 20
"""Of 100, by `systemd-analyze security`: below 20 is what it calls OK; a unit without any protection has 96."""


def template(name: str) -> str:
    """Return what a user gets."""
    command = [sys.executable, "-m", "segment_health", "template", "show", name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Return a directory of the units, with a program in the place of ours, which is not there."""
    for name, file in UNITS.items():
        (tmp_path / file).write_text(
            template(name).replace(OURS, "/bin/true").replace(NVHCD, "/bin/true").replace(ATTRIBUTION, "/bin/true")
        )
    return tmp_path


@pytest.mark.parametrize("file", UNITS.values())
def test_systemd_accepts_it(units: Path, file: str) -> None:
    """No complaint, no unknown key."""
    ended = subprocess.run(
        ["systemd-analyze", "verify", units / file], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("file", [file for file in UNITS.values() if re.fullmatch("segment-.*service", file)])
def test_it_can_do_little_else(units: Path, file: str) -> None:
    """The unit may write decisions and ask Slurm, and systemd finds hardly anything more that it could do."""

    def judged(path: Path) -> int:
        command = [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={MAX_EXPOSURE}",
            "--no-pager",
            str(path),
        ]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode

    assert judged(units / file) == 0
    bare = units / "bare.service"
    bare.write_text(
        re.sub(r"^(Protect|Restrict|System|Capab|NoNew).*\n", "", (units / file).read_text(), flags=re.MULTILINE)
    )
    assert judged(bare) != 0


class Host:
    """A machine of its own, as far as systemd can tell, that asks the given cluster; up inside `with`."""

    def __init__(self, cluster: Sandbox, top: Path) -> None:
        self._log = top / "console.log"
        self._argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", f"{ROOT}/tests/e2e/boot.sh"]
        self._argv += map(str, (top, cluster.conf, ROOT, sysconfig.get_path("purelib"), sys.base_prefix))

    def __enter__(self) -> Host:  # noqa: PYI034 - Self is not in Python 3.10
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self.until(
                lambda: (
                    self.first_process()
                    and self.run("systemctl", "is-active", "lab.target", check=False) == "active\n"
                )
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # and with it, by --kill-child, the first process of the namespace and all the others
        self._process.wait(30)

    def first_process(self) -> str:
        """Return the number of the host's first process, as seen from here; empty before there is one."""
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().strip()

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a command on this host, as root; return what it prints."""
        child = self.first_process()
        assert child, self._log.read_text()
        ended = subprocess.run(
            ["nsenter", f"--target={child}", "--mount", "--pid", "--root", "--wd=/", *argv],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ended.returncode == 0 or not check, f"{argv}: {ended}"
        return ended.stdout

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait for something to be true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def write(self, path: str, text: str) -> None:
        """Write a file on this host."""
        self.run("sh", "-c", 'mkdir -p "${1%/*}" && printf %s "$2" > "$1"', "sh", path, text)

    def install(self, name: str) -> None:
        """Do as the template says: save it where its first line says, and run the commands of its comments."""
        text = template(name)
        found = re.match(r"# (/etc/systemd/system/[a-z-]+\.(?:service|timer|socket)): ", text)
        assert found is not None
        self.write(found[1], text)
        for line in re.findall(r"^#   (\w.*)$", text, re.MULTILINE):
            self.run("sh", "-ec", line)

    def shown(self, unit: str, *properties: str) -> dict[str, str]:
        """Return what systemd knows of a unit."""
        text = self.run("systemctl", "show", unit, f"--property={','.join(properties)}")
        return dict(line.split("=", 1) for line in text.splitlines())

    def artifacts(self) -> set[str]:
        """Return the units of which something is published."""
        listed = self.run("ls", "-s", "/shared/segment-health/decisions").splitlines()[1:]
        return {line.split(".", 1)[1] for line in listed if "segment_health_check" in line}


@pytest.fixture
def host(cluster: Sandbox, tmp_path: Path) -> Iterator[Host]:
    """A host beside the cluster."""
    with Host(cluster, tmp_path) as booted:
        yield booted


def drain(site: Site) -> str:
    """Start a job and drain one of its nodes; return the job's unit."""
    job = site.submit("--nodes=2", "--exclusive")
    unit = f"{job}.{job}"
    site.cluster.set_node(min(site.nodes_of()[unit]), "drain", "bad")
    return unit


@pytest.mark.root
@pytest.mark.slurm
def test_the_service(host: Host, site: Site) -> None:
    """It is ready, says what it found, serves pokes, is started again when passes stop, and ends well."""
    unit = drain(site)
    host.install("systemd")
    shown = host.shown("segment-health", "ActiveState", "StatusText", "Type", "WatchdogUSec")
    assert shown["ActiveState"] == "active"
    assert shown["Type"] == "notify"
    assert shown["WatchdogUSec"] == "45min"
    assert "1 of 1 units excluded, 8 nodes" in shown["StatusText"]
    assert host.artifacts() == {unit}
    owner = host.run("stat", "-c", "%U", f"/shared/segment-health/decisions/segment_health_check.{unit}")
    assert owner == "segment-health\n"

    second = drain(site)
    poke = ["runuser", "-u", "segment-health", "--", OURS, "poke", "--dir", "/shared/segment-health/decisions"]
    host.run(*poke)
    host.until(lambda: host.artifacts() == {unit, second})

    host.write(
        "/etc/systemd/system/segment-health.service.d/soon.conf",
        "[Service]\nWatchdogSec=10\nRestartSec=1\nEnvironment=SEGMENT_HEALTH_INTERVAL=5\n",
    )
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "segment-health")
    site.cluster.pause_controller()
    host.until(lambda: host.shown("segment-health", "NRestarts")["NRestarts"] != "0")
    assert host.artifacts() == {unit, second}
    site.cluster.continue_controller()
    host.until(lambda: "2 of 2 units" in host.shown("segment-health", "StatusText")["StatusText"])

    # A directory that is gone for a while, as a file system that is mounted late, needs nobody's help either.
    host.run("systemctl", "stop", "segment-health")
    host.run("mv", "/shared/segment-health/decisions", "/shared/segment-health/elsewhere")
    host.run("systemctl", "start", "segment-health", check=False)
    host.until(lambda: host.shown("segment-health", "ActiveState")["ActiveState"] == "activating")
    host.run("mv", "/shared/segment-health/elsewhere", "/shared/segment-health/decisions")
    host.until(lambda: host.shown("segment-health", "ActiveState")["ActiveState"] == "active")

    host.run("systemctl", "reload", "segment-health")
    host.run("systemctl", "stop", "segment-health")
    ended = host.shown("segment-health", "ActiveState", "Result", "ExecMainStatus")
    assert ended == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert host.artifacts() == {unit, second}


@pytest.mark.root
@pytest.mark.slurm
def test_the_timer(host: Host, site: Site) -> None:
    """Enabled, it fires by itself and again; a pass while Slurm is silent has failed, and shows so."""
    unit = drain(site)
    host.install("systemd-oneshot")
    host.install("systemd-timer")
    assert "OnUnitActiveUSec=5min" in host.run(
        "systemctl", "show", "segment-health-pass.timer", "--property=TimersMonotonic"
    )
    host.until(lambda: host.artifacts() == {unit})
    host.write(
        "/etc/systemd/system/segment-health-pass.timer.d/soon.conf",
        "[Timer]\nOnUnitActiveSec=\nOnUnitActiveSec=3s\nAccuracySec=1s\nRandomizedDelaySec=0\n",
    )
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "segment-health-pass.timer")
    second = drain(site)
    host.until(lambda: host.artifacts() == {unit, second})
    host.write(
        "/etc/systemd/system/segment-health-pass.service.d/soon.conf",
        "[Service]\nEnvironment=SEGMENT_HEALTH_TIMEOUT=2\n",
    )
    host.run("systemctl", "daemon-reload")
    site.cluster.pause_controller()
    host.until(lambda: host.shown("segment-health-pass", "ExecMainStatus")["ExecMainStatus"] == "3")
    assert host.artifacts() == {unit, second}
    site.cluster.continue_controller()


def call(host: Host) -> dict[str, object]:
    """Ask the host's nvhcd once, as a launcher does."""
    path = f"/proc/{host.first_process()}/root/run/nvhcd/nvhcd.sock"
    asked = json.dumps({"socket": path, "calls": [{"args": ["x"]}]}) + "\n"
    command = [sys.executable, str(ROOT / "tests/checks/nvhcd/caller.py")]
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=60)
    (found,) = json.loads(ended.stdout)
    return {key: found.get(key) for key in ("code", "success", "output")}


@pytest.mark.root
@pytest.mark.slurm
def test_nvhcd(host: Host) -> None:
    """It is ready, answers, rereads, lets a check end; its directory outlives it; systemd's socket is served."""
    host.write(NVHCD, f'#!/bin/sh\nexec {OURS} nvhcd "$@"\n')
    for path in ("/usr/bin/segment-health", NVHCD.replace("nvhcd", "segment-health")):
        host.write(path, f'#!/bin/sh\nexec {OURS} "$@"\n')
        host.run("chmod", "755", path)
    host.write("/usr/local/sbin/check", '#!/bin/sh\nuntil [ -e /run/go ]; do sleep 0.1; done; echo "{}"\n')
    host.run("chmod", "755", NVHCD, "/usr/local/sbin/check")
    host.write("/run/go", "")
    page = (ROOT / "docs/nvhcd.md").read_text()
    service, socket = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert "answers by" in host.run("bash", "-euo", "pipefail", "-c", service)
    host.install("nvhcd-systemd")
    shown = host.shown("nvhcd", "ActiveState", "StatusText")
    assert shown["ActiveState"] == "active"
    assert "/run/nvhcd/nvhcd.sock (mode 0666) answers by /usr/local/sbin/nvrx-bcm" in shown["StatusText"]
    assert call(host)["code"] == "FAILED_PRECONDITION"
    host.run(
        "sed", "-i", "s|^healthcheck_path:.*|healthcheck_path: /usr/local/sbin/check|", "/etc/nvhcd/config.yaml"
    )
    host.run("systemctl", "reload", "nvhcd")
    healthy = {"code": "OK", "success": True, "output": "{}\n"}
    host.until(lambda: call(host) == healthy)

    directory = host.run("stat", "-c", "%i", "/run/nvhcd")
    host.run("rm", "/run/go")
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(call, host)
        host.until(lambda: "sleep" in host.run("systemctl", "status", "nvhcd"))
        host.run("systemctl", "stop", "--no-block", "nvhcd")
        host.until(lambda: host.shown("nvhcd", "ActiveState")["ActiveState"] == "deactivating")
        host.write("/run/go", "")
        assert slow.result() == healthy
    host.until(lambda: host.shown("nvhcd", "ActiveState")["ActiveState"] == "inactive")
    assert host.shown("nvhcd", "Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert host.run("stat", "-c", "%i", "/run/nvhcd") == directory

    host.run("bash", "-euo", "pipefail", "-c", socket)
    host.install("nvhcd-socket")
    assert host.shown("nvhcd", "ActiveState")["ActiveState"] == "inactive"
    inode = host.run("stat", "-c", "%i %a", "/run/nvhcd/nvhcd.sock")
    for _ in range(2):
        assert call(host) == healthy
        assert "(systemd's) answers by" in host.shown("nvhcd", "StatusText")["StatusText"]
        host.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "nvhcd")
    assert call(host) == healthy
    assert host.run("stat", "-c", "%i %a", "/run/nvhcd/nvhcd.sock") == inode
    assert inode.endswith(" 666\n")


@pytest.mark.root
@pytest.mark.slurm
def test_the_quick_start_of_a_site(host: Host, site: Site) -> None:
    """The page's commands, as they stand, on a host with nothing but Slurm, systemd and our programs."""
    job = site.submit("--nodes=2", "--exclusive")
    page = (ROOT / "docs/quickstart-site.md").read_text()
    code = "\n".join(re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    told = host.run("bash", "-euo", "pipefail", "-c", code)
    assert "StatusText=publishing: 0 of 1 units excluded, 8 nodes" in told
    assert re.search(r"^ok +slurm.answer +8 nodes", told, re.MULTILINE)
    assert re.search(r"^ok +directory.writers ", told, re.MULTILINE)
    assert f'"job_id": "{job}"' in told
    assert '"reason": "quick start"' in told

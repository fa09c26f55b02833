"""`segment-health doctor` on real clusters and directories, each fault made for real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slurm.sandbox.cluster import Sandbox

from .conftest import COMMAND, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .conftest import Slurmrestd

pytestmark = pytest.mark.slurm

US = str(os.geteuid())
NAMES = [
    "directory.path", "directory.shared", "directory.visibility", "directory.replace", "directory.readers",
    "directory.writers", "directory.space", "directory.inodes", "slurm.answer", "slurm.version", "slurm.door",
    "slurm.private-data", "slurm.job-requeue", "slurm.force-requeue", "slurm.clock", "job.processes",
    "job.kill-on-bad-exit", "job.requeue", "job.replacement-group", "job.restarts", "launcher.nvrx",
    "publisher.alive", "publisher.policy", "publisher.overlap",
]  # fmt: skip


class Told(NamedTuple):
    """One check, as it is printed."""

    severity: str
    detail: str
    remedy: str | None


def read(output: str) -> dict[str, Told]:
    """Read what `--format json` prints: always the same checks, and a remedy wherever one is needed."""
    document: dict[str, list[dict[str, Any]]] = json.loads(output)
    checks = {check.pop("name"): Told(**check) for check in document["checks"]}
    assert list(checks) == NAMES
    for check in checks.values():
        assert bool(check.remedy) == (check.severity in {"warning", "error"}), check
        assert check.detail
    return checks


def doctor(
    site: Site, *options: str, directory: Path | None = None, env: Mapping[str, str] | None = None
) -> dict[str, Told]:
    """Ask about a directory for our own user's jobs; the status is 1 exactly when a check is an error."""
    told = ["doctor", "--dir", str(directory or site.directory), "--job-user", US, "--format", "json"]
    done = site.call(*told, *options, env=env)
    assert done.stderr == ""
    checks = read(done.stdout)
    assert done.returncode == any(check.severity == "error" for check in checks.values()), done
    return checks


def severities(checks: Mapping[str, Told]) -> dict[str, str]:
    """Return what is neither fine nor passed over."""
    return {name: check.severity for name, check in checks.items() if check.severity in {"warning", "error"}}


def contents(directory: Path) -> dict[Path, bytes | None]:
    """Return everything below a directory."""
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory below which everybody may look, as pytest's own is not, nor TMPDIR in a private home."""
    path = Path(tempfile.mkdtemp(prefix="doctor-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system in memory with these options."""
    points: list[Path] = []

    def mount(options: str) -> Path:
        point = tmp_path / f"tmpfs-{len(points)}"
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0755,{options}", "none", point], check=True)
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


@contextmanager
def instead_of_scontrol(site: Site, change: str) -> Iterator[dict[str, str]]:
    """Put a scontrol on PATH that changes, as sed does, what the real one says of the configuration."""
    real = shutil.which("scontrol", path=site.cluster.env["PATH"])
    folder = site.work / "bin"
    folder.mkdir()
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{real} \"$@\" | sed '{change}'\n")
    program.chmod(0o755)
    yield {"PATH": f"{folder}:{site.cluster.env['PATH']}"}


def test_a_healthy_place(site: Site) -> None:
    """Nothing is an error, and nothing is left behind; this disk, Slurm's default and a single pass get a word."""
    site.publish()
    before = contents(site.directory)
    checks = doctor(site)
    assert contents(site.directory) == before
    assert severities(checks) == dict.fromkeys(
        ("directory.shared", "slurm.job-requeue", "publisher.alive"), "warning"
    )
    assert checks["slurm.answer"].detail.startswith("8 nodes, 0 allocations of sandbox within ")
    assert checks["slurm.door"].detail == "text: asked for"
    assert checks["publisher.alive"].detail.startswith("all of sandbox on ")
    assert "nobody makes the next one unless cron does" in checks["publisher.alive"].detail


def test_for_people(site: Site) -> None:
    """A line a check, its remedy behind it, and the counts at the end."""
    done = site.call("doctor", "--dir", str(site.directory / "missing"), "--job-user", US)
    assert done.returncode == 1
    first, remedy, *others = done.stdout.splitlines()
    assert re.fullmatch(r"error    directory\.path +/.*/missing: No such file or directory", first)
    assert re.fullmatch(r" +-> create it on storage .*", remedy)
    assert others[-1] == "1 error, 1 warning, 6 ok, 16 skipped"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no directory"),
        pytest.param(["--dir", "relative/path"], id="a relative directory"),
        pytest.param(["--dir", "/", "--job-user", "nobody-of-that-name"], id="no such user"),
        pytest.param(["--dir", "/", "--job-user", "99999999999"], id="no such id"),
        pytest.param(["--dir", "/", "--source", "rest"], id="no slurmrestd"),
        pytest.param(["--dir", "/", "--storage-timeout", "soon"], id="no time"),
        pytest.param(["--dir", "/", "--max-restarts", "-1"], id="no number"),
    ],
)
def test_usage(site: Site, arguments: list[str]) -> None:
    """What was asked wrong is told in a line, with status 2."""
    done = site.call("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/etc/passwd", "/etc/passwd/x", "/proc/\x01\n"])
def test_a_directory_that_is_none(site: Site, path: str) -> None:
    """One error, and no verdict on whatever depends on it; Slurm is judged all the same."""
    checks = doctor(site, directory=Path(path))
    assert severities(checks) == {"directory.path": "error", "slurm.job-requeue": "warning"}
    assert checks["directory.path"].detail.isprintable()
    assert ("create it" in str(checks["directory.path"].remedy)) == ("passwd" not in path)
    assert checks["publisher.alive"].severity == checks["directory.space"].severity == "skipped"


def test_a_symbolic_link_on_the_way(site: Site) -> None:
    """It is told where it leads; another way to write the same name is none."""
    for name in (f"/{site.directory}", f"{site.directory}/../{site.directory.name}//"):
        assert (
            read(site.call("doctor", "--dir", name, "--format", "json").stdout)["directory.path"].severity == "ok"
        )
    link = site.directory.with_name("link")
    link.symlink_to(site.directory)
    check = doctor(site, directory=link)["directory.path"]
    assert check.severity == "warning"
    assert str(site.directory) in str(check.remedy)


def test_a_closed_ancestor(site: Site, open_to_all: Path) -> None:
    """Another user's launcher cannot reach the directory; whoever owns it can, and after chmod so can all."""
    closed = open_to_all / "closed"
    decisions = closed / "decisions"
    decisions.mkdir(parents=True)
    closed.chmod(0o700)
    assert doctor(site, directory=decisions)["directory.readers"].severity == "ok"
    check = doctor(site, "--job-user", "nobody", directory=decisions)["directory.readers"]
    assert check.severity == "error"
    assert f"{closed} (mode 0700, " in check.detail
    assert check.remedy is not None
    command = check.remedy.partition(";")[0].split()
    subprocess.run(command, check=True)
    assert doctor(site, "--job-user", "nobody", directory=decisions)["directory.readers"].severity == "ok"


def test_who_else_may_write(site: Site) -> None:
    """What `publish --all` refuses is an error for root, and a word worth for others, or where it is meant so."""
    site.directory.chmod(0o1777)
    assert site.call("publish", "--once", "--all", "--dir", str(site.directory)).returncode == 2
    check = doctor(site)["directory.writers"]
    assert check.severity == ("error" if US == "0" else "warning")
    assert "everybody may write to" in check.detail
    meant = doctor(site, env={"SEGMENT_HEALTH_ALLOW_SHARED_DIR": "true"})["directory.writers"]
    assert meant.severity == "warning"


@pytest.mark.root
def test_a_full_disk(site: Site, tmpfs: Callable[[str], Path]) -> None:
    """No bytes are left: the probe cannot be written, and the probe is not left."""
    full = tmpfs("size=1m")
    (full / "ballast").write_bytes(bytes((1 << 20) - 4096))
    checks = doctor(site, directory=full)
    assert checks["directory.space"].severity == "error"
    (full / "more").write_bytes(bytes(4096))
    checks = doctor(site, directory=full)
    assert checks["directory.space"].detail.startswith("0 bytes free of 1.0 MiB")
    assert checks["directory.replace"].severity == "error"
    assert "No space left on device" in checks["directory.replace"].detail
    assert "free some space" in str(checks["directory.replace"].remedy)
    assert sorted(os.listdir(full)) == ["ballast", "more"]


@pytest.mark.root
def test_no_inodes(site: Site, tmpfs: Callable[[str], Path]) -> None:
    """Bytes are left and inodes are not."""
    full = tmpfs("size=1g,nr_inodes=4")
    for name in ("a", "b", "c"):
        (full / name).touch()
    checks = doctor(site, directory=full)
    assert checks["directory.inodes"] == Told("error", "0 free", checks["directory.inodes"].remedy)
    assert checks["directory.replace"].severity == "error"
    (full / "a").unlink()
    assert doctor(site, directory=full)["directory.inodes"].severity == "warning"


@pytest.mark.root
def test_a_read_only_mount(site: Site, tmpfs: Callable[[str], Path]) -> None:
    """Nothing can be written: an error where nobody publishes, and a launcher's lawful view elsewhere."""
    mounted = tmpfs("size=1g")
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    check = doctor(site, directory=mounted)["directory.replace"]
    assert check.severity == "error"
    assert "Read-only file system" in check.detail
    assert "mount it writable" in str(check.remedy)
    subprocess.run(["mount", "-o", "remount,rw", mounted], check=True)
    done = site.call("publish", "--once", "--all", "--dir", str(mounted))
    assert done.returncode == 0, done
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    checks = doctor(site, directory=mounted)
    assert checks["directory.replace"].severity == "skipped"
    assert checks["directory.shared"].detail.startswith(f"tmpfs none on {mounted} (ro,")


def test_slurm_that_does_not_answer(cluster: Sandbox, site: Site) -> None:
    """It is an error, unless a loop elsewhere asks it: then a launcher's node needs no Slurm."""
    cluster.pause_controller()
    checks = doctor(site, "--timeout", "1")
    assert checks["slurm.answer"].severity == "error"
    assert "no answer within 1 s" in checks["slurm.answer"].detail
    assert {checks[name].severity for name in NAMES if name.startswith("slurm.")} == {"error", "skipped", "ok"}
    cluster.continue_controller()
    site.publish()
    cluster.pause_controller()
    assert doctor(site, "--timeout", "1")["slurm.answer"].severity == "error"
    (heartbeat,) = (site.directory / ".segment-health/heartbeat").iterdir()
    told = json.loads(heartbeat.read_text()) | {"host": "elsewhere", "loop": True}
    heartbeat.write_text(json.dumps(told))
    assert doctor(site, "--timeout", "1")["slurm.answer"].severity == "warning"


def test_no_slurm_at_all(site: Site) -> None:
    """Its commands are not on PATH."""
    check = doctor(site, env={"PATH": "/nowhere"})["slurm.answer"]
    assert check.severity == "error"
    assert "command not found" in check.detail


def test_slurmrestd_tells_less(
    cluster: Sandbox, site: Site, slurmrestd_of: Callable[[Sandbox, str], Slurmrestd]
) -> None:
    """What it does not tell is passed over, and each check says why."""
    with slurmrestd_of(cluster, "rest_auth/local") as slurmrestd:
        told = ("--source", "rest", "--rest-url", f"unix:{slurmrestd.socket}", "--cluster", "sandbox")
        checks = doctor(site, *told)
    assert checks["slurm.answer"].severity == checks["slurm.version"].severity == "ok"
    for name in ("slurm.job-requeue", "slurm.force-requeue", "slurm.clock"):
        assert checks[name] == Told("skipped", "rest does not tell it; --source text does", None)


def test_a_clock_that_is_wrong(site: Site) -> None:
    """The heading of slurmctld's answer is its clock: a year off is an error, told in days."""
    with instead_of_scontrol(site, "s/^Configuration data as of 2[0-9]*/Configuration data as of 2001/") as env:
        check = doctor(site, env=env)["slurm.clock"]
    assert check.severity == "error"
    assert re.search(r"at least \d{4,} days behind this host's", check.detail)


def test_a_restart_budget_of_none(site: Site) -> None:
    """It is a warning, and the status stays 0."""
    site.publish()
    check = doctor(site, "--max-restarts", "0")["job.restarts"]
    assert check.severity == "warning"
    assert "a restart budget of 0 (--max-restarts)" in check.detail


def test_a_dead_publisher(site: Site, start: Callable[..., Any]) -> None:
    """Killed, it is an error as soon as two of its intervals have passed, and not before."""
    publisher = start("--all", "--interval", "5")
    assert doctor(site)["publisher.alive"].severity == "ok"
    publisher.process.kill()
    publisher.process.wait()
    publisher.until(lambda: doctor(site)["publisher.alive"].severity == "error")
    assert re.search(r"dead, last complete pass \d+", doctor(site)["publisher.alive"].detail)


def test_a_policy_that_is_not_in_force(site: Site, start: Callable[..., Any]) -> None:
    """A publisher that keeps its last good policy needs a person."""
    policy = site.work / "policy.toml"
    policy.write_text("publish_at = 'SeparateFault'\n")
    publisher = start("--all", "--interval", "5", "--policy", str(policy))
    policy.write_text("publish_at = 'Sometimes'\n")
    publisher.poked_until(lambda: doctor(site)["publisher.policy"].severity == "error")
    assert "policy.toml" in doctor(site)["publisher.policy"].detail


JOB = """#!/bin/bash
{doctor} > batch.json
srun --overlap --ntasks-per-node={tasks} {kill} sh -c '[ "$SLURM_PROCID" != 0 ] || {doctor} > step.json'
touch done
exec sleep 300
"""


@pytest.mark.parametrize("tasks", [1, 2])
def test_inside_a_job(cluster: Sandbox, site: Site, tasks: int) -> None:
    """In the batch script and under srun: the launch shape that is wanted, and one with every mistake."""
    command = f"{COMMAND} doctor --dir {site.directory} --job-user {US} --format json"
    good = tasks == 1
    script = JOB.format(doctor=command, tasks=tasks, kill="--kill-on-bad-exit=1" if good else "")
    options = ("--array=0", "--nodes=2", f"--ntasks-per-node={tasks}", "--no-requeue" if good else "--requeue")
    site.submit(*options, f"--export=ALL,PET_MAX_RESTARTS={3 if good else 0}", script=script)
    cluster.wait_until((site.work / "done").exists, 60, "the answers of both")
    batch, step = (read((site.work / f"{name}.json").read_text()) for name in ("batch", "step"))
    wanted = {
        "job.processes": ("ok", "ok") if good else ("warning", "error"),
        "job.kill-on-bad-exit": ("ok", "ok") if good else ("error", "error"),
        "job.requeue": ("ok", "ok") if good else ("error", "error"),
        "job.replacement-group": ("ok", "ok"),
        "job.restarts": ("ok", "ok") if good else ("warning", "warning"),
        "slurm.job-requeue": ("ok", "ok") if good else ("warning", "warning"),
    }
    assert {name: (batch[name].severity, step[name].severity) for name in wanted} == wanted
    assert ("srun runs with --kill-on-bad-exit=1" in step["job.kill-on-bad-exit"].detail) == good


@pytest.fixture(scope="module")
def strict() -> Iterator[Sandbox]:
    """A cluster with the settings that a publisher has to know of."""
    with Sandbox(nodes=2, extra_conf=["JobRequeue=0", "PrivateData=jobs", "KillOnBadExit=1"]) as sandbox:
        yield sandbox


def test_settings_of_a_cluster(strict: Sandbox, site_on: Callable[[Sandbox], Site]) -> None:
    """JobRequeue=0 is fine, and PrivateData hides nothing from root and SlurmUser."""
    checks = doctor(site_on(strict))
    assert checks["slurm.job-requeue"].severity == checks["slurm.private-data"].severity == "ok"
    assert checks["slurm.private-data"].detail.endswith("(PrivateData=jobs)")


@pytest.mark.root
def test_private_data(strict: Sandbox, site_on: Callable[[Sandbox], Site], open_to_all: Path) -> None:
    """Another user does not see everybody's jobs, and may not write here: who publishes lives elsewhere."""
    site = site_on(strict)
    done = site.call("publish", "--once", "--all", "--dir", str(open_to_all))
    assert done.returncode == 0, done
    # With the one capability, since nobody may not read where this Python lies.
    person = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search"]
    person += ["--ambient-caps=+dac_read_search", str(COMMAND), "doctor", "--dir", str(open_to_all)]
    told = strict.run(*person, "--format", "json", check=False)
    checks = read(told.stdout)
    assert checks["slurm.private-data"].severity == "warning"
    assert "PrivateData=jobs: of other users' jobs than uid 65534's" in checks["slurm.private-data"].detail
    assert checks["directory.replace"].severity == "skipped"
    assert checks["directory.readers"] == Told("ok", "uid 65534 may look at artifacts", None)


def test_a_prolog_that_requeues(site: Site) -> None:
    """A flag overrides --no-requeue; Slurm 22.05 does not know it, and is made to say it."""
    version = site.cluster.run("scontrol", "--version").stdout.split()[-1]
    if version.startswith("22."):
        with instead_of_scontrol(site, "s/^\\(PrologFlags *= \\).*/\\1Alloc,ForceRequeueOnFail/") as env:
            check = doctor(site, env=env)["slurm.force-requeue"]
    else:
        with Sandbox(nodes=1, extra_conf=["PrologFlags=ForceRequeueOnFail"]) as other:
            check = doctor(site, env=other.env)["slurm.force-requeue"]
    assert check.severity == "warning"
    assert "whatever --no-requeue says" in check.detail

"""The crontabs and hooks that `template show` prints, each started as cron, slurmctld, slurmd or NHC starts it."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from slurm.sandbox.cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm

MINUTES = r"(?:\*/[0-9]+ (?:\* ){4})"


def shown(site: Site, name: str) -> str:
    """Return a template, edited as its reader would: our program and directory in the place of the example's."""
    text: str = site.call("template", "show", name).stdout
    assert text, name
    text = text.replace("/shared/segment-health/venv/bin/segment-health", site.command)
    return text.replace("/shared/segment-health/decisions", str(site.directory))


def saved(site: Site, name: str) -> Path:
    """Save a template as a program."""
    path = site.work / name
    path.write_text(shown(site, name))
    path.chmod(0o755)
    return path


def drained(site: Site) -> str:
    """Start a job and drain one of its nodes; return the job's unit."""
    job = site.submit("--nodes=2", "--exclusive")
    unit = f"{job}.{job}"
    site.cluster.set_node(min(site.nodes_of()[unit]), "drain", "bad")
    return unit


def test_the_list_names_each(site: Site) -> None:
    """Each template that is listed can be shown, and is not another one; the two lists are one."""
    listed = site.call("template", "list").stdout
    assert listed == site.call("template").stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert len({shown(site, name) for name in names}) == len(names) >= 10
    for name in names:
        assert site.call("template", name).stdout == site.call("template", "show", name).stdout
    ended = site.call("template", "show")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert all(name in ended.stderr for name in names)


def test_cron(site: Site) -> None:
    """Each line of the crontab, run by /bin/sh in cron's own environment, does its work and says nothing."""
    environ = {"HOME": str(site.work), "LOGNAME": site.cluster.run("id", "-un").stdout.strip(), "SHELL": "/bin/sh"}
    unit = drained(site)
    commands: list[str] = []
    for line in shown(site, "cron").splitlines():
        setting = re.fullmatch(r"([A-Z_]+)=(\S*)", line)
        command = re.fullmatch(MINUTES + "(.*)", line)
        assert setting or command or line == "" or line.startswith("#"), line
        if setting is not None:
            environ[setting[1]] = setting[2]
        if command is not None:
            commands.append(command[1])
            assert "%" not in line  # cron's newline
    assert len(commands) == 2
    conf = {"SLURM_CONF": str(site.cluster.conf)}  # in the place of /etc/slurm/slurm.conf
    for called in commands:
        ended = subprocess.run(
            ["/bin/sh", "-c", called],
            env=environ | conf,
            cwd=site.work,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert site.excluded() == {unit}


def test_scrontab(site: Site) -> None:
    """Its command, as a batch job with its options, publishes for its user; the job's own unit is among them.

    Debian builds no scrontab, so sbatch, which knows the same options, takes its part.
    """
    unit = drained(site)
    text = shown(site, "scrontab")
    found = re.search(rf"^{MINUTES}(.*)$", text, re.MULTILINE)
    assert found is not None
    assert "%" not in found[1]
    options = re.findall(r"^#SCRON (.*)$", text, re.MULTILINE)
    script = "\n".join(["#!/bin/sh", *(f"#SBATCH {option}" for option in options), found[1], ""])
    site.cluster.submit(script, f"--chdir={site.work}", "--wait")
    assert (site.work / "segment-health.log").read_text() == ""
    assert site.excluded() == {unit}
    (beat,) = (site.directory / ".segment-health/heartbeat").iterdir()
    assert beat.name.startswith("user:")


@pytest.fixture
def asleep(start: Callable[..., Running]) -> Running:
    """A publisher that makes no pass in the next hour unless it is asked."""
    return start("--all", "--interval", "3600")


@pytest.mark.timeout(180)
def test_strigger(site: Site, asleep: Running) -> None:
    """Set by its own script, a trigger of the real slurmctld fires, the hook asks, and the artifact is there."""
    hook = saved(site, "strigger")
    told = site.cluster.run("bash", str(hook), "set").stdout
    assert told.startswith("set: down up drained fail")
    newer = "--draining" in site.cluster.run("strigger", "--help").stdout
    assert ("draining resume" in told) == newer
    assert site.cluster.run("bash", str(hook), "set").stdout == told  # again: none is set twice
    listed = site.cluster.run("strigger", "--get", "--noheader").stdout.splitlines()
    assert len(listed) == len(told.split()) - 1

    job = site.submit("--nodes=1", "--exclusive", "--nodelist=n2")
    site.cluster.set_node("n7", "drain", "bad")  # idle: 22.05 fires for it at once
    site.cluster.set_node(
        "n2", "drain", "bad"
    )  # busy: there it would fire for n7 alone, and what is asked finds both
    asleep.until(lambda: site.excluded() == {f"{job}.{job}"}, 60)
    assert asleep.said("complete") >= 1

    site.cluster.run("bash", str(hook), "clear")
    assert site.cluster.run("strigger", "--get", "--noheader").stdout == ""


def test_a_trigger_of_somebody_else_stays(site: Site) -> None:
    """Ours are told from others by their program."""
    site.cluster.run("strigger", "--set", "--node", "--down", "--flags=PERM", "--program=/bin/true")
    hook = saved(site, "strigger")
    site.cluster.run("bash", str(hook), "set")
    site.cluster.run("bash", str(hook), "clear")
    (left,) = site.cluster.run("strigger", "--get", "--noheader").stdout.splitlines()
    assert left.split()[-1] == "/bin/true"
    site.cluster.run("strigger", "--clear", f"--id={left.split()[0]}")


@pytest.fixture
def epilog(tmp_path: Path) -> Path:
    """Where a cluster's epilog is; until it is written there, it only succeeds."""
    path = tmp_path / "epilog"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(params=["Epilog", "EpilogSlurmctld"])
def with_epilog(request: pytest.FixtureRequest, epilog: Path) -> Iterator[Sandbox]:
    """A cluster that runs it at the end of each job, on each node or beside slurmctld."""
    with Sandbox(nodes=2, return_to_service=0, extra_conf=[f"{request.param}={epilog}"]) as sandbox:
        sandbox.env["SEGMENT_HEALTH_SOURCE"] = "text"
        yield sandbox


def test_epilog(site_on: Callable[[Sandbox], Site], with_epilog: Sandbox, epilog: Path) -> None:
    """A job ends, its epilog asks, and what was drained meanwhile is published; it never fails its node."""
    from .conftest import Running as Publisher  # noqa: PLC0415 - a class of fixtures

    site = site_on(with_epilog)
    epilog.write_text(shown(site, "epilog"))
    short = site.submit("--nodes=1", "--nodelist=n2")
    publisher = Publisher(site, "--all", "--interval", "3600")
    try:
        publisher.until(lambda: publisher.said("complete"))
        job = site.submit("--nodes=1", "--exclusive", "--nodelist=n1")
        with_epilog.set_node("n1", "drain", "bad")
        site.end(short)
        publisher.until(lambda: site.excluded() == {f"{job}.{job}"}, 60)
    finally:
        publisher.process.kill()
        publisher.process.wait()
    # Now nobody listens: the node stays in service.
    again = site.submit("--nodes=1", "--nodelist=n2")
    site.end(again)
    with_epilog.wait_until(lambda: with_epilog.node_state("n2") == "IDLE", what="n2 idle")


def test_an_epilog_has_five_seconds(site: Site, tmp_path: Path) -> None:
    """What hangs beyond SIGTERM is killed, and the status is 0 all the same."""
    hanging = tmp_path / "segment-health"
    hanging.write_text("#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    hanging.chmod(0o755)
    hook = saved(site, "epilog")
    hook.write_text(hook.read_text().replace(site.command, str(hanging)))
    began = time.monotonic()
    ended = subprocess.run([hook], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (
        time.monotonic() - began >= 5
    )  # it did wait: it is the program that was late, and not one that was missing


def nhc(site: Site, helper: str, *told: str, directory: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Call the hook as NHC does: by `eval`, with node and reason, HELPERDIR exported, and NHC's own PATH."""
    for name in ("node-mark-offline", "node-mark-online"):
        path = directory / name
        state = "drain" if name.endswith("offline") else "resume"
        reason = 'reason="NHC: $2"' if state == "drain" else ""
        lines = ["#!/bin/bash", f'scontrol update nodename="$1" state={state} {reason}', f"exit {status}", ""]
        path.write_text("\n".join(lines))
        path.chmod(0o755)
    hook = saved(site, "nhc")
    hook.write_text(hook.read_text().replace("mark=/run/segment-health-nhc", f"mark={directory}/mark"))
    variable = "OFFLINE_NODE" if helper.endswith("offline") else "ONLINE_NODE"
    found = re.search(rf'^#   {variable}="(.*)"$', hook.read_text(), re.MULTILINE)
    assert found is not None
    called = found[1].replace("/etc/nhc/segment-health-mark", str(hook))
    assert called.endswith(helper)
    environ = {
        "PATH": "/sbin:/usr/sbin:/bin:/usr/bin",
        "HELPERDIR": str(directory),
        "SLURM_CONF": str(site.cluster.conf),
    }
    words = " ".join(shlex.quote(word) for word in told)
    return subprocess.run(
        ["bash", "-c", f"eval {called} {shlex.quote(words)}"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_nhc(site: Site, asleep: Running, tmp_path: Path) -> None:
    """NHC drains a node, and that is published at once; it resumes the node, and another pass is made at once."""
    job = site.submit("--nodes=1", "--exclusive", "--nodelist=n3")
    ended = nhc(site, "node-mark-offline", "n3", "check_hw_mem: it's gone", directory=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    asleep.until(lambda: site.excluded() == {f"{job}.{job}"})
    assert "NHC: check_hw_mem: it's gone" in str(site.artifact(f"{job}.{job}"))

    site.resume("n3")
    (heartbeat,) = (site.directory / ".segment-health/heartbeat").iterdir()
    before = heartbeat.stat().st_mtime_ns
    assert nhc(site, "node-mark-online", "n3", directory=tmp_path).returncode == 0
    asleep.until(lambda: heartbeat.stat().st_mtime_ns != before)
    # Resumed once more, the node shows NOT_RESPONDING for a second, and the pass that was asked for may see that.
    asleep.poked_until(lambda: site.excluded() == set())


def test_nhc_is_told_the_helpers_status(site: Site, tmp_path: Path) -> None:
    """A helper that failed is NHC's affair: its status goes through, although nobody could be asked."""
    ended = nhc(site, "node-mark-offline", "n3", "x", directory=tmp_path, status=7)
    assert ended.returncode == 7
    assert "nobody was asked" in ended.stderr
    assert (tmp_path / "mark").exists()
    assert nhc(site, "node-mark-online", "n3", directory=tmp_path, status=4).returncode == 4
    assert not (tmp_path / "mark").exists()
    quiet = nhc(site, "node-mark-online", "n3", directory=tmp_path)  # a good check of a node that was never bad
    assert "asked" not in quiet.stderr

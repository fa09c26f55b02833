"""The command line: exit codes, one clear line, stable JSON, and nothing touched on bad input.

What a real Slurm cannot be made to say is said here by small commands on PATH; tests/e2e has the real one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = Path(sys.executable).with_name("segment-health")
SAMPLES = Path(__file__).parent / "data" / "samples"
CONFIG = "ClusterName = fake\nSLURM_VERSION = 22.05.8\nPrivateData = none\nSlurmUser = root(0)\n"
NODES = "".join(
    f"NodeName=n{n} State={'ALLOCATED+DRAIN' if n == 2 else 'ALLOCATED'} Partitions=main\n" for n in range(1, 5)
)
JOBS = (
    "3|1|0|N/A|RUNNING|0|2026-11-29T20:23:50|alice|1001|main|n[1-2]|\n"
    "1|1|1|N/A|RUNNING|0|2026-11-29T20:23:50|alice|1001|main|n3|\n"
)


@dataclass
class Site:
    """A directory of decisions, and what `scontrol` and `squeue` answer, as shell code."""

    path: Path
    nodes: str = f"cat <<'EOT'\n{NODES}EOT"
    jobs: str = f"cat <<'EOT'\n{JOBS}EOT"
    config: str = f"cat <<'EOT'\n{CONFIG}EOT"
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The decision directory."""
        return self.path / "decisions"

    def install(self) -> None:
        """Put the commands on PATH."""
        bin_ = self.path / "bin"
        bin_.mkdir(exist_ok=True)
        scontrol = f'#!/bin/bash\ncase "$*" in *config*) {self.config}\n;; *) {self.nodes}\n;; esac\n'
        for name, text in (("scontrol", scontrol), ("squeue", f"#!/bin/bash\n{self.jobs}\n")):
            (bin_ / name).write_text(text)
            (bin_ / name).chmod(0o755)

    def clean(self, **environ: str) -> dict[str, str]:
        """Return an environment with nothing of Slurm's but what is given, and our commands on PATH."""
        self.install()
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SEGMENT", "NVRX"))
        }
        return clean | {"PATH": f"{self.path / 'bin'}:/usr/bin:/bin", **self.environ, **environ}

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start segment-health as a process of its own."""
        return subprocess.Popen(
            [COMMAND, *arguments],
            env=self.clean(**environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run segment-health to its end, in this process."""
        env = {**dict.fromkeys(os.environ), **self.clean(**environ)}
        ended = CliRunner().invoke(main, arguments, env=env)
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return subprocess.CompletedProcess(arguments, ended.exit_code, ended.stdout, ended.stderr)

    def publish(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Make one pass over everything."""
        return self.run("publish", "--once", "--dir", str(self.directory), "--all", *arguments, **environ)

    def json(self, *arguments: str, **environ: str) -> dict[str, Any]:
        """Make one pass and read its JSON."""
        document: dict[str, Any] = json.loads(self.publish("--format", "json", *arguments, **environ).stdout)
        return document


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Four nodes of which n2 drains; array tasks 1_0 on n[1-2] and 1_1 on n3."""
    made = Site(tmp_path)
    made.directory.mkdir()
    return made


def everything(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file below a directory: inode, time and content."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in directory.rglob("*")
    }


def test_a_pass_in_words(site: Site) -> None:
    """One line a change, one that sums up; and a warning where the rendezvous store may be lost."""
    ended = site.publish()
    assert ended.returncode == 0
    assert ended.stderr == (
        "segment-health: 1_0 is excluded: if it hosts the rendezvous store, as task 0 does by default, "
        "the job ends at its next restart\n"
    )
    change, total = ended.stdout.splitlines()
    assert change == f"exclude 1_0 PreSeparateFault n2 {site.directory}/segment_health_check.1.0"
    assert total.startswith("complete: 4 nodes, 1 unavailable; 2 units, 1 excluded; ")


def test_a_pass_as_json(site: Site) -> None:
    """The object that other programs read: its keys, their order and their types are public."""
    document = site.json()
    assert document.pop("duration_ms") > 0
    assert json.dumps(document) == json.dumps(
        {
            "pass": "complete",
            "source": "text",
            "source_reason": "pyslurm is not installed",
            "slurm_version": "22.05.8",
            "policy": "default",
            "nodes": {"total": 4, "unavailable": 1},
            "units": {"total": 2, "excluded": 1},
            "new_exclusions": {"units": 1, "nodes": 2, "held": False},
            "changes": [
                {
                    "action": "exclude",
                    "job_id": "1",
                    "task_id": "0",
                    "level": "PreSeparateFault",
                    "nodes": "n2",
                    "path": f"{site.directory}/segment_health_check.1.0",
                    "error": None,
                }
            ],
            "dry_run": False,
            "error": None,
        }
    )


def test_a_dry_run(site: Site) -> None:
    """It says what would change, and changes nothing."""
    document = site.json("--dry-run")
    assert document["dry_run"] is True
    assert [change["action"] for change in document["changes"]] == ["exclude"]
    assert everything(site.directory) == {}


BROKEN = [
    pytest.param({"nodes": "true"}, "empty answer", id="nodes-empty"),
    pytest.param({"nodes": "echo No nodes in the system"}, "not a node", id="no-nodes"),
    pytest.param(
        {"nodes": "printf 'NodeName=n1 State=IDLE\\nNodeName=n2 Sta'"}, "cut short", id="nodes-half-written"
    ),
    pytest.param({"nodes": "echo NodeName=n1 Arch=x86_64"}, "malformed row", id="node-without-state"),
    pytest.param({"nodes": "head -c 5000 /dev/zero; echo"}, "not a node", id="nodes-nul"),
    pytest.param({"nodes": "head -c 5000 /dev/urandom | tr -d '\\n'; echo"}, "not a node", id="nodes-garbage"),
    pytest.param({"nodes": "echo down >&2; exit 1"}, "ended with status 1: down", id="nodes-fail"),
    pytest.param({"nodes": "kill -KILL $$"}, "killed by SIGKILL", id="nodes-killed"),
    pytest.param({"nodes": "sleep 600"}, "no answer within 1 s", id="nodes-hang"),
    pytest.param({"jobs": "sleep 600"}, "no answer within 1 s", id="jobs-hang"),
    pytest.param(
        {"jobs": "trap '' TERM INT HUP; sleep 600 & wait"}, "no answer within 1 s", id="jobs-hang-stubbornly"
    ),
    pytest.param({"jobs": "echo '1|2|3'"}, "row without its", id="jobs-short-row"),
    pytest.param({"jobs": "printf '3|1|0|N/A|RUNNING|0|2026-1'"}, "cut short", id="jobs-half-written"),
    pytest.param(
        {"jobs": "echo '../x|../x|0|N/A|RUNNING|0|2026-11-29T20:23:50|a|1|m|n1|'"}, "not a number", id="id"
    ),
    pytest.param({"jobs": "echo '3|3|N/A|N/A|RUNNING|0|soon|a|1|m|n1|'"}, "not a time", id="time"),
    pytest.param(
        {"jobs": "echo '3|3|N/A|N/A|RUNNING|0|2026-11-29T20:23:50|a|1|m|n[1-|'"}, "not a hostlist", id="hosts"
    ),
    pytest.param({"jobs": "echo 'slurm_load_jobs error: x' >&2; exit 1"}, "slurm_load_jobs error", id="jobs-fail"),
    pytest.param({"config": "exit 7"}, "ended with status 7", id="config-fails"),
    pytest.param({"config": "echo nothing"}, "ClusterName", id="config-garbage"),
    pytest.param({"nodes": "printf 'bad\\033[31m\\n'"}, "'bad\\x1b[31m'", id="escapes-are-escaped"),
]


@pytest.mark.parametrize(("answers", "message"), BROKEN)
def test_an_answer_that_is_not_whole_changes_nothing(site: Site, answers: dict[str, str], message: str) -> None:
    """Exit status 3, one line that says what failed, and every byte on disk as it was."""
    site.publish()
    before = everything(site.directory)
    for name, code in answers.items():
        setattr(site, name, code)
    ended = site.publish("--timeout", "1")
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr
    assert "every decision stays as it is" in ended.stderr
    assert "\x1b" not in ended.stderr
    assert everything(site.directory) == before
    document = site.json("--timeout", "1")
    assert (document["pass"], document["changes"]) == ("unknown", [])
    assert document["error"]
    assert everything(site.directory) == before


def test_commands_that_are_not_there(site: Site) -> None:
    """The line names the command and where it was looked for."""
    ended = site.publish(PATH=str(site.path))
    assert ended.returncode == 3
    assert "scontrol: command not found" in ended.stderr
    assert everything(site.directory) == {}


def test_an_answer_with_words_on_stderr_is_an_answer(site: Site) -> None:
    """A warning of Slurm's is passed on, and is no failure."""
    site.publish()
    site.jobs += "\necho 'squeue: warning: x' >&2"
    ended = site.publish()
    assert ended.returncode == 0
    assert ended.stderr == "segment-health: squeue: squeue: warning: x\n"


def test_a_job_that_is_gone_is_an_answer(site: Site) -> None:
    """No running job of the scope: a complete pass without units."""
    ended = site.run("publish", "--once", "--dir", str(site.directory), "--job", "999")
    assert ended.returncode == 0
    assert "0 units, 0 excluded" in ended.stdout
    site.jobs = "true"
    assert site.publish().returncode == 0


USAGE: list[Any] = [
    pytest.param(["--all"], {}, "no decision directory", id="no-directory"),
    pytest.param(["--all", "--dir", "relative"], {}, "not an absolute path", id="relative"),
    pytest.param(["--all", "--dir", "{here}/missing"], {}, "No such file", id="missing"),
    pytest.param(["--all", "--dir", "{here}/file"], {}, "Not a directory", id="not-a-directory"),
    pytest.param(["--dir", "{here}"], {}, "outside a job, say whose units", id="no-scope"),
    pytest.param(["--dir", "{here}", "--job", "12x"], {}, "not a job id", id="job"),
    pytest.param(["--dir", "{here}"], {"SLURM_JOB_ID": "../x"}, "not a job id", id="own-job"),
    pytest.param(["--dir", "{here}", "--all", "--user", "x"], {}, "exclude each other", id="two-scopes"),
    pytest.param(["--dir", "{here}", "--all", "--timeout", "-1"], {}, "--timeout", id="timeout"),
    pytest.param(["--dir", "{here}", "--all", "--config", "{here}/missing"], {}, "No such file", id="config"),
    pytest.param(
        ["--dir", "{here}", "--all"], {"SEGMENT_HEALTH_DIRECTORY": "x"}, "SEGMENT_HEALTH_DIR", id="environment"
    ),
    pytest.param(
        ["--dir", "{here}", "--all", "--nodes-from", "{here}/file"], {}, "go together", id="half-a-replay"
    ),
    pytest.param(["--dir", "{here}/decisions\x1b[31m", "--all"], {}, "\\x1b", id="escape"),
]


@pytest.mark.parametrize(("arguments", "environ", "message"), USAGE)
def test_a_users_mistake_is_one_line(
    site: Site, arguments: list[str], environ: dict[str, str], message: str
) -> None:
    """Exit status 2, no traceback, nothing asked of Slurm and nothing written."""
    (site.path / "file").touch()
    site.nodes = site.jobs = site.config = f"touch {site.path}/asked"
    ended = site.run("publish", "--once", *(a.replace("{here}", str(site.path)) for a in arguments), **environ)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr
    assert not (site.path / "asked").exists()
    assert everything(site.directory) == {}


def test_an_artifact_that_cannot_be_written_blocks_no_other(site: Site) -> None:
    """Exit status 1, the unit is named with the cause, and the next unit's exclusion is on disk."""
    (site.directory / "segment_health_check.1.0").mkdir()
    site.nodes = site.nodes.replace("n3 State=ALLOCATED", "n3 State=DOWN")
    ended = site.publish()
    assert ended.returncode == 1
    assert f"{site.directory}/segment_health_check.1.0: Is a directory; left as it was" in ended.stderr
    assert (site.directory / "segment_health_check.1.1").stat().st_size > 0
    document = site.json()
    assert [(c["action"], c["task_id"], c["error"]) for c in document["changes"]] == [
        ("failed", "0", "Is a directory")
    ]


def test_a_foreign_artifact_is_reported(site: Site) -> None:
    """What NVRx's reference producer wrote stays, and that alone is no failure."""
    foreign = site.directory / "segment_health_check.1.0"
    foreign.write_text("n2")
    ended = site.publish()
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"foreign 1_0 {foreign}\n")
    assert foreign.read_text() == "n2"
    assert site.publish("--adopt").stdout.startswith("update 1_0 PreSeparateFault n2 ")


def test_a_second_publisher_of_the_same_scope_steps_back(site: Site) -> None:
    """Overlapping cron runs are normal: exit status 0 at once, and a line that says why nothing was done."""
    site.nodes = f"echo $$ > {site.path}/asked; sleep 600"
    first = site.start("publish", "--once", "--dir", str(site.directory), "--all")
    try:
        deadline = time.monotonic() + 30
        while not (site.path / "asked").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)  # until the number is in it
        asked = int((site.path / "asked").read_text())
        ended = site.publish()
        assert ended.returncode == 0
        assert "another publisher of all" in ended.stderr
        site.nodes = Site(site.path).nodes
        ended = site.publish("--wait", "--timeout", "1")
        assert ended.returncode == 0
        assert "another publisher of all" in ended.stderr
        waiting = site.start("publish", "--once", "--dir", str(site.directory), "--all", "--wait")
        site.nodes = "sleep 600"
        other = site.run("publish", "--once", "--dir", str(site.directory), "--job", "1", "--timeout", "1")
        assert other.returncode == 3
        site.nodes = Site(site.path).nodes
        site.install()
    finally:
        first.kill()
        first.communicate()
        os.killpg(asked, signal.SIGKILL)  # SIGKILL alone leaves Slurm's commands behind
    out, _ = waiting.communicate(timeout=60)
    assert out.startswith("exclude 1_0 ")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_takes_slurms_commands_along(site: Site, number: signal.Signals, status: int) -> None:
    """Ended while Slurm hangs, it leaves no command behind and no traceback."""
    site.nodes = f"echo $$ > {site.path}/pid; sleep 600"
    process = site.start("publish", "--once", "--dir", str(site.directory), "--all")
    pid_file = site.path / "pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert "Traceback" not in err
    assert not is_running(int(pid_file.read_text()))


def is_running(pid: int) -> bool:
    """Whether a process is there; one that only waits to be reaped is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_replay(site: Site) -> None:
    """Saved answers of a real 22.05 give the decisions of that moment, and ask no Slurm."""
    saved = SAMPLES / "22.05"
    site.nodes = site.jobs = f"touch {site.path}/asked"
    document = site.json(
        "--nodes-from",
        str(saved / "scontrol_show_nodes_oneline.txt"),
        "--jobs-from",
        str(saved / "scontrol_show_jobs.txt"),
    )
    assert not (site.path / "asked").exists()
    assert document["pass"] == "complete"
    assert document["slurm_version"] is None
    assert document["nodes"]["total"] == 16


@pytest.mark.parametrize("text", ["", "garbage", "NodeName=n1 State=IDLE"])
def test_a_replay_of_half_an_answer_is_unknown(site: Site, text: str) -> None:
    """A dump that was cut off, or is none, changes nothing."""
    saved = site.path / "saved"
    saved.write_text(text)
    site.publish()
    before = everything(site.directory)
    ended = site.publish("--cluster", "fake", "--nodes-from", str(saved), "--jobs-from", str(saved))
    assert ended.returncode == 3
    assert len(ended.stderr.splitlines()) == 1
    assert everything(site.directory) == before


TASK_0 = {"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "3"}


@pytest.mark.parametrize(
    ("environ", "status", "word"),
    [
        pytest.param({**TASK_0, "SLURM_PROCID": "0"}, 1, "excluded: ", id="excluded"),
        pytest.param({**TASK_0, "SLURM_PROCID": "1"}, 0, "not applicable: ", id="process-1"),
        pytest.param({**TASK_0, "SLURM_ARRAY_TASK_ID": "1", "SLURM_PROCID": "0"}, 0, "healthy: ", id="neighbour"),
        pytest.param({}, 0, "not applicable: ", id="no-job"),
        pytest.param({"SLURM_PROCID": "0", "SLURM_JOB_ID": "../x"}, 0, "not applicable: ", id="hostile-id"),
    ],
)
def test_check(site: Site, environ: dict[str, str], status: int, word: str) -> None:
    """What the consumer would say in this environment, as exit status, line and JSON."""
    site.publish()
    ended = site.run("check", "--dir", str(site.directory), **environ)
    assert ended.returncode == status
    assert ended.stdout.startswith(word)
    ended = site.run("check", "--format", "json", SEGMENT_HEALTH_DIR=str(site.directory), **environ)
    document = json.loads(ended.stdout)
    assert list(document) == ["installed", "healthy", "path", "warning"]
    assert (ended.returncode, document["healthy"]) == (status, status == 0)
    assert document["installed"] == (environ.get("SLURM_PROCID") == "0" and "../x" not in environ.values())
    assert bool(document["warning"]) == ("../x" in environ.values())


def test_check_without_a_directory(site: Site) -> None:
    """Unset or empty disables the check; relative is a mistake."""
    assert site.run("check").returncode == 0
    assert site.run("check", SEGMENT_HEALTH_DIR="").returncode == 0
    assert site.run("check", "--dir", "relative").returncode == 2
    assert site.run("check", NVRX_SEGMENT_HEALTH_CHECK_DIR="relative").returncode == 2


def test_check_fails_open_with_a_warning(site: Site) -> None:
    """A decision that cannot be read is ignored aloud."""
    (site.directory / "segment_health_check.1.0").mkdir()
    ended = site.run("check", "--dir", str(site.directory), SLURM_PROCID="0", **TASK_0)
    assert ended.returncode == 0
    assert "Ignoring segment health decision: not a regular file" in ended.stderr


@pytest.mark.parametrize(("task", "status"), [("0", 1), ("1", 0)])
def test_a_verdict_that_nobody_can_read_stands(site: Site, task: str, status: int) -> None:
    """Whether the line can be printed changes nothing: healthy is not excluded because a disk is full."""
    site.publish()
    environ = {**TASK_0, "SLURM_ARRAY_TASK_ID": task, "SLURM_PROCID": "0", "PATH": os.environ["PATH"]}
    for redirected in (">/dev/full", "| true", ">&-"):
        code = f"set -o pipefail; {COMMAND} check --dir {site.directory} {redirected}"
        ended = subprocess.run(["bash", "-c", code], env=environ, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (status, ""), redirected
    code = f"{COMMAND} publish --once --all --dir {site.directory} >/dev/full"
    environ["PATH"] = f"{site.path / 'bin'}:/usr/bin:/bin"
    ended = subprocess.run(["bash", "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_quiet_pass_says_nothing(site: Site) -> None:
    """What a command prints, cron mails: with -q only trouble is said."""
    assert site.publish("-q").stdout == ""
    ended = site.publish("-q")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (site.directory / "segment_health_check.1.0").stat().st_size > 0


def test_path(site: Site) -> None:
    """Any process of a job is told the artifact's path; outside a job there is none."""
    ended = site.run("path", "--dir", "/shared", SLURM_PROCID="5", **TASK_0)
    assert (ended.returncode, ended.stdout) == (0, "/shared/segment_health_check.1.0\n")
    for arguments, environ in ((["--dir", "/shared"], {}), (["--dir", "x"], TASK_0), ([], TASK_0),
                               (["--dir", "/shared"], {"SLURM_JOB_ID": "1;2"})):  # fmt: skip
        ended = site.run("path", *arguments, **environ)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)


def test_publishing_where_one_may_not_write(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user without permission is told so; the exit status is 1 and nothing is left behind."""
    site.install()
    monkeypatch.setenv("PATH", f"{site.path / 'bin'}:/usr/bin:/bin")
    arguments = ["publish", "--once", "--all", "--timeout", "20", "--dir"]
    scratch = site.path / "scratch"
    scratch.mkdir()
    # Once as we are: what is imported then is there in the child, who may not be able to read it.
    assert CliRunner().invoke(main, [*arguments, str(scratch)]).exit_code == 0
    for path in (site.path, *site.path.parents[:2]):  # pytest makes them 0700
        path.chmod(0o755)
    site.directory.chmod(0o555)
    status, text = as_an_ordinary_user(lambda: main([*arguments, str(site.directory)], prog_name="segment-health"))
    assert status == 1, text
    assert "segment_health_check.1.0: Permission denied; left as it was" in text
    assert "Traceback" not in text
    assert everything(site.directory) == {}


def as_an_ordinary_user(act: Callable[[], object]) -> tuple[int, str]:
    """Act in a child that is not root; return its exit status and what it wrote to stderr."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            sys.stdout = sys.stderr = os.fdopen(writer, "w")  # not pytest's
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            act()
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:  # noqa: BLE001 - the child must not return into pytest
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def test_help_and_version(site: Site) -> None:
    """Both are there, and the module form is the same command."""
    assert "publish" in site.run("--help").stdout
    assert site.run("--version").stdout.startswith("segment-health, version ")
    module = [sys.executable, "-m", "segment_health", "--version"]
    ended = subprocess.run(module, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("segment-health, version ")


@pytest.mark.parametrize("what", ["template show sbatch-array", "template grafana", "completion bash"])
def test_half_a_script_is_no_success(site: Site, what: str) -> None:
    """A template that was not written whole, on a full disk, ends with 1 and one line."""
    argv = ["bash", "-c", f"{COMMAND} {what} >/dev/full"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=site.path)
    assert ended.returncode == 1
    assert ended.stderr == "segment-health: standard output: not all of it could be written\n"

"""The consumer against real files: the cases of tests/data/cases/consumer.json, and what they leave open."""

from __future__ import annotations

import copy
import errno
import json
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict, cast

import pytest

import segment_health
from segment_health import (
    SegmentHealthCheck,
    UnhealthyNodeException,
    consumer,
    ensure_segment_is_healthy,
    get_segment_health_check,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
CASES = json.loads((HERE / "data/cases/consumer.json").read_text())
LAUNCHER = "nvidia_resiliency_ext.fault_tolerance.launcher"
IGNORING = "Ignoring segment health decision: "
NOBODY = 65534
ARRAY_ENV = {
    "SLURM_ARRAY_JOB_ID": "123",
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_JOB_ID": "130",
    "SLURM_PROCID": "0",
}
NAME = "segment_health_check.123.7"


class Observation(TypedDict):
    """What one launcher process sees of the consumer."""

    installed: bool
    name: str | None
    healthy: bool
    raised: bool
    infos: list[str]
    warnings: list[str]


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Take this process out of whatever job runs the suite, and let every level through."""
    for variable in list(os.environ):
        if variable.startswith("SLURM_"):
            monkeypatch.delenv(variable)
    caplog.set_level(logging.DEBUG, logger="nvrx")


@pytest.fixture
def in_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process 0 of task 7 of the job array 123."""
    for variable, value in ARRAY_ENV.items():
        monkeypatch.setenv(variable, value)


@pytest.fixture
def public_tmp() -> Iterator[Path]:
    """Give a directory that every user may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
        if (directory / "locked").is_dir():
            (directory / "locked").chmod(0o700)  # else an ordinary user could not remove it again


def place(directory: Path, name: str, artifact: Any) -> Path:  # noqa: C901  # one branch a kind
    """Put what a case calls ``artifact`` at ``directory/name``; return the directory to configure."""
    path = directory / name
    match artifact:
        case "missing":
            pass
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/null")
        case "dangling":
            path.symlink_to(directory / "nothing-here")
        case "loop":
            path.symlink_to(path)
        case "notdir":
            (directory / "a-file").write_text("x")
            return directory / "a-file"
        case "eacces":
            (directory / "locked").mkdir()
            (directory / "locked" / name).write_text("x")
            (directory / "locked").chmod(0)
            return directory / "locked"
        case {"symlink_to_file": content}:
            (directory / "elsewhere").write_text(content)
            path.symlink_to(directory / "elsewhere")
        case {"other": other, "file": content}:
            (directory / other).write_text(content)
        case {"file": content}:
            path.write_text(content)
        case _:
            raise AssertionError(artifact)
    return directory


def observe(directory: Path | str, caplog: pytest.LogCaptureFixture) -> Observation:
    """Do what a launcher does before a rendezvous, through the public names only."""
    caplog.clear()
    check = get_segment_health_check(directory)
    healthy = check is None or check()
    infos = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert {record.name for record in caplog.records} <= {"nvrx"}
    try:
        ensure_segment_is_healthy(directory)
    except UnhealthyNodeException:
        raised = True
    else:
        raised = False
    return {
        "installed": check is not None,
        "name": Path(check.path).name if check is not None else None,
        "healthy": healthy,
        "raised": raised,
        "infos": infos,
        "warnings": warnings,
    }


def as_nobody(function: Callable[[], Observation]) -> Observation:
    """Run it in a child that is an ordinary user: permissions do not hold for root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(writer, json.dumps(function()).encode())
        except BaseException:  # noqa: BLE001  # a child of the suite must never return into it
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert text, "the child said nothing: see its traceback in the captured stderr"
    return cast("Observation", json.loads(text))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(
    case: dict[str, Any],
    public_tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a case's environment, as an ordinary user, a launcher decides as the case says."""
    for variable, value in case["env"].items():
        monkeypatch.setenv(variable, value)
    directory = place(public_tmp, case["expected_name"] or NAME, case["artifact"])

    seen = as_nobody(lambda: observe(directory, caplog))

    assert seen["installed"] is case["installed"]
    assert seen["name"] == case["expected_name"]
    assert seen["healthy"] is case["healthy"]
    assert seen["raised"] is not case["healthy"]
    assert len(seen["infos"]) == case["installed"]
    assert len(seen["warnings"]) == case["warns"]
    assert all(warning.startswith(IGNORING) for warning in seen["warnings"])


@pytest.mark.usefixtures("in_array")
@pytest.mark.parametrize(
    ("artifact", "reason"),
    [
        ("directory", "not a regular file: {directory}/segment_health_check.123.7"),
        ("fifo", "not a regular file: {directory}/segment_health_check.123.7"),
        ("device", "not a regular file: {directory}/segment_health_check.123.7"),
        ("loop", f"[Errno {errno.ELOOP}] {os.strerror(errno.ELOOP)}: "),
        ("notdir", f"[Errno {errno.ENOTDIR}] {os.strerror(errno.ENOTDIR)}: "),
        ("eacces", f"[Errno {errno.EACCES}] {os.strerror(errno.EACCES)}: "),
    ],
    ids=["directory", "fifo", "device", "ELOOP", "ENOTDIR", "EACCES"],
)
def test_what_cannot_be_read_fails_open(
    artifact: str, reason: str, public_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a regular file, or any error but "no such file", is healthy with one warning that says why."""
    directory = place(public_tmp, NAME, artifact)
    seen = as_nobody(lambda: observe(directory, caplog))
    assert (seen["healthy"], seen["raised"]) == (True, False)
    (warning,) = seen["warnings"]
    assert warning.startswith(IGNORING + reason.format(directory=directory))
    assert str(directory) in warning


@pytest.mark.usefixtures("in_array")
def test_an_ordinary_user_is_excluded_too(public_tmp: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The child that sees EACCES above sees an exclusion here: it is the permission that fails open."""
    (public_tmp / NAME).write_text("x")
    (public_tmp / NAME).chmod(0)  # stat asks nothing of the file itself
    seen = as_nobody(lambda: observe(public_tmp, caplog))
    assert (seen["healthy"], seen["raised"], seen["warnings"]) == (False, True, [])


@pytest.mark.usefixtures("in_array")
def test_a_socket_fails_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A socket at the path is healthy with a warning."""
    monkeypatch.chdir(tmp_path)  # a socket's address is at most 107 bytes long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(NAME)
        seen = observe(tmp_path, caplog)
    assert (seen["healthy"], seen["raised"]) == (True, False)
    assert seen["warnings"] == [f"{IGNORING}not a regular file: {tmp_path / NAME}"]


@pytest.mark.usefixtures("in_array")
@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        ("/tmp/" + "x" * 300, f"[Errno {errno.ENAMETOOLONG}]"),
        ("/tmp" + "/x" * 4000, f"[Errno {errno.ENAMETOOLONG}]"),
        ("/tmp/a\0b", ""),
        ("/tmp/\ud800", ""),
    ],
    ids=["long-name", "long-path", "NUL", "not-encodable"],
)
def test_an_impossible_directory_fails_open(directory: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that the kernel or Python refuses to look up is healthy with a warning, never an error."""
    seen = observe(directory, caplog)
    assert (seen["healthy"], seen["raised"]) == (True, False)
    (warning,) = seen["warnings"]
    assert warning.startswith(IGNORING + reason)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT], ids=errno.errorcode.get)
def test_failing_storage_fails_open(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that only broken storage gives (so it is injected) is healthy with a warning."""

    def broken(path: str) -> os.stat_result:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", broken)
        seen = SegmentHealthCheck("/shared", "1", "2").examine()
    assert seen == (
        True,
        f"{IGNORING}[Errno {number}] {os.strerror(number)}: '/shared/segment_health_check.1.2'",
    )


@pytest.mark.usefixtures("in_array")
@pytest.mark.parametrize("below", ["", "no/such/directory"], ids=["no-file", "no-directory"])
def test_a_missing_artifact_is_silent(below: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a producer there is no file, maybe no directory: healthy, and the install line is all."""
    seen = observe(tmp_path / below, caplog)
    assert (seen["healthy"], seen["raised"], seen["warnings"]) == (True, False, [])


@pytest.mark.usefixtures("in_array")
def test_every_call_looks_again(tmp_path: Path) -> None:
    """One check follows the artifact through its life: absent, excluded, cleared, excluded, retired."""
    check = get_segment_health_check(tmp_path)
    assert check is not None
    answers = []
    for content in (None, "x", "", "y", None):
        if content is None:
            (tmp_path / NAME).unlink(missing_ok=True)
        else:
            (tmp_path / NAME).write_text(content)
        answers.append(check())
    assert answers == [True, False, True, False, True]


@pytest.mark.usefixtures("in_array")
def test_install_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The installation is logged in the contract's words, at INFO, once however many rendezvous there are."""
    for _ in range(3):
        ensure_segment_is_healthy(str(tmp_path))
    (record,) = caplog.records
    assert record.getMessage() == (f"Segment health check installed directory={tmp_path} job_id=123 task_id=7")
    assert (record.name, record.levelname) == ("nvrx", "INFO")


def test_install_line_is_per_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that turns to another directory or unit says so."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    for directory, job in (("a", "1"), ("a", "2"), ("b", "2"), ("a", "1")):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        assert get_segment_health_check(tmp_path / directory) is not None
    assert [record.getMessage().partition("installed ")[2] for record in caplog.records] == [
        f"directory={tmp_path}/a job_id=1 task_id=1",
        f"directory={tmp_path}/a job_id=2 task_id=2",
        f"directory={tmp_path}/b job_id=2 task_id=2",
    ]


@pytest.mark.usefixtures("in_array")
def test_install_line_is_logged_by_one_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Threads that install at the same time log one line between them."""
    barrier = threading.Barrier(8)

    def install() -> None:
        barrier.wait()
        get_segment_health_check(tmp_path)

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("procid", [None, "", "1", "00", " 0", "0\n", "-0", "\uff10"], ids=ascii)
def test_only_process_zero(
    procid: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless SLURM_PROCID is exactly "0", nothing is installed, logged or looked at, whatever the ids."""
    monkeypatch.setenv("SLURM_JOB_ID", "not digits")
    if procid is not None:
        monkeypatch.setenv("SLURM_PROCID", procid)
    looked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", looked.append)
        check = get_segment_health_check(str(tmp_path))
        ensure_segment_is_healthy(str(tmp_path))
    assert (check, looked, caplog.records) == (None, [], [])


@pytest.mark.parametrize("directory", [None, ""], ids=["None", "empty"])
def test_no_directory_disables_the_check(
    directory: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a directory there is nothing to install, even where the ids are bad."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "x")
    assert get_segment_health_check(directory) is None
    ensure_segment_is_healthy(directory)
    assert caplog.records == []


@pytest.mark.parametrize("procid", ["0", "1", None], ids=["process-0", "process-1", "no-process"])
@pytest.mark.parametrize("directory", [".", "shared/nvrx", "~/nvrx", " /shared", Path("shared")], ids=str)
def test_a_relative_directory_is_an_error_everywhere(
    directory: str | Path, procid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative directory is refused by every process, eligible or not, as ft_launcher refuses it."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    if procid is not None:
        monkeypatch.setenv("SLURM_PROCID", procid)
    with pytest.raises(ValueError, match="not an absolute path"):
        get_segment_health_check(directory)
    with pytest.raises(ValueError, match="not an absolute path"):
        ensure_segment_is_healthy(directory)
    with pytest.raises(ValueError, match="not an absolute path"):
        SegmentHealthCheck(directory, "1", "1")


IDS = {
    "0": True,
    "7": True,
    "007": True,
    "4294967295": True,
    "9" * 20: True,
    "9" * 21: False,
    "1" * 100_000: False,
    "": False,
    " 7": False,
    "7\n": False,
    "+7": False,
    "-1": False,
    "1_0": False,
    "0x1f": False,
    "12;rm": False,
    "../../etc": False,
    "7/../8": False,
    "12.7": False,
    "\uff11\uff12": False,  # full-width digits
    "\u0661": False,  # Arabic-Indic one
    "\u00b2": False,  # superscript two
    "1\x002": False,
    "\udcff": False,  # a byte that is not UTF-8, as os.environ shows it
    "\x1b[31m1": False,
}


@pytest.mark.parametrize(("text", "expected"), IDS.items(), ids=[ascii(text[:24]) for text in IDS])
def test_ids(text: str, expected: bool) -> None:
    """An id is 1 to 20 ASCII decimal digits; nothing else gets into a name, as job or as task."""
    assert consumer.is_id(text) is expected
    if expected:
        assert consumer.artifact_name(text, "1") == f"segment_health_check.{text}.1"
        assert SegmentHealthCheck("/d", "1", text).path == f"/d/segment_health_check.1.{text}"
        return
    for job_id, task_id in ((text, "1"), ("1", text)):
        with pytest.raises(ValueError, match="is not 1 to 20 decimal digits"):
            consumer.artifact_name(job_id, task_id)
        with pytest.raises(ValueError, match="is not 1 to 20 decimal digits"):
            SegmentHealthCheck("/d", job_id, task_id)


# What the kernel lets into an environment: no NUL; and an empty variable is an unset one.
HOSTILE = [text for text, expected in IDS.items() if not expected and text and "\0" not in text]


@pytest.mark.parametrize("variable", ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"])
@pytest.mark.parametrize("text", HOSTILE, ids=[ascii(text[:24]) for text in HOSTILE])
def test_a_hostile_id_never_becomes_a_path(
    text: str,
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An id that is not digits installs nothing and looks at nothing; one short printable line names it."""
    env = ARRAY_ENV if variable != "SLURM_JOB_ID" else {"SLURM_PROCID": "0"}
    for name, value in {**env, variable: text}.items():
        monkeypatch.setenv(name, value)
    looked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", looked.append)
        check = get_segment_health_check(str(tmp_path))
    assert (check, looked) == (None, [])
    (record,) = caplog.records
    message = record.getMessage()
    kind = "task" if "TASK" in variable else "job"
    assert message == f"{IGNORING}{kind} id is not 1 to 20 decimal digits: {text[:40]!a}"
    assert record.levelname == "WARNING"
    assert message.isascii()
    assert message.isprintable()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLURM_JOB_ID": "55"}, ("55", "55")),
        ({"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "130"}, ("123", "0")),
        ({"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "9", "SLURM_JOB_ID": "123"}, ("123", "9")),
        ({"SLURM_ARRAY_JOB_ID": "123", "SLURM_JOB_ID": "130"}, ("123", "123")),
        ({"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "", "SLURM_JOB_ID": "130"}, ("123", "123")),
        ({"SLURM_ARRAY_JOB_ID": "", "SLURM_ARRAY_TASK_ID": "", "SLURM_JOB_ID": "55"}, ("55", "55")),
        ({"SLURM_ARRAY_TASK_ID": "7", "SLURM_JOB_ID": "55"}, ("55", "7")),
        ({"SLURM_JOB_ID": "60", "SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_1": "61"}, ("60", "60")),
        ({"SLURM_JOB_ID": "55", "SLURM_PROCID": "3"}, ("55", "55")),
        ({"SLURM_ARRAY_TASK_ID": "7"}, None),
        ({"SLURM_JOB_ID": "", "SLURM_PROCID": "0"}, None),
        ({}, None),
    ],
    ids=[
        "regular",
        "array-task-zero",
        "array-last-task",
        "array-no-task",
        "array-empty-task",
        "empty-array",
        "task-without-array",
        "heterogeneous",
        "any-process",
        "task-only",
        "empty-job",
        "nothing",
    ],
)
def test_identify(environ: dict[str, str], expected: tuple[str, str] | None) -> None:
    """A unit's ids come from its environment as the contract's table says, in every process of it."""
    assert consumer.identify(environ) == expected


def test_identify_refuses_what_is_not_digits() -> None:
    """A bad id is an error to whoever asks for the ids."""
    with pytest.raises(ValueError, match=r"^job id is not 1 to 20 decimal digits: '\.\./\.\./etc'$"):
        consumer.identify({"SLURM_JOB_ID": "../../etc"})


@pytest.mark.parametrize("directory", ["/shared/nvrx", "/shared/nvrx/", Path("/shared/nvrx")], ids=repr)
def test_attributes(directory: str | Path) -> None:
    """A check shows what it was made of, and the path as text."""
    check = SegmentHealthCheck(directory, "123", "7")
    assert (check.directory, check.job_id, check.task_id) == (str(directory), "123", "7")
    assert check.path == "/shared/nvrx/segment_health_check.123.7"


@pytest.mark.parametrize("artifact", ["missing", {"file": "x"}, "directory"], ids=["missing", "file", "directory"])
def test_one_metadata_call_and_no_open(artifact: Any, tmp_path: Path) -> None:
    """The kernel sees one call that names the artifact, a stat, and nothing else between two markers."""
    place(tmp_path, NAME, artifact)
    program = f"""
import logging, os, sys
sys.path.insert(0, {str(Path(segment_health.__file__).parent.parent)!r})
from segment_health import SegmentHealthCheck
check = SegmentHealthCheck({str(tmp_path)!r}, "123", "7")
os.access("/marker", 0)
check.examine()
os.access("/marker", 0)
"""
    trace = tmp_path / "trace"
    command = [
        "strace",
        "-f",
        "-e",
        "trace=%file,%desc",
        "-o",
        str(trace),
        sys.executable,
        "-I",
        "-c",
        program,
    ]
    subprocess.run(command, check=True, timeout=60)
    _, between, _ = trace.read_text().split('"/marker"')
    calls = [line for line in between.splitlines()[1:-1] if line]
    (call,) = calls
    assert "stat" in call
    assert f'"{tmp_path / NAME}"' in call
    assert "NOFOLLOW" not in call


def test_a_call_survives_broken_logging(tmp_path: Path) -> None:
    """A log filter that raises does not make a healthy node unhealthy: NVRx takes any exception for that."""

    def broken(_: logging.LogRecord) -> bool:
        raise RuntimeError("no log for you")

    (tmp_path / NAME).mkdir()
    logging.getLogger("nvrx").addFilter(broken)
    try:
        assert SegmentHealthCheck(tmp_path, "123", "7")() is True
    finally:
        logging.getLogger("nvrx").removeFilter(broken)


def excluded(directory: Path) -> UnhealthyNodeException:
    """Return what is raised for an excluded unit."""
    (directory / NAME).write_text("x")
    with pytest.raises(UnhealthyNodeException) as caught:
        SegmentHealthCheck(directory, "123", "7").ensure_healthy()
    return caught.value


def launcher_with(attribute: object) -> ModuleType:
    """Make a module like ft_launcher's that holds this as its exception."""
    module = ModuleType(LAUNCHER)
    vars(module)["UnhealthyNodeException"] = attribute
    return module


class LauncherException(Exception):  # noqa: N818
    """NVRx's class in short (tests/test_against_nvrx.py takes the real one from the wheel)."""

    def __init__(self, message: str = "A node in the cluster is unhealthy") -> None:
        self.message = message
        super().__init__(self.message)


class Odd(Exception):  # noqa: N818
    """An exception that cannot be made of a message."""

    def __init__(self, *, code: int) -> None:
        super().__init__(code)


class Derived(UnhealthyNodeException):
    """What a launcher that builds on our class would have."""


def test_exception_defaults() -> None:
    """The exception has NVRx's default message and carries another one in ``message`` and as text."""
    assert UnhealthyNodeException().message == str(UnhealthyNodeException())
    assert str(UnhealthyNodeException()) == "A node in the cluster is unhealthy"
    assert UnhealthyNodeException("why").message == str(UnhealthyNodeException(message="why")) == "why"
    assert UnhealthyNodeException.__bases__ == (Exception,)


def test_exclusion_names_the_artifact(tmp_path: Path) -> None:
    """Whoever reads the launcher's last line learns which unit is excluded and which file says why."""
    error = excluded(tmp_path)
    assert error.message == str(error)
    assert error.message == (
        "Slurm allocation unit job_id=123 task_id=7 is excluded from rendezvous: "
        f"{tmp_path / NAME} is not empty (its content says why)"
    )
    assert type(error) is UnhealthyNodeException
    assert LAUNCHER not in sys.modules


def test_exclusion_is_the_launchers_exception_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ft_launcher is loaded, its own ``except UnhealthyNodeException`` catches ours."""
    monkeypatch.setitem(sys.modules, LAUNCHER, launcher_with(LauncherException))
    error = excluded(tmp_path)
    assert isinstance(error, LauncherException)
    assert error.message == str(error)
    assert str(tmp_path / NAME) in error.message
    assert type(error).__name__ == "UnhealthyNodeException"


@pytest.mark.parametrize(
    ("attribute", "is_theirs"),
    [
        (None, False),
        ("a string", False),
        (Odd, False),
        (KeyboardInterrupt, False),
        (int, False),
        (Exception, True),
        (UnhealthyNodeException, True),
        (Derived, True),
    ],
    ids=[
        "none",
        "no-class",
        "other-signature",
        "no-Exception",
        "no-exception",
        "Exception",
        "ours",
        "derived",
    ],
)
def test_an_odd_launcher_module(
    attribute: Any, is_theirs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the launcher's place, an exclusion stays one, and is theirs too where it can be."""
    monkeypatch.setitem(sys.modules, LAUNCHER, launcher_with(attribute))
    error = excluded(tmp_path)
    assert str(tmp_path / NAME) in error.message
    assert (isinstance(attribute, type) and isinstance(error, attribute)) is is_theirs


class Exploding(ModuleType):
    """A lazy module that fails when touched."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    "module", [None, ModuleType(LAUNCHER), Exploding(LAUNCHER)], ids=["blocked", "empty", "lazy"]
)
def test_an_unusable_launcher_module(
    module: ModuleType | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is blocked, half imported, or fails when touched leaves our own class."""
    monkeypatch.setitem(sys.modules, LAUNCHER, cast("ModuleType", module))
    assert type(excluded(tmp_path)) is UnhealthyNodeException


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("launcher", [False, True], ids=["alone", "with-launcher"])
def test_exclusion_survives_pickling(
    launcher: bool, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is raised crosses a process boundary, also the class that is made when it is raised."""
    with monkeypatch.context() as patch:
        if launcher:
            patch.setitem(sys.modules, LAUNCHER, launcher_with(LauncherException))
        error = excluded(tmp_path)
        data = pickle.dumps(error, protocol)
        for twin in (pickle.loads(data), copy.copy(error), copy.deepcopy(error)):
            assert isinstance(twin, UnhealthyNodeException)
            assert isinstance(twin, LauncherException) is launcher
            assert (twin.message, str(twin)) == (error.message, error.message)
    # Where no launcher is loaded it is read back as ours.
    assert type(pickle.loads(data)) is UnhealthyNodeException


def test_vendored_alone(tmp_path: Path) -> None:
    """A copy of the one file works with neither this project nor any site package in reach."""
    shutil.copy(consumer.__file__, tmp_path / "vendored_check.py")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / NAME).write_text("x")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import vendored_check
check = vendored_check.get_segment_health_check({str(tmp_path / "shared")!r})
print(check(), "segment_health" in sys.modules)
vendored_check.ensure_segment_is_healthy({str(tmp_path / "shared")!r})
"""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        env=ARRAY_ENV,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert run.stdout == "False False\n"
    assert run.stderr.splitlines()[-1].startswith("vendored_check.UnhealthyNodeException: Slurm allocation unit")


def test_public_names() -> None:
    """The package offers these four names, and a version."""
    assert sorted(segment_health.__all__) == [
        "SegmentHealthCheck",
        "UnhealthyNodeException",
        "ensure_segment_is_healthy",
        "get_segment_health_check",
    ]
    assert all(getattr(segment_health, name) is getattr(consumer, name) for name in segment_health.__all__)
    assert segment_health.__version__

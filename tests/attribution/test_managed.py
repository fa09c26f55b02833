"""A service of the job's own: real processes, real signals, a real key file, on a port of each test's own."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from segment_health.attribution import child, leash, managed, port
from segment_health.attribution.child import ServiceError
from segment_health.attribution.client import Client
from segment_health.attribution.flags import settings_of, without_key
from segment_health.attribution.managed import Service
from segment_health.attribution.metadata import JobMetadata
from segment_health.attribution.wire import Intent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("attrsvc.py")
KEY = "nvapi-0Kl1m2N3o4P5"
"""What must stand nowhere but in its file."""
PATIENCE = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Site:
    """A job's place: logs, a key, an installed service that does what it is told, and what was said."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = directory / "key"
        self.key.write_text(KEY)
        self.logs = directory / "logs"
        self.installed = directory / "bin/nvrx-attrsvc"
        self.installed.parent.mkdir()
        self.installed.write_text(f"#!{sys.executable}\n{PROGRAM.read_text()}")
        self.installed.chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.said: list[tuple[str, str]] = []
        self.environ = {
            "PATH": f"{self.installed.parent}:/usr/bin:/bin",
            "HOME": str(directory),
            "USER": "alice",
            "LLM_API_KEY": KEY,
            "ATTRSVC_COUNT": str(directory / "count"),
        }

    def service(self, does: str = "", **flags: str) -> Service:
        """Return a service that is not started yet."""
        told = {
            "endpoint": "localhost",
            "applog_prefix": f"{self.logs}/train.log",
            "key_file": str(self.key),
            "startup_timeout": "60",
            **flags,
        }
        return Service(
            settings_of(told, {}, {}),
            environ=self.environ | {"ATTRSVC_DOES": does},
            say=lambda level, sentence: self.said.append((level, sentence)),
            number=self.port,
        )

    def ask(self) -> dict[str, Any]:
        """Ask the service how it is; nothing where it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/healthz")
            told: dict[str, Any] = json.loads(connection.getresponse().read())
        except OSError:
            return {}
        finally:
            connection.close()
        return told

    def all_said(self) -> str:
        """Return what was said, in lines."""
        return "\n".join(" ".join(line) for line in self.said)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A place for a job."""
    return Site(tmp_path)


def lives(process: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_service_serves_and_ends_with_the_job(site: Site) -> None:
    """Inside `with` it answers, told in NVRx's words; afterwards nothing of it is left, and its port is free."""
    (site.directory / "real").mkdir()
    site.logs.symlink_to("real")
    site.environ["NVRX_ATTRSVC_EXPORT_URL"] = "https://not.told/by-flags"
    site.environ["nvrx_attrsvc_export_url"] = "https://not.told/by-flags"  # NVRx takes names in any case
    site.environ["Nvrx_Attrsvc_Allowed_Root"] = "/"
    site.environ["nvrx_attrsvc_endpoint"] = "http://0.0.0.0:1"
    site.environ["NVRX_ATTRSVC_COMPUTE_TIMEOUT"] = "7"
    with site.service(base_url="https://llm.example/v1", model="m", backend="lib", log_level="debug") as service:
        assert service.endpoint == f"http://127.0.0.1:{site.port}"
        told = site.ask()
        assert told["environ"] == {
            "LLM_API_KEY_FILE": str(site.key),
            "NVRX_ATTRSVC_ALLOWED_ROOT": str(site.directory / "real"),
            "NVRX_ATTRSVC_ANALYSIS_BACKEND": "lib",
            "NVRX_ATTRSVC_COMPUTE_TIMEOUT": "7",
            "NVRX_ATTRSVC_ENDPOINT": service.endpoint,
            "NVRX_ATTRSVC_LLM_BASE_URL": "https://llm.example/v1",
            "NVRX_ATTRSVC_LLM_MODEL": "m",
            "NVRX_ATTRSVC_LOG_LEVEL": "DEBUG",
        }
        assert told["key"] == hashlib.sha256(KEY.encode()).hexdigest()
    assert not lives(told["pid"])
    assert port.is_free(site.port)
    log = site.directory / "real/nvrx/train_attribution.log"
    assert site.said == [("INFO", f"attribution service: ready, process {told['pid']}, log {log}")]
    assert "serves\n" in log.read_text()


def test_the_log_is_named_by_the_launchers_and_kept(site: Site) -> None:
    """It lies beside the launcher's log, and a second service appends to it."""
    log = site.directory / "launcher_attribution.log"
    log.write_text("earlier\n")
    with site.service(launcher_log=f"{site.directory}/launcher.log"):
        pass
    assert log.read_text().startswith("earlier\nserves\n")
    assert not (site.logs / "nvrx").exists()


def test_a_program_gets_a_terminal_less_start(site: Site) -> None:
    """Its signals are as they are for any program that was just started, whatever this process ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with site.service():
            hangup = site.ask()["signals"][1]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert hangup == str(signal.SIG_DFL)


def no_key(site: Site) -> dict[str, str]:
    """Name no key at all."""
    del site
    return {"key_file": ""}


def a_missing_key(site: Site) -> dict[str, str]:
    """Name a file that is not there."""
    return {"key_file": f"{site.directory}/nowhere"}


def a_folder_as_key(site: Site) -> dict[str, str]:
    """Name a directory."""
    return {"key_file": str(site.directory)}


def a_fifo_as_key(site: Site) -> dict[str, str]:
    """Name what would be waited for, if anybody read it."""
    os.mkfifo(site.directory / "fifo")
    return {"key_file": f"{site.directory}/fifo"}


def the_key_itself(site: Site) -> dict[str, str]:
    """Give the key where its file is asked for."""
    del site
    return {"key_file": KEY}


def a_file_for_logs(site: Site) -> dict[str, str]:
    """Let a file be where the logs' directory should be."""
    site.logs.touch()
    return {}


def a_fifo_as_log(site: Site) -> dict[str, str]:
    """Let a fifo without a reader be where the service's log should be."""
    os.mkfifo(site.directory / "l_attribution.log")
    return {"launcher_log": f"{site.directory}/l.log"}


def no_interpreter(site: Site) -> dict[str, str]:
    """Install a service whose interpreter is not there."""
    site.installed.write_text("#!/nowhere/python\n")
    return {}


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (no_key, "--ft-attribution-llm-api-key-file or LLM_API_KEY_FILE has to name"),
        (a_missing_key, "/nowhere: the API key cannot be read: No such file or directory"),
        (a_folder_as_key, "the API key cannot be read: not a regular file"),
        (a_fifo_as_key, "/fifo: the API key cannot be read: not a regular file"),
        (the_key_itself, "the API key cannot be read: No such file or directory"),
        (a_file_for_logs, "/logs: the directory of the application logs: "),
        (a_fifo_as_log, "/l_attribution.log: the service's log: "),
        (no_interpreter, "/nvrx-attrsvc: cannot be started: No such file or directory"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_refused_before_a_service_starts(
    site: Site, spoil: Callable[[Site], dict[str, str]], complaint: str
) -> None:
    """The sentence says what is wrong, no service ran, and the key is not quoted."""
    with pytest.raises(ServiceError) as raised, site.service(**spoil(site)):
        pytest.fail("it was started")
    assert complaint in str(raised.value)
    assert KEY not in str(raised.value)
    assert raised.value.nothing_was_started
    assert port.is_free(site.port)
    assert site.said == []


def test_where_nvrx_has_none_the_service_is_our_own(site: Site) -> None:
    """It needs no key, judges by rules, keeps its state beside its log, and goes on when it was killed."""
    site.installed.unlink()
    site.environ |= {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2", "NVRX_ATTRSVC_LOG_LEVEL": "WARNING"}
    site.logs.mkdir()
    log = site.logs / "train_cycle0.log"
    log.write_text("ModuleNotFoundError: No module named 'megatorn'\n")
    with site.service(key_file="", log_level="INFO") as service:
        assert site.ask() == {"status": "ok", "backend": "rules", "issues": []}
        asking = Client(service.endpoint, JobMetadata("ann", "77"))
        asking.submit(str(log), Intent.TERMINAL)
        with pytest.raises(Exception, match="HTTP 403"):
            asking.submit("/etc/passwd", Intent.TERMINAL)
        (process,) = [int(sentence.split()[4].strip(",")) for _, sentence in site.said]
        assert b"LLM_API_KEY" not in Path(f"/proc/{process}/environ").read_bytes()
        os.kill(process, signal.SIGKILL)
        until(lambda: len(site.said) == 3, "a second service")
        assert asking.ask(str(log)).word == "in_flight"
    until(lambda: port.is_free(site.port), "a port that is free")
    assert (site.logs / "nvrx/train_attribution.77.2.db").is_file()
    assert "serving at" in (site.logs / "nvrx/train_attribution.log").read_text()


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "/l/nvrx/train_attribution.db"),
        ({"SLURM_JOB_ID": "7"}, "/l/nvrx/train_attribution.7.db"),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, "/l/nvrx/train_attribution.7.1.db"),
        ({"SLURM_JOB_ID": "../x", "SLURM_RESTART_COUNT": "\u0661"}, "/l/nvrx/train_attribution.db"),
    ],
)
def test_where_our_own_keeps_its_state(environ: dict[str, str], name: str) -> None:
    """Each run of a job has a file, and nothing but digits becomes a name."""
    settings = settings_of({"endpoint": "localhost", "applog_prefix": "/l/train.log"}, {}, {})
    assert child.state_file(settings, environ) == name


@pytest.mark.root
def test_a_key_that_is_not_for_this_user(short_path: Path) -> None:
    """The file is opened, which says more than its mode does."""
    key = short_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    short_path.chmod(0o755)
    assert leash.readable_key(str(key)) == str(key)
    os.seteuid(65534)
    try:
        with pytest.raises(leash.RefusedError, match="/key: the API key cannot be read: Permission denied"):
            leash.readable_key(str(key))
    finally:
        os.seteuid(0)


def test_where_the_key_really_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told may begin with ~, be relative, or be a link: what the service is told is none of these."""
    monkeypatch.setenv("HOME", str(site.directory))
    monkeypatch.chdir(site.directory)
    (site.directory / "link").symlink_to("key")
    for told in ("~/key", "key", "./link", str(site.directory / "link")):
        assert leash.readable_key(told) == str(site.key)


def test_where_the_logs_really_are(tmp_path: Path) -> None:
    """The directory of a prefix is made, through links, and so is that of the log, which is appended to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert leash.directory_of(f"{tmp_path}/link/deep/train.log") == f"{tmp_path}/real/deep"
    assert (tmp_path / "real/deep").is_dir()
    for text in (b"one\n", b"two\n"):
        log, path = leash.opened(f"{tmp_path}/link/nvrx/a.log")
        os.write(log, text)
        os.close(log)
        assert path == f"{tmp_path}/real/nvrx/a.log"
    assert Path(path).read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("of", "told", "complaint"),
    [
        (
            leash.directory_of,
            "file/deep/train",
            "/file/deep: the directory of the application logs: Not a directory",
        ),
        (leash.opened, "file/deep/a.log", "/file/deep/a.log: the service's log: Not a directory"),
        (leash.opened, "null", "/dev/null: the service's log: not a regular file"),
        (leash.opened, "folder", "/folder: the service's log: Is a directory"),
    ],
    ids=["logs", "log", "device", "folder"],
)
def test_no_place_for_logs(tmp_path: Path, of: Callable[[str], object], told: str, complaint: str) -> None:
    """The sentence names the path as it really is."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(leash.RefusedError) as raised:
        of(f"{tmp_path}/{told}")
    assert str(raised.value).endswith(complaint)


def test_a_port_that_is_taken(site: Site) -> None:
    """Whoever listens there is left alone, and is not believed: no service is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", site.port))
        other.listen()
        with pytest.raises(ServiceError, match=f"127.0.0.1:{site.port} is taken") as raised, site.service():
            pytest.fail("it was started")
    assert raised.value.nothing_was_started
    assert not site.logs.exists()


def test_an_answer_of_somebody_else(site: Site) -> None:
    """A port that is answered, while our service lives and does not listen, is not our service's."""
    try:
        with (
            pytest.raises(ServiceError, match="is not the service that was started") as raised,
            site.service("aside"),
        ):
            pytest.fail("it was believed")
    finally:
        os.kill(site.ask()["pid"], signal.SIGKILL)
    assert not raised.value.nothing_was_started


def test_a_service_that_ends_at_once(site: Site) -> None:
    """How it ended is said, and where its log is."""
    with pytest.raises(ServiceError) as raised, site.service("crash"):
        pytest.fail("it was ready")
    log = site.logs / "nvrx/train_attribution.log"
    assert str(raised.value) == f"the attribution service ended before it was ready (status 3), see {log}"
    assert not raised.value.nothing_was_started


def test_a_service_that_is_never_ready(site: Site) -> None:
    """After the time for it there is an error, and no service any more."""
    with pytest.raises(ServiceError, match="not ready within 4 s"), site.service("deaf", startup_timeout="4"):
        pytest.fail("it was ready")
    assert port.is_free(site.port)


def test_storage_that_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a child hangs before the service begins, the time for that ends too, and the child is killed."""
    hanging = site.directory / "hanging"
    hanging.write_text(f"#!/bin/sh\necho $$ > {site.directory}/pid\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    with pytest.raises(ServiceError, match="the storage of the API key"), site.service(startup_timeout="4"):
        pytest.fail("it was started")
    assert not lives(int((site.directory / "pid").read_text()))


def test_a_service_that_dies_is_started_again(site: Site) -> None:
    """A warning says why and when; another process then answers at the same endpoint."""
    with site.service():
        first = site.ask()["pid"]
        os.kill(first, signal.SIGKILL)
        until(lambda: site.ask().get("pid", first) != first, "no second service")
        second = site.ask()["pid"]
    assert ("WARNING", site.said[1][1]) == site.said[1]
    assert f"process {first} ended (by signal 9), see {site.logs}/nvrx" in site.said[1][1]
    assert site.said[1][1].endswith("it is started again in 1 s")
    assert not lives(second)


def test_a_service_that_dies_for_good_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many restarts an error says that there are no verdicts any more; closing is at once."""
    monkeypatch.setattr(managed, "RESTARTS", 1)
    with site.service("crash-again"):
        os.kill(site.ask()["pid"], signal.SIGKILL)
        until(lambda: site.said[-1][0] == "ERROR", "not given up")
    assert [level for level, _ in site.said] == ["INFO", "WARNING", "ERROR"]
    assert "ended before it was ready (status 3)" in site.said[-1][1]
    assert site.said[-1][1].endswith("given up: no more verdicts, and the job goes on")


def test_one_that_served_long_has_died_for_the_first_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts are counted anew after a service that was steady."""
    monkeypatch.setattr(managed, "RESTARTS", 1)
    monkeypatch.setattr(managed, "STEADY_SECONDS", 0.0)
    with site.service():
        for death in range(1, 3):
            os.kill(site.ask()["pid"], signal.SIGKILL)
            until(lambda: len(site.said) == 1 + 2 * death, "not started again")  # noqa: B023 - it is called here
    assert [level for level, _ in site.said] == ["INFO", "WARNING", "INFO", "WARNING", "INFO"]


def test_the_end_of_a_job_does_not_wait_for_a_restart(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a service that died is waited for, leaving is at once."""
    monkeypatch.setattr(managed, "_pause", lambda _restarts: 600.0)
    with site.service() as service:
        os.kill(site.ask()["pid"], signal.SIGKILL)
        until(lambda: site.said[-1][0] == "WARNING", "nobody noticed")
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE / 2
    assert not service._thread.is_alive()


def test_a_service_that_ignores_sigterm_is_killed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After TERM_SECONDS, and so is what it started."""
    assert child.TERM_SECONDS == 5.0
    monkeypatch.setattr(child, "TERM_SECONDS", 0.3)
    with site.service("stubborn forks"):
        told = site.ask()
        assert lives(told["child"])
    assert not lives(told["pid"])
    until(lambda: not lives(told["child"]), "its child lives on")


def test_a_service_outlives_the_thread_that_entered(site: Site) -> None:
    """The kernel would end it with the thread that started it; so that is a thread of its own."""
    with contextlib.ExitStack() as stack:
        entering = threading.Thread(target=lambda: stack.enter_context(site.service()))
        entering.start()
        entering.join()
        first = site.ask()["pid"]
        assert lives(first)
        assert site.ask()["pid"] == first
    assert [level for level, _ in site.said] == ["INFO"]


def test_a_service_dies_with_a_job_that_is_killed(site: Site) -> None:
    """SIGKILL leaves nobody who could end it: the kernel does."""
    told = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from segment_health.attribution.flags import settings_of
from segment_health.attribution.managed import Service
from segment_health.attribution.metadata import JobMetadata
from segment_health.attribution.wire import Intent
flags = {{"endpoint": "localhost", "applog_prefix": {str(site.logs / "train")!r}, "key_file": {str(site.key)!r}}}
with Service(settings_of(flags, {{}}, {{}}), environ={site.environ!r}, say=lambda *_: None, number={site.port}):
    print("ready", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"ready\n"
        service = site.ask()["pid"]
        job.kill()
    try:
        until(lambda: not lives(service), "the service lives on")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(service, signal.SIGKILL)


class Receiver(BaseHTTPRequestHandler):
    """Takes what is exported."""

    received = b""

    def do_POST(self) -> None:
        """Keep it, headers too."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.received += self.requestline.encode() + bytes(self.headers) + body
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[str]:
    """Where results may be exported to; what came is in Receiver.received."""
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/posting"
        server.shutdown()
        thread.join()


def test_the_key_appears_nowhere(site: Site, receiver: str) -> None:
    """In no log, command line, message, export, and in no process's environment; a real child has it all the same.

    It was in this job's environment too: neither the service nor a workload gets that.
    """
    workload_environ = without_key(site.environ)
    with (
        site.service(export_url=receiver),
        subprocess.Popen(["sleep", "600"], env=workload_environ) as workload,
    ):
        told = site.ask()
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE)
        connection.request("POST", "/logs", json.dumps(f"{site.logs}/train_cycle0.log"))
        assert connection.getresponse().status == 200
        connection.close()
        os.kill(told["pid"], signal.SIGKILL)
        until(lambda: site.ask().get("pid", told["pid"]) != told["pid"], "not started again")
        service = site.ask()["pid"]
        command_lines = b"".join(_read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
        environs = {process: _read(Path(f"/proc/{process}/environ")) for process in (service, workload.pid)}
        workload.kill()
    assert told["key"] == hashlib.sha256(KEY.encode()).hexdigest()
    assert b"train_cycle0.log" in Receiver.received
    assert f"LLM_API_KEY_FILE={site.key}".encode() in environs[service]
    assert b"LLM_API_KEY" not in environs[workload.pid]
    logs = b"".join(path.read_bytes() for path in site.logs.rglob("*") if path.is_file())
    assert b"exported" in logs
    for where in (command_lines, *environs.values(), logs, site.all_said().encode(), Receiver.received):
        assert where
        assert KEY.encode() not in where


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):  # it has ended, or is somebody else's
        return path.read_bytes()
    return b""


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:C382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0
   1: 00000000:C382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0
   2: 0200007F:C382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 13 1 0
   3: 0100007F:C382 0100007F:9000 01 00000000:00000000 00:00000000 00000000  1000        0 14 1 0
   4: 0100007F:C383 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 15 1 0
   5: 0100007F:C382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 16 1 0
"""


def test_who_listens() -> None:
    """Whoever does at 127.0.0.1 and the port, several too: neither who is connected, nor who is elsewhere."""
    table = TABLE if sys.byteorder == "little" else TABLE.replace("0100007F", "7F000001")
    assert port.listening_in(table, 0xC382) == {"11", "16"}


def test_the_port_of_an_endpoint_is_nvrxs() -> None:
    """Without another number it is the one that clients are told."""
    settings = settings_of({"endpoint": "localhost", "applog_prefix": "/l/a"}, {}, {})
    service = Service(settings, environ={}, say=lambda *_: None)
    assert urlsplit(service.endpoint).port == 50050
    assert service.endpoint == settings.client_endpoint
    service.close()  # of one that was never entered: nothing to do

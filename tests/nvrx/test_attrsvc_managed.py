"""NVIDIA's own attribution service, unmodified, as a job's own: started, asked, restarted and ended by us.

Here it has a language model, of ours, which refuses every question and quotes the key that it was given.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from segment_health.attribution.client import Client
from segment_health.attribution.flags import settings_of
from segment_health.attribution.managed import Service
from segment_health.attribution.metadata import JobMetadata
from segment_health.attribution.wire import Intent, Verdict
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 120.0
KEY = "nvapi-0Kl1m2N3o4P5"
LOG = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n"


class Model(BaseHTTPRequestHandler):
    """A language model that lets nobody in."""

    given: list[str]

    def do_POST(self) -> None:
        """Refuse, in the words of a service that is not careful with keys."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.given.append(self.headers.get("Authorization", ""))
        answer = json.dumps({"error": f"wrong key: {self.given[-1]}"}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def model() -> Iterator[str]:
    """Where the model is; what it was given is in Model.given."""
    Model.given = []
    with HTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def path_with_service(root: Path, tmp_path: Path) -> str:
    """A PATH on which nvrx-attrsvc is, as the wheel's own installation would make it."""
    wheel = root / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
    python = root / ".cache/nvrx/attrsvc/bin/python"
    if not (wheel.is_dir() and python.exists()):
        pytest.fail("no nvrx-attrsvc here: `make test-attrsvc` fetches it", pytrace=False)
    installed = tmp_path / "bin/nvrx-attrsvc"
    installed.parent.mkdir()
    entry = "from nvidia_resiliency_ext.services.attrsvc.__main__ import main\nmain()\n"
    installed.write_text(f"#!{python}\nimport sys\nsys.path.insert(0, {str(wheel)!r})\n{entry}")
    installed.chmod(0o755)
    return f"{installed.parent}:{os.environ['PATH']}"


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_job_has_it_for_itself(model: str, path_with_service: str, tmp_path: Path) -> None:
    """It judges a log of the job, reads no other, is started again, and ends; only the model sees the key.

    Neither the service's log, at its wordiest, nor its command line, its environment, its answers or our words.
    """
    (tmp_path / "key").write_text(f"{KEY}\n")
    flags = {
        "endpoint": "localhost",
        "applog_prefix": f"{tmp_path}/logs/train.log",
        "key_file": f"{tmp_path}/key",
        "base_url": model,
        "model": "any",
        "log_level": "DEBUG",
        "startup_timeout": "100",
    }
    environ = {
        "PATH": path_with_service,
        "HOME": str(tmp_path),
        "LLM_API_KEY": "of-the-environment",
        "NVRX_ATTRSVC_RESTART_AGENT_LOG_QUIET_SECONDS": "0",
    }
    said: list[str] = []
    service = Service(
        settings_of(flags, {}, {}),
        environ=environ,
        say=lambda level, sentence: said.append(f"{level} {sentence}"),
        number=free_ports(1),
    )
    with service:
        log = tmp_path / "logs/train_cycle0.log"
        log.write_text(LOG)
        asking = Client(service.endpoint, JobMetadata("ann", "7"))
        asking.submit(str(log), Intent.TERMINAL)
        with pytest.raises(Exception, match="HTTP 403"):
            asking.submit("/etc/passwd", Intent.TERMINAL)
        until(lambda: asking.ask(str(log)).verdict is not Verdict.UNDECIDED, "a verdict")
        answer = asking.ask(str(log))
        first = _process_at(service.endpoint)
        of_process = b"".join(Path(f"/proc/{first}/{what}").read_bytes() for what in ("cmdline", "environ"))
        os.kill(first, signal.SIGKILL)
        until(lambda: len(said) == 3, "a second service")
    assert answer.verdict is Verdict.STOP
    assert Model.given
    assert set(Model.given) == {f"Bearer {KEY}"}
    written = b"".join(path.read_bytes() for path in (tmp_path / "logs").rglob("*.log"))
    assert b"Uvicorn running on" in written
    for where in (written, of_process, repr(answer).encode(), "\n".join(said).encode()):
        assert where
        assert KEY.encode() not in where
    assert [line.partition(" ")[0] for line in said] == ["INFO", "WARNING", "INFO"]
    assert _process_at(service.endpoint) == 0


def _process_at(endpoint: str) -> int:
    """Return the process that was told to listen at an endpoint, 0 where none is."""
    wanted = f"NVRX_ATTRSVC_ENDPOINT=http://127.0.0.1:{urlsplit(endpoint).port}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if wanted in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
    return 0

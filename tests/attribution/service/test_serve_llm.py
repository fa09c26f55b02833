"""`attribution serve` with a model, as it is installed: what it finds, and where the key is not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from segment_health.cli import main
from slurm.sandbox.processes import free_ports
from tests.attribution.analysers.llm.model import KEY, FakeModel, Reply, finding

from .conftest import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = "iteration 1200/5000\nsomething odd happened here\n"


class Site:
    """A service that asks a model, and all that it leaves."""

    def __init__(self, directory: Path, model: FakeModel) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.state = directory / "state.db"
        self.key = directory / "key"
        self.key.write_text(KEY)
        self.key.chmod(0o600)
        self.stderr = directory / "stderr"
        self.url = f"http://127.0.0.1:{free_ports(1)}"
        argv = [sys.executable, "-m", "segment_health", "attribution", "serve", "--listen", self.url]
        argv += ["--allowed-root", str(self.logs), "--state", str(self.state), "--log-level", "DEBUG"]
        argv += [
            "--analyser",
            "llm",
            "--llm-base-url",
            model.url,
            "--llm-model",
            "m-1",
            "--llm-key-file",
            str(self.key),
        ]
        argv += ["--drain-min", "0", "--drain-quiet", "0", "--drain-max", "1", "--workers", "2"]
        # What is in the environment is no key, and is nobody's business.
        environ = os.environ | {"LLM_API_KEY": KEY}
        with self.stderr.open("ab") as stderr:
            self.process = subprocess.Popen(argv, stderr=stderr, env=environ, start_new_session=True)

    def judged(self, name: str, text: str) -> dict[str, Any]:
        """Have a log judged; return the answer."""
        (self.logs / name).write_text(text)
        deadline = time.monotonic() + PATIENCE
        body = {"log_path": str(self.logs / name), "analysis_intent": "terminal", "job_id": "7"}
        with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.post(f"{self.url}/logs", json=body).is_success:
                        break
                assert time.monotonic() < deadline, self.stderr.read_text()
                time.sleep(0.1)
            told: dict[str, Any] = client.get(f"{self.url}/logs", params={"log_path": body["log_path"]}).json()
        assert told["status"] == "completed"
        return told

    def family(self) -> list[int]:
        """Return the service's process and those below it."""
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found += [int(child) for child in children]
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Site, FakeModel]]:
    """A service, and the model that it asks."""
    with FakeModel() as model:
        made = Site(tmp_path, model)
        yield made, model
        made.process.kill()
        made.process.wait(PATIENCE)


def test_a_model_is_asked_and_its_key_is_nowhere(site: tuple[Site, FakeModel]) -> None:
    """Not in an answer, the state, a line of the log, an argument or the environment of a worker."""
    service, model = site
    model.answers(finding(text="something odd happened here"))
    told = [service.judged("a_cycle0.log", LOG)]
    assert told[0]["recommendation"] == {"action": "RESTART", "reason": "so it is", "source": "llm"}
    assert model.asked[0]["headers"]["authorization"] == f"Bearer {KEY}"
    model.answers(Reply(401, f'{{"error": {{"message": "no such key: {KEY}"}}}}'.encode()))
    told.append(service.judged("b_cycle0.log", LOG))
    assert "HTTP 401: no such key: (key)" in told[1]["recommendation"]["reason"]
    others = [httpx.get(f"{service.url}/{name}", trust_env=False).text for name in ("healthz", "stats", "jobs")]
    assert KEY not in repr((told, others))
    workers = service.family()[1:]
    assert len(workers) >= 2
    for pid in workers:
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    service.process.terminate()
    assert service.process.wait(PATIENCE) == 0
    for path in service.directory.rglob("*"):
        assert path == service.key or not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert (service.directory / "state.db.tokens").stat().st_mode & 0o777 == 0o600


def test_a_job_is_stopped_by_what_comes_again(site: tuple[Site, FakeModel]) -> None:
    """A model's STOP is unconfirmed of the first cycle, and counts of the second."""
    service, model = site
    model.answers(finding("STOP", text="something odd happened here"))
    first = service.judged("a_cycle0.log", LOG)["recommendation"]
    second = service.judged("a_cycle1.log", LOG)["recommendation"]
    assert (first["action"], second["action"]) == ("UNKNOWN", "STOP")
    assert first["reason"] == "llm said STOP, unconfirmed: so it is"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        pytest.param([], "--analyser llm needs --llm-base-url", id="no-url"),
        pytest.param(["--llm-base-url", "http://h"], "--analyser llm needs --llm-model", id="no-name"),
        pytest.param(["--llm-base-url", "ftp://h", "--llm-model", "m"], "ftp://h: not a URL of HTTP", id="url"),
        pytest.param(
            ["--llm-base-url", "http://h", "--llm-model", "m", "--llm-timeout", "300"],
            "--llm-timeout: not less than --analysis-timeout",
            id="time",
        ),
        pytest.param(
            ["--llm-base-url", "http://ann:s3cret@h", "--llm-model", "m"],
            "--llm-base-url: http://...@h: a user or a password has no place in it",
            id="password",
        ),
        pytest.param(
            ["--llm-base-url", "http://h", "--llm-model", "m", "--llm-key-file", KEY],
            "--llm-key-file: not an absolute path",
            id="key",
        ),
        pytest.param(
            ["--llm-base-url", "http://h", "--llm-model", "m", "--llm-key-file", "/no/such"],
            "--llm-key-file: /no/such: the API key cannot be read: No such file or directory",
            id="no-key",
        ),
    ],
)
def test_a_mistake_is_told_before_it_serves(flags: list[str], why: str, tmp_path: Path) -> None:
    """What is wrong is named, and neither a password nor a key is quoted."""
    usual = [
        "--allowed-root",
        str(tmp_path),
        "--state",
        str(tmp_path / "state.db"),
        "--listen",
        str(free_ports(1)),
    ]
    result = CliRunner().invoke(main, ["attribution", "serve", *usual, "--analyser", "llm", *flags])
    assert result.exit_code == 2
    assert why in result.output
    assert "s3cret" not in result.output
    assert KEY not in result.output


def test_where_an_export_cannot_go(tmp_path: Path) -> None:
    """It is told like other mistakes, without the password."""
    usual = [
        "--allowed-root",
        str(tmp_path),
        "--state",
        str(tmp_path / "state.db"),
        "--listen",
        str(free_ports(1)),
    ]
    result = CliRunner().invoke(main, ["attribution", "serve", *usual, "--export-url", "grpc://ann:s3cret@h:1"])
    assert result.exit_code == 2
    assert "--export-url: grpc://...@h:1: not a URL of HTTP" in result.output
    assert "s3cret" not in result.output


def test_by_default_the_rules_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRx's variables alone have no model asked: logs go to nobody who was not named for that."""
    asked: list[str] = []
    monkeypatch.setattr(
        "segment_health.attribution.service.server.run",
        lambda settings, *_: asked.append(settings.analyser["name"]),
    )
    flags = ["attribution", "serve", "--allowed-root", str(tmp_path), "--state", str(tmp_path / "state.db")]
    named = {"NVRX_ATTRSVC_LLM_BASE_URL": "http://127.0.0.1:9/v1", "NVRX_ATTRSVC_LLM_MODEL": "m"}
    for environ in ({}, {"LLM_API_KEY_FILE": "/no/such"}, named):
        assert CliRunner().invoke(main, flags, env=environ).exit_code == 0
    assert CliRunner().invoke(main, [*flags, "--analyser", "llm"], env=named).exit_code == 0
    assert asked == ["rules", "rules", "rules", "llm"]

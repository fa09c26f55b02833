"""The client, against a real server in another process."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.client import Client, ServiceError
from segment_health.attribution.metadata import JobMetadata, job_metadata
from segment_health.attribution.wire import Intent, Verdict

from .conftest import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = "/l/train_cycle0.log"
SHORT = 0.3
"""Seconds of a deadline that is to pass."""
DEADLINE = 5.0
"""Seconds within which whatever has a short one has ended, on a busy machine too."""


def client(url: str, seconds: float = 20.0, **environ: str) -> Client:
    """Return a client of a service."""
    return Client(url, JobMetadata("ann", "7"), seconds=seconds, environ=environ)


def failure(work: Callable[[], object]) -> str:
    """Return what was said of a question that failed."""
    with pytest.raises(ServiceError) as raised:
        work()
    return str(raised.value)


@pytest.mark.parametrize("intent", list(Intent))
def test_a_submission(service: Service, intent: Intent) -> None:
    """POST /logs with JSON, by which the service knows the job; JSON is wanted in return."""
    environ = {"SLURM_JOB_USER": "ann", "USER": "root", "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "9"}
    Client(f"{service.url}/", job_metadata(environ)).submit(LOG, intent)
    (asked,) = service.asked()
    assert (asked["method"], asked["path"]) == ("POST", "/logs")
    assert asked["body"] == {"log_path": LOG, "user": "ann", "job_id": "7", "analysis_intent": intent.value}
    headers = {name.lower(): value for name, value in asked["headers"].items()}
    assert headers["accept"] == "application/json"
    assert headers["content-type"] == "application/json"


def test_what_the_environment_does_not_say_is_not_sent(service: Service) -> None:
    """No null stands for an unknown user, and no text does."""
    Client(service.url, job_metadata({})).submit(LOG, Intent.PROGRESSIVE)
    assert service.asked()[0]["body"] == {"log_path": LOG, "analysis_intent": "progressive"}


def test_a_cycle_is_sent_as_a_number(service: Service) -> None:
    """Where a log's name does not end in its cycle, it may be told."""
    client(service.url).submit(LOG, Intent.TERMINAL, cycle=0)
    assert service.asked()[0]["body"]["cycle_id"] == 0


@pytest.mark.parametrize(
    ("status", "accepted"), [(200, True), (202, True), (500, False), (404, False), (302, False)]
)
def test_any_2xx_is_an_acceptance(service: Service, status: int, accepted: bool) -> None:
    """An error is told with the service's own words; nothing follows a redirect."""
    service.behaves(post=[[status, {"message": "no room"}]])
    if accepted:
        client(service.url).submit(LOG, Intent.TERMINAL)
    else:
        why = failure(lambda: client(service.url).submit(LOG, Intent.TERMINAL))
        assert why == f"{service.url} refused it (HTTP {status}: no room)"
    assert len(service.asked()) == 1


@pytest.mark.parametrize(
    ("action", "verdict"), [("STOP", Verdict.STOP), ("RESTART", Verdict.CONTINUE), ("CONTINUE", Verdict.CONTINUE)]
)
def test_a_question(service: Service, action: str, verdict: Verdict) -> None:
    """GET /logs for that log, without waiting there for its analysis."""
    told = {"status": "completed", "recommendation": {"action": action, "reason": "so it is", "source": "llm"}}
    service.behaves(get=[[200, told]])
    assert client(f"{service.url}").ask("/l/a b&c") == (verdict, action, "so it is", "llm")
    (asked,) = service.asked()
    assert (asked["method"], asked["path"]) == ("GET", "/logs")
    assert asked["query"] == {"log_path": ["/l/a b&c"], "wait": ["false"]}
    assert asked["headers"]["Accept"] == "application/json"


def test_a_stop_that_comes_too_early_is_none(service: Service) -> None:
    """What an analysis in flight leans to is no verdict."""
    service.behaves(get=[[200, {"status": "in_flight", "recommendation": {"action": "STOP"}}]])
    assert client(service.url).ask(LOG).verdict is Verdict.UNDECIDED


def test_a_service_below_a_path(service: Service) -> None:
    """An endpoint may have a path, as behind a proxy of the site."""
    client(f"{service.url}/attribution/").ask(LOG)
    assert service.asked()[0]["path"] == "/attribution/logs"


def test_a_path_that_is_no_utf8(service: Service) -> None:
    """Its bytes arrive as they are."""
    client(service.url).ask("/l/\udcff")
    assert service.asked()[0]["query"]["log_path"] == ["/l/\xff"]


def test_nobody_listens(mortal_service: Service) -> None:
    """A dead service is told as such, for both questions, at once."""
    mortal_service.stop()
    asking = client(mortal_service.url)
    for work in (lambda: asking.submit(LOG, Intent.TERMINAL), lambda: asking.ask(LOG)):
        assert failure(work) == f"{mortal_service.url}: connection refused: nobody listens there"


@pytest.mark.parametrize(
    "delay",
    [
        pytest.param(-1, id="nothing"),
        pytest.param(-2, id="headers-by-bytes"),
        pytest.param(-3, id="body-by-bytes"),
    ],
)
def test_a_hanging_service_is_left_at_the_deadline(service: Service, delay: int) -> None:
    """However it hangs, both questions end in time, in the same words."""
    service.behaves(delay=delay)
    for ask in (
        lambda: client(service.url, SHORT).ask(LOG),
        lambda: client(service.url, SHORT).submit(LOG, Intent.TERMINAL),
    ):
        began = time.monotonic()
        assert failure(ask) == f"{service.url}: no whole answer within {SHORT} s"
        assert SHORT * 0.9 <= time.monotonic() - began < DEADLINE


def test_a_hanging_service_holds_one_thread(service: Service) -> None:
    """One that answers byte by byte for ever is not asked again meanwhile, so that nothing piles up."""
    service.behaves(delay=-2)
    asking = client(service.url, SHORT)
    before = threading.active_count()
    assert "no whole answer" in failure(lambda: asking.ask(LOG))
    for _ in range(20):
        assert "was not asked: an earlier question has not ended yet" in failure(lambda: asking.ask(LOG))
    assert threading.active_count() == before + 1
    assert len(service.asked("GET")) == 1


def test_a_service_that_recovers_is_asked_again(service: Service) -> None:
    """A late answer ends the thread that waited for it, and the next question is a new one."""
    service.behaves(delay=-1)
    asking = client(service.url, SHORT)
    assert "no whole answer" in failure(lambda: asking.ask(LOG))
    service.behaves()
    assert asking.ask(LOG).verdict is Verdict.UNDECIDED


def test_an_answer_that_breaks_off(service: Service) -> None:
    """A connection that is closed instead of an answer is a failure like others."""
    service.behaves(delay=-4)
    assert service.url in failure(lambda: client(service.url).ask(LOG))


def test_an_answer_without_end(service: Service) -> None:
    """What is larger than anything that a service has to say is not read on, and tells no state of the log."""
    service.behaves(delay=-6)
    told = client(service.url).ask(LOG)
    assert (told.verdict, told.word) == (Verdict.MISSING, "HTTP 200")
    assert told.reason == f"the answer has more than {4 << 20} bytes"
    client(service.url).submit(LOG, Intent.TERMINAL)  # accepted, says its first line


def test_something_else_listens(until: Callable[[Callable[[], object], str], None]) -> None:
    """What does not speak HTTP is told as such, and its bytes are escaped."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            heard.append(connection.recv(100))
            connection.sendall(b"SSH-2.0-\x1b[31m\r\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        why = failure(lambda: client(url).ask(LOG))
        thread.join(DEADLINE)
        until(lambda: heard, "a question")
    assert why.startswith(f"{url}: ")
    assert why.isprintable()


def test_proxies_are_not_used(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for the internet would be sent the paths, and could not reach a service of this host."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert client(service.url).ask(LOG).verdict is Verdict.UNDECIDED


def test_a_password_reaches_the_service_and_no_message(mortal_service: Service) -> None:
    """What stands before the @ of an endpoint is sent as HTTP has it, and never shown."""
    asking = client(mortal_service.url.replace("//", "//ann:s3cret@"))
    asking.ask(LOG)
    assert mortal_service.asked()[0]["headers"]["Authorization"] == "Basic YW5uOnMzY3JldA=="
    mortal_service.stop()
    why = failure(lambda: asking.ask(LOG))
    assert why.startswith(f"http://...@127.0.0.1:{mortal_service.port}: ")


@pytest.mark.parametrize(
    "endpoint", ["unix:///run/a.sock", "grpc://h:1", "localhost", "http://", "http://h:0", "http://a b"]
)
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    """A client is made of a URL of HTTP, or not at all."""
    with pytest.raises(ValueError, match=endpoint.partition(":")[0]):
        client(endpoint)


def test_a_path_that_is_no_text_is_a_failure_like_others(service: Service) -> None:
    """What a query cannot hold is not asked, and nothing else is raised."""
    assert "asking failed: UnicodeEncodeError" in failure(lambda: client(service.url).ask("/l/\ud800"))
    assert service.asked() == []


def test_without_threads_nobody_is_asked(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may start no thread has one more question without an answer."""

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asking = client(service.url)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        assert failure(lambda: asking.ask(LOG)) == f"{service.url} was not asked: can't start new thread"


def test_closed_it_asks_nobody(service: Service) -> None:
    """A question after the end is an error like others."""
    asking = client(service.url)
    asking.close()
    assert "closed" in failure(lambda: asking.ask(LOG))
    assert service.asked() == []


# --- TLS --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that signed itself, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    options = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    names = ("-addext", "subjectAltName=DNS:localhost")
    subprocess.run(
        ["openssl", "req", *options, *names, "-keyout", file, "-out", f"{file}.crt"],
        check=True,
        capture_output=True,
    )
    with file.open("ab") as both:
        both.write(Path(f"{file}.crt").read_bytes())
    return file


@pytest.fixture(scope="module")
def tls_port(certificate: Path) -> Iterator[int]:
    """Where a service speaks https."""
    service = Service(str(certificate))
    yield service.port
    service.stop()


def test_https_works(tls_port: int, certificate: Path) -> None:
    """A service behind TLS accepts and answers."""
    asking = client(f"https://localhost:{tls_port}", SSL_CERT_FILE=f"{certificate}.crt")
    asking.submit(LOG, Intent.TERMINAL)
    assert asking.ask(LOG).verdict is Verdict.UNDECIDED


def test_a_certificate_is_checked(tls_port: int, certificate: Path) -> None:
    """Nobody is asked who is not vouched for, by the name that the endpoint has."""
    url = f"https://localhost:{tls_port}"
    assert "its certificate is not trusted: self-signed certificate" in failure(lambda: client(url).ask(LOG))
    other = client(f"https://127.0.0.1:{tls_port}", SSL_CERT_FILE=f"{certificate}.crt")
    assert "not trusted: IP address mismatch" in failure(lambda: other.submit(LOG, Intent.TERMINAL))


def test_https_where_there_is_none(service: Service) -> None:
    """A service that speaks http is not asked in another language."""
    why = failure(lambda: client(service.url.replace("http:", "https:")).ask(LOG))
    assert "no TLS" in why


def test_authorities_that_cannot_be_read() -> None:
    """A file of them that is not there is told when the client is made."""
    with pytest.raises(ValueError, match=r"^https://h: cannot be asked: No such file"):
        client("https://h", SSL_CERT_FILE="/no/such")

"""GETs for slurm.rest.reader, over TCP, TLS or a UNIX socket: side by side, with one deadline, bounded in size.

httpx limits a connect and each read, which does not bound a server that sends a byte a second, or a name server
that hangs. So every GET runs in a thread of its own, and whoever waits for it stops waiting at the deadline.
Redirects are not followed and proxies not used: the token would go there. Nothing is unpacked.
"""

from __future__ import annotations

import queue
import ssl
import threading
import time
import traceback
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar

import httpx

from slurm.commands.process import MAX_OUTPUT
from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.fields import shown
from slurm.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Result = TypeVar("Result")

_CONNECT_SECONDS = 10.0
"""For three SYNs, by which time a host that is up has answered."""
_MAX_ERROR = 1 << 16
"""Bytes that are kept of an answer that is none."""


class Server:
    """Who is asked: `http://host:port`, `https://host` or `unix:/path`.

    Certificates are checked against the system's, or SSL_CERT_FILE and SSL_CERT_DIR.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        self.traffic = Traffic()
        self._environ = environ
        self._socket = None
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            self._socket = path[2:] if path.startswith("///") else path

    @property
    def is_socket(self) -> bool:
        """Whether it is a UNIX socket."""
        return self._socket is not None

    @property
    def is_overheard(self) -> bool:
        """Whether what is sent goes in clear over a network."""
        try:
            host = httpx.URL(self.url).host
        except httpx.InvalidURL:
            return False
        return self.url.startswith("http://") and not _is_loopback(host)

    @contextmanager
    def session(self, seconds: float) -> Iterator[Session]:
        """Ask it, within so many seconds. Raises SlurmUnavailable if it is not to be asked at all."""
        try:
            client = self._client()
        except (OSError, httpx.InvalidURL, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SlurmUnavailable(f"{self.url}: cannot be asked: {why or error}") from error
        try:
            yield Session(client, self.url, seconds, self.traffic)
        finally:
            client.close()

    def _client(self) -> httpx.Client:
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.url.startswith("https:"):
            verify = ssl.create_default_context(
                cafile=self._environ.get("SSL_CERT_FILE") or None, capath=self._environ.get("SSL_CERT_DIR") or None
            )
        return httpx.Client(
            base_url="http://localhost" if self.is_socket else self.url,
            # One connection a question, which ends with it also where nobody waits for it any more.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"},
            transport=httpx.HTTPTransport(verify=verify, trust_env=False, uds=self._socket),
            trust_env=False,
            follow_redirects=False,
        )


class Session:
    """GETs of one pass, which all end by one deadline."""

    def __init__(self, client: httpx.Client, url: str, seconds: float, traffic: Traffic) -> None:
        self._client = client
        self._traffic = traffic
        self.url = url
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def name(self, path: str) -> str:
        """Name the question in a message."""
        return f"GET {path} of {self.url}"

    def side_by_side(self, *tasks: Callable[[], Result]) -> list[Result]:
        """Do all at once and return what they return, or raise what the first of them raises.

        A task that is late is left behind, in a thread that ends with its socket or with this process.
        """
        done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()

        def do(number: int, task: Callable[[], Result]) -> None:
            try:
                done.put((number, task(), None))
            except BaseException as why:  # noqa: BLE001 - it is raised below, by whoever waits
                done.put((number, None, why))

        try:
            for number, task in enumerate(tasks):
                threading.Thread(target=do, args=(number, task), name=f"GET {number}", daemon=True).start()
        except RuntimeError as error:
            raise SlurmUnavailable(f"{self.url}: cannot be asked: {error}") from error
        results: dict[int, Result] = {}
        while len(results) < len(tasks):
            try:
                number, result, failure = done.get(timeout=max(0.0, self._deadline - time.monotonic()))
            except queue.Empty:
                raise self._late(self.url) from None
            if failure is not None:
                raise failure
            results[number] = result  # type: ignore[assignment]  # None only beside an error
        return [results[number] for number in range(len(tasks))]

    def get(
        self, path: str, sink: Callable[[bytes], object], *, query: str = "", headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Return the status, and the words that came with any but 200; of a 200 all goes to `sink` as it arrives.

        Raises SlurmUnavailable or SlurmProtocolError: whatever happens, it is one of them.
        """
        what = self.name(path)
        left = max(0.001, self._deadline - time.monotonic())
        timeout = httpx.Timeout(left, connect=min(left, _CONNECT_SECONDS))
        said = bytearray()
        self._traffic.count(queries=1)
        try:
            with self._client.stream(
                "GET", f"{path}{query and '?' + query}", headers=dict(headers), timeout=timeout
            ) as response:
                _must_be_readable(what, response)
                for data in self._pieces(what, response):
                    if response.status_code == httpx.codes.OK:
                        sink(data)
                    else:
                        said += data[: _MAX_ERROR - len(said)]
                return response.status_code, bytes(said)
        except SlurmError:
            raise
        except httpx.ConnectTimeout as error:
            raise SlurmUnavailable(f"{what}: no connection within {timeout.connect:g} s") from error
        except httpx.TimeoutException as error:
            raise self._late(what) from error
        except httpx.RemoteProtocolError as error:
            raise SlurmProtocolError(f"{what}: not one whole answer in HTTP: {shown(str(error))}") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError, ValueError) as error:
            raise SlurmUnavailable(f"{what}: {_cause(error)}") from error

    def _pieces(self, what: str, response: httpx.Response) -> Iterator[bytes]:
        received = 0
        for data in response.iter_raw():
            received += len(data)
            self._traffic.count(received=len(data))
            if received > MAX_OUTPUT:
                raise SlurmProtocolError(f"{what}: answered more than {MAX_OUTPUT} bytes")
            if time.monotonic() > self._deadline:
                raise self._late(what)
            yield data

    def _late(self, what: str) -> SlurmUnavailable:
        return SlurmUnavailable(f"{what}: no whole answer within {self._seconds:g} s")


def _must_be_readable(what: str, response: httpx.Response) -> None:
    """Refuse what is not slurmrestd's answer; errors may be plain text."""
    if response.is_redirect and response.status_code != httpx.codes.NOT_MODIFIED:
        where = shown(response.headers.get("Location", "nowhere"))
        raise SlurmUnavailable(f"{what}: sent on to {where}, which is not followed; give slurmrestd's own URL")
    packed = response.headers.get("Content-Encoding", "identity")
    if packed != "identity":
        raise SlurmProtocolError(f"{what}: packed ({shown(packed)}), though it was asked not to be")
    kind = response.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
    if response.is_success and kind != "application/json":
        raise SlurmProtocolError(f"{what}: {shown(kind)}, not JSON; is it slurmrestd that listens there?")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _cause(error: BaseException) -> str:
    """Say in words what lies under httpx's error."""
    deepest: BaseException = error
    while below := deepest.__cause__ or deepest.__context__:
        deepest = below
        # httpcore leaves a UNIX socket open that it could not connect, and its frame would keep it.
        traceback.clear_frames(deepest.__traceback__)
    match deepest:
        case ssl.SSLCertVerificationError():
            why = (
                f"its certificate is not trusted: {deepest.verify_message}; name its authority by SSL_CERT_FILE, "
                "and the host as the certificate does"
            )
        case ssl.SSLError():
            why = f"no TLS: {deepest.reason or deepest}; does it speak https there?"
        case ConnectionRefusedError():
            why = "connection refused: nobody listens; is slurmrestd running?"
        case FileNotFoundError():
            why = "there is no such socket; is slurmrestd running?"
        case PermissionError():
            why = "no permission to connect; see who owns the socket, and its directories"
        case BlockingIOError():
            why = "it takes no more connections; does slurmrestd hang?"
        case OSError(strerror=str(strerror)):
            why = strerror
        case _:
            why = shown(str(deepest)) if str(deepest) else type(deepest).__name__
    return why

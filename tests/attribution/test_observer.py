"""What runs beside a launcher, in this process: what it makes of logs and of a STOP, and how it ends."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.child import ServiceError
from segment_health.attribution.observer import Task, observe
from segment_health.attribution.relay import FAILED, READY, REFUSED, STOP
from segment_health.attribution.stop import Run, StopFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Until = Callable[[Callable[[], object], str], None]

RUN = Run("c", "12", "0", 0)


class Asked:
    """Takes what is asked, and says STOP when it is told to."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stops = False

    def cycle_began(self, log_path: str) -> None:
        """Note it."""
        self.told.append(f"began {log_path.rpartition('/')[2]}")

    def cycle_failed(self, log_path: str) -> None:
        """Note it."""
        self.told.append(f"failed {log_path.rpartition('/')[2]}")

    def stop_requested(self) -> bool:
        """Tell what it was told."""
        return self.stops

    def close(self, timeout: float) -> None:
        """Note it."""
        self.told.append(f"closed {timeout > 0}")


class Said:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, level: str, _event: str, message: str) -> None:
        """Keep it."""
        self.lines.append(f"{level} {message}")

    once = say


class Observed:
    """An observer in a thread, and the relay's end of its channel."""

    def __init__(self, directory: Path, **task: object) -> None:
        self.asked, self.said = Asked(), Said()
        self.relay, self._channel = socket.socketpair()
        self.relay.settimeout(30)
        task = {"prefix": f"{directory}/train.log", "attribution": lambda: self.asked, **task}
        arguments = (self._channel, Task(**task), self.said)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=observe, args=arguments, daemon=True)
        self._thread.start()

    def hear(self) -> int:
        """Wait for the next byte."""
        return self.relay.recv(1)[0]

    def end(self, last: bytes = b"") -> None:
        """Say that the launcher has ended."""
        self.relay.send(last) if last else None
        self.relay.shutdown(socket.SHUT_WR)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.relay.close()
        self._channel.close()


def test_cycles_are_told_in_order(tmp_path: Path, until: Until) -> None:
    """What lay there is not told; of a launcher that failed the last one is, though nobody had looked again."""
    (tmp_path / "train_cycle0.log").write_text("of an earlier run")
    observed = Observed(tmp_path)
    assert observed.hear() == READY
    (tmp_path / "train_cycle1.log").write_text("x")
    (tmp_path / "train_cycle2.log").write_text("x")
    until(lambda: len(observed.asked.told) == 3, "three events")
    (tmp_path / "train_cycle3.log").write_text("x")
    observed.end(FAILED)
    assert observed.asked.told == [
        "began train_cycle1.log",
        "failed train_cycle1.log",
        "began train_cycle2.log",
        "failed train_cycle2.log",
        "began train_cycle3.log",
        "failed train_cycle3.log",
        "closed True",
    ]
    assert observed.said.lines == []


def test_logs_that_were_not_seen_before_may_be_an_earlier_runs(tmp_path: Path, until: Until) -> None:
    """What storage shows first, though late, was there before; what changes from then on is a cycle."""
    logs, old = tmp_path / "logs", tmp_path / "old"
    old.mkdir()
    for cycle in (0, 1):
        (old / f"train_cycle{cycle}.log").write_text("of an earlier run")
    (tmp_path / "file").touch()
    logs.symlink_to("file")
    observed = Observed(logs)
    assert observed.hear() == READY
    until(lambda: observed.said.lines, "a warning")
    (tmp_path / "shown").symlink_to(old)
    (tmp_path / "shown").replace(logs)

    def noticed() -> bool:
        with (old / "train_cycle0.log").open("a") as file:
            file.write("of this run")
        return bool(observed.asked.told)

    until(noticed, "an event")
    observed.end(FAILED)
    assert observed.asked.told == ["began train_cycle0.log", "failed train_cycle0.log", "closed True"]


def test_storage_that_shows_nothing_has_no_last_cycle(tmp_path: Path) -> None:
    """A launcher that failed is not said to have had one."""
    (tmp_path / "logs").write_text("no directory")
    observed = Observed(tmp_path / "logs")
    assert observed.hear() == READY
    observed.end(FAILED)
    assert observed.asked.told == ["closed True"]


def test_a_log_that_leads_nowhere_hides_no_other(tmp_path: Path, until: Until) -> None:
    """Among many names, wherever it stands among them."""
    for cycle in range(10, 30, 2):
        (tmp_path / f"train_cycle{cycle}.log").symlink_to("/no/such")
        (tmp_path / f"train_cycle{cycle + 1}.log").symlink_to(f"train_cycle{cycle + 1}.log")
    observed = Observed(tmp_path)
    assert observed.hear() == READY
    for cycle in range(10):
        (tmp_path / f"train_cycle{cycle}.log").write_text("x")
    until(lambda: "began train_cycle9.log" in observed.asked.told, "the last cycle")
    observed.end()
    assert observed.said.lines == []


def test_a_launcher_that_succeeded_has_no_failed_cycle(tmp_path: Path, until: Until) -> None:
    """Nor has one that wrote none."""
    observed = Observed(tmp_path)
    assert observed.hear() == READY
    (tmp_path / "train_cycle0.log").write_text("x")
    until(lambda: observed.asked.told, "an event")
    observed.end()
    assert observed.asked.told == ["began train_cycle0.log", "closed True"]
    observed = Observed(tmp_path / "no")
    observed.end(FAILED)
    assert observed.asked.told == ["closed True"]


def test_a_stop_is_told_and_left(tmp_path: Path) -> None:
    """Once, and with the log of the last cycle that failed."""
    observed = Observed(tmp_path, stop_file=StopFile(str(tmp_path), RUN))
    assert observed.hear() == READY
    (tmp_path / "train_cycle0.log").write_text("x")
    (tmp_path / "train_cycle1.log").write_text("x")
    observed.asked.stops = True
    assert observed.hear() == STOP
    observed.end(FAILED)
    stop = StopFile(str(tmp_path), RUN).look()
    assert stop is not None
    assert (stop.run, stop.log) == (RUN, f"{tmp_path}/train_cycle0.log")
    assert observed.said.lines == ["ERROR STOP: the launcher is ended"]
    assert observed.asked.told[-1] == "closed True"


def test_a_stop_of_another_task_is_obeyed(tmp_path: Path) -> None:
    """By one that asks nobody; what is left is not touched."""
    observed = Observed(tmp_path, attribution=None, stop_file=StopFile(str(tmp_path), RUN._replace(task_id="1")))
    assert observed.hear() == READY
    assert StopFile(str(tmp_path), RUN).write("/log", "host1", 0)
    assert observed.hear() == STOP
    observed.end()
    assert observed.said.lines == [
        f"ERROR STOP of task 0, left on host1 in {tmp_path}/segment_health_stop.12: the launcher is ended"
    ]
    assert observed.asked.told == []


def test_a_new_run_removes_its_predecessors_stop(tmp_path: Path) -> None:
    """And goes on."""
    assert StopFile(str(tmp_path), RUN).write("/log", "host1", 0)
    observed = Observed(tmp_path, stop_file=StopFile(str(tmp_path), RUN._replace(restart_count=1)))
    assert observed.hear() == READY
    observed.end()
    assert list(tmp_path.iterdir()) == []
    assert observed.said.lines == [f"INFO {tmp_path}/segment_health_stop.12: removed, it was for an earlier run"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """An unreadable STOP binds nobody, and logs that are not to be seen end nothing."""
    (tmp_path / "segment_health_stop.12").mkdir()
    (tmp_path / "file").write_text("")
    observed = Observed(tmp_path / "file", stop_file=StopFile(str(tmp_path), RUN))
    assert observed.hear() == READY
    observed.end()
    told = "\n".join(observed.said.lines)
    assert f"WARNING {tmp_path}/file: cycles are not seen: Not a directory" in told
    assert f"WARNING {tmp_path}/segment_health_stop.12: ignored, it cannot be read: " in told


def test_who_cannot_ask_goes_on(tmp_path: Path) -> None:
    """An endpoint that cannot be meant is an error, and no reason to end training."""

    def refuse() -> Asked:
        raise ValueError("https://x: no authorities")

    observed = Observed(tmp_path, attribution=refuse)
    assert observed.hear() == READY
    observed.end(FAILED)
    assert observed.said.lines == ["ERROR no cycle is analysed: https://x: no authorities"]


@pytest.mark.parametrize("works", [True, False], ids=["ready", "refused"])
def test_a_service_of_the_jobs_own(tmp_path: Path, works: bool) -> None:
    """The launcher begins once it is ready, and not at all where it is not; it is ended last."""
    seen: list[str] = []

    @contextlib.contextmanager
    def service(say: Callable[[str, str], None]) -> Iterator[None]:
        if not works:
            raise ServiceError("no key")
        say("INFO", "ready")
        yield
        seen.append(observed.asked.told[-1])

    observed = Observed(tmp_path, service=service)
    assert observed.hear() == (READY if works else REFUSED)
    observed.end()
    assert seen == (["closed True"] if works else [])
    assert observed.said.lines == ["INFO ready" if works else "ERROR no key; the launcher is not started"]

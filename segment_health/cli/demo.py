"""`segment-health demo`: the story of a bad node, on a private Slurm."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, final

import click

from .command import Command, examples
from .failure import ATTENTION, DONE, Failure

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@click.command(
    cls=Command,
    short_help="See it work on a private Slurm, in some seconds.",
    epilog=examples("segment-health demo"),
)
@click.option("--record", metavar="FILE", hidden=True, type=click.Path(dir_okay=False, writable=True))
@click.pass_context
def demo(context: click.Context, record: str | None) -> None:
    """See it work: a node is drained, its segment refused, the spare used; then it comes back.

    Starts a private Slurm on this machine, for some seconds, and touches no other. Where that is impossible a
    recording is played. Needs no root, and leaves nothing, also when it is interrupted.
    """
    from segment_health import demo as story  # noqa: PLC0415 - each command loads what it needs

    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        try:
            click.echo(line)
        except OSError as error:  # the reader closed the pipe, or the terminal
            raise _Ended(signal.SIGPIPE) from error

    with _Ending() as ending:
        try:
            version = story.play(say, ending.settle)
        except story.StoryError as error:
            raise Failure(f"demo: {error}", ATTENTION) from error
        except _Ended as ended:
            context.exit(_farewell(ended.number))
    if ending.number is not None:  # it came during the cleaning up
        context.exit(_farewell(ending.number))
    if record is not None:
        if version is None:
            raise Failure("demo: Slurm cannot run here, so there is nothing to record", ATTENTION)
        today = dt.datetime.now(dt.timezone.utc).date().isoformat()
        with open(record, "w", encoding="utf-8") as file:
            file.write(story.record(version, today, lines))
    context.exit(DONE)


def _farewell(number: int) -> int:
    """Say what can still be said, and return the status of a program that a signal ended."""
    if number in {signal.SIGPIPE, signal.SIGHUP}:
        # Nobody reads any more; what is left in the buffer must not fail at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    else:
        with contextlib.suppress(OSError):
            click.echo(
                f"segment-health: demo ended by {signal.Signals(number).name}; nothing of it is left", err=True
            )
    return 128 + number


class _Ended(BaseException):
    """The demo was told to end, by the signal `number` or as by it; not an Exception, like KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@final
class _Ending:
    """Inside `with`, turns the first signal that ends a program into _Ended; no other may disturb what follows.

    A signal that is ignored, as under nohup, stays so.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that asked to end."""
        self._settled = False
        self._before: dict[int, Any] = {}

    def settle(self) -> None:
        """Raise no more."""
        self._settled = True

    def __enter__(self) -> _Ending:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self._settled:
            self._settled = True
            raise _Ended(number)

"""Faults of Slurm's commands: each real command runs behind a fake one on PATH, which spoils what it says.

Only for what a real Slurm cannot be made to show.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .fault import EVERYONE, NOBODY, Fault, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .laboratory import Laboratory

_UNKNOWN = "an answer that failed, is late, or is not whole is no answer: every decision stays"
_WHOLE = "what came whole, whatever came beside it, is an answer"
_NONE = "Slurm's state is unknown"

# `spoil` is what happens instead; it may run `real`. Where it falls through, the real command answers.
_FAKE = """\
#!/bin/bash
real() {{ "{real}" "$@"; }}
what={name}
if [ -e {work}/spoil ]; then
    echo "$what $*" >>{work}/spoilt
    . {work}/spoil
fi
exec "{real}" "$@"
"""


def _fakes(lab: Laboratory, *, timeout: float | None = None) -> None:
    """Put a fake `scontrol` and `squeue` before the real ones of the publisher."""
    (lab.work / "bin").mkdir()
    for name in ("scontrol", "squeue"):
        real = shutil.which(name, path=lab.environ["PATH"])
        fake = lab.work / "bin" / name
        fake.write_text(_FAKE.format(real=real, name=name, work=lab.work))
        fake.chmod(0o755)
    lab.environ["PATH"] = f"{lab.work}/bin{os.pathsep}{lab.environ['PATH']}"
    if timeout is not None:
        lab.options += ["--timeout", str(timeout)]


def _named(lab: Laboratory) -> None:
    _fakes(lab)
    lab.options += ["--cluster", "sandbox"]


def _impatient(lab: Laboratory) -> None:
    _fakes(lab, timeout=2)


@contextmanager
def spoilt(lab: Laboratory, script: str) -> Iterator[None]:
    """Let the fakes run a piece of bash inside; they must have done so, and leave nothing behind."""
    new = lab.work / "spoil.new"
    new.write_text(f"{script}\n")
    new.replace(lab.work / "spoil")
    try:
        lab.until((lab.work / "spoilt").exists, "a command that was spoilt")
        yield
    finally:
        (lab.work / "spoil").unlink()
    left = f"SPOILT={lab.work}"
    lab.until(lambda: not _living(left), "the end of all that the fakes started")


def _living(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _command(
    name: str,
    script: str,
    *,
    how: str,
    attacks: str = _UNKNOWN,
    holds: frozenset[str] = EVERYONE,
    says: str | None = _NONE,
    before: Callable[[Laboratory], None] = _fakes,
    reload: bool = False,
) -> Fault:
    """Register what the fakes do; SPOILT marks what they start, and must not outlive the question.

    `reload` lets the publisher ask anew what it asks once in its life.
    """

    @contextmanager
    def hold(lab: Laboratory) -> Iterator[None]:
        with spoilt(lab, f"export SPOILT={lab.work}\n{script}"):
            if reload:
                lab.publisher.signal(signal.SIGHUP)
            yield

    return fault(name, attacks=attacks, how=how, holds=holds, before=before, seconds=2, says=says)(hold)


_command("commands hang", "exec sleep 1000", how="`scontrol`, `squeue`: no word, no end", before=_impatient)
_command(
    "commands ignore SIGTERM",
    "trap '' TERM INT HUP\nwhile :; do sleep 1000; done",
    how="they hang, deaf to SIGTERM, and have a child that hangs too",
    before=_impatient,
)
_command(
    "a command's child keeps its pipe",
    'sleep 1000 &\nreal "$@"\nexit 0',
    how="a whole answer, status 0, and a child in the background that holds standard output open",
    before=_impatient,
)
_command("commands are killed", "kill -SEGV $$", how="each dies by SIGSEGV")
_command(
    "half an answer, status 0",
    'answer=$(real "$@"; echo .)\nprintf %s "${answer:0:$((${#answer} / 2))}"\nexit 0',
    how="the first half of every answer, cut within a row",
)
_command(
    "half an answer, status 1",
    'real "$@" | head -n 2\nexit 1',
    how="the first two rows of every answer, whole, then status 1",
)
_command("nothing, status 0", "[ $what = squeue ] || exit 0", how="`scontrol` prints nothing and ends well")
_command(
    "every other job list is empty",
    "[ $what = scontrol ] || { [ ! -e $SPOILT/odd ] && touch $SPOILT/odd && exit 0; rm -f $SPOILT/odd; }",
    attacks="one answer without a unit does not end it: two in a row do",
    how="`squeue` prints nothing and ends well, every second time",
    holds=NOBODY,
    says=None,
)
_command(
    "part of the node table",
    '[ $what = squeue ] || { real "$@" | head -n 3; exit 0; }',
    attacks="a node that an allocation names and the table lacks is neither fit nor bad",
    how="`scontrol show nodes` prints its first three rows, whole, and ends well",
    says=None,
)
_command(
    "words on stderr, status 0",
    "echo 'error: slurm_persist_conn_open: something is wrong' >&2",
    attacks=_WHOLE,
    how="a whole answer, status 0, and an error on stderr",
    holds=NOBODY,
    says="something is wrong",
)
_command(
    "another cluster answers",
    "case \"$*\" in *'show config'*) real \"$@\" | sed 's/^ClusterName .*/ClusterName = other/'; exit 0; esac",
    attacks="another cluster than the one that was asked for is nobody to listen to",
    how="`scontrol show config` with another ClusterName; --cluster says which one is wanted",
    before=_named,
    reload=True,
)
_command(
    "100 MB of an answer",
    "yes 'NodeName=x State=IDLE' | head -c 100000000\nexit 0",
    how="rows that say little, over and over",
)
_command(
    "an answer that is no text",
    "head -c 1000000 /dev/urandom\necho\nexit 0",
    how="a million random bytes, status 0",
)
_command(
    "a command that is not there",
    "exec /nonexistent 2>/dev/null",
    how="`exec` of a program that is not there: status 127",
)

# SPDX-License-Identifier: Apache-2.0
"""The consumer: whether this Slurm allocation unit may join the next rendezvous.

A unit is one task of a job array, or a regular job as a whole. Somebody with access to Slurm (the producer)
leaves an artifact ``<directory>/segment_health_check.<job_id>.<task_id>`` on shared storage; a non-empty
regular file excludes the unit. Process 0 of the unit looks at it before every rendezvous, with one ``stat``.
Any other answer of the file system means healthy: a consumer that cannot tell must not take nodes away.

This file is all there is to it. It imports nothing of this project and may be copied alone into a launcher
(Python 3.10 or later). It also defines the artifact's name for the producer.

Source: seed 000 (NVRx, "Segment Health Check"); contract, sections 1 and 2. The reference implementation is
``nvidia_resiliency_ext.fault_tolerance.segment_health_check`` 0.7.0, whose warnings are worded alike.
"""

# Every launcher pays for what is imported here, and these three are loaded before any program's first line.
# Left out on purpose: `pathlib`, `logging` (loaded when there is something to say), and `__future__`, which
# is a file of its own to read and as dear as a quarter of this one.
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ARTIFACT_PREFIX = "segment_health_check."

_MAX_ID_DIGITS = 20  # as many as 2**64 has; Slurm's ids have 32 bits
_IGNORING = "Ignoring segment health decision: "
_LAUNCHER = "nvidia_resiliency_ext.fault_tolerance.launcher"
_INFO, _WARNING = 20, 30  # logging.INFO, logging.WARNING
_is_regular = stat.S_ISREG

# (directory, job id, task id) -> the token of the call that logged its installation
_installed: dict[tuple[str, str, str], object] = {}


class UnhealthyNodeException(Exception):  # noqa: N818  # NVRx's name: launchers catch and log it under this one
    """This node must not take part in the next rendezvous.

    Name, signature and ``.message`` are those of ``nvidia_resiliency_ext.fault_tolerance.launcher``'s class.
    Where that module is loaded, what ``SegmentHealthCheck.ensure_healthy`` raises is an instance of both.
    """

    def __init__(self, message: str = "A node in the cluster is unhealthy") -> None:
        self.message = message
        super().__init__(message)


class SegmentHealthCheck:
    """Whether one allocation unit may join a rendezvous; called without arguments, as NVRx's checks are.

    ``directory`` is absolute, ``job_id`` and ``task_id`` are decimal digits: else ValueError. ``path`` is the
    artifact's; neither it nor the directory has to exist. Nothing is remembered between calls.
    """

    def __init__(self, directory: str | os.PathLike[str], job_id: str, task_id: str) -> None:
        self.directory = _absolute(os.fspath(directory))
        self.job_id = job_id
        self.task_id = task_id
        self.path = os.path.join(self.directory, artifact_name(job_id, task_id))  # no pathlib here

    def __call__(self, warn: "Callable[[str], object] | None" = None) -> bool:
        """Return True when healthy; never raise, for NVRx's runner takes any exception for an unhealthy node.

        A decision that could not be read is healthy, with a warning: on the logger ``nvrx``, or to ``warn``.
        """
        # Beside the stat itself every look-up shows, so there are few: no method below this one.
        try:
            found = os.stat(self.path)  # no pathlib here
            if _is_regular(found.st_mode):
                return found.st_size == 0
            warning = f"{_IGNORING}not a regular file: {self.path}"
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as failure:  # ValueError: a NUL byte in the directory
            warning = f"{_IGNORING}{failure}"
        if warn is None:
            _log(_WARNING, "%s", warning)
        else:
            warn(warning)
        return True

    def examine(self) -> tuple[bool, str | None]:
        """Look once and log nothing: (healthy, why the decision was ignored or None).

        One ``stat`` (it follows symbolic links) and no ``open``: a fifo cannot block us, and the content is
        the producer's. Missing, or of size 0, is healthy. Any other failure, or anything but a regular file,
        is healthy with a warning that begins "Ignoring segment health decision: ".
        """
        warnings: list[str] = []
        healthy = self(warnings.append)
        return healthy, (warnings[0] if warnings else None)

    def ensure_healthy(self) -> None:
        """Return when healthy (warning as a call does); raise UnhealthyNodeException when excluded."""
        if not self():
            raise _unhealthy(
                f"Slurm allocation unit job_id={self.job_id} task_id={self.task_id} is excluded from "
                f"rendezvous: {self.path} is not empty (its content says why)"
            )


def ensure_segment_is_healthy(directory: str | os.PathLike[str] | None) -> None:
    """Raise UnhealthyNodeException when this process must not join a rendezvous, else return.

    The one line that a launcher's author writes, before *every* rendezvous. ValueError as in
    ``get_segment_health_check``.
    """
    check = get_segment_health_check(directory)
    if check is not None:
        check.ensure_healthy()


def get_segment_health_check(directory: str | os.PathLike[str] | None) -> SegmentHealthCheck | None:
    """Return this process's check, or None where there is nothing to check.

    None, in silence and without touching a file: the directory is None or empty, SLURM_PROCID is not exactly
    "0", there is no job id. None, with a warning: an id is not decimal digits, so it never becomes a path.

    A relative directory is a ValueError in every process: a setting is wrong everywhere or nowhere, and
    ft_launcher refuses it so. The installation is logged at INFO on ``nvrx``, once per process and unit.
    """
    check, warning = select(directory, os.environ)
    if warning is not None:
        _log(_WARNING, "%s", warning)
    if check is not None:
        unit = (check.directory, check.job_id, check.task_id)
        token = object()
        if _installed.setdefault(unit, token) is token:  # atomic: of several threads, one logs
            _log(_INFO, "Segment health check installed directory=%s job_id=%s task_id=%s", *unit)
    return check


def select(
    directory: "str | os.PathLike[str] | None", environ: "Mapping[str, str]"
) -> "tuple[SegmentHealthCheck | None, str | None]":
    """Return the check of the process whose environment this is, and a warning, either or both None.

    What ``get_segment_health_check`` does, without a word in any log. ValueError for a relative directory.
    """
    where = "" if directory is None else os.fspath(directory)
    if not where:
        return None, None
    _absolute(where)
    if environ.get("SLURM_PROCID") != "0":
        return None, None
    try:
        unit = identify(environ)
    except ValueError as failure:
        return None, f"{_IGNORING}{failure}"
    return (None if unit is None else SegmentHealthCheck(where, *unit)), None


def identify(environ: "Mapping[str, str]") -> tuple[str, str] | None:
    """Return (job_id, task_id) of the unit whose environment this is, or None outside a job.

    Array task: SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID. Otherwise both are SLURM_JOB_ID, in a step of a
    heterogeneous job the leader's. An empty variable is an unset one; without a task id it is the job id, as
    in NVRx (contract, section 1). SLURM_PROCID plays no part here. ValueError when an id is not digits.
    """
    job_id = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
    if not job_id:
        return None
    task_id = environ.get("SLURM_ARRAY_TASK_ID") or job_id
    artifact_name(job_id, task_id)  # refuses what is not digits
    return job_id, task_id


def artifact_name(job_id: str, task_id: str) -> str:
    """Return the file name of a unit's artifact, without directory; ValueError when an id is not digits."""
    for kind, text in (("job", job_id), ("task", task_id)):
        if not is_id(text):
            # Cut and escaped: it comes from the environment and goes into a log.
            raise ValueError(f"{kind} id is not 1 to {_MAX_ID_DIGITS} decimal digits: {text[:40]!a}")
    return f"{ARTIFACT_PREFIX}{job_id}.{task_id}"


def is_id(text: str) -> bool:
    """Whether a text can be a Slurm id: 1 to 20 ASCII decimal digits.

    Stricter than NVRx, which puts any text into the path. ``str.isdigit`` alone would let other scripts'
    digits and superscripts through.
    """
    return text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS


def _absolute(directory: str) -> str:
    """Return the directory, or raise ValueError: launchers share storage, not a working directory."""
    if not os.path.isabs(directory):  # no pathlib here
        raise ValueError(f"segment health check directory is not an absolute path: {directory!a}")
    return directory


def _unhealthy(message: str) -> UnhealthyNodeException:
    """Return the exception to raise: an instance of the launcher's own class too, if that one is loaded.

    Looked up, never imported: the module pulls in torch. Whatever else may stand under that name must not
    turn an exclusion into another error: then it is our class alone.
    """
    try:
        theirs = getattr(sys.modules.get(_LAUNCHER), "UnhealthyNodeException", None)
        if theirs is not None and issubclass(theirs, Exception):
            bases: tuple[type, ...] = (UnhealthyNodeException, theirs)
            if issubclass(theirs, UnhealthyNodeException):
                bases = (theirs,)
            # pickle finds no class that is made here; who unpickles builds it anew from what is loaded there.
            body = {"__module__": __name__, "__reduce__": lambda self: (_unhealthy, (self.message,))}
            unhealthy: UnhealthyNodeException = type("UnhealthyNodeException", bases, body)(message)
            return unhealthy
    except Exception:  # noqa: BLE001, S110  # somebody else's class may fail in any way
        pass
    return UnhealthyNodeException(message)


def _log(level: int, message: str, *arguments: object) -> None:
    """Log on ``nvrx``; a logging set-up that is broken must not exclude a healthy node."""
    try:
        import logging  # noqa: PLC0415  # late: see the top of the file

        logging.getLogger("nvrx").log(level, message, *arguments, stacklevel=2)
    except Exception:  # noqa: BLE001, S110  # a filter that raises, or no descriptor left to import with
        pass

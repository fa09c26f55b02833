from __future__ import annotations

import pytest

from segment_health.doctor.slurm import (
    Answer,
    check_answer,
    check_clock,
    check_force_requeue,
    check_job_requeue,
    check_private_data,
    check_version,
)

SETTINGS = {"JobRequeue": "0", "PrologFlags": "Alloc", "PrivateData": "none"}
GOOD = Answer("text", "asked for", None, "alpha", "24.11.5", 8, 2, None, SETTINGS, 1000, 1000.2, 1000.9, [])
SILENT = GOOD._replace(failure="scontrol: no answer", version=None, settings=None, as_of=None)
REST = GOOD._replace(door="rest", settings=None, as_of=None)


def setting(**told: str) -> Answer:
    """A good answer with other settings."""
    return GOOD._replace(settings=SETTINGS | told)


@pytest.mark.parametrize(
    ("answer", "publisher", "severity"),
    [(GOOD, None, "ok"), (SILENT, None, "error"), (SILENT, "all on login1", "warning")],
)
def test_answer(answer: Answer, publisher: str | None, severity: str) -> None:
    """A silent Slurm is an error where nobody else asks it: launchers themselves need none."""
    assert check_answer(answer, publisher=publisher).severity == severity


@pytest.mark.parametrize(
    ("version", "severity"),
    [("22.05.8", "ok"), ("26.05.5", "ok"), ("21.08.8", "warning"), ("20.11.9-1", "warning"), (None, "skipped")],
)
def test_version(version: str | None, severity: str) -> None:
    """What is older than the oldest that is tried gets a word."""
    assert check_version(GOOD._replace(version=version)).severity == severity


@pytest.mark.parametrize(
    ("answer", "severity"),
    [
        (GOOD, "ok"),
        (setting(PrivateData="jobs,nodes")._replace(visible_user="1000"), "warning"),
        (setting(PrivateData="jobs"), "ok"),  # as root
        (REST._replace(visible_user="1000"), "warning"),
        (REST, "skipped"),
        (SILENT, "skipped"),
    ],
)
def test_private_data(answer: Answer, severity: str) -> None:
    """What hides jobs from us is told, whoever says so."""
    assert check_private_data(answer).severity == severity


@pytest.mark.parametrize(
    ("answer", "own", "severity"),
    [
        (GOOD, None, "ok"),
        (setting(JobRequeue="1"), None, "warning"),
        (setting(JobRequeue="1"), True, "warning"),
        (setting(JobRequeue="1"), False, "ok"),
        (REST, None, "skipped"),
    ],
)
def test_job_requeue(answer: Answer, own: bool | None, severity: str) -> None:
    """Slurm's default requeues what does not object; inside a job that objected it is fine."""
    assert check_job_requeue(answer, own_job_requeues=own).severity == severity


@pytest.mark.parametrize(
    ("flags", "severity"),
    [("Alloc,ForceRequeueOnFail", "warning"), ("(null)", "ok"), ("Alloc, forcerequeueonfail", "warning")],
)
def test_force_requeue(flags: str, severity: str) -> None:
    """The flag counts wherever it stands, however it is written."""
    assert check_force_requeue(setting(PrologFlags=flags)).severity == severity


@pytest.mark.parametrize(
    ("as_of", "asked", "answered", "severity", "told"),
    [
        pytest.param(1000, 1000.9, 1001.1, "ok", "agree", id="the same second"),
        pytest.param(1000, 1000.0, 1030.0, "ok", "agree", id="a slow answer is no skew"),
        pytest.param(1000, 1005.9, 1006.0, "ok", "agree", id="4.9 s behind"),
        pytest.param(1000, 1006.5, 1006.6, "warning", "5.5 s behind", id="5.5 s behind"),
        pytest.param(1000, 990.0, 991.0, "warning", "9 s ahead of", id="ahead"),
        pytest.param(1000, 600.0, 601.0, "error", "7 min ahead of", id="more than an interval ahead"),
        pytest.param(1000, 5000.0, 5001.0, "error", "67 min behind", id="more than an interval behind"),
        pytest.param(None, 1.0, 1.0, "skipped", "--source text", id="not told"),
    ],
)
def test_clock(as_of: int | None, asked: float, answered: float, severity: str, told: str) -> None:
    """Only what cannot be explained by the wait for the answer, and by whole seconds, is a skew."""
    check = check_clock(GOOD._replace(as_of=as_of, asked=asked, answered=answered), 300)
    assert (check.severity, told in check.detail) == (severity, True), check

"""What a report is worth: upstream's tables, and what we do where upstream forgets a fault."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.noded import codes as own
from segment_health.noded.config import FILE, parse
from segment_health.noded.grade import grade, no_verdict
from segment_health.noded.report import Device, Report
from segment_health.policy.assess import Policy
from segment_health.policy.states import WORDS, defaults, is_understood
from slurm.node import Node

OK, PRE, SEPARATE = FaultLevel
SHIPPED = parse((resources.files("segment_health.noded") / FILE).read_bytes(), FILE)
NOT_HANDLE_CODE, PRE_CODE, SEPARATE_CODE = "0300000D", "0000001D", "2C000031"


def device(*codes: str, level: str = "PreSeparateFault", number: int = 1) -> Device:
    """A CPU with these faults."""
    return Device("CPU", number, codes, level)


def of(*devices: Device, status: str = "Healthy") -> Report:
    """A report of these devices."""
    return Report(devices, status)


# Upstream: the level is the highest of the known codes of all devices; Healthy, PreSeparate, UnHealthy in order.
UPSTREAM = {
    "one-not-handle": (of(device(NOT_HANDLE_CODE, level="NotHandleFault")), OK, NOT_HANDLE_CODE),
    "one-pre": (of(device(PRE_CODE), status="PreSeparate"), PRE, PRE_CODE),
    "one-separate": (
        of(device(SEPARATE_CODE, level="SeparateFault"), status="UnHealthy"),
        SEPARATE,
        SEPARATE_CODE,
    ),
    "two-codes": (
        of(device(PRE_CODE, SEPARATE_CODE, level="SeparateFault"), status="UnHealthy"),
        SEPARATE,
        SEPARATE_CODE,
    ),
    "three-codes": (
        of(device(NOT_HANDLE_CODE, SEPARATE_CODE, PRE_CODE, level="SeparateFault"), status="UnHealthy"),
        SEPARATE,
        SEPARATE_CODE,
    ),
    "two-devices": (
        of(
            device(NOT_HANDLE_CODE, level="NotHandleFault"),
            device(PRE_CODE, number=2),
            status="PreSeparate",
        ),
        PRE,
        PRE_CODE,
    ),
    "no-device": (of(), OK, "Healthy"),
    "nil-list": (Report(None, "Healthy"), OK, "Healthy"),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_level_is_upstreams(name: str) -> None:
    """Where every code is listed, the level is the one that NodeD computes, and nobody is bothered."""
    report, level, rule = UPSTREAM[name]
    graded = grade(report, SHIPPED, PRE)
    assert (graded.assessment.level, graded.assessment.rule) == (level, f"noded:{rule}")
    assert graded.assessment.final
    assert graded.remarks == ()


# name: report, level, final, rule, remark, what upstream does
OTHERWISE = {
    "unknown-code": (
        of(device("00000011", level="NotHandleFault")),
        (PRE, True, "00000011"),
        "fault code 00000011 is in no list of the configuration: taken for PreSeparateFault",
        "dropped: Healthy",
    ),
    "unknown-code-that-the-report-calls-worse": (
        of(device("00000011", level="SeparateFault"), status="UnHealthy"),
        (SEPARATE, True, "00000011"),
        "fault code 00000011 is in no list of the configuration: taken for SeparateFault",
        "dropped: Healthy",
    ),
    "not-hexadecimal": (
        of(device("ZZZZZZZZ", level="NotHandleFault")),
        (PRE, True, "ZZZZZZZZ"),
        "fault code ZZZZZZZZ is in no list of the configuration: taken for PreSeparateFault",
        "dropped, or graded if a configuration lists it",
    ),
    "empty-code": (
        of(device("", level="NotHandleFault")),
        (PRE, True, "empty"),
        "fault code empty is in no list of the configuration: taken for PreSeparateFault",
        "dropped",
    ),
    "many-unknown-codes": (
        of(device("A", "B", "C", "D", "E")),
        (PRE, True, "A"),
        "fault codes A, B, C and 2 more are in no list of the configuration: taken for PreSeparateFault",
        "dropped",
    ),
    "unknown-beside-known": (
        of(device("00000011", SEPARATE_CODE, level="SeparateFault"), status="UnHealthy"),
        (SEPARATE, True, "00000011"),
        "fault code 00000011 is in no list of the configuration: taken for SeparateFault",
        "the known one counts",
    ),
    "lower-case-code": (
        of(device("2c000031", level="SeparateFault")),
        (SEPARATE, True, SEPARATE_CODE),
        None,
        "no match",
    ),
    "configuration-lowers": (
        of(device(NOT_HANDLE_CODE, level="SeparateFault"), status="UnHealthy"),
        (OK, True, NOT_HANDLE_CODE),
        None,
        "graded so",
    ),
    "configuration-raises": (
        of(device(SEPARATE_CODE, level="NotHandleFault")),
        (SEPARATE, True, SEPARATE_CODE),
        None,
        "graded so",
    ),
    "no-code": (
        of(device(level="SeparateFault"), status="UnHealthy"),
        (SEPARATE, True, "SeparateFault"),
        None,
        "-",
    ),
    "nil-codes": (
        Report((Device("NPU", 0, None, "PreSeparateFault"),), "PreSeparate"),
        (PRE, True, "PreSeparateFault"),
        None,
        "-",
    ),
    "no-code-and-harmless": (of(device(level="NotHandleFault")), (OK, True, "NotHandleFault"), None, "-"),
    "ghost": (
        of(status="PreSeparate"),
        (PRE, True, "PreSeparate"),
        "NodeStatus PreSeparate is worse than what its devices say, and counts",
        "passed on",
    ),
    "status-above-devices": (
        of(device(PRE_CODE), status="UnHealthy"),
        (SEPARATE, True, "UnHealthy"),
        "NodeStatus UnHealthy is worse than what its devices say, and counts",
        "passed on",
    ),
    "status-below-devices": (of(device(PRE_CODE), status="Healthy"), (PRE, True, PRE_CODE), None, "passed on"),
    "unknown-status": (
        of(status="SubHealthy"),
        (None, False, "not-understood"),
        "NodeStatus `SubHealthy` is not understood: no verdict",
        "Healthy assumed",
    ),
    "empty-status": (
        Report(None, ""),
        (None, False, "not-understood"),
        "NodeStatus `` is not understood: no verdict",
        "Healthy assumed",
    ),
    "status-in-another-case": (
        of(status="unhealthy"),
        (None, False, "not-understood"),
        "NodeStatus `unhealthy` is not understood: no verdict",
        "Healthy assumed",
    ),
    "unknown-level": (
        of(device(level="Worst")),
        (None, False, "not-understood"),
        "FaultLevel `Worst` is not understood: no verdict",
        "passed on",
    ),
    "unknown-level-of-a-listed-code": (
        of(device(PRE_CODE, level="Worst")),
        (PRE, False, PRE_CODE),
        "FaultLevel `Worst` is not understood: no verdict",
        "passed on",
    ),
    "unknown-level-beside-harmless": (
        of(device(NOT_HANDLE_CODE, level="")),
        (None, False, "not-understood"),
        "FaultLevel `` is not understood: no verdict",
        "passed on",
    ),
    "unknown-status-beside-a-fault": (
        of(device(SEPARATE_CODE, level="SeparateFault"), status="Sick"),
        (SEPARATE, False, SEPARATE_CODE),
        "NodeStatus `Sick` is not understood: no verdict",
        "Healthy assumed",
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_nothing_reported_is_dropped(name: str) -> None:
    """What upstream drops or takes for healthy counts, or is no verdict, and a person hears of it."""
    report, (level, final, rule), remark, _ = OTHERWISE[name]
    graded = grade(report, SHIPPED, PRE)
    told = graded.assessment
    assert (told.level, told.final, told.rule) == (level, final, f"noded:{rule}")
    assert graded.remarks == (() if remark is None else (remark,))


@pytest.mark.parametrize("least", FaultLevel)
def test_level_of_unknown_codes_is_the_sites(least: FaultLevel) -> None:
    """A site says what unknown codes are worth; the report may say more, never less."""
    for level in FaultLevel:
        report = of(device("00000011", level=level.name))
        assert grade(report, SHIPPED, least).assessment.level == max(least, level)


@pytest.mark.parametrize("code", [*own.CODES.values(), own.BY_RULE])
def test_our_own_codes_are_not_unknown(code: str) -> None:
    """A report of our own counts as its device says, without a remark."""
    for level, status in zip(FaultLevel, ("Healthy", "PreSeparate", "UnHealthy"), strict=True):
        graded = grade(Report((Device("Slurm", 0, (code,), level.name),), status), SHIPPED, SEPARATE)
        assert (graded.assessment.level, graded.assessment.final, graded.remarks) == (level, True, ())


def test_configuration_that_lists_our_code_has_the_last_word() -> None:
    """A site may tune our codes as any other."""
    report = Report((Device("Slurm", 0, (own.CODES["DRAIN"],), "PreSeparateFault"),), "PreSeparate")
    assert grade(report, {own.CODES["DRAIN"]: OK}, PRE).assessment.level is OK


def test_every_word_that_is_a_fault_has_its_own_code() -> None:
    """The table of states and the table of codes name the same words, and no code is there twice."""
    assert own.CODES.keys() == {word for word, level in defaults().items() if level}
    assert own.CODES.keys() <= WORDS
    assert len({*own.CODES.values(), own.BY_RULE}) == len(own.CODES) + 1
    assert not {*own.CODES.values(), own.BY_RULE} & SHIPPED.keys()


def test_codes_never_change() -> None:
    """Somebody may have written them down."""
    assert own.CODES == {
        "DOWN": "FE000001", "ERROR": "FE000002", "FUTURE": "FE000003", "DRAIN": "FE000011", "FAIL": "FE000012",
        "NOT_RESPONDING": "FE000013", "INVALID_REG": "FE000014", "REBOOT_ISSUED": "FE000015",
        "POWER_DOWN": "FE000021", "POWER_DRAIN": "FE000022", "POWERING_DOWN": "FE000023",
        "POWERED_DOWN": "FE000024",
    }  # fmt: skip
    assert own.BY_RULE == "FE0000FF"


def test_no_verdict_is_not_health() -> None:
    """A report that tells nothing is neither a fault nor health."""
    told = no_verdict("stale")
    assert (told.level, told.final, told.rule) == (None, False, "noded:stale")


def test_names_are_short_and_printable() -> None:
    """What stands in an artifact of a code is short, whatever the report says."""
    told = grade(of(device("\x1b[2J" * 100)), SHIPPED, PRE)
    assert len(told.assessment.rule) < 200
    assert told.assessment.rule.isprintable()
    assert all(remark.isprintable() for remark in told.remarks)


words = st.sampled_from(["NotHandleFault", "PreSeparateFault", "SeparateFault", "", "x"])
found_codes = st.sampled_from([NOT_HANDLE_CODE, PRE_CODE, SEPARATE_CODE, "00000011", "zz", own.BY_RULE])
any_devices = st.lists(st.builds(Device, st.just("CPU"), st.just(1), st.lists(found_codes).map(tuple), words))
any_reports = st.builds(
    Report, any_devices.map(tuple), st.sampled_from(["Healthy", "PreSeparate", "UnHealthy", "", "x"])
)


@given(any_reports)
def test_order_does_not_count(report: Report) -> None:
    """NodeD lists devices and codes in no order, so none may matter."""
    assert report.devices is not None
    turned = Report(
        tuple(Device(d.type, d.id, (d.codes or ())[::-1], d.level) for d in reversed(report.devices)),
        report.status,
    )
    first, second = (grade(each, SHIPPED, PRE).assessment for each in (report, turned))
    assert (first.level, first.final, first.rule) == (second.level, second.final, second.rule)


@given(any_reports)
def test_fit_is_only_what_is_understood_whole(report: Report) -> None:
    """A report is health only if every word and every code in it is understood."""
    told = grade(report, SHIPPED, PRE).assessment
    assert (told.level is None) <= (not told.final)
    if told.final and told.level is OK:
        assert report.status in {"Healthy", "PreSeparate", "UnHealthy"}
        for each in report.devices or ():
            assert each.level in FaultLevel.__members__
            assert set(each.codes or ()) <= {NOT_HANDLE_CODE, own.BY_RULE}


def test_export_of_a_state_reads_as_it_was_graded() -> None:
    """Whatever state a node is in, the report of it is worth what the node is."""
    for word in sorted(WORDS - {"UNKNOWN"}):
        node = Node("n1", word) if is_understood(word) else Node("n1", "IDLE", frozenset({word}))
        told = Policy().assess(node)
        report = own.report_of(told)
        assert (report is None) == (not told.level)
        if report is not None:
            assert own.wrote(report)
            assert own.level_of(report) == told.level
            assert grade(report, SHIPPED, PRE).assessment.level == told.level
            (written,) = report.devices or ()
            assert written.codes == (own.CODES[word],)

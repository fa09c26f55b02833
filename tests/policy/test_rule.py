"""When a rule matches, when it waits, and when it hides another one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.policy.assess import Assessment, Policy
from segment_health.policy.pattern import Pattern
from segment_health.policy.rule import Rule
from segment_health.policy.states import WORDS
from slurm.node import Node, parse_state

_OK, _PRE, _SEPARATE = FaultLevel
NOW = 1_796_000_000
DRAIN = frozenset({"DRAIN"})
QUIET = frozenset({"NOT_RESPONDING"})


def node(state: str, reason: str | None = None, user: str | None = None, since: int | None = None) -> Node:
    """Make n7."""
    base, flags = parse_state(state)
    return Node("n7", base, flags, reason, user, since)


def told(assessment: Assessment) -> tuple[FaultLevel | None, str, bool]:
    """Return what counts."""
    return assessment.level, assessment.rule, assessment.final


# ── conditions ─────────────────────────────────────────────────────────────────────────────────────────────────

BAD = node("ALLOCATED+DRAIN", "NHC: link down", "alice", NOW)
CONDITIONS: list[Any] = [
    pytest.param({"states": DRAIN}, True, id="state"),
    pytest.param({"states": DRAIN | QUIET}, True, id="one-of-the-states"),
    pytest.param({"states": QUIET}, False, id="another-state"),
    pytest.param({"reason": Pattern("LINK")}, True, id="reason"),
    pytest.param({"reason": Pattern("xid")}, False, id="another-reason"),
    pytest.param({"reason": Pattern("l.nk", literal=True)}, False, id="literal-reason"),
    pytest.param({"reason_users": frozenset({"alice", "bob"})}, True, id="user"),
    pytest.param({"reason_users": frozenset({"Alice"})}, False, id="users-have-a-case"),
    pytest.param({"nodes": frozenset({"n7", "n8"})}, True, id="node"),
    pytest.param({"nodes": frozenset({"n70"})}, False, id="another-node"),
    pytest.param({"partitions": frozenset({"gpu"})}, True, id="partition"),
    pytest.param({"partitions": frozenset({"cpu"})}, False, id="another-partition"),
    pytest.param(
        {
            "states": DRAIN,
            "reason": Pattern("link"),
            "reason_users": frozenset({"alice"}),
            "nodes": frozenset({"n7"}),
            "partitions": frozenset({"gpu"}),
        },
        True,
        id="all-together",
    ),
]


@pytest.mark.parametrize(("asked", "expected"), CONDITIONS)
def test_each_condition(asked: dict[str, Any], expected: bool) -> None:
    """A rule decides where what it asks for is so, else the table does."""
    policy = Policy(rules=(Rule("mine", _SEPARATE, **asked),))
    decided = (_SEPARATE, "rule:mine", True) if expected else (_PRE, "state:DRAIN", True)
    assert told(policy.assess(BAD, partitions={"gpu", "batch"})) == decided


@pytest.mark.parametrize("spoilt", ["states", "reason", "reason_users", "nodes", "partitions"])
def test_all_conditions_must_hold(spoilt: str) -> None:
    """One that does not hold is enough for the rule to be passed over."""
    asked: dict[str, Any] = CONDITIONS[-1].values[0]
    other = {spoilt: Pattern("never") if spoilt == "reason" else frozenset({"never"})}
    policy = Policy(rules=(Rule("mine", _SEPARATE, **(asked | other)),))
    assert told(policy.assess(BAD, partitions={"gpu"})) == (_PRE, "state:DRAIN", True)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"reason": Pattern("^$")}, True),
        ({"reason": Pattern(".")}, False),
        ({"reason_users": frozenset({"root"})}, False),
        ({"partitions": frozenset({"gpu"})}, False),
    ],
    ids=["empty-reason", "some-reason", "no-user", "no-partition"],
)
def test_what_a_node_does_not_have(asked: dict[str, Any], expected: bool) -> None:
    """Without a reason only the empty one matches; without a user or an allocation nobody's rule does."""
    policy = Policy(rules=(Rule("mine", _SEPARATE, **asked),))
    assert (policy.assess(node("DOWN")).rule == "rule:mine") is expected


def test_the_first_rule_that_matches_has_its_say() -> None:
    """Order decides, not what is more precise or worse."""
    first, second = Rule("first", _OK, reason=Pattern("link")), Rule("second", _SEPARATE, DRAIN)
    assert told(Policy(rules=(first, second)).assess(BAD)) == (_OK, "rule:first", True)
    assert told(Policy(rules=(second, first)).assess(BAD)) == (_SEPARATE, "rule:second", True)


def test_each_word_is_judged_for_itself() -> None:
    """What is said of DRAIN is not said of DOWN."""
    policy = Policy(rules=(Rule("drains are nothing", _OK, DRAIN),))
    assert told(policy.assess(node("DOWN+DRAIN"))) == (_SEPARATE, "state:DOWN", True)
    assert told(policy.assess(node("ALLOCATED+DRAIN"))) == (_OK, "rule:drains are nothing", True)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("any", _SEPARATE, nodes=frozenset({"n7"})), (None, "state:UNKNOWN", False)),
        (Rule("named", _SEPARATE, frozenset({"UNKNOWN"})), (_SEPARATE, "rule:named", True)),
    ],
    ids=["any-word", "by-name"],
)
def test_what_nobody_understands(rule: Rule, expected: tuple[FaultLevel | None, str, bool]) -> None:
    """Of UNKNOWN only a rule that names it has a say."""
    assert told(Policy(rules=(rule,)).assess(node("UNKNOWN"))) == expected


def test_no_verdict_leaves_other_faults() -> None:
    """The node is not explicitly fit, and its other faults count."""
    policy = Policy(rules=(Rule("flaky", None, DRAIN),))
    assert told(policy.assess(node("ALLOCATED+DRAIN"))) == (None, "rule:flaky", False)
    assert told(policy.assess(node("DOWN+DRAIN"))) == (_SEPARATE, "state:DOWN", False)


# ── min_duration ───────────────────────────────────────────────────────────────────────────────────────────────

LADDER = Policy(
    rules=(Rule("lost", _SEPARATE, QUIET, min_duration=600), Rule("quiet", _PRE, QUIET, min_duration=60))
)


@pytest.mark.parametrize(
    ("lasting", "expected"),
    [
        pytest.param(None, (None, "rule:lost", False), id="never-seen"),
        pytest.param(0, (None, "rule:lost", False), id="now"),
        pytest.param(59, (None, "rule:lost", False), id="not-yet"),
        pytest.param(60, (_PRE, "rule:quiet", False), id="first-step"),
        pytest.param(599, (_PRE, "rule:quiet", False), id="still-there"),
        pytest.param(600, (_SEPARATE, "rule:lost", True), id="second-step"),
        pytest.param(-5, (None, "rule:lost", False), id="clock-set-back"),
    ],
)
def test_a_ladder(lasting: int | None, expected: tuple[FaultLevel | None, str, bool]) -> None:
    """Each rule counts from its own time on; before the first one there is no verdict."""
    seen = {} if lasting is None else {("n7", "NOT_RESPONDING"): NOW - lasting}
    assert told(LADDER.assess(node("ALLOCATED+NOT_RESPONDING"), seen=seen, now=NOW)) == expected


@pytest.mark.parametrize(
    ("level", "instead", "expected"),
    [
        pytest.param(_PRE, None, None, id="as-bad-as-the-table"),
        pytest.param(_SEPARATE, None, _PRE, id="worse-than-the-table"),
        pytest.param(_SEPARATE, _OK, None, id="a-later-rule-that-lets-off"),
        pytest.param(_PRE, _SEPARATE, None, id="a-later-rule-that-is-worse"),
    ],
)
def test_what_counts_while_a_rule_waits(
    level: FaultLevel, instead: FaultLevel | None, expected: FaultLevel | None
) -> None:
    """Only what says less than the rule that waits; and as long as one waits a node is not healthy."""
    rules: tuple[Rule, ...] = (Rule("waits", level, DRAIN, min_duration=60),)
    if instead is not None:
        rules += (Rule("instead", instead, DRAIN),)
    found = Policy(rules=rules).assess(node("ALLOCATED+DRAIN"), now=NOW)
    assert (found.level, found.final) == (expected, False)


@pytest.mark.parametrize(
    ("reason_since", "expected"),
    [(NOW - 600, _SEPARATE), (NOW - 60, _SEPARATE), (NOW - 59, _PRE), (None, _SEPARATE)],
    ids=["older", "as-old", "younger", "nobody-knows"],
)
def test_a_rule_about_a_reason_is_no_older_than_it(reason_since: int | None, expected: FaultLevel) -> None:
    """The word may have been there before the reason was."""
    rule = Rule("lasting", _SEPARATE, DRAIN, reason=Pattern("link"), min_duration=60)
    seen = {("n7", "DRAIN"): NOW - 600}
    bad = node("ALLOCATED+DRAIN", "link", "root", reason_since)
    assert Policy(rules=(rule,)).assess(bad, seen=seen, now=NOW).level == expected


SEEN: list[Any] = [
    pytest.param("ALLOCATED+NOT_RESPONDING", None, {}, None, NOW, id="first-pass-ever"),
    pytest.param("ALLOCATED+NOT_RESPONDING", NOW - 50, {}, None, NOW, id="slurm-gives-it-no-time"),
    pytest.param(
        "ALLOCATED+NOT_RESPONDING", None, {"NOT_RESPONDING": NOW - 90}, NOW - 9, NOW - 90, id="seen-before"
    ),
    pytest.param(
        "ALLOCATED+NOT_RESPONDING", None, {"NOT_RESPONDING": NOW + 90}, NOW - 9, NOW, id="seen-in-the-future"
    ),
    pytest.param("DOWN", NOW - 50, {}, None, NOW - 50, id="as-old-as-its-reason"),
    pytest.param("DOWN", NOW - 50, {}, NOW - 80, NOW - 50, id="reason-younger-than-the-last-pass"),
    pytest.param("DOWN", NOW - 50, {}, NOW - 20, NOW, id="the-last-pass-did-not-see-it"),
    pytest.param("DOWN", NOW + 50, {}, None, NOW, id="reason-of-the-future"),
    pytest.param("DOWN", NOW - 50, {"DOWN": NOW - 10}, NOW - 10, NOW - 10, id="what-was-seen-counts-first"),
]


@pytest.mark.parametrize(("state", "since", "before", "previous_pass", "expected"), SEEN)
def test_since_when_a_word_is_there(
    state: str, since: int | None, before: dict[str, int], previous_pass: int | None, expected: int
) -> None:
    """From the first pass that saw it, or from Slurm's own time where no pass can have."""
    word = state.rpartition("+")[2]
    policy = Policy(rules=(Rule("waits", _SEPARATE, frozenset({word}), min_duration=60),))
    earlier = {("n7", word): when for word, when in before.items()}
    found = policy.first_seen(
        node(state, "x" if since else None, None, since), earlier, previous_pass=previous_pass, now=NOW
    )
    assert found == {("n7", word): expected}


def test_a_healthy_node_is_remembered_for_nothing() -> None:
    """Nor is a word that only rules speak of which do not wait, or ask for another node."""
    rules = (
        Rule("a", _SEPARATE, frozenset({"IDLE"})),
        replace(LADDER.rules[0], nodes=frozenset({"n8"}), states=frozenset()),
    )
    assert Policy(rules=rules).first_seen(node("IDLE"), {("n7", "IDLE"): 1}, previous_pass=1, now=NOW) == {}


# ── hides ──────────────────────────────────────────────────────────────────────────────────────────────────────

LINK = Pattern("link")
HIDES: list[Any] = [
    pytest.param(Rule("a", _OK, DRAIN), Rule("b", _OK, DRAIN), True, id="the-same"),
    pytest.param(Rule("a", _OK, DRAIN | QUIET), Rule("b", _OK, DRAIN), True, id="more-states"),
    pytest.param(Rule("a", _OK, DRAIN), Rule("b", _OK, DRAIN | QUIET), False, id="fewer-states"),
    pytest.param(Rule("a", _OK, DRAIN), Rule("b", _OK, reason=LINK), False, id="any-state-later"),
    pytest.param(Rule("a", _OK, DRAIN), Rule("b", _OK, DRAIN, LINK), True, id="any-reason-first"),
    pytest.param(Rule("a", _OK, DRAIN, LINK), Rule("b", _OK, DRAIN), False, id="any-reason-later"),
    pytest.param(Rule("a", _OK, DRAIN, LINK), Rule("b", _OK, DRAIN, Pattern("xid")), False, id="other-reasons"),
    pytest.param(
        Rule("a", _OK, reason=Pattern("l.nk", literal=True)),
        Rule("b", _OK, reason=Pattern("l.nk")),
        False,
        id="literal",
    ),
    pytest.param(
        Rule("a", _OK, nodes=frozenset({"n1", "n2"})),
        Rule("b", _OK, DRAIN, nodes=frozenset({"n1"})),
        True,
        id="nodes",
    ),
    pytest.param(
        Rule("a", _OK, partitions=frozenset({"x"})),
        Rule("b", _OK, DRAIN, partitions=frozenset({"y"})),
        False,
        id="else",
    ),
    pytest.param(Rule("a", _OK, reason_users=frozenset({"x"})), Rule("b", _OK, DRAIN), False, id="any-user-later"),
    pytest.param(
        Rule("a", _OK, nodes=frozenset({"n1"})),
        Rule("b", _OK, frozenset({"UNKNOWN"}), nodes=frozenset({"n1"})),
        False,
        id="names-what-nobody-understands",
    ),
    pytest.param(
        Rule("a", _OK, frozenset({"UNKNOWN"})),
        Rule("b", _OK, frozenset({"UNKNOWN"}), LINK),
        True,
        id="both-name-it",
    ),
    pytest.param(
        Rule("a", _PRE, QUIET, min_duration=60),
        Rule("b", _SEPARATE, QUIET, min_duration=600),
        True,
        id="ladder-turned",
    ),
    pytest.param(*reversed(LADDER.rules), True, id="shorter-first"),
    pytest.param(
        Rule("a", _PRE, QUIET, min_duration=600),
        Rule("b", _PRE, QUIET, min_duration=60),
        True,
        id="as-bad-meanwhile",
    ),
    pytest.param(
        Rule("a", _SEPARATE, QUIET, min_duration=60), Rule("b", _PRE, QUIET, min_duration=60), True, id="as-long"
    ),
    pytest.param(*LADDER.rules, False, id="ladder"),
    pytest.param(
        Rule("a", _PRE, QUIET, min_duration=60), Rule("b", _SEPARATE, QUIET), True, id="not-less-meanwhile"
    ),
    pytest.param(Rule("a", _SEPARATE, DRAIN, min_duration=60), Rule("b", _OK, DRAIN), False, id="less-meanwhile"),
    pytest.param(
        Rule("a", _SEPARATE, DRAIN, min_duration=60), Rule("b", None, DRAIN), False, id="no-verdict-meanwhile"
    ),
]


@pytest.mark.parametrize(("earlier", "later", "expected"), HIDES)
def test_a_rule_that_hides_another(earlier: Rule, later: Rule, expected: bool) -> None:
    """It does where it matches all that the later one would, and leaves it no time."""
    assert earlier.hides(later) is expected


STATES = [("ALLOCATED", frozenset({word})) for word in sorted(WORDS)] + [
    ("UNKNOWN", frozenset()),
    ("DOWN", frozenset()),
]


@pytest.mark.parametrize(("earlier", "later", "expected"), HIDES)
def test_what_is_hidden_never_decides(earlier: Rule, later: Rule, expected: bool) -> None:
    """Of no node and at no time; what is not hidden decides of some node at some time."""
    policy = Policy(rules=(earlier, later))
    decides = False
    for (base, flags), name, reason, other, lasting in product(
        STATES, ("n1", "n2"), (None, "link", "xid"), "xy", (0, 59, 60, 599, 600)
    ):
        bad = Node(name, base, flags, reason, other)
        seen = {(name, word): NOW - lasting for word in (base, *flags)}
        findings = policy.assess(bad, partitions={other}, seen=seen, now=NOW).findings
        decides = decides or any(finding.rule is later for finding in findings)
    assert decides is not expected


_WORDS = ["DRAIN", "NOT_RESPONDING", "DOWN", "UNKNOWN", "IDLE"]
_RULES = st.builds(
    Rule,
    st.just("any"),
    st.sampled_from(FaultLevel),
    st.frozensets(st.sampled_from(_WORDS), max_size=2),
    st.none() | st.sampled_from([LINK, Pattern("xid"), Pattern("link", literal=True)]),
    st.frozensets(st.sampled_from("xy"), max_size=2),
    st.frozensets(st.sampled_from(["n1", "n2"]), max_size=2),
    partitions=st.frozensets(st.sampled_from("xy"), max_size=2),
    min_duration=st.sampled_from([0, 60, 600]),
).flatmap(lambda rule: st.sampled_from([rule, replace(rule, level=None, min_duration=0)]))


@st.composite
def narrowed(draw: st.DrawFn, rule: Rule) -> Rule:
    """Draw a rule that asks for much of what another one asks for, and so is hidden more often than any rule."""
    other = draw(_RULES)
    kept = {
        key: getattr(rule, key)
        for key in ("states", "reason", "reason_users", "nodes", "partitions")
        if draw(st.integers(0, 3))
    }
    return replace(other, **kept)


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(st.data(), st.sampled_from([None, NOW - 600, NOW - 60, NOW]))
def test_no_node_is_judged_by_a_hidden_rule(data: st.DataObject, since: int | None) -> None:
    """Whatever the node, whatever stands between the two rules, and however long each word has been there."""
    earlier, between = data.draw(_RULES), data.draw(st.lists(_RULES, max_size=1))
    later = data.draw(narrowed(earlier))
    if not earlier.hides(later):
        return
    policy = Policy(rules=(earlier, *between, later))
    lasting = data.draw(st.lists(st.sampled_from([0, 59, 60, 599, 600, 900]), min_size=6, max_size=6))
    words = dict(zip(("IDLE", "DOWN", "UNKNOWN", "MIXED", "DRAIN", "NOT_RESPONDING"), lasting, strict=True))
    for base, flags, name, reason, user, partition, allocated in product(
        ("IDLE", "DOWN", "UNKNOWN", "MIXED"),
        (frozenset[str](), DRAIN, QUIET, DRAIN | QUIET | {"POWERING_UP"}),
        ("n1", "n2"),
        (None, "link", "xid"),
        (None, "x", "y"),
        "xy",
        (True, False),
    ):
        seen = {(name, word): NOW - seconds for word, seconds in words.items()}
        one = Node(name, base, flags, reason, user, since)
        found = policy.assess(one, allocated=allocated, partitions={partition}, seen=seen, now=NOW)
        assert not any(finding.rule is later for finding in found.findings)


# ── words that count, and words that do not ────────────────────────────────────────────────────────────────────

ANY = Rule("any", _SEPARATE, nodes=frozenset({"n7"}))
COUNTED: list[Any] = [
    pytest.param(Rule("up", _SEPARATE, QUIET), "ALLOCATED+NOT_RESPONDING+POWERING_UP", "state", id="powering-up"),
    pytest.param(Rule("up", _SEPARATE, QUIET), "ALLOCATED+NOT_RESPONDING", "rule:up", id="up"),
    pytest.param(Rule("undrain", _SEPARATE, DRAIN), "ALLOCATED+DRAIN+UNDRAIN", "state", id="undrain"),
    pytest.param(
        Rule("undrain", _SEPARATE, frozenset({"UNDRAIN"})),
        "IDLE+DRAIN+UNDRAIN",
        "rule:undrain",
        id="undrain-named",
    ),
    pytest.param(Rule("mixed", _SEPARATE, frozenset({"MIXED"})), "MIXED", "rule:mixed", id="mixed"),
    pytest.param(Rule("idle", _SEPARATE, frozenset({"IDLE"})), "MIXED", "state", id="not-idle"),
    pytest.param(ANY, "IDLE", "rule:any", id="healthy-word"),
    pytest.param(ANY, "UNKNOWN+DRAIN", "rule:any", id="evidence-beside-unknown"),
    pytest.param(ANY, "UNKNOWN+NOT_RESPONDING", "state", id="no-evidence-beside-unknown"),
    pytest.param(ANY, "", "state", id="no-state"),
    pytest.param(ANY, "NEWBASE", "state", id="base-of-a-newer-slurm"),
    pytest.param(ANY, "IDLE+NEWFLAG", "rule:any", id="flag-of-a-newer-slurm"),
]


@pytest.mark.parametrize(("rule", "state", "expected"), COUNTED)
def test_which_words_a_rule_can_judge(rule: Rule, state: str, expected: str) -> None:
    """Those that the table counts: what is excused or not understood stays so, unless it is named."""
    assert Policy(rules=(rule,)).assess(node(state)).rule.startswith(expected)

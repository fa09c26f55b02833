"""A policy that is shown: as a file that means the same, and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.policy.file import parse
from segment_health.policy.limits import ClearAfter, MaxNewExclusions
from segment_health.policy.pattern import Pattern
from segment_health.policy.rule import Rule
from segment_health.policy.show import as_document, as_toml
from segment_health.policy.states import WORDS, defaults
from segment_health.sources import node_names

_OK, _PRE, _SEPARATE = FaultLevel

EVERYTHING = (Path(__file__).parents[1] / "data/policy/everything.toml").read_text()


def read(text: str) -> Policy:
    """Read a policy file of this content."""
    return parse(text.encode(), "p.toml", node_names)


def same(policy: Policy) -> Policy:
    """Leave out where a policy comes from."""
    return replace(policy, name="", digest="", rules=tuple(replace(rule, place="") for rule in policy.rules))


def test_shown_as_toml() -> None:
    """The file that it is, each rule's place, and the table for where no rule matches."""
    shown = as_toml(read(EVERYTHING))
    assert '# p.toml:12\n[[rule]]\nname = "lab"\n' in shown
    assert all(
        f"#   {word:16} {'no-verdict' if level is None else level.name}" in shown
        for word, level in defaults().items()
    )
    assert same(read(shown)) == same(read(EVERYTHING))


def test_shown_as_json() -> None:
    """The same keys, by which a program finds what a person finds in the file."""
    document = json.loads(json.dumps(as_document(read(EVERYTHING))))
    assert [rule["place"] for rule in document["rule"]] == ["p.toml:6", "p.toml:12", "p.toml:20"]
    assert document["rule"][2] == {
        "name": "quiet",
        "state": ["NOT_RESPONDING"],
        "min_duration": "300s",
        "level": "PreSeparateFault",
        "place": "p.toml:20",
    }
    assert {key: document[key] for key in ("publish_at", "clear_after", "max_new_exclusions", "hold_passes")} == {
        "publish_at": "SeparateFault",
        "clear_after": "3 passes",
        "max_new_exclusions": "10%",
        "hold_passes": 5,
    }
    assert document["defaults"]["DRAIN"] == "PreSeparateFault"
    assert document["defaults"]["UNKNOWN"] == "no-verdict"


def test_the_default_survives_being_shown() -> None:
    """Without a file everything that holds is shown, and may be saved as one."""
    assert same(read(as_toml(Policy()))) == same(Policy())
    assert as_document(Policy())["digest"] is None


def test_a_path_cannot_write_rules() -> None:
    """What stands in a comment stays there, whatever the file was called."""
    hostile = Policy(
        name='x\n[[rule]]\nname = "evil"', rules=(Rule("a", _OK, WORDS, place="x\r\nhold_passes = 9:1"),)
    )
    assert same(read(as_toml(hostile))) == same(hostile)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_NAMES = st.frozensets(_TEXT, max_size=3)
_NODES = st.sampled_from(["", "n1", "n[1-3]", "a[01-02],b7"])
_REASONS = (
    st.none()
    | st.builds(Pattern, _TEXT, st.just(value=True))
    | st.sampled_from([Pattern("a\\.b|\"'\x7f"), Pattern("^$")])
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Draw a rule that a file may hold."""
    level = draw(st.sampled_from([None, *FaultLevel]))
    hostlist = draw(_NODES)
    return Rule(
        draw(_TEXT.filter(str.isprintable)),
        level,
        draw(st.frozensets(st.sampled_from(sorted(WORDS)), min_size=1, max_size=3)),
        draw(_REASONS),
        draw(_NAMES),
        frozenset(node_names(hostlist)),
        hostlist,
        draw(_NAMES),
        draw(st.integers(0, 10 * 366 * 86_400)) if level else 0,
    )


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.builds(
        Policy,
        publish_at=st.sampled_from([_PRE, _SEPARATE]),
        rules=st.lists(rules(), max_size=4, unique_by=lambda rule: rule.name).map(tuple),
        clear_after=st.builds(ClearAfter, passes=st.integers(1, 999_999))
        | st.builds(ClearAfter, seconds=st.integers(0, 10 * 366 * 86_400)),
        max_new_exclusions=st.none()
        | st.builds(MaxNewExclusions, st.integers(0, 999_999))
        | st.builds(MaxNewExclusions, st.integers(0, 100), st.just(value=True)),
        hold_passes=st.integers(1, 99),
    )
)
def test_what_is_shown_means_the_same(policy: Policy) -> None:
    """Any policy, with any text in it, is read back from what is shown, in ASCII that every terminal takes."""
    kept = tuple(
        rule for n, rule in enumerate(policy.rules) if not any(earlier.hides(rule) for earlier in policy.rules[:n])
    )
    policy = replace(policy, rules=kept)
    shown = as_toml(policy)
    assert same(read(shown)) == same(policy)
    assert shown.isascii()
    assert all(line.isprintable() for line in shown.split("\n"))

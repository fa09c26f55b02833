"""The policy file: what it means, and what is refused, with which line."""

from __future__ import annotations

import os
import re
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from segment_health.level import FaultLevel
from segment_health.policy import schema
from segment_health.policy.assess import Policy
from segment_health.policy.content import MAX_CONTENT, PolicyError
from segment_health.policy.file import MAX_NODES, load, parse
from segment_health.policy.limits import ClearAfter, MaxNewExclusions
from segment_health.policy.pattern import Pattern
from segment_health.policy.rule import Rule
from segment_health.policy.schema import MAX_RULES
from segment_health.sources import node_names

_OK, _PRE, _SEPARATE = FaultLevel

EVERYTHING = (Path(__file__).parents[1] / "data/policy/everything.toml").read_text()


def read(text: str) -> Policy:
    """Read a policy file of this content."""
    return parse(text.encode(), "p.toml", node_names)


def refusal(text: str | bytes) -> PolicyError:
    """Return why a policy file is refused."""
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(PolicyError) as refused:
        parse(content, "p.toml", node_names)
    return refused.value


# ── what it means ──────────────────────────────────────────────────────────────────────────────────────────────


def test_every_key() -> None:
    """Each key of the file is a field of the policy; each rule knows where it stands."""
    assert read(EVERYTHING) == Policy(
        publish_at=_SEPARATE,
        name="p.toml",
        rules=(
            Rule(
                "planned maintenance",
                _OK,
                frozenset({"DRAIN", "FAIL"}),
                reason=Pattern("maintenance|reboot asap"),
                place="p.toml:6",
            ),
            Rule(
                "lab",
                None,
                reason=Pattern("(test)", literal=True),
                reason_users=frozenset({"alice", "bob"}),
                nodes=frozenset({"n01", "n02", "gpu7"}),
                hostlist="n[01-02],gpu7",
                partitions=frozenset({"lab"}),
                place="p.toml:12",
            ),
            Rule("quiet", _PRE, frozenset({"NOT_RESPONDING"}), min_duration=300, place="p.toml:20"),
        ),
        clear_after=ClearAfter(passes=3),
        max_new_exclusions=MaxNewExclusions(10, percent=True),
        hold_passes=5,
        digest=sha256(EVERYTHING.encode()).hexdigest()[:12],
    )


@pytest.mark.parametrize("text", ["\n# nothing\r\n", "rule = []"], ids=["comment", "no-rules"])
def test_an_empty_file_is_the_default(text: str) -> None:
    """It says nothing, so the contract's table holds."""
    assert replace(read(text), name="default", digest="") == Policy()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_new_exclusions = 4", MaxNewExclusions(4)),
        ('max_new_exclusions = "4"', MaxNewExclusions(4)),
        ("max_new_exclusions = 0", MaxNewExclusions(0)),
        ('max_new_exclusions = "10%"', MaxNewExclusions(10, percent=True)),
        ('max_new_exclusions = "off"', None),
    ],
    ids=["number", "text", "none-at-all", "percent", "off"],
)
def test_numbers_in_every_form(text: str, expected: MaxNewExclusions | None) -> None:
    """A number may be written as one or as a text."""
    assert read(text).max_new_exclusions == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [('"60s"', 60), ('"90"', 90), ("90", 90), ('"5m"', 300), ('"2 h"', 7200), ('"1d"', 86_400), ("0", 0)],
    ids=["seconds", "text", "number", "minutes", "hours", "days", "at-once"],
)
def test_times_in_every_form(told: str, expected: int) -> None:
    """A time is a number of seconds, or has a unit."""
    rule = f'[[rule]]\nname = "x"\nstate = "DRAIN"\nlevel = "SeparateFault"\nmin_duration = {told}'
    assert read(rule).rules[0].min_duration == expected


@pytest.mark.parametrize(
    "expression", ["^$", "^(maintenance)?$", r"^\w*$", "."], ids=["none", "or", "word", "any"]
)
def test_an_expression_that_is_found_in_no_reason_may_be_meant(expression: str) -> None:
    """Whoever anchors it speaks of nodes without a reason."""
    assert read(RULE + f"reason = '{expression}'").rules[0].reason == Pattern(expression)


def test_a_rule_that_looks_hidden_and_is_not() -> None:
    """UNKNOWN is judged by name only, and a rule that waits leaves room for no verdict."""
    first = '[[rule]]\nname = "a"\nnode = "n7"\nlevel = "NotHandleFault"\n'
    waits = '[[rule]]\nname = "a"\nstate = "DRAIN"\nlevel = "SeparateFault"\nmin_duration = "5m"\n'
    assert (
        len(read(first + '[[rule]]\nname = "b"\nnode = "n7"\nstate = "UNKNOWN"\nlevel = "SeparateFault"').rules)
        == 2
    )
    assert len(read(waits + '[[rule]]\nname = "b"\nstate = "DRAIN"\nlevel = "no-verdict"').rules) == 2


# ── what is refused ────────────────────────────────────────────────────────────────────────────────────────────

RULE = '[[rule]]\nname = "x"\nlevel = "SeparateFault"\n'  # and on line 4 what it asks for
DRAIN = RULE + 'state = "DRAIN"\n'
REFUSED: list[Any] = [
    pytest.param("publish_att = 1", 1, "unknown key 'publish_att'.*'publish_at'", id="key"),
    pytest.param("\n[publish]\nat = 1", 2, "unknown key 'publish'.*'publish_at'", id="table"),
    pytest.param("clear.after = 1", 1, "unknown key 'clear'.*'clear_after'", id="dotted-key"),
    pytest.param('[[rule]]\nname = "x"\nlevle = "x"', 3, "rule 'x': unknown key 'levle'.*'level'", id="rule-key"),
    pytest.param('[[rule]]\nnmae = "x"', 2, "rule 1: unknown key 'nmae'.*'name'", id="nameless-rule-key"),
    pytest.param(DRAIN + "[rule.more]\na = 1", 5, "unknown key 'more'", id="table-in-a-rule"),
    pytest.param(DRAIN + '"\\u0061ge" = 1', 5, "unknown key 'age'", id="escaped-key"),
    pytest.param('[[rules]]\nname = "x"', 1, "unknown key 'rules'.*'rule'", id="rules"),
    pytest.param('[rule]\nname = "x"', 1, "double brackets", id="single-brackets"),
    pytest.param("rule.x = 1", 1, "double brackets", id="dotted-rule"),
    pytest.param("\nrule = [\n1]", 3, "rule 1: ", id="rule-that-is-a-number"),
    pytest.param('publish_at = "SeparateFalt"', 1, "'SeparateFalt'.*'SeparateFault'", id="publish-at"),
    pytest.param('publish_at = "NotHandleFault"', 1, "publish_at: unknown level", id="publish-at-nothing"),
    pytest.param("publish_at = []", 1, "publish_at: ", id="publish-at-type"),
    pytest.param('\nclear_after = "0 passes"', 2, "clear_after: no pass at all", id="no-pass"),
    pytest.param('clear_after = "soon"', 1, "clear_after: neither passes", id="clear-after"),
    pytest.param("clear_after = 3", 1, "clear_after: not a text", id="clear-after-type"),
    pytest.param('clear_after = "9999d"', 1, "clear_after: longer than ten years", id="clear-after-long"),
    pytest.param('max_new_exclusions = "101%"', 1, "max_new_exclusions: neither", id="percent"),
    pytest.param("max_new_exclusions = -1", 1, "max_new_exclusions: neither", id="negative"),
    pytest.param("max_new_exclusions = true", 1, "max_new_exclusions: not a text", id="exclusions-type"),
    pytest.param("max_new_exclusions = 1.5", 1, "max_new_exclusions: not a text", id="exclusions-half"),
    pytest.param("hold_passes = 0", 1, "hold_passes: ", id="hold-none"),
    pytest.param("hold_passes = true", 1, "hold_passes: ", id="hold-type"),
    pytest.param('hold_passes = "3"', 1, "hold_passes: ", id="hold-text"),
    pytest.param('[[rule]]\nname = "x"\nstate = "DRAIN"', 1, "rule 'x': level is missing", id="no-level"),
    pytest.param('[[rule]]\nlevel = "no-verdict"', 1, "rule 1: name is missing", id="no-name"),
    pytest.param('[[rule]]\nname = "x"\nlevel = "Separate"', 3, "'Separate'.*'SeparateFault'", id="level"),
    pytest.param('[[rule]]\nname = "x"\nlevel = "noverdict"', 3, "'noverdict'.*'no-verdict'", id="no-verdict"),
    pytest.param('[[rule]]\nname = "x"\nlevel = 2', 3, "rule 'x': level: ", id="level-type"),
    pytest.param('[[rule]]\nname = ""', 2, "name is empty", id="empty-name"),
    pytest.param(f'[[rule]]\nlevel = "no-verdict"\nname = "{"x" * 81}"', 3, "name: .*80", id="long-name"),
    pytest.param('[[rule]]\nlevel = "no-verdict"\nname = "\\u001b[2J"', 3, "control characters", id="unprintable"),
    pytest.param(RULE, 1, "rule 'x': it asks for nothing", id="no-condition"),
    pytest.param(RULE + "min_duration = 60", 1, "it asks for nothing", id="time-alone"),
    pytest.param(RULE + "state = []", 4, "state is empty", id="no-state"),
    pytest.param(RULE + 'state = ""', 4, "state is empty", id="empty-state"),
    pytest.param(RULE + 'state = [\n"DRAIN",\n"DRAYN"]', 6, "unknown state 'DRAYN'.*'DRAIN'", id="state"),
    pytest.param(RULE + "state = 3", 4, "state: ", id="state-type"),
    pytest.param(RULE + 'state = ["DRAIN", 3]', 4, "state: ", id="state-type-in-a-list"),
    pytest.param(RULE + 'state = "draining"', 4, "'draining' is how Slurm prints it.*'DRAIN'", id="draining"),
    pytest.param(RULE + 'state = "DRAINED"', 4, "the state holds 'DRAIN'", id="drained"),
    pytest.param(RULE + 'state = "FAILING"', 4, "the state holds 'FAIL'", id="failing"),
    pytest.param(RULE + 'state = "MAINT"', 4, "the state holds 'MAINTENANCE'", id="maint"),
    pytest.param(RULE + 'state = "NO_RESPOND"', 4, "the state holds 'NOT_RESPONDING'", id="no-respond"),
    pytest.param(RULE + 'state = "DOWN*"', 4, "unknown state 'DOWN\\*'.*'DOWN'", id="suffix"),
    pytest.param(RULE + 'reason = ""', 4, "reason is empty", id="empty-reason"),
    pytest.param(RULE + 'reason = "("', 4, r"reason: missing \)", id="expression"),
    pytest.param(RULE + 'reason = "(a{100}){10}"', 4, "reason: becomes .* instructions", id="large-expression"),
    pytest.param(RULE + 'reason = "a*"', 4, "found in every reason", id="finds-the-empty-text"),
    pytest.param(RULE + 'reason = "^.*$"', 4, "found in every reason", id="finds-all"),
    pytest.param(RULE + 'reason = "(?P<n>a)|"', 4, "found in every reason", id="empty-alternative"),
    pytest.param(RULE + 'reason = "a"\nreason_literal = "b"', 5, "exclude each other", id="two-reasons"),
    pytest.param(RULE + "reason = 3", 4, "reason: ", id="reason-type"),
    pytest.param(RULE + 'reason_literal = ""', 4, "reason_literal is empty", id="empty-literal"),
    pytest.param(RULE + "reason_user = []", 4, "reason_user is empty", id="no-user"),
    pytest.param(RULE + 'reason_user = ["a", ""]', 4, "reason_user is empty", id="empty-user"),
    pytest.param(RULE + 'partition = ""', 4, "partition is empty", id="empty-partition"),
    pytest.param(RULE + "node = []", 4, "node is empty", id="no-node"),
    pytest.param(RULE + 'node = "n[1-"', 4, "node: not a hostlist", id="hostlist"),
    pytest.param(RULE + 'node = "@all"', 4, "node: not a hostlist", id="group"),
    pytest.param(RULE + 'node = " "', 4, "node: ' ' names no node", id="blank-node"),
    pytest.param(RULE + 'node = ["n1", "(null)"]', 4, "node: '\\(null\\)' names no node", id="null-node"),
    pytest.param(RULE + 'node = "None"', 4, "node: 'None' names no node", id="none-node"),
    pytest.param(DRAIN + 'min_duration = ""', 5, "min_duration: not a time", id="empty-time"),
    pytest.param(DRAIN + 'min_duration = "1 week"', 5, "min_duration: not a time", id="time"),
    pytest.param(DRAIN + "min_duration = true", 5, "min_duration: not a text or a whole number", id="time-type"),
    pytest.param(DRAIN + "min_duration = 1.5", 5, "min_duration: not a text or a whole number", id="half-seconds"),
    pytest.param(DRAIN + "min_duration = -5", 5, "min_duration: not a time", id="negative-time"),
    pytest.param(DRAIN + 'min_duration = "9999d"', 5, "min_duration: longer than ten years", id="long-time"),
    pytest.param(
        DRAIN.replace("SeparateFault", "NotHandleFault") + "min_duration = 5",
        5,
        "nothing to wait for",
        id="waits-for-ok",
    ),
    pytest.param(
        DRAIN.replace("SeparateFault", "no-verdict") + "min_duration = 5",
        5,
        "nothing to wait for",
        id="waits-for-none",
    ),
    pytest.param(DRAIN + DRAIN, 6, "a second rule 'x'; the first: p.toml:1", id="same-name"),
    pytest.param(
        DRAIN + DRAIN.replace('"x"', '"y"'),
        5,
        r"rule 'y' never has a say: rule 'x' \(p.toml:1\) comes first",
        id="hidden",
    ),
    pytest.param("x = 1\r\n\r\n[[rule]]\r\n", 1, "unknown key 'x'", id="crlf"),
    pytest.param(DRAIN.replace("\n", "\r\n") + "age = 1", 5, "unknown key 'age'", id="crlf-in-a-rule"),
    pytest.param("a = 1\nb = ", 2, "not TOML: Invalid value", id="no-toml"),
    pytest.param("a = 1\na = 2", 2, "not TOML: Cannot overwrite", id="twice"),
    pytest.param("a = " + "[" * 5000, None, "not TOML", id="deep"),
    pytest.param(b"a = 1\n\nb = \xff", 3, "not TOML: .*utf-8", id="no-text"),
    pytest.param('clear_after = "3"', 1, "neither passes", id="clear-after-what"),
    pytest.param("", None, "empty: a policy that says nothing", id="empty"),
    pytest.param(" \n\n", None, "empty: a policy that says nothing", id="blank"),
    pytest.param("\ufeffhold_passes = 3", 1, "begins with a byte order mark", id="byte-order-mark"),
    pytest.param("# ok\nhold_passes = 3\0", 2, "not TOML: ", id="nul"),
    pytest.param(RULE + 'reason = "\\ud800"', 4, "not TOML: .*Unicode scalar", id="half-a-character"),
    pytest.param("hold_passes = " + "1" * 5000, None, "not TOML: Exceeds the limit", id="endless-number"),
    pytest.param(
        "hold_passes = 0x" + "f" * 5000, 1, "hold_passes: .*less than or equal", id="endless-hexadecimal"
    ),
    pytest.param("hold_passes = 1000001", 1, "hold_passes: .*less than or equal to 1000000", id="hold-for-ever"),
    pytest.param("hold_passes = nan", 1, "hold_passes: ", id="hold-nan"),
    pytest.param("publish_at = 0x" + "f" * 5000, 1, "publish_at: not a text", id="publish-at-endless"),
    pytest.param("publish_at = 1979-05-27", 1, "publish_at: not a text", id="publish-at-date"),
    pytest.param("publish_at = [0x" + "f" * 5000 + "]", 1, "publish_at: not a text", id="publish-at-list"),
    pytest.param("max_new_exclusions = 0x" + "f" * 5000, 1, "max_new_exclusions: ", id="exclusions-endless"),
    pytest.param("max_new_exclusions = inf", 1, "max_new_exclusions: not a text", id="exclusions-inf"),
    pytest.param("clear_after = {passes = 3}", 1, "clear_after: not a text", id="clear-after-table"),
    pytest.param(RULE + "state = 1979-05-27T07:32:00Z", 4, "state: ", id="state-date"),
    pytest.param(RULE + 'state = {a = "DRAIN"}', 4, "state: ", id="state-table"),
    pytest.param(RULE + 'state = [["DRAIN"]]', 4, "state: ", id="state-list-of-lists"),
    pytest.param(RULE + "reason = true", 4, "reason: ", id="reason-true"),
    pytest.param(RULE + 'reason_literal = ["a"]', 4, "reason_literal: ", id="literal-list"),
    pytest.param(RULE + "node = 7", 4, "node: ", id="node-type"),
    pytest.param(RULE + "partition = [1.5]", 4, "partition: ", id="partition-type"),
    pytest.param(RULE + 'reason_usr = "root"', 4, "unknown key 'reason_usr'.*'reason_user'", id="user-key"),
    pytest.param(DRAIN + "min_duration = 1979-05-27", 5, "min_duration: not a text", id="time-date"),
    pytest.param(DRAIN + "min_duration = {m = 5}", 5, "min_duration: not a text", id="time-table"),
    pytest.param(
        DRAIN + DRAIN.replace('"x"', '"y"') + "min_duration = 60",
        5,
        "rule 'y' never has a say",
        id="hidden-waiting",
    ),
    pytest.param(
        DRAIN + "min_duration = 600\n" + DRAIN.replace('"x"', '"y"') + "min_duration = 60",
        6,
        "rule 'y' never has a say",
        id="hidden-as-bad-meanwhile",
    ),
    pytest.param("\n" + "a." * 16 + "a = 1", 2, "a key of more than 16 parts", id="many-parts"),
    pytest.param('"a#" . ' * 16 + "'b' = 1", 1, "a key of more than 16 parts", id="many-quoted-parts"),
    pytest.param("x = 1 # a\n[" + "a." * 100_000 + "a]", 2, "a key of more than 16 parts", id="deep-header"),
    pytest.param("a = {" + ".".join("b" * 20_000) + " = 1}", 1, "a key of more than 16 parts", id="deep-inline"),
    pytest.param(b"#" * (MAX_CONTENT + 1), None, "larger than", id="large"),
]


@pytest.mark.parametrize(("text", "line", "problem"), REFUSED)
def test_what_is_refused(text: str | bytes, line: int | None, problem: str) -> None:
    """The file, the line, and what to write instead; in one line that any terminal can show."""
    refused = refusal(text)
    assert (refused.path, refused.line) == ("p.toml", line)
    assert re.search(problem, refused.problem)
    assert str(refused) == ("p.toml: " if line is None else f"p.toml:{line}: ") + refused.problem
    assert str(refused).isprintable()


def test_a_misspelt_key_is_named_before_what_is_missing_because_of_it() -> None:
    """Whoever writes `levle` is told so, not that `level` is missing."""
    assert "levle" in refusal('[[rule]]\nname = "x"\nstate = "DRAIN"\nlevle = "SeparateFault"').problem


def test_dots_of_texts_and_comments_are_no_parts_of_a_key() -> None:
    """Whatever a reason or a comment says, only keys are counted."""
    dots = ".".join("a" * 100)
    text = f"# {dots}\n{RULE}state = 'DRAIN' # don't {dots}\nreason = '{dots}'\n"
    assert read(text).rules[0].reason == Pattern(dots)
    assert read(f'{RULE}reason_literal = "\\" {dots} \\""').rules[0].reason == Pattern(f'" {dots} "', literal=True)


def test_a_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can hold a hundred thousand wrong words, and each search takes part of a millisecond."""
    asked: list[str] = []

    def nearest(word: str, _: object) -> str:
        asked.append(word)
        return ""

    monkeypatch.setattr(schema, "_nearest", nearest)
    wrong = "'drayn', " * 1000
    refusal(f"{RULE}state = [{wrong}]\n" + DRAIN.replace("SeparateFault", "bad"))
    assert asked == ["DRAYN"]


def test_one_wrong_element_of_a_list_says_enough() -> None:
    """Of 20,000 wrong words the first is told, and what is said of them all never stands in memory."""
    states = ", ".join(['"QQQQ"'] * 20_000)
    tracemalloc.start()
    try:
        with pytest.raises(PolicyError, match="unknown state 'QQQQ'"):
            parse(f'[[rule]]\nname = "x"\nlevel = "SeparateFault"\nstate = [{states}]\n'.encode(), "p", node_names)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_key_of_a_million_parts() -> None:
    """It is refused after the first of them that are too many: all of them never stand in memory."""
    tracemalloc.start()
    try:
        with pytest.raises(PolicyError, match="a key of more than 16 parts"):
            parse(b"a" + b".a" * 500_000 + b" = 1\n", "p", node_names)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_too_many_rules() -> None:
    """The line is that of the first rule that is too many."""
    rules = [f'[[rule]]\nname = "{n}"\nnode = "n{n}"\nlevel = "no-verdict"\n' for n in range(MAX_RULES + 1)]
    assert len(read("".join(rules[:-1])).rules) == MAX_RULES
    refused = refusal("".join(rules))
    assert (refused.line, refused.problem) == (4 * MAX_RULES + 1, f"more than {MAX_RULES} rules")


def test_too_many_nodes() -> None:
    """A short text can name many nodes: they are counted over all rules."""
    rules = [f'[[rule]]\nname = "{n}"\nnode = "c{n}n[0-65535]"\nlevel = "no-verdict"\n' for n in range(5)]
    assert sum(len(rule.nodes) for rule in read("".join(rules[:4])).rules) == MAX_NODES
    refused = refusal("".join(rules))
    assert refused.line == 19
    assert "more than 262144 nodes" in refused.problem


def test_a_long_quotation_is_cut() -> None:
    """What is said of a file goes into logs and heartbeats, so it is short whatever the file says."""
    assert len(str(refusal("x" * 100_000 + " = 1"))) < 600
    assert len(str(refusal(RULE + f"state = '{'x' * 100_000}'"))) < 600


@pytest.mark.parametrize("text", ['reason = "[a\\n"', 'node = "a\\u001b"', 'partition = ["\\u0007", ""]'])
def test_what_is_quoted_is_escaped(text: str) -> None:
    """A control character of the file does not reach the terminal by its refusal."""
    assert str(refusal(RULE + text)).isprintable()


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_read(tmp_path: Path) -> None:
    """The policy is called what the file was called."""
    path = tmp_path / "p.toml"
    path.write_text(EVERYTHING)
    found = load(str(path), node_names)
    assert (found.name, found.rules[0].place) == (str(path), f"{path}:6")
    assert str(found) == f"{path} sha256:{sha256(EVERYTHING.encode()).hexdigest()[:12]}"
    (tmp_path / "link").symlink_to(path)
    assert load(str(tmp_path / "link"), node_names).digest == found.digest


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """What is no file, or holds up whoever reads it, is refused at once; nothing stays open."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * (MAX_CONTENT + 1))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    problems = {
        str(tmp_path / "missing"): "No such file",
        str(tmp_path): "Is a directory",
        str(tmp_path / "fifo"): "not a regular file",
        str(tmp_path / "loop"): "Too many levels",
        str(tmp_path / "large"): "larger than",
        str(tmp_path / "large/x"): "Not a directory",
        "/dev/zero": "not a regular file",
        f"{tmp_path}\0": "null",
        "": "No such file",
    }
    before = len(os.listdir("/proc/self/fd"))
    for path, problem in problems.items():
        with pytest.raises(PolicyError, match=problem) as refused:
            load(path, node_names)
        assert refused.value.line is None
        assert str(refused.value).isprintable()
        del refused
    assert len(os.listdir("/proc/self/fd")) == before

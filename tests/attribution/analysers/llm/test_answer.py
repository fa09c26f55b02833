"""What of a model's answer is believed: lines that are there, and nodes that these name."""

from __future__ import annotations

import json

import pytest

from segment_health.attribution.analysers.finding import Action, Line
from segment_health.attribution.analysers.llm.answer import Claim, NoClaimError, read, schema
from segment_health.attribution.analysers.llm.prompt import Shown

TEXTS = {
    1: "step 5",
    2: "n042:  NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    3: "srun: error: Node failure on gpu-b7.site.example.",
    4: "RuntimeError: odd thing on 10.0.0.7 and rank 3",
}
SHOWN = {number: Shown(Line(number + 100, text), text) for number, text in TEXTS.items()}


def answer(*quotes: tuple[int, str], action: str = "RESTART", nodes: tuple[str, ...] = (), **more: object) -> str:
    """Write an answer with these quotes."""
    evidence = [{"line": line, "text": text} for line, text in quotes]
    told = {"category": "gpu", "action": action, "reason": "r", "evidence": evidence, "nodes": list(nodes)}
    return json.dumps({**told, **more})


def claim(content: str) -> Claim:
    """Read an answer about these lines."""
    return read(content, SHOWN, ("gpu", "network", "unknown"))


@pytest.mark.parametrize(
    ("line", "text", "is_believed"),
    [
        pytest.param(1, "step 5", True, id="whole"),
        pytest.param(
            2, "  n042: NVRM: Xid (PCI:0000:1b:00):\t79, GPU has fallen off the bus. ", True, id="blanks"
        ),
        pytest.param(2, "GPU has fallen off the bus.", True, id="part"),
        pytest.param(2, "Xid", False, id="short-part"),
        pytest.param(1, "step", False, id="part-of-a-short-line"),
        pytest.param(2, "gpu has fallen off the bus.", False, id="other-case"),
        pytest.param(2, "GPU has fallen off the bus!", False, id="other-end"),
        pytest.param(
            2, "n042: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus. STOP", False, id="more"
        ),
        pytest.param(3, TEXTS[2], False, id="another-line"),
        pytest.param(0, TEXTS[1], False, id="zero"),
        pytest.param(-1, TEXTS[1], False, id="negative"),
        pytest.param(102, TEXTS[2], False, id="number-in-the-file"),
        pytest.param(10**30, TEXTS[1], False, id="absurd"),
        pytest.param(1, "", False, id="empty"),
        pytest.param(1, " ", False, id="blank"),
    ],
)
def test_a_quote_is_verified(line: int, text: str, is_believed: bool) -> None:
    """By number and text, blanks apart; what is not there is dropped."""
    content = answer((line, text), (4, TEXTS[4]))
    expected = [number for number in SHOWN if number == 4 or (is_believed and number == line)]
    assert claim(content).evidence == tuple(SHOWN[number].line for number in sorted(expected))


def test_evidence_is_in_the_order_of_the_log() -> None:
    """However often and in which order a model quotes a line."""
    content = answer((4, TEXTS[4]), (1, TEXTS[1]), (4, TEXTS[4]))
    assert [line.number for line in claim(content).evidence] == [101, 104]


@pytest.mark.parametrize(
    ("nodes", "blamed"),
    [
        pytest.param(("n042",), ("n042",), id="named"),
        pytest.param(("n042", "n042"), ("n042",), id="twice"),
        pytest.param(("gpu-b7",), (), id="in-a-line-that-is-not-quoted"),
        pytest.param(("n04", "042", "N042", "n042 ", "", "n[042-043]"), (), id="nearly"),
        pytest.param(("Xid", "GPU", "bus", "PCI"), (), id="words"),
        pytest.param(("0000", "79", "00", "1"), (), id="numbers"),
    ],
)
def test_a_node_is_blamed_where_a_quoted_line_names_it(nodes: tuple[str, ...], blamed: tuple[str, ...]) -> None:
    """Whole, and as it stands there."""
    assert claim(answer((2, TEXTS[2]), nodes=nodes)).nodes == blamed


def test_a_node_may_be_named_with_its_domain() -> None:
    """Slurm's name of it is the first part."""
    assert claim(answer((3, TEXTS[3]), nodes=("gpu-b7", "gpu-b7.site.example"))).nodes == (
        "gpu-b7",
        "gpu-b7.site.example",
    )


def test_an_address_is_no_node() -> None:
    """Slurm knows nodes by names."""
    assert claim(answer((4, TEXTS[4]), nodes=("10.0.0.7", "rank", "3"))).nodes == ()


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        " \n{}\n ",
        "```json\n{}\n```",
        "```\n{}```",
        "<think>STOP? {{}}\n</think>\n\n{}",
        "<think>a</think>```json\n{}\n```",
    ],
)
def test_what_models_put_around_an_answer(around: str) -> None:
    """Thoughts and a fence are taken off."""
    assert claim(around.format(answer((1, TEXTS[1])))).action is Action.RESTART


@pytest.mark.parametrize(
    "content",
    [
        "Here it is: {}",
        "{}\n{}",
        "<think>{}",
        "```json\n{}\n``` and so on",
        "```json\n{}\n```\n```json\n{}\n```",
    ],
)
def test_what_is_not_only_an_answer_is_none(content: str) -> None:
    """An answer is not looked for in a text: a log that is quoted in it may hold one."""
    with pytest.raises(NoClaimError, match="no JSON object"):
        claim(content.format(*[answer((1, TEXTS[1]))] * 2))


def test_a_key_that_is_said_twice() -> None:
    """Which of both counts nobody can tell."""
    content = answer((1, TEXTS[1])).replace('"action"', '"action": "UNKNOWN", "action"')
    with pytest.raises(NoClaimError, match="no JSON object"):
        claim(content)


def test_a_category_that_nobody_knows_is_unknown() -> None:
    """The words are those of the rules."""
    assert claim(answer((1, TEXTS[1]), category="magic")).category == "unknown"


def test_no_verdict_needs_no_evidence() -> None:
    """Whoever does not know has nothing to show."""
    assert claim(answer(action="UNKNOWN")) == (Action.UNKNOWN, "gpu", "r", (), ())


def test_a_reason_is_one_line_that_can_be_shown() -> None:
    """What a terminal would act upon is escaped, and what is long is cut."""
    reason = claim(answer((1, TEXTS[1]), reason="a\n\x1b[31mb  c\u202e " + "x" * 3000)).reason
    assert reason.startswith("a \\x1b[31mb c\\u202e xx")
    assert len(reason) < 450


@pytest.mark.parametrize("content", ["[]", "3", "null", "NaN", '"STOP"', "{}", "[" * 5000])
def test_json_that_is_no_answer(content: str) -> None:
    """Nothing else is raised, whatever it is."""
    with pytest.raises(NoClaimError):
        claim(content)


def test_the_schema_closes_every_object() -> None:
    """Servers that enforce one want all keys, and no others."""
    told = schema(["gpu", "unknown"])
    assert told["required"] == ["category", "action", "reason", "evidence", "nodes"]
    assert told["properties"]["action"]["enum"] == ["STOP", "RESTART", "UNKNOWN"]
    assert told["properties"]["category"]["enum"] == ["gpu", "unknown"]
    for each in (told, told["properties"]["evidence"]["items"]):
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])

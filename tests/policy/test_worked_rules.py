"""The worked rules of docs/policy.md, each with the table that says what it makes of a node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from segment_health.policy.assess import Policy
from segment_health.policy.file import parse
from segment_health.sources import node_names
from slurm.node import Node, parse_state

PAGE = (Path(__file__).parents[2] / "docs/policy.md").read_text()
NOW = 1_796_000_000


def worked_rules() -> dict[str, tuple[str, list[dict[str, str]]]]:
    """Return each rule's TOML and its table, by the heading above them."""
    _, _, chapter = PAGE.partition("\n## Ten rules that sites use\n")
    sections = re.split(r"^### ", chapter.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    found: dict[str, tuple[str, list[dict[str, str]]]] = {}
    for section in sections:
        heading = section.partition("\n")[0]
        (code,) = re.findall(r"^```toml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        head, _, *rows = [
            [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for line in section.splitlines()
            if line.startswith("|")
        ]
        found[heading] = (code, [dict(zip(head, row, strict=True)) for row in rows])
    return found


RULES = worked_rules()
ROWS: list[Any] = [
    pytest.param(code, row, id=f"{heading}-{number}")
    for heading, (code, rows) in RULES.items()
    for number, row in enumerate(rows)
]


def test_there_are_ten() -> None:
    """Ten headings, each with a rule and what it does."""
    assert len(RULES) == 10
    assert all(len(rows) >= 3 for _, rows in RULES.values())


@pytest.mark.parametrize(("code", "row"), ROWS)
def test_a_worked_rule(code: str, row: dict[str, str]) -> None:
    """The rule gives the node the level that the page says."""
    policy = parse(code.encode(), "policy.md", node_names)
    lasting = int(row.get("lasting", "0 s").removesuffix(" s"))
    base, flags = parse_state(row["state"])
    node = Node(
        row.get("node", "n1"), base, flags, row.get("reason") or None, row.get("user", "root"), NOW - lasting
    )
    seen = {(node.name, word): NOW - lasting for word in (base, *flags)}
    told = policy.assess(node, partitions={row.get("partition", "batch")}, seen=seen, now=NOW)
    assert ("no verdict" if told.level is None else told.level.name) == row["level"]


def test_each_worked_rule_is_needed() -> None:
    """Without the rule at least one row of its table would read otherwise: the table can fail."""
    for heading, (_, rows) in RULES.items():
        levels = [Policy().assess(Node("n1", *parse_state(row["state"]))).level for row in rows]
        assert [level.name if level else "NotHandleFault" for level in levels] != [row["level"] for row in rows], (
            heading
        )


def test_all_of_them_go_together() -> None:
    """One file may hold all ten: none hides another, and no name is used twice."""
    together = "\n".join(code for code, _ in RULES.values())
    assert len(parse(together.encode(), "policy.md", node_names).rules) == together.count("[[rule]]")

"""One node's row of sinfo: read whatever its reason says, and refused where it is not whole, or another's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from slurm.commands.node import node_of, parse_node
from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.node import Node

if TYPE_CHECKING:
    from tests.conftest import FakeSlurm

IDLE = b"n1|idle|Unknown|Unknown|none|\n"
DRAINED = b"n1|idle+drain|2026-11-30T16:42:00|root|bad fan|\n"
SINCE = 1796056920


@pytest.mark.parametrize(
    ("answer", "node"),
    [
        pytest.param(IDLE, Node("n1", "IDLE"), id="idle"),
        pytest.param(DRAINED, Node("n1", "IDLE", frozenset({"DRAIN"}), "bad fan", "root", SINCE), id="drained"),
        pytest.param(IDLE * 3, Node("n1", "IDLE"), id="three-partitions"),
        pytest.param(
            DRAINED * 2, Node("n1", "IDLE", frozenset({"DRAIN"}), "bad fan", "root", SINCE), id="two-drained"
        ),
        pytest.param(
            DRAINED.replace(b"bad fan", b"a|b\nn1|idle|Unknown|Unknown|none|\nc"),
            Node("n1", "IDLE", frozenset({"DRAIN"}), "a|b n1|idle|Unknown|Unknown|none| c", "root", SINCE),
            id="forged-row-in-a-reason",
        ),
        pytest.param(
            DRAINED.replace(b"2026-11-30T16:42:00", b"Unknown").replace(b"fan", b"\xff"),
            Node("n1", "IDLE", frozenset({"DRAIN"}), r"bad \xff", "root", None),
            id="no-time",
        ),
        pytest.param(
            b"n1|mixed+fail+not_responding|2026-11-30T16:42:00|slurm|x|\n",
            Node("n1", "MIXED", frozenset({"FAIL", "NOT_RESPONDING"}), "x", "slurm", SINCE),
            id="flags",
        ),
    ],
)
def test_a_row(answer: bytes, node: Node) -> None:
    """The state and all its flags are those before the first reason."""
    assert parse_node(answer, "n1") == node


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "no node n1"),
        (IDLE.replace(b"n1", b"n2"), "asked for n1, and was told of "),
        (IDLE[:-1], "half of one"),
        (b"n1|idle|\n", "half of one"),
        (b"sinfo: error\n", "half of one"),
        (IDLE.replace(b"idle", b"id le"), "n1: "),
    ],
    ids=["empty", "another", "cut", "fields", "nonsense", "state"],
)
def test_what_is_no_answer(answer: bytes, complaint: str) -> None:
    """Half an answer says nothing of a node."""
    with pytest.raises(SlurmProtocolError, match=re.escape(complaint)):
        parse_node(answer, "n1")


def test_the_question(fake_slurm: FakeSlurm) -> None:
    """One command, and in it one name."""
    fake_slurm.answers("nodes", DRAINED)
    assert node_of("n1", fake_slurm.commands(10)).state == ("IDLE", "DRAIN")
    (call,) = fake_slurm.calls()
    assert call[:6] == ["sinfo", "--all", "--local", "--noheader", "--Node", "--nodes=n1"]


@pytest.mark.parametrize("name", ["", "n[1-2]", "n1,n2", "n1 n2", "-n", "@all"])
def test_what_is_no_name_is_not_asked(fake_slurm: FakeSlurm, name: str) -> None:
    """A hostlist would fetch the table of all nodes."""
    if name == "-n":  # `--nodes=-n` is a name like any other
        fake_slurm.answers("nodes", b"")
    with pytest.raises(SlurmProtocolError):
        node_of(name, fake_slurm.commands(10))
    assert bool(fake_slurm.calls()) is (name == "-n")


def test_a_command_that_hangs(fake_slurm: FakeSlurm) -> None:
    """It is killed, and nothing is known."""
    fake_slurm.does("nodes", "sleep 60")
    fake_slurm.answers("nodes", IDLE)
    with pytest.raises(SlurmUnavailable, match="no answer within"):
        node_of("n1", fake_slurm.commands(0.3))

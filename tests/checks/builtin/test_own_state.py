"""`slurm`: one node's state by the policy, and that what is not known is no verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.builtin import own_state
from segment_health.checks.builtin.answer import Unknown
from segment_health.checks.builtin.settings import Builtin
from segment_health.policy.assess import Policy
from segment_health.policy.file import parse
from segment_health.sources import node_names
from slurm.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeSlurm

NOW = 10_000
DRAIN = frozenset({"DRAIN"})


def policy(text: str) -> Policy:
    """Return the policy that a file is."""
    return parse(text.encode(), "policy.toml", node_names)


PATIENT = policy('[[rule]]\nname = "wait"\nstate = "DRAIN"\nlevel = "PreSeparateFault"\nmin_duration = "10m"\n')
ELSEWHERE = policy('[[rule]]\nname = "debug"\nstate = "DRAIN"\nlevel = "NotHandleFault"\npartition = "debug"\n')
LENIENT = policy('publish_at = "SeparateFault"\n')


@pytest.mark.parametrize(
    ("node", "by", "problem"),
    [
        pytest.param(Node("n1", "IDLE"), Policy(), "", id="idle"),
        pytest.param(
            Node("n1", "MIXED", DRAIN, "bad fan", "root", 1),
            Policy(),
            "n1 is MIXED+DRAIN, PreSeparateFault by state:DRAIN; reason: bad fan",
            id="draining",
        ),
        pytest.param(Node("n1", "DOWN"), Policy(), "n1 is DOWN, SeparateFault by state:DOWN", id="down"),
        pytest.param(Node("n1", "MIXED", DRAIN), LENIENT, "", id="below-the-threshold"),
        pytest.param(
            Node("n1", "DOWN"), LENIENT, "n1 is DOWN, SeparateFault by state:DOWN", id="at-the-threshold"
        ),
        pytest.param(
            Node("n1", "UNKNOWN", DRAIN),
            Policy(),
            "n1 is UNKNOWN+DRAIN, PreSeparateFault by state:DRAIN",
            id="restarted",
        ),
        pytest.param(Node("n1", "IDLE", DRAIN, "x", "root", NOW - 600), PATIENT, "by rule:wait", id="has-waited"),
        pytest.param(Node("n1", "IDLE"), ELSEWHERE, "", id="partition-that-does-not-matter"),
    ],
)
def test_a_verdict(node: Node, by: Policy, problem: str) -> None:
    """From publish_at on the node is unhealthy, and the sentence says why and by which rule."""
    finding = own_state.judge(node, by, NOW)
    assert finding.is_healthy is not bool(problem)
    assert problem in "".join(finding.problems)
    assert finding.remarks == ()


@pytest.mark.parametrize(
    ("node", "by", "why"),
    [
        (Node("n1", "UNKNOWN"), Policy(), "n1 is UNKNOWN, of which there is no verdict"),
        (Node("n1", "SHINY"), Policy(), "n1 is SHINY, of which there is no verdict"),
        (Node("n1", "IDLE", DRAIN, "x", "root", NOW - 599), PATIENT, "no verdict (rule:wait)"),
        (Node("n1", "IDLE", DRAIN), PATIENT, "no verdict (rule:wait)"),
        (Node("n1", "IDLE", DRAIN), ELSEWHERE, "a rule asks for the partition"),
    ],
    ids=["unknown", "unheard-of", "waits", "waits-without-a-time", "partition"],
)
def test_no_verdict_is_unknown(node: Node, by: Policy, why: str) -> None:
    """Neither healthy nor not."""
    with pytest.raises(Unknown, match=re.escape(why)):
        own_state.judge(node, by, NOW)


def test_a_flag_that_nobody_knows_is_remarked() -> None:
    """Beside a base that is understood it changes nothing."""
    finding = own_state.judge(Node("n1", "IDLE", frozenset({"SHINY"})), Policy(), NOW)
    assert finding == ((), ("n1 shows flags that nobody knows: SHINY",))


@pytest.mark.parametrize(
    ("environ", "name", "asked"),
    [
        ({"SLURMD_NODENAME": "n7"}, "n8", "n7"),
        ({}, "n8", "n8"),
        ({"SLURMD_NODENAME": ""}, None, None),
    ],
    ids=["job", "configured", "host"],
)
def test_whom_it_asks_about(
    fake_slurm: FakeSlurm, environ: dict[str, str], name: str | None, asked: str | None
) -> None:
    """Slurmd's name for the node, else the configured one, else the host's: and of that one alone."""
    fake_slurm.answers("nodes", b"")
    told = Builtin(node_name=name, slurm_bin_dir=f"{fake_slurm.directory}/bin")
    environ |= {"FAKE": str(fake_slurm.directory), "PATH": "/usr/bin:/bin"}
    with pytest.raises(Unknown, match=f"the state of {asked or ''}.*: sinfo: no node"):
        own_state.look(told, Policy(), environ, 10, NOW)
    (call,) = fake_slurm.calls()
    if asked:
        assert f"--nodes={asked}" in call


def test_the_policy_in_force(tmp_path: Path) -> None:
    """The file, if there is one, and the key before it."""
    assert own_state.policy_of(Builtin()) == Policy()
    path = tmp_path / "policy.toml"
    path.write_text('publish_at = "SeparateFault"\n')
    assert own_state.policy_of(Builtin(policy=str(path))).publish_at.name == "SeparateFault"
    told = Builtin(policy=str(path), publish_at="PreSeparateFault")
    assert own_state.policy_of(told).publish_at.name == "PreSeparateFault"

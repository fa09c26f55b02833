"""`slurm`: what Slurm says of this node, by the policy.

It has no memory: how long a fault has lasted is told by the time at which Slurm wrote its reason down. Where Slurm
wrote none, a rule with `min_duration` waits for ever, which is no verdict. Rules about partitions ask whose job
holds the node, which is not known here: where they decide, there is no verdict either.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from segment_health import sources
from segment_health.checks.health_check import Finding
from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy

from .answer import Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.node import Node

    from .settings import Builtin


def policy_of(told: Builtin) -> Policy:
    """Return the policy that is in force. Raises PolicyError."""
    policy = Policy()
    if told.policy is not None:
        from segment_health.policy.file import load  # noqa: PLC0415 - pydantic and google-re2

        policy = load(told.policy, sources.node_names)
    if told.publish_at is not None:
        policy = replace(policy, publish_at=FaultLevel[told.publish_at])
    return policy


def look(told: Builtin, policy: Policy, environ: Mapping[str, str], seconds: float, now: int) -> Finding:
    """Ask for this node alone, and judge it. Raises Unknown."""
    name = environ.get("SLURMD_NODENAME") or told.node_name or socket.gethostname().partition(".")[0]
    access = sources.Access(
        timeout=seconds,
        environ=environ,
        slurm_conf=told.slurm_conf,
        commands_directory=told.slurm_bin_dir,
    )
    try:
        node = sources.ask_node(name, access)
    except sources.SourceUnknown as unknown:
        raise Unknown(f"the state of {name}: {unknown}") from unknown
    return judge(node, policy, now)


def judge(node: Node, policy: Policy, now: int) -> Finding:
    """Call a node unhealthy from the policy's `publish_at` on. Raises Unknown where it has no verdict."""
    seen = policy.first_seen(node, {}, previous_pass=None, now=now)
    every = frozenset[str]().union(*(rule.partitions for rule in policy.rules))
    told = policy.assess(node, seen=seen, now=now)
    state = "+".join(node.state)
    is_bad = told.level is not None and told.level >= policy.publish_at
    if every:
        other = policy.assess(node, partitions=every, seen=seen, now=now)
        if (other.level, other.final) != (told.level, told.final):
            raise Unknown(f"{node.name} is {state}, and a rule asks for the partition, which is not known here")
    if is_bad:
        assert told.level is not None
        reason = f"; reason: {node.reason}" if node.reason else ""
        return Finding((f"{node.name} is {state}, {told.level.name} by {told.rule}{reason}",))
    if not told.final:
        raise Unknown(f"{node.name} is {state}, of which there is no verdict ({told.rule})")
    if told.unknown:
        return Finding(remarks=(f"{node.name} shows flags that nobody knows: {', '.join(sorted(told.unknown))}",))
    return Finding()

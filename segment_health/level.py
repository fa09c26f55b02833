"""Fault levels and node status of seed 002 (NodeD): how bad a fault is, and what a node is called for it."""

from __future__ import annotations

from enum import Enum, IntEnum


class FaultLevel(IntEnum):
    """How bad a fault is; a node's level is the highest of its faults, a unit's the highest of its nodes."""

    NotHandleFault = 0
    """No effect on jobs."""
    PreSeparateFault = 1
    """A running job is left alone; the node is not to be used again."""
    SeparateFault = 2
    """A job on the node is surely affected."""


class NodeStatus(Enum):
    """What a node is called, by its highest fault level."""

    Healthy = FaultLevel.NotHandleFault
    PreSeparate = FaultLevel.PreSeparateFault
    UnHealthy = FaultLevel.SeparateFault

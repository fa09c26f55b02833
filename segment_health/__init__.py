"""Keeps ft_launcher from reusing a Slurm allocation unit whose nodes went bad.

What stands here is the consumer, for a launcher that is about to join a rendezvous; it loads the standard
library only, and little of it:

    from segment_health import ensure_segment_is_healthy
    ensure_segment_is_healthy("/shared/nvrx")  # before every rendezvous; may raise UnhealthyNodeException

The producer is the command ``segment-health``.
"""

from segment_health.consumer import (
    SegmentHealthCheck,
    UnhealthyNodeException,
    ensure_segment_is_healthy,
    get_segment_health_check,
)

__all__ = [
    "SegmentHealthCheck",
    "UnhealthyNodeException",
    "ensure_segment_is_healthy",
    "get_segment_health_check",
]
__version__ = "0.1.0"

"""The modules of faults; whoever imports this has every fault in fault.FAULTS."""

from __future__ import annotations

from . import clock, cluster, commands, content, process, slurm, storage

KINDS = (storage, content, process, clock, slurm, cluster, commands)
"""In the order of the page."""

"""What can go wrong while asking Slurm.

Both kinds mean the same to whoever decides: Slurm's state is *unknown* (never "no bad nodes"). They differ in
who can mend it: the first by waiting or by an administrator, the second by whoever sees the text that we
could not read.
"""

from __future__ import annotations


class SlurmError(Exception):
    """Slurm's state could not be learned."""


class SlurmUnavailable(SlurmError):  # noqa: N818 - "unavailable" says it all
    """Slurm did not answer: a command is missing, timed out, was killed or ended non-zero."""


class SlurmProtocolError(SlurmError):
    """Slurm answered, and the answer is not whole or not understood: cut short, malformed, contradictory."""

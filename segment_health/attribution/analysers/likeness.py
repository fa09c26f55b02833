"""What lines have in common that differ by numbers, names and times alone. Pure."""

from __future__ import annotations

import re

_MAX_CHARACTERS = 200
_MASKS = (
    (re.compile(r"0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b"), "#"),
    (re.compile(r"\b(?=[\w.-]{0,64}\d)[\w-]+(?:\.[\w-]+)*\b"), "#"),
    (re.compile(r"#(?:[ ,.:/_-]{0,2}#)+"), "#"),
)
_SETS_UP = re.compile(
    r"(?i)load|build|init|shard|compil|download|layer|stage|import|connect|socket|nccl|rendezvous|retr|attempt|wait"
    r"|rank|parameter|heartbeat|cach|read|check|file"
)
_MEASURE = re.compile(r"\d\.\d")
_OFTEN = 5
"""Lines that are alike and tell of a loop."""


def masked(text: str) -> str:
    """Return a text without its numbers, addresses, and words with digits, such as hosts and times."""
    text = text.strip()[: 2 * _MAX_CHARACTERS]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text[:_MAX_CHARACTERS]


class Loop:
    """Notices that somebody says the same again and again, with other numbers: a training, whatever it prints."""

    def __init__(self) -> None:
        self.is_seen = False
        self._told: dict[tuple[str | None, str], set[str]] = {}

    def see(self, speaker: str | None, text: str) -> None:
        """Take a line. What sets up counts only where it has a measure in it, such as 0.31."""
        if self.is_seen or (_SETS_UP.search(text) and not _MEASURE.search(text)):
            return
        mask = masked(text)
        if "#" not in mask:
            return
        texts = self._told.setdefault((speaker, mask), set())
        texts.add(text)
        self.is_seen = len(texts) >= _OFTEN

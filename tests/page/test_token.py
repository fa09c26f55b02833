"""The file of a token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from segment_health.page.token import read_token

if TYPE_CHECKING:
    from pathlib import Path


def test_a_token_is_one_word(tmp_path: Path) -> None:
    """The token is what stands in the file, without the newline."""
    path = tmp_path / "token"
    path.write_text("  s3cret-word\n")
    path.chmod(0o600)
    assert read_token(str(path)) == "s3cret-word"


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"word\n", 0o640, "others can read it"),
        (b"word\n", 0o604, "others can read it"),
        (b"", 0o600, "one word"),
        (b" \n", 0o600, "one word"),
        (b"two words", 0o600, "one word"),
        (b"w\xc3\xb6rd", 0o600, "one word"),
        (b"w" * 5000, 0o600, "one word"),
    ],
)
def test_what_is_no_token(tmp_path: Path, content: bytes, mode: int, told: str) -> None:
    """A file that others can read, or that holds no word, is refused, and what it holds is not repeated."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ValueError, match=told) as refused:
        read_token(str(path))
    assert "word\n" not in str(refused.value)


def test_a_token_is_a_regular_file(tmp_path: Path) -> None:
    """A fifo under that name does not make anybody wait."""
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(ValueError, match="regular"):
        read_token(str(tmp_path / "token"))

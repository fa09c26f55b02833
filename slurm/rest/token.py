"""The JSON web token that slurmrestd wants: where it is, whom it names, and how it stays out of every message."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurm.errors import SlurmUnavailable

MAX_TOKEN = 1 << 14
"""Bytes of a token, and of its file; what Slurm signs has some 200, an identity provider's may have thousands."""
_MARK = 16
"""Characters of a token, in a row, by which a part of it is known in a text; what is shorter may be any word."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and where it came from; `is_open` says that everybody on this host can read its file."""

    text: str = field(repr=False)
    origin: str
    is_open: bool = False

    @property
    def user(self) -> str | None:
        """Whom it names: `sun` of those that Slurm makes, `username` of some identity providers (slurm's jwt).

        Not verified, which is slurmctld's part: it is sent along as the name, and says whose view to expect.
        """
        claims = self._claims()
        for key in ("sun", "username"):
            name = claims.get(key)
            if isinstance(name, str) and name.isascii() and name.isprintable() and name.strip() == name != "":
                return name
        return None

    @property
    def expires(self) -> float | None:
        """When it expires, in seconds since the epoch, if it says so."""
        end = self._claims().get("exp")
        return float(end) if isinstance(end, int | float) and 0 < end < 1 << 40 else None

    @property
    def spoilt(self) -> Token:
        """The same with another signature, of which nothing is left in it."""
        signed, dot, signature = self.text.rpartition(".")
        other = "A" if signature.strip("A") else "B"
        return replace(self, text=f"{signed}{dot}{other * max(1, len(signature))}")

    def hide(self, text: str) -> str:
        """Take every part of the token out of a text: who answers may repeat what it was asked."""
        told, start = "", 0
        while start < len(text):
            end = start + _MARK
            if end > len(text) or text[start:end] not in self.text:
                told, start = told + text[start], start + 1
                continue
            while end < len(text) and text[start : end + 1] in self.text:
                end += 1
            told, start = f"{told}(token)", end
        return told

    def is_in(self, text: str) -> bool:
        """Whether a text is the token, or holds a part of it."""
        return text == self.text or self.hide(text) != text

    def _claims(self) -> Mapping[str, object]:
        try:
            payload = self.text.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, RecursionError, ValueError):
            return {}
        return claims if isinstance(claims, Mapping) else {}


def read_token(path: str | None, environ: Mapping[str, str]) -> Token | None:
    """Return the token of a file, else that of SLURM_JWT, else None.

    Raises SlurmUnavailable, without a word of what is in it, if that is not one line of printable characters.
    """
    if path is None:
        text = environ.get("SLURM_JWT", "")
        return Token(_only_line(text, "SLURM_JWT"), "SLURM_JWT") if text else None
    origin = f"token file {path}"
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SlurmUnavailable(f"{origin}: not a regular file")
            content = file.read(MAX_TOKEN + 1)
    except OSError as error:
        raise SlurmUnavailable(f"{origin}: {error.strerror}") from error
    except ValueError as error:  # a NUL byte in the path
        raise SlurmUnavailable(f"token file {path!a}: {error}") from error
    return Token(
        _only_line(content.decode("latin-1"), origin), origin, is_open=bool(status.st_mode & stat.S_IROTH)
    )


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a pipe that nobody fills."""
    return os.open(path, flags | os.O_NONBLOCK)


def _only_line(text: str, origin: str) -> str:
    # `scontrol token` prints SLURM_JWT=..., and its output is what lands in a file.
    line = text.removesuffix("\n").removesuffix("\r").removeprefix("SLURM_JWT=")
    if not line:
        raise SlurmUnavailable(f"{origin}: empty")
    if len(text) > MAX_TOKEN:
        raise SlurmUnavailable(f"{origin}: more than {MAX_TOKEN} bytes, which is no token")
    if not (line.isascii() and line.isprintable()) or " " in line:
        raise SlurmUnavailable(f"{origin}: not one line of printable ASCII without spaces, which a token is")
    return line

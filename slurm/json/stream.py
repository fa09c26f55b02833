"""Reads one large JSON object while it arrives, an element at a time.

`squeue --json` of 5,500 tasks is 67 MB: the rows are handed on one by one and forgotten, what stands beside them
is small and kept. The decoder is the standard library's; it takes `Infinity` and `NaN` too, which json-c writes.
(ijson streams as well: it refuses those, and needs twice the time for the rows, four times with the errors.)
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError
from slurm.fields import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

MAX_ELEMENT = 1 << 26
"""Characters of one element or other member, before it is given up."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def _as_text(error: UnicodeError) -> tuple[str, int]:
    r"""Write bytes that are not UTF-8 as the text `\xNN`, as doors that print do: somebody wrote them."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"\\\\x{byte:02x}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("slurm-json", _as_text)


class JsonStream:
    """Takes the text of one JSON object in pieces.

    `rows` says, for the members that are large arrays, what to call with each element. What a callee raises comes
    out of close(), and so does whatever is wrong with the text: a command's own complaint on stderr comes first.
    """

    def __init__(self, what: str, rows: Mapping[str, Callable[[object], object]]) -> None:
        self._what = what
        self._rows = rows
        self._members: dict[str, object] = {}
        self._counts: dict[str, int] = {}
        self._decode = codecs.getincrementaldecoder("utf-8")("slurm-json").decode
        self._text = ""
        self._at = 0
        self._wanted = 0
        self._at_end = False
        self._failure: Exception | None = None
        self._parser = self._document()
        next(self._parser)

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._failure is None:
            self._advance(self._decode(data))

    def close(self) -> tuple[dict[str, object], dict[str, int]]:
        """Return the members beside the rows, and how many rows each array had.

        Raises SlurmProtocolError if what came is not one JSON object, whole.
        """
        if self._failure is None:
            self._at_end = True
            self._advance(self._decode(b"", final=True))
        if self._failure is not None:
            raise self._failure
        return self._members, self._counts

    def _advance(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0
        if len(self._text) < self._wanted and not self._at_end:
            return
        try:
            next(self._parser)
        except StopIteration:
            return
        except (SlurmProtocolError, RecursionError, ValueError) as error:
            self._failure = error if isinstance(error, SlurmProtocolError) else self._malformed(str(error))

    def _document(self) -> Generator[None, None, None]:
        yield
        yield from self._eat("{")
        if not (yield from self._finds("}")):
            while True:
                key = yield from self._value()
                if not isinstance(key, str) or key in self._members or key in self._counts:
                    raise self._malformed(f"member {shown(str(key))}")
                yield from self._eat(":")
                if key in self._rows:
                    yield from self._elements(key)
                else:
                    self._members[key] = yield from self._value()
                if (yield from self._finds("}")):
                    break
                yield from self._eat(",")
        while not self._at_end:
            yield from self._nothing_more()
        yield from self._nothing_more()

    def _elements(self, key: str) -> Generator[None, None, None]:
        self._counts[key] = 0
        yield from self._eat("[")
        if (yield from self._finds("]")):
            return
        while True:
            element = yield from self._value()
            self._counts[key] += 1
            self._rows[key](element)
            if (yield from self._finds("]")):
                return
            yield from self._eat(",")

    def _value(self) -> Generator[None, None, object]:
        while True:
            yield from self._peek()
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._at_end:
                    raise self._malformed(error.msg) from error
            else:
                if end + 2 < len(self._text) or self._at_end:  # else a number might go on, as `1` before `e+16`
                    self._at = end
                    return value
            rest = len(self._text) - self._at
            if rest > MAX_ELEMENT:
                raise self._malformed(f"an element of more than {MAX_ELEMENT} characters")
            self._wanted = 2 * rest  # so that a long element costs its length, not its square
            yield
            self._wanted = 0

    def _peek(self) -> Generator[None, None, str]:
        """Return the next character that is no white space; at the end of the text that is an error."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._at_end:
                raise self._malformed("it is cut short")
            yield

    def _finds(self, char: str) -> Generator[None, None, bool]:
        if (yield from self._peek()) != char:
            return False
        self._at += 1
        return True

    def _eat(self, char: str) -> Generator[None, None, None]:
        if not (yield from self._finds(char)):
            raise self._malformed(f"{char!r} expected, not {shown(self._text[self._at : self._at + 20])}")

    def _nothing_more(self) -> Generator[None, None, None]:
        rest = self._text[self._at :].strip(" \t\r\n")
        if rest:
            raise self._malformed(f"something follows it: {shown(rest[:40])}")
        self._at = len(self._text)
        if not self._at_end:
            yield

    def _malformed(self, why: str) -> SlurmProtocolError:
        return SlurmProtocolError(f"{self._what}: not one whole JSON object: {why}")

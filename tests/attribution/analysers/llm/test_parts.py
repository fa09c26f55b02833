"""The small parts: a prompt within its budget, pauses, days, and a key that stays out of texts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.attribution.analysers.finding import Extract, Line
from segment_health.attribution.analysers.llm import prompt
from segment_health.attribution.analysers.llm.completion import wait_seconds
from segment_health.attribution.analysers.llm.key import Key, KeyFileError, open_to_others, read_key
from segment_health.attribution.analysers.llm.spending import Spending

from .conftest import extract
from .model import KEY

if TYPE_CHECKING:
    from pathlib import Path


def task(told: Extract, noticed: tuple[Line, ...] = (), tokens: int = 1000) -> prompt.Task:
    """Write a prompt about a log."""
    return prompt.task(told, noticed, "f00d", tokens, ("network", "unknown"))


@settings(deadline=None)
@given(st.lists(st.text(max_size=700), max_size=200), st.sets(st.integers(0, 199)), st.integers(500, 3000))
def test_a_prompt_keeps_its_budget_and_its_rows(texts: list[str], noticed: set[int], tokens: int) -> None:
    """Whatever a log holds: a row is a line that can be shown, its number finds it again, and all fits."""
    told = extract(*texts)
    made = task(told, tuple(line for line in told.lines if line.number in noticed), tokens)
    assert prompt.estimate(made.prompt) <= tokens
    first, *rows, last = made.prompt.user.removesuffix("\n").split("\n")
    assert (first, last) == ("The log begins: f00d", "The log ended: f00d")
    numbered = dict(row.split("|", 1) for row in rows if row != "(lines left out)")
    assert numbered == {str(number): shown.text for number, shown in made.shown.items()}
    for number, shown in made.shown.items():
        assert shown.line == told.lines[number - 1]
        assert shown.text.isprintable()
        assert len(shown.text) <= prompt.MAX_LINE


def test_what_was_not_read_is_told_as_a_gap() -> None:
    """Where an extract has one, and between lines whose numbers are not known there is none."""
    lines = (Line(1, "a"), Line(2, "b"), Line(900, "c"), Line(None, "d"), Line(None, "e"))
    made = task(Extract(lines, 10_000, is_whole=False))
    rows = made.prompt.user.split("\n")[1:-2]
    assert rows == ["1|a", "2|b", "(lines left out)", "3|c", "(lines left out)", "4|d", "5|e"]
    assert made.shown[4].line == Line(None, "d")


def test_the_categories_are_told() -> None:
    """A model has to know the words."""
    assert '"category": one of "network", "unknown"' in task(extract("a")).prompt.system


NOW = 1_796_000_000.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0), (" 7 ", 7.0), ("9" * 30, 86_400.0), ("", None), ("-1", None), ("soon", None), ("1.5", None),
        ("Mon, 30 Nov 2026 00:53:30 GMT", 10.0), ("Sat, 28 Nov 2020 00:53:30 GMT", 0.0),
        ("Sat, 28 Nov 2999 00:53:30 GMT", 86_400.0), ("Sat, 99 Nov 2026 00:53:30 GMT", None), ("７", None),
    ],
)  # fmt: skip
def test_retry_after(header: str, seconds: float | None) -> None:
    """Seconds or a date; what cannot be read asks for nothing."""
    assert wait_seconds(header, NOW) == seconds


def test_a_day_begins_anew() -> None:
    """What one day spent the next has again."""
    spending = Spending(None, 100)
    assert [spending.take(tokens, NOW) for tokens in (60, 50, 40, 1)] == [True, False, True, False]
    assert spending.take(100, NOW + 86_400)


def test_processes_count_together(tmp_path: Path) -> None:
    """Many at a time lose no token, and a restart forgets none."""
    path = tmp_path / "spent"
    program = (
        "import sys; from segment_health.attribution.analysers.llm.spending import Spending\n"
        f"print(sum(Spending(sys.argv[1], 1000).take(10, {NOW}) for _ in range(60)))"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(process.communicate(timeout=60)[0]) for process in started) == 100
    assert path.stat().st_mode & 0o777 == 0o600
    assert not Spending(str(path), 1000).take(1, NOW)
    assert Spending(str(path), 1001).take(1, NOW)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"day": null}', b'{"day": 1, "tokens": 1e999}', b"{}" * 9999]
)
def test_a_count_that_cannot_be_read_begins_anew(content: bytes, tmp_path: Path) -> None:
    """Whatever was there, it is counted from here on."""
    path = tmp_path / "spent"
    path.write_bytes(content)
    spending = Spending(str(path), 100)
    assert [spending.take(60, NOW), spending.take(60, NOW)] == [True, False]


def test_a_count_is_in_no_file_of_others(tmp_path: Path) -> None:
    """A link is not followed."""
    (tmp_path / "spent").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        Spending(str(tmp_path / "spent"), 100).take(1, NOW)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"bad key {KEY}!", "bad key (key)!"),
        (f"{KEY[:8]} and {KEY[-9:]}", "(key) and (key)"),
        (KEY[:7], KEY[:7]),
        (f"{KEY}{KEY}", "(key)(key)"),
        ("", ""),
    ],
)
def test_a_key_is_hidden(text: str, hidden: str) -> None:
    """Whole, and each part of it that is long enough to be one."""
    assert Key(KEY).hide(text) == hidden
    assert KEY not in repr(Key(KEY))


def test_a_short_key_is_hidden_whole() -> None:
    """A local server may want any word."""
    assert Key("abc").hide("it is abc, not ab") == "it is (key), not ab"
    assert Key("").hide("abc") == "abc"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "there is no API key in it"),
        (b" \n", "there is no API key in it"),
        (b"sk-a\nsk-b\n", "not one line of printable ASCII"),
        (b"sk-\xff", "not one line of printable ASCII"),
        (b"a b", "not one line of printable ASCII"),
        (b"x" * 20_000, "more than 16384 bytes"),
    ],
)
def test_what_is_no_key(content: bytes, why: str, tmp_path: Path) -> None:
    """It is said what is wrong with the file, and not a word of what is in it."""
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match=why) as raised:
        read_key(str(path))
    assert str(raised.value).startswith(f"{path}: ")
    assert "sk-" not in str(raised.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """A pipe that nobody fills is not waited for, and a key that was given for a path is not quoted."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_key(str(tmp_path / "pipe"))
    for path in (KEY, "/\0", str(tmp_path)):
        with pytest.raises(KeyFileError, match="the API key cannot be read") as raised:
            read_key(path)
        assert KEY not in str(raised.value)
        assert str(raised.value).isprintable()
    assert open_to_others(KEY) is None


def test_a_key_is_one_line(tmp_path: Path) -> None:
    """Its end does not belong to it."""
    (tmp_path / "key").write_text(f"{KEY}\r\n")
    assert read_key(str(tmp_path / "key")).text == KEY

"""`segment-health status`: one word for a monitor, JSON for programs, lines for pipes, tables for terminals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import main
from segment_health.cli.table import draw
from segment_health.lift import override
from segment_health.policy.assess import Policy
from segment_health.policy.limits import max_new_exclusions
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs
from segment_health.survey import survey
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "segment_health", "status"]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


class Scene:
    """A directory and a cluster of n1 to n9 with array tasks 123_0 and 123_7 and job 55, in real time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.columns = 100  # of a terminal
        self.cluster = FakeCluster()
        self.cluster.run("123_0", "n[1-2]")
        self.cluster.run("123_7", "n[3-4]")
        self.cluster.run("55", "n[5-7]")

    def publish(self, scope: Scope = EVERYTHING, *, ago: int = 0, **options: Any) -> None:
        """Make one pass, so many seconds ago."""
        publication = Publication(str(self.directory), scope, Policy(), "0.1.0", interval=300.0)._replace(
            **options
        )
        run_once(publication, self.cluster.source, lambda: time.time() - ago)

    def environ(self, **more: str) -> dict[str, str]:
        """Return an environment without settings of ours."""
        ours = ("SEGMENT_HEALTH_", "NVRX_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
        return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | more

    def ask(self, *options: str, code: int = 0, **environ: str) -> str:
        """Ask for it in this process, as on a pipe; it must end with `code`, and say nothing on stderr."""
        env = {**dict.fromkeys(os.environ), **self.environ(**environ)}
        ended = CliRunner().invoke(main, ["status", "--dir", str(self.directory), *options], env=env)
        assert (ended.exit_code, ended.stderr) == (code, ""), ended.output
        return ended.stdout

    def document(self, code: int = 0) -> dict[str, Any]:
        """Read what it prints for programs."""
        document: dict[str, Any] = json.loads(self.ask("--format", "json", code=code))
        return document


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """All is healthy, and nothing published."""
    return Scene(tmp_path)


@pytest.mark.parametrize("columns", [40, 71, 72, 120, 300])
def test_a_table_tells_what_lines_tell(scene: Scene, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """However wide the terminal is: the verdict, who publishes, and of each unit why, since when, by whom."""
    scene.cluster.set_node("n3", "DRAIN", "Xid 79")
    scene.cluster.set_node("n5", "DOWN", "fan [red]tray[/red]")
    scene.publish(ago=7)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    drawn = draw(survey(str(scene.directory), int(time.time())))
    assert COLOUR.search(drawn)
    text = ESCAPE.sub("", drawn)
    assert all(len(line.rstrip()) <= columns for line in text.splitlines())
    words = re.sub(r"\s+", "", text)
    for told in ("OK:1publisher,3units,2excluded", "all@fake", "alive", "123_7", "Xid79", "SeparateFault"):
        assert told in words
    assert "[red]tray[/red]" in words  # markup of somebody else's is text


class Terminal:
    """A terminal, in which the command runs as a person's foreground job."""

    def __init__(self, scene: Scene, *options: str, **environ: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, scene.columns, 0, 0))
        argv = ["setsid", "--ctty", *COMMAND, "--dir", str(scene.directory), *options]
        env = scene.environ(**{"TERM": "xterm-256color", **environ})
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.shown = ""

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def until(self, text: str) -> None:
        """Read until `text` is on the screen, and forget what came before."""
        while text not in ESCAPE.sub("", self.shown):
            assert self._read(), self.shown
        self.shown = ""

    def end(self) -> tuple[int, str]:
        """Read to the end; return the status and what was shown."""
        while self._read():
            pass
        return self.process.wait(60), self.shown

    def _read(self) -> bool:
        assert select.select([self._master], [], [], 60)[0], self.shown
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode()
        return bool(data)


@contextmanager
def terminal(scene: Scene, *options: str, **environ: str) -> Iterator[Terminal]:
    """Run the command in a terminal."""
    with closing(Terminal(scene, *options, **environ)) as opened:
        yield opened


# ── the verdict ────────────────────────────────────────────────────────────────────────────────────────────────


def first_line(scene: Scene, code: int) -> str:
    """Return what a monitor reads."""
    return scene.ask(code=code).splitlines()[0]


def test_nobody_ever_published(scene: Scene) -> None:
    """An empty directory says nothing about anything: unknown."""
    expected = "UNKNOWN: no living publisher, nobody has ever published here; 0 units, 0 excluded"
    assert first_line(scene, 3) == expected


def test_all_is_well(scene: Scene) -> None:
    """A living publisher, and nothing to do, even if a unit is excluded: that is what it is for."""
    scene.publish()
    assert first_line(scene, 0) == "OK: 1 publisher, 3 units, 0 excluded"
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    assert first_line(scene, 0) == "OK: 1 publisher, 3 units, 1 excluded"


def test_a_dead_publisher_is_unknown(scene: Scene) -> None:
    """Whatever it said last: nobody knows whether it still holds."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish(ago=3 * 3600)
    expected = "UNKNOWN: no living publisher, the last pass was 3 h ago; 3 units, 1 excluded"
    assert first_line(scene, 3) == expected


def test_a_persons_word_needs_nobody(scene: Scene) -> None:
    """What a person has cleared is as that person wants it."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    override(str(scene.directory), "0.1.0", lambda _: True, "vendor says fine", int(time.time()))
    scene.publish()
    assert first_line(scene, 0) == "OK: 1 publisher, 3 units, 0 excluded"


def foreign(scene: Scene) -> None:
    """Somebody else writes an artifact."""
    scene.publish()
    (scene.directory / "segment_health_check.123.7").write_text("n3,n4")


def stale(scene: Scene) -> None:
    """The sidecar of one job dies, that of another lives."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish(of_jobs(("123",)), ago=3600)
    scene.publish(of_jobs(("55",)))


def failing(scene: Scene) -> None:
    """An artifact cannot be written."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    (scene.directory / "segment_health_check.123.7").mkdir()
    scene.publish()


def held(scene: Scene) -> None:
    """Two exclusions are more than the policy allows."""
    scene.cluster.set_node("n1", "DOWN")
    scene.cluster.set_node("n4", "DOWN")
    scene.publish(policy=replace(Policy(), max_new_exclusions=max_new_exclusions("1")))


def old_policy(scene: Scene) -> None:
    """The newest policy is wrong."""
    scene.publish(policy_error="policy.toml:3: no such state")


CONCERNS = {
    "foreign": (foreign, "1 foreign; 1 publisher, 3 units, 1 excluded", "foreign"),
    "stale": (stale, "1 stale; 1 publisher, 2 units, 1 excluded", "NOT ALIVE since"),
    "failing": (failing, "1 failing; 1 publisher, 3 units, 0 excluded", "    failing: /"),
    "held": (held, "2 held; 1 publisher, 3 units, 0 excluded", "    held: 2 new exclusions, too many at once"),
    "policy": (
        old_policy,
        "1 with an old policy; 1 publisher, 3 units, 0 excluded",
        "    policy error: policy.toml:3",
    ),
}


@pytest.mark.parametrize("what", CONCERNS)
def test_what_needs_a_person(scene: Scene, what: str) -> None:
    """Each is a warning that counts it, and the lines below say more."""
    arrange, expected, further = CONCERNS[what]
    arrange(scene)
    told = scene.ask(code=1)
    assert told.splitlines()[0] == f"WARNING: {expected}"
    assert further in told
    assert scene.document(code=1)["status"] == "WARNING"


def test_a_forged_count_hides_no_other(scene: Scene) -> None:
    """Who may publish here may lie about his own scope, and takes nothing from what others hold back."""
    held(scene)
    scene.publish(of_jobs(("55",)))
    beat = scene.directory / ".segment-health/heartbeat/job:55@fake.json"
    beat.write_text(json.dumps(json.loads(beat.read_text()) | {"held": -2}))
    assert first_line(scene, 1).startswith("WARNING: 2 held; 2 publishers, ")


def test_the_troubles_of_the_dead_are_over(scene: Scene) -> None:
    """What a publisher could not do before it ended warns nobody while another one lives."""
    scene.publish(of_jobs(("55",)), ago=3600, policy_error="wrong")
    scene.publish(of_jobs(("123",)))
    assert first_line(scene, 0) == "OK: 1 publisher, 2 units, 0 excluded"


# ── JSON and lines ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_json_has_every_field_of_the_contract(scene: Scene) -> None:
    """Publishers as they beat, with whether they live; every unit, the healthy too, with whose word it is."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish(loop=True)
    document = scene.document()
    (publisher,) = document["publishers"]
    assert publisher["alive"] is True
    assert (publisher["scope"], publisher["units"], publisher["excluded"], publisher["loop"]) == (
        "all",
        3,
        1,
        True,
    )
    assert (publisher["failures"], publisher["held"], publisher["policy_error"]) == ([], 0, None)
    assert {"host", "pid", "version", "cluster", "policy", "last_complete_pass", "interval"} <= publisher.keys()
    units = {(unit["job_id"], unit["task_id"]): unit for unit in document["units"]}
    assert [unit["excluded"] for unit in units.values()] == [False, False, True]
    unit = units["123", "7"]
    assert list(unit)[:9] == [
        "job_id", "task_id", "excluded", "level", "since", "nodes", "reasons", "publisher", "state",
    ]  # fmt: skip
    assert (unit["level"], unit["nodes"], unit["reasons"]) == ("PreSeparateFault", "n4", ["Xid 79"])
    assert (unit["state"], unit["rules"], unit["nodelist"]) == ("fresh", ["state:DRAIN"], "n[3-4]")
    assert unit["publisher"]["scope"] == "all"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", unit["since"])
    assert (units["55", "55"]["state"], units["55", "55"]["since"]) == ("fresh", None)


def test_the_json_of_a_persons_word(scene: Scene) -> None:
    """Who said what, and that the unit is not excluded."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    override(str(scene.directory), "0.1.0", lambda _: True, "vendor says fine", int(time.time()))
    (unit,) = [unit for unit in scene.document()["units"] if unit["state"] == "override"]
    assert (unit["excluded"], unit["nodes"], unit["override"]["reason"]) == (False, "n4", "vendor says fine")
    assert "@" in unit["override"]["who"]


def test_the_lines_are_aligned_and_tell_all(scene: Scene) -> None:
    """On a pipe there are no escapes and no frames: columns, one row a unit, and a count of the healthy ones."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.cluster.set_node("n6", "DOWN")
    scene.publish(loop=True)
    lines = scene.ask().splitlines()
    heading = next(line for line in lines if "UNIT" in line)
    rows = [line for line in lines if re.match(r"  (55|123_7) ", line)]
    assert [row[heading.index("NODES") :].split()[0] for row in rows] == ["n6", "n4"]
    assert [row[heading.index("LEVEL") :].split()[0] for row in rows] == ["SeparateFault", "PreSeparateFault"]
    assert rows[0][heading.index("REASONS") :].split() == ["state:DOWN", "all@fake"]
    assert rows[1][heading.index("REASONS") : heading.index("BY")].strip() == "Xid 79"
    assert any(
        re.match(r"  all@fake  alive, last complete pass \S+ \(\d+ s ago\)  every 300 s ", one) for one in lines
    )
    assert "    policy default" in lines
    assert lines[-1] == "1 unit not excluded"
    assert "\x1b" not in "".join(lines)


def test_those_who_ended_are_few(scene: Scene) -> None:
    """A week of sidecars does not hide who lives."""
    for job in range(200, 215):
        scene.publish(of_jobs((str(job),)), ago=3600 + job)
    scene.publish()
    told = scene.ask()
    assert told.count("NOT ALIVE") == 10
    assert "  and 5 more that ended" in told.splitlines()
    assert len(scene.document()["publishers"]) == 16


HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]n4[/red]\r\u202e\x85 " + "x" * 500


def test_hostile_text_moves_no_cursor(scene: Scene) -> None:
    """Reasons and messages of others are escaped and cut, on a pipe and in a terminal; brackets are no markup."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", HOSTILE)
    scene.publish(policy_error=HOSTILE)
    told = scene.ask(code=1)
    assert all(line.isprintable() for line in told.splitlines())
    assert "[red]n4[/red]" in told
    assert "x" * 300 not in told
    with terminal(scene) as opened:
        shown = ESCAPE.sub("", opened.end()[1])
    assert "[red]n4[/red]" in re.sub(r"\s", "", shown)
    assert all(line.isprintable() for line in shown.splitlines())
    assert scene.document(code=1)["units"][2]["reasons"][0].startswith("\x1b[2J")


@pytest.mark.parametrize("where", ["reason", "policy", "person"])
def test_brackets_are_no_markup(scene: Scene, where: str) -> None:
    """What others wrote stands in a table as they wrote it, whatever rich would make of it."""
    text = "[red]n4[/red]"
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", text if where == "reason" else "fan")
    scene.publish(policy_error=text if where == "policy" else None)
    if where == "person":
        override(str(scene.directory), "0.1.0", lambda _: True, text, int(time.time()))
    with terminal(scene) as opened:
        assert text in ESCAPE.sub("", opened.end()[1])


# ── terminals ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_terminal_has_a_table_in_colours(scene: Scene) -> None:
    """The same facts and the same exit status, with colours, within the width of the terminal."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    foreign(scene)
    with terminal(scene) as opened:
        code, shown = opened.end()
    assert code == 1
    assert COLOUR.search(shown)
    lines = ESCAPE.sub("", shown).splitlines()
    assert lines[0].startswith("WARNING: 1 foreign; ")
    assert max(map(len, lines)) <= 100
    assert any("alive, " in line for line in lines)
    assert "─" in shown


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_terminal_without_colours(scene: Scene, environ: dict[str, str]) -> None:
    """Who wants no colours gets none, and the table all the same."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    with terminal(scene, **environ) as opened:
        code, shown = opened.end()
    assert code == 0
    assert not COLOUR.search(shown)
    assert "Xid 79" in shown
    assert "─" in shown


@pytest.mark.parametrize("columns", [20, 40, 71, 72])
def test_a_narrow_terminal_leaves_nothing_out(scene: Scene, columns: int) -> None:
    """Where a table would lose columns there are lines, folded by the width."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    scene.columns = columns
    with terminal(scene) as opened:
        code, shown = opened.end()
    lines = ESCAPE.sub("", shown).splitlines()
    told = "".join("".join(lines).split())
    assert code == 0
    assert max(map(len, lines)) <= columns
    assert all(word in told for word in ("123_7", "excluded", "PreSeparateFault", "n4", "Xid79", "all@"))


def test_json_in_a_terminal_is_json(scene: Scene) -> None:
    """Whoever asks for JSON gets one line of it, wherever it goes."""
    scene.publish()
    with terminal(scene, "--format", "json") as opened:
        assert json.loads(opened.end()[1])["status"] == "OK"


def test_watching_in_a_terminal_draws_in_place_until_ctrl_c(scene: Scene) -> None:
    """What changes is shown where it was; Ctrl-C ends it with 0 and gives the cursor back."""
    scene.publish()
    with terminal(scene, "--watch", "0.2") as opened:
        opened.until("3 units, 0 excluded")
        scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
        scene.publish()
        opened.until("Xid 79")
        opened.until("Xid 79")
        assert opened.process.poll() is None
        opened.type(b"\x03")
        code, shown = opened.end()
    assert code == 0
    assert "\x1b[?25h" in shown
    assert "Traceback" not in shown


def test_watching_goes_on_where_the_directory_fails(scene: Scene) -> None:
    """A directory that cannot be read for a while is told as unknown, and then looked at again."""
    scene.publish()
    ledger, aside = scene.directory / ".segment-health", scene.directory / "aside"
    with terminal(scene, "--watch", "0.2") as opened:
        opened.until("OK: 1 publisher")
        ledger.rename(aside)
        ledger.touch()  # no directory: it cannot be read
        opened.until("UNKNOWN: ")
        ledger.unlink()
        aside.rename(ledger)
        opened.until("OK: 1 publisher")
        opened.type(b"\x03")
        assert opened.end()[0] == 0


def test_watching_goes_on_where_the_directory_is_away(scene: Scene) -> None:
    """A directory that was there, such as one that is mounted anew, is waited for: no mistake of who watches."""
    scene.directory = scene.directory / "decisions"
    scene.directory.mkdir()
    scene.publish()
    aside = scene.directory.with_name("aside")
    with terminal(scene, "--watch", "0.2") as opened:
        opened.until("OK: 1 publisher")
        scene.directory.rename(aside)
        opened.until("UNKNOWN: ")
        aside.rename(scene.directory)
        opened.until("OK: 1 publisher")
        opened.type(b"\x03")
        assert opened.end()[0] == 0


def test_watching_on_a_pipe_prints_a_block_each_time(scene: Scene) -> None:
    """Blocks with an empty line between, until SIGINT ends it with 0."""
    scene.publish()
    argv = [*COMMAND, "--dir", str(scene.directory), "--watch", "0.2"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=scene.environ()) as process:
        assert process.stdout is not None
        blocks = 0
        for line in process.stdout:
            blocks += line.startswith("OK: ")
            if blocks == 3:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0


def test_watching_ends_when_nobody_reads_on(scene: Scene) -> None:
    """`status --watch | head` does not go on for ever."""
    scene.publish()
    argv = [*COMMAND, "--dir", str(scene.directory), "--watch", "0.1", "--format", "json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=scene.environ()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["status"] == "OK"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("options", ["", "--format json", "--watch 0.1"], ids=["lines", "json", "watch"])
def test_a_verdict_that_nobody_can_read_stands(scene: Scene, options: str) -> None:
    """Whether its output goes anywhere changes no exit status, and is no reason for words on stderr."""
    scene.publish()
    command = shlex.join([*COMMAND, "--dir", str(scene.directory)])
    for redirected in (">&-", ">/dev/full"):
        argv = ["bash", "-c", f"{command} {options} {redirected}"]
        ended = subprocess.run(argv, env=scene.environ(), capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, ""), redirected


# ── where ──────────────────────────────────────────────────────────────────────────────────────────────────────


def run(scene: Scene, *argv: str, **environ: str) -> tuple[int, str, str]:
    """Run the command with these arguments alone; return its status, its stdout and its stderr."""
    ended = subprocess.run(
        [*COMMAND, *argv], env=scene.environ(**environ), capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_the_directory_comes_from_wherever_settings_do(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A flag, either variable of the environment, or a file."""
    scene.publish()
    path, config = str(scene.directory), tmp_path_factory.mktemp("config") / "settings.toml"
    config.write_text(f'dir = "{path}"\n')
    for told in (
        run(scene, SEGMENT_HEALTH_DIR=path),
        run(scene, NVRX_SEGMENT_HEALTH_CHECK_DIR=path),
        run(scene, "--config", str(config)),
    ):
        assert told[0] == 0
        assert told[1].startswith("OK: 1 publisher, 3 units")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param([], "no decision directory: give --dir", id="none"),
        pytest.param(["--dir", "here"], "not an absolute path", id="relative"),
        pytest.param(["--dir", "/nowhere/at/all"], "No such file or directory", id="missing"),
        pytest.param(["--dir", "/etc/passwd"], "Not a directory", id="file"),
        pytest.param(["--dir", "/", "--watch", "0"], "--watch", id="interval"),
        pytest.param(["--dir", "/nowhere/at/all", "--watch"], "No such file or directory", id="watch"),
    ],
)
def test_a_mistake_is_a_usage_error(scene: Scene, argv: list[str], said: str) -> None:
    """Status 2, one line on stderr, nothing on stdout."""
    code, out, err = run(scene, *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_directory_that_cannot_be_read_is_unknown(scene: Scene) -> None:
    """A monitor reads so on stdout; for programs there is no JSON that could be taken for an answer."""
    scene.publish()
    (scene.directory / ".segment-health").rename(scene.directory / "aside")
    (scene.directory / ".segment-health").touch()
    code, out, err = run(scene, "--dir", str(scene.directory))
    said = f"decision directory {scene.directory}: Not a directory\n"
    assert (code, out, err) == (3, f"UNKNOWN: {said}", f"segment-health: {said}")
    code, out, err = run(scene, "--dir", str(scene.directory), "--format", "json")
    assert (code, out, err) == (3, "", f"segment-health: {said}")

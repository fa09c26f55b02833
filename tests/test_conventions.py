"""What holds for every command: its help, its streams, its names; and what the shells make of it."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(sys.executable).parent
SCREEN_LINES = 50


def below(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return a command and all below it, each with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from below(inner, *words, name)


COMMANDS = [pytest.param(words, command, id=" ".join(words) or "main") for words, command in below(main)]
every_command = pytest.mark.parametrize(("words", "command"), COMMANDS)


def clean_environment(**environ: str) -> dict[str, str]:
    """Return an environment without Slurm and settings, in which our command is found."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SEGMENT", "NVRX"))}
    return kept | {"PATH": f"{SCRIPTS}:/usr/bin:/bin"} | environ


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        argv, env=clean_environment(**environ), capture_output=True, text=True, check=False, timeout=60
    )


@every_command
def test_its_help_fits_a_screen_and_shows_an_example(words: tuple[str, ...], command: click.Command) -> None:
    """100 columns and 50 lines are enough, and what is shown calls that command."""
    text = CliRunner().invoke(main, [*words, "--help"], terminal_width=100).output
    assert len(text.splitlines()) <= SCREEN_LINES
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "\n  Examples:\n    " in text, text
    lines = text.partition("\n  Examples:\n")[2].splitlines()
    assert any(" ".join(("segment-health", *words)) in line for line in lines)
    assert command.epilog


@every_command
def test_an_example_can_be_called_so(words: tuple[str, ...], command: click.Command) -> None:
    """Each line of an example names commands and options that there are."""
    assert command.epilog, words
    for line in command.epilog.splitlines()[2:]:
        for call in re.split(r"&&|>\s*\S+", line):
            parts = [part for part in shlex.split(call) if "=" not in part or part.startswith("--")]
            if parts[:1] != ["segment-health"]:
                continue
            found: click.Command = main
            rest = parts[1:]
            while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
                found, rest = found.commands[rest[0]], rest[1:]
            ours = rest[: rest.index("--")] if "--" in rest else list(rest)  # what follows is another program's
            found.make_context("segment-health", rest, parent=click.Context(main), resilient_parsing=True)
            known = {name for option in found.get_params(click.Context(found)) for name in option.opts}
            assert {part for part in ours if part.startswith("-")} <= known | {"--help"}, line


def test_no_summary_is_cut_short() -> None:
    """In 80 columns the list of commands says what each is for, in a line that ends."""
    groups = [words for words, command in below(main) if isinstance(command, click.Group)]
    assert len(groups) > 3
    for words in groups:
        text = CliRunner().invoke(main, [*words, "--help"], terminal_width=80).output
        commands = text.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
        assert commands
        assert all(re.fullmatch(r"  [a-z]+ +[A-Z].*[^.]\.", line) for line in commands), commands


def test_every_option_is_explained_somewhere() -> None:
    """What --help folds away it names, and --help-all explains."""
    folding = 0
    for words, command in below(main):
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        folds = any(option.name == "help_all" for option in options)
        folding += folds
        short = CliRunner().invoke(main, [*words, "--help"], terminal_width=10_000).output
        whole = CliRunner().invoke(main, [*words, "--help-all" if folds else "--help"]).output
        for option in options:
            assert option.opts[0] in short
            assert option.name == "help_all" or re.search(rf"^  .*{option.opts[0]}\b", whole, re.MULTILINE), option
    assert folding > 0


@every_command
def test_a_mistake_is_told_on_stderr(words: tuple[str, ...], command: click.Command) -> None:
    """An option that does not exist: status 2, nothing on stdout."""
    ended = run("segment-health", *words, "--no-such-option")
    assert (ended.returncode, ended.stdout) == (2, ""), command.name
    assert "--no-such-option" in ended.stderr


@every_command
def test_its_help_is_data(words: tuple[str, ...], command: click.Command) -> None:
    """Help that was asked for goes to stdout, so that it can be piped; no colour is in it."""
    ended = run("segment-health", *words, "--help", NO_COLOR="1")
    assert (ended.returncode, ended.stderr) == (0, ""), command.name
    assert ended.stdout.startswith("Usage: segment-health")
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "--once", "--all"),
        ("publish", "--all", "--dir", "relative"),
        ("check", "--dir", "relative"),
        ("path", "--dir", "/"),
        ("nodecheck", "/", "--timeout", "0"),
        ("preflight", "--ft-cfg", "/no/such"),
        ("preflight", "--", "/no/such"),
        ("attribution", "watch"),
        ("attribution", "analyse", "/no/such"),
        ("attribution", "stopped", "--state-dir", "relative"),
        ("attribution", "serve", "--allowed-root", "/", "--state", "relative"),
        ("builtin", "paths", "--config", "/no/such"),
        ("clear", "--dir", "/no/such", "123", "--reason", "x"),
        ("prune", "--dir", "/no/such", "--max-age", "1h"),
        ("poke", "--dir", "/"),
        ("explain", "n1", "--slurm-bin-dir", "/no/such", "--source", "text"),
        ("record", "-", "--slurm-bin-dir", "/no/such", "--source", "text"),
        ("noded", "show", "--dir", "/no/such"),
        ("noded", "export", "--dir", "/no/such"),
        ("policy", "check", "/no/such"),
        ("policy", "show", "--policy", "/no/such"),
        ("template", "show", "no-such"),
        ("nvhcd", "-config", "/no/such"),
    ],
    ids=" ".join,
)
def test_a_failure_is_told_on_stderr(words: tuple[str, ...]) -> None:
    """Who pipes stdout into another program finds data or nothing there, and why on the screen."""
    ended = run("segment-health", *words)
    assert ended.returncode in {1, 2, 3, 127}
    assert ended.stdout == ""
    assert ended.stderr.startswith("segment-health: ")
    assert "Traceback" not in ended.stderr


def test_it_runs_as_a_module() -> None:
    """Where the script is not on PATH, Python finds it, and it calls itself the same."""
    ended = run(sys.executable, "-m", "segment_health", "--version")
    assert ended.stdout == run("segment-health", "--version").stdout
    assert ended.stdout.startswith("segment-health, version ")


@pytest.mark.parametrize(
    ("words", "meant"), [(("publsh",), "publish"), (("template", "shw"), "show"), (("noded", "exprot"), "export")]
)
def test_an_unknown_command_names_the_nearest(words: tuple[str, ...], meant: str) -> None:
    """A slip of the finger costs one more line, on stderr."""
    ended = run("segment-health", *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"'{meant}'" in ended.stderr


COMPLETE = {
    # COMP_WORDS are what Tab would hand over; the function is the one that the script registers.
    "bash": """source "$1"; COMP_WORDS=(segment-health {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
               "$(complete -p segment-health | sed -E 's/.* -F ([^ ]+).*/\\1/')" segment-health
               printf '%s\\n' "${{COMPREPLY[@]}}" """,
    # zsh completes in an editor alone: what takes the offers there is replaced by what prints them.
    "zsh": """autoload -U compinit; compinit -u -D; source "$1"
              _describe() {{ print -l -- ${{(P)@[-1]}} ${{(P)@[-2]}} }}; compadd() {{ print -l -- ${{(P)@[-1]}} }}
              words=(segment-health {words}); CURRENT=$#words; _segment_health_completion""",
    "fish": """source $argv[1]; complete --do-complete "segment-health {words}" """,
}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param("pub", "publish", id="command"),
        pytest.param("template sh", "show", id="below"),
        pytest.param("template show sbatch-re", "sbatch-regular", id="argument"),
        pytest.param("publish --allow", "--allow-shared-dir", id="folded-option"),
    ],
)
@pytest.mark.parametrize("shell", COMPLETE)
def test_a_shell_completes(tmp_path: Path, shell: str, words: str, found: str) -> None:
    """The real shell, told by our script, offers what was begun, and nothing else."""
    script = tmp_path / "script"
    made = run("segment-health", "completion", shell)
    assert (made.returncode, made.stderr) == (0, "")
    script.write_text(made.stdout)
    code = COMPLETE[shell].format(words=words)
    arguments = ["-c", code, str(script)] if shell == "fish" else ["-c", code, shell, str(script)]
    ended = run(shell, *arguments, HOME=str(tmp_path))
    offered = {re.split(r"[\t:]", line)[0] for line in ended.stdout.splitlines()}
    assert found in offered, ended
    assert not any(line.startswith("record") for line in offered)


def on_terminal(tmp_path: Path, seconds: float, *words: str) -> tuple[str, str, int]:
    """Run a command with stderr on a terminal and a Slurm that takes so long; return stdout, stderr, status."""
    for name, answer in (("scontrol", "case $* in *config*) cat config;; *) cat nodes;; esac"), ("squeue", ":")):
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\ncd {tmp_path}; sleep {seconds}\n{answer}\n")
        path.chmod(0o755)
    (tmp_path / "config").write_text(
        "ClusterName = fake\nSLURM_VERSION = 22.05.8\nPrivateData = none\nSlurmUser = root(0)\n"
    )
    (tmp_path / "nodes").write_text("NodeName=n1 State=IDLE Partitions=main\n")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["segment-health", *words],
        env=clean_environment(PATH=f"{SCRIPTS}:{tmp_path}:/usr/bin:/bin", SEGMENT_HEALTH_SOURCE="text"),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                part = os.read(ours, 4096)
            except OSError:  # a terminal that nobody has open any more says EIO
                break
            shown += part
        out = process.communicate(timeout=60)[0]
    os.close(ours)
    return out, shown.decode(), process.returncode


@pytest.mark.parametrize("words", [("publish", "--once", "--all"), ("doctor",), ("record", "-")], ids=" ".join)
def test_a_long_wait_is_shown_on_a_terminal(tmp_path: Path, words: tuple[str, ...]) -> None:
    """After a second a line says what is waited for, and at the end it is gone again, without colours or codes."""
    (tmp_path / "decisions").mkdir()
    option = () if words[0] == "record" else ("--dir", str(tmp_path / "decisions"))
    out, shown, _ = on_terminal(tmp_path, 1.5, *words, *option)
    assert re.search(r"\rsegment-health: [A-Za-z ]+, \d s", shown), shown
    assert re.search(r"\r +\r", shown), shown
    assert "\x1b" not in shown
    assert out
    assert ", 1 s" not in out


def test_a_short_wait_is_not_shown(tmp_path: Path) -> None:
    """What ends within a second says nothing beside its answer; nor does a long one into a file."""
    assert on_terminal(tmp_path, 0, "record", "-")[1] == ""
    on_terminal(tmp_path, 1.5, "record", "-")
    ended = run(
        "segment-health", "record", "-", PATH=f"{SCRIPTS}:{tmp_path}:/usr/bin:/bin", SEGMENT_HEALTH_SOURCE="text"
    )
    assert (ended.returncode, ended.stderr) == (0, "")

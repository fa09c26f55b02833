"""`segment-health policy`: exit codes, lines with their place, and what is in force by which layer."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import in_force, main
from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.policy.content import PolicyError
from segment_health.policy.file import load
from segment_health.policy.limits import ClearAfter, MaxNewExclusions
from segment_health.settings import Settings
from segment_health.sources import node_names

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

GOOD = """\
publish_at = "SeparateFault"
clear_after = "10m"
max_new_exclusions = 4
hold_passes = 2

[[rule]]
name = "planned"
state = ["DRAIN"]
reason = "maintenance"
level = "NotHandleFault"
"""
ANOTHER = '[[rule]]\nname = "lab"\nnode = "n[1-2]"\nlevel = "no-verdict"\n'


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(GOOD)
    return path


def run(*arguments: str, **environ: str) -> Result:
    """Run segment-health with nothing of ours in its environment but what is given."""
    nothing = {key: None for key in os.environ if key.startswith(("SEGMENT", "NVRX"))}
    return CliRunner().invoke(main, ["policy", *arguments], env={**nothing, **environ})


# ── check ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [("# none yet", "0 rules"), (GOOD, "1 rule"), (GOOD + ANOTHER, "2 rules")],
    ids=["empty", "one", "two"],
)
def test_a_good_file(policy: Path, text: str, expected: str) -> None:
    """One line that says how many rules there are."""
    policy.write_text(text)
    done = run("check", str(policy))
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{policy}: {expected}\n", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("publish_att = 1", ":1: unknown key 'publish_att'; the nearest known one is 'publish_at'"),
        (GOOD + "levle = 1", ":11: rule 'planned': unknown key 'levle'; the nearest known one is 'level'"),
        (GOOD + "\nreason = 1", ":12: not TOML: Cannot overwrite a value"),
    ],
    ids=["key", "rule", "toml"],
)
def test_a_bad_file(policy: Path, text: str, problem: str) -> None:
    """File, line and problem on stderr, as compilers write them."""
    policy.write_text(text)
    done = run("check", str(policy))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"segment-health: {policy}{problem}\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It has no line."""
    done = run("check", str(tmp_path / "missing"))
    assert done.exit_code == 2
    assert (
        done.stderr
        == f"segment-health: {tmp_path}/missing: the policy cannot be read: No such file or directory\n"
    )


def test_no_file() -> None:
    """Which one is to be checked must be said."""
    assert run("check").exit_code == 2


@pytest.mark.parametrize("name", ["a\x1b[2J\n.toml", "\udcff.toml"], ids=["control", "no-text"])
def test_a_hostile_name_reaches_no_terminal(tmp_path: Path, name: str) -> None:
    """The name is escaped, in what is good and in what is not."""
    path = tmp_path / name
    for text, status in (("# none", 0), ("x = 1", 2)):
        path.write_text(text)
        done = run("check", str(path))
        assert done.exit_code == status
        assert done.output.count("\n") == 1
        assert done.output.strip().isascii()
        assert done.output.strip().isprintable()


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["for-good", "dry-run"])
def test_a_publisher_does_not_start_with_a_bad_file(
    policy: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """It ends before it asks Slurm, which here would give status 3, and leaves the directory as it was."""
    policy.write_text(GOOD + 'state = "DRAYN"'.join(ANOTHER.split('node = "n[1-2]"')))
    decisions = tmp_path / "decisions"
    decisions.mkdir()
    nothing = {key: None for key in os.environ if key.startswith(("SEGMENT", "NVRX"))}
    command = ["publish", "--once", "--all", "--dir", str(decisions), "--policy", str(policy), *options]
    done = CliRunner().invoke(main, command, env={**nothing, "PATH": str(decisions)})
    problem = "rule 'lab': state: unknown state 'DRAYN'; the nearest known one is 'DRAIN'"
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"segment-health: {policy}:13: {problem}\n"
    assert list(decisions.iterdir()) == []


# ── show ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_default_is_shown() -> None:
    """Without a policy file the table of the contract is in force."""
    done = run("show")
    assert done.exit_code == 0
    assert done.stdout.startswith('# default\npublish_at = "PreSeparateFault"\nclear_after = "1 pass"\n')
    assert "#   DRAIN            PreSeparateFault\n" in done.stdout


def test_what_is_shown_can_be_checked_and_shown_again(policy: Path, tmp_path: Path) -> None:
    """It is a policy file that means the same, with the place of each rule."""
    policy.write_text(GOOD + ANOTHER)
    shown = run("show", "--policy", str(policy))
    assert shown.exit_code == 0
    assert f'# {policy}:6\n[[rule]]\nname = "planned"\n' in shown.stdout
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    assert run("check", str(again)).stdout == f"{again}: 2 rules\n"

    def meant(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    assert meant(run("show", "--policy", str(again)).stdout) == meant(shown.stdout)


def test_shown_as_json(policy: Path) -> None:
    """For programs: where the policy comes from, its keys, rules and defaults."""
    document = json.loads(run("show", "--policy", str(policy), "--hold-passes", "9", "--format", "json").stdout)
    assert list(document) == [
        "policy",
        "digest",
        "publish_at",
        "clear_after",
        "max_new_exclusions",
        "hold_passes",
        "rule",
        "defaults",
    ]
    assert (document["policy"], document["hold_passes"]) == (str(policy), 9)
    assert document["digest"] == load(str(policy), node_names).digest
    assert [rule["place"] for rule in document["rule"]] == [f"{policy}:6"]


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--publish-at", "Separate", "--publish-at: .*PreSeparateFault"),
        ("--clear-after", "soon", "--clear-after: neither passes"),
        ("--max-new-exclusions", "some", "--max-new-exclusions: neither a number"),
        ("--hold-passes", "0", "--hold-passes: "),
        ("--policy", "", "--policy: "),
        ("--policy", "/nowhere/p.toml", "/nowhere/p.toml: the policy cannot be read: No such file"),
        ("--config", "/nowhere/c.toml", "/nowhere/c.toml: No such file"),
    ],
)
def test_what_cannot_be_in_force(flag: str, value: str, problem: str) -> None:
    """One line that names who said it."""
    done = run("show", flag, value)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.search(problem, done.stderr)


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────────────────

LAYERS: list[Any] = [
    pytest.param([], {}, (None, None), 3, id="default"),
    pytest.param([], {}, (None, 4), 4, id="policy-file"),
    pytest.param([], {}, (5, 4), 5, id="config-first"),
    pytest.param([], {"SEGMENT_HEALTH_HOLD_PASSES": "6"}, (5, 4), 6, id="environment-first"),
    pytest.param(["--hold-passes", "7"], {"SEGMENT_HEALTH_HOLD_PASSES": "6"}, (5, 4), 7, id="flag-first"),
]


@pytest.mark.parametrize(("flags", "environ", "files", "expected"), LAYERS)
def test_which_layer_counts(
    policy: Path, flags: list[str], environ: dict[str, str], files: tuple[int | None, int | None], expected: int
) -> None:
    """Flag, environment, configuration, policy file, default."""
    in_config, in_policy = ("# none\n" if number is None else f"hold_passes = {number}\n" for number in files)
    policy.write_text(in_policy)
    settings = policy.with_name("settings.toml")
    settings.write_text(f"policy = '{policy}'\n{in_config}")
    done = run("show", "--format", "json", "--config", str(settings), *flags, **environ)
    assert json.loads(done.stdout)["hold_passes"] == expected


def test_what_settings_say_counts_before_the_file(policy: Path) -> None:
    """Each key for itself; rules, name and digest stay the file's."""
    file = load(str(policy), node_names)
    assert in_force.policy(Settings(policy=str(policy))) == file
    told = Settings(
        policy=str(policy),
        publish_at="PreSeparateFault",
        clear_after="2 passes",
        max_new_exclusions="off",
        hold_passes=8,
    )
    found = in_force.policy(told)
    assert (found.publish_at, found.clear_after, found.max_new_exclusions, found.hold_passes) == (
        FaultLevel.PreSeparateFault,
        ClearAfter(passes=2),
        None,
        8,
    )
    assert (found.rules, found.name, found.digest) == (file.rules, file.name, file.digest)


def test_settings_without_a_file() -> None:
    """They change the default alone."""
    assert in_force.policy(Settings()) == Policy()
    found = in_force.policy(Settings(max_new_exclusions="10%", clear_after="5m"))
    assert found == Policy(
        max_new_exclusions=MaxNewExclusions(10, percent=True), clear_after=ClearAfter(seconds=300)
    )


def test_a_bad_file_is_nobodys_default(policy: Path) -> None:
    """Settings that say everything else do not make up for it."""
    policy.write_text("x = 1")
    with pytest.raises(PolicyError, match="unknown key 'x'"):
        in_force.policy(Settings(policy=str(policy), publish_at="SeparateFault"))

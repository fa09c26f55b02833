"""Where a setting comes from, and what is refused."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.settings import Settings, SettingsError, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file."""
    path = tmp_path / "segment-health.toml"
    path.write_text('dir = "/from/file"\ntimeout = 11\ninterval = 60\njob = [123, "140"]\n')
    return path


def test_defaults() -> None:
    """What holds when nobody says anything."""
    told = load({}, {}, None)
    assert (told.dir, told.timeout, told.interval, told.policy, told.publish_at, told.adopt) == (
        None,
        30.0,
        300.0,
        None,
        None,
        False,
    )


def test_what_nobody_says_is_left_to_the_policy_file() -> None:
    """A default here would count before what the file says."""
    told = load({}, {}, None)
    assert (told.policy, told.publish_at, told.clear_after, told.max_new_exclusions, told.hold_passes) == (
        None,
    ) * 5


OF_THE_POLICY: list[Any] = [
    pytest.param({"policy": "p.toml"}, "", "policy", "p.toml", id="relative-path"),
    pytest.param({"publish_at": "SeparateFault"}, "", "publish_at", "SeparateFault", id="publish-at"),
    pytest.param({"clear_after": "3 passes"}, "clear_after = '10m'", "clear_after", "3 passes", id="flag-first"),
    pytest.param({}, "clear_after = '10m'", "clear_after", "10m", id="clear-after"),
    pytest.param({"max_new_exclusions": "10%"}, "", "max_new_exclusions", "10%", id="percent"),
    pytest.param({}, "max_new_exclusions = 4", "max_new_exclusions", "4", id="number-of-a-file"),
    pytest.param({}, "max_new_exclusions = 'off'", "max_new_exclusions", "off", id="off"),
    pytest.param({"hold_passes": "5"}, "", "hold_passes", 5, id="hold-passes"),
    pytest.param({}, "hold_passes = 5", "hold_passes", 5, id="hold-passes-of-a-file"),
    pytest.param({}, "max_new_exclusions = 0", "max_new_exclusions", "0", id="none-at-all"),
]

OF_NODED: list[Any] = [
    pytest.param({}, "", "noded_dir", None, id="nobody-asked"),
    pytest.param({}, "noded_dir = '/r'", "noded_dir", "/r", id="directory"),
    pytest.param({}, "", "noded_max_age", 3600.0, id="default-age"),
    pytest.param({}, "noded_max_age = 60", "noded_max_age", 60.0, id="number-of-a-file"),
    pytest.param({"noded_max_age": "7200"}, "noded_max_age = 60", "noded_max_age", 7200.0, id="flag-first"),
    pytest.param({"noded_max_age": "never"}, "", "noded_max_age", "never", id="any-age"),
    pytest.param({}, "", "noded_unknown_level", "PreSeparateFault", id="default-level"),
    pytest.param(
        {"noded_unknown_level": "NotHandleFault"}, "", "noded_unknown_level", "NotHandleFault", id="unknown-level"
    ),
]


@pytest.mark.parametrize(("flags", "content", "key", "expected"), OF_THE_POLICY)
def test_what_counts_instead_of_the_policy_file(
    tmp_path: Path, flags: dict[str, object], content: str, key: str, expected: object
) -> None:
    """Each is checked, and kept as it was told."""
    path = tmp_path / "c.toml"
    path.write_text(content)
    assert getattr(load(flags, {}, str(path)), key) == expected


@pytest.mark.parametrize(("flags", "content", "key", "expected"), OF_NODED)
def test_what_is_said_of_nodeds_reports(
    tmp_path: Path, flags: dict[str, object], content: str, key: str, expected: object
) -> None:
    """Reports are read only where somebody names their directory."""
    path = tmp_path / "c.toml"
    path.write_text(content)
    assert getattr(load(flags, {}, str(path)), key) == expected


PRECEDENCE: list[Any] = [
    pytest.param({"timeout": "7"}, {"SEGMENT_HEALTH_TIMEOUT": "9"}, 7.0, id="flag-first"),
    pytest.param({}, {"SEGMENT_HEALTH_TIMEOUT": "9"}, 9.0, id="then-environment"),
    pytest.param({}, {"SEGMENT_HEALTH_TIMEOUT": ""}, 11.0, id="empty-is-unset"),
    pytest.param({}, {}, 11.0, id="then-file"),
]


@pytest.mark.parametrize(("flags", "environ", "expected"), PRECEDENCE)
def test_precedence(config: Path, flags: dict[str, object], environ: dict[str, str], expected: float) -> None:
    """Flag, then environment, then file."""
    assert load(flags, environ, str(config)).timeout == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"NVRX_SEGMENT_HEALTH_CHECK_DIR": "/nvrx"}, "/nvrx"),
        ({"NVRX_SEGMENT_HEALTH_CHECK_DIR": "/nvrx", "SEGMENT_HEALTH_DIR": "/ours"}, "/ours"),
        ({"SEGMENT_HEALTH_DIR": "/ours", "NVRX_SEGMENT_HEALTH_CHECK_DIR": "/nvrx"}, "/ours"),
        ({}, "/from/file"),
    ],
)
def test_the_directory_may_come_from_nvrxs_variable(config: Path, environ: dict[str, str], expected: str) -> None:
    """A job that tells ft_launcher where the decisions are need not say it twice; our own name wins."""
    assert load({}, environ, str(config)).dir == expected


@pytest.mark.parametrize(
    ("flags", "environ", "own_job", "expected"),
    [
        pytest.param({"all": True}, {}, None, "all", id="flag-over-file"),
        pytest.param(
            {"user": "alice"}, {"SEGMENT_HEALTH_ALL": "1"}, None, "user:alice", id="flag-over-environment"
        ),
        pytest.param({}, {"SEGMENT_HEALTH_JOB": "9,5"}, "77", "job:5,9", id="environment-over-file"),
        pytest.param({}, {}, "77", "job:123,140", id="file-over-own-job"),
        pytest.param({"job": ("7", "7", "12")}, {}, None, "job:7,12", id="sorted-once-each"),
        pytest.param({"partition": "gpu-a100"}, {}, None, "partition:gpu-a100", id="partition"),
    ],
)
def test_the_scope_is_one_setting(
    config: Path, flags: dict[str, object], environ: dict[str, str], own_job: str | None, expected: str
) -> None:
    """The first layer that names any kind of scope decides alone."""
    assert str(load(flags, environ, str(config)).scope(own_job)) == expected


def test_inside_a_job_the_scope_is_that_job() -> None:
    """A sidecar need not be told whose it is; outside a job nobody can know."""
    assert str(Settings().scope("77")) == "job:77"
    with pytest.raises(SettingsError, match="outside a job, say whose units"):
        Settings().scope(None)


REFUSED: list[Any] = [
    pytest.param({}, {"SEGMENT_HEALTH_TIMOUT": "3"}, "", "SEGMENT_HEALTH_TIMEOUT", id="environment-key"),
    pytest.param({}, {}, "time_out = 3", "nearest known one is timeout", id="file-key"),
    pytest.param({}, {}, "[publish]\ndir = '/x'", "publish_at", id="table"),
    pytest.param({"timeout": "soon"}, {}, "", "--timeout: .*'soon'", id="flag-value"),
    pytest.param({"timeout": "0"}, {}, "", "--timeout: .*greater than 0", id="zero"),
    pytest.param({"timeout": "nan"}, {}, "", "--timeout", id="nan"),
    pytest.param({"interval": "1"}, {}, "", "--interval: .*5", id="too-often"),
    pytest.param({}, {"SEGMENT_HEALTH_PUBLISH_AT": "Bad"}, "", "SEGMENT_HEALTH_PUBLISH_AT", id="level"),
    pytest.param({"policy": ""}, {}, "", "--policy: .*at least 1", id="empty-policy"),
    pytest.param({"publish_at": "NotHandleFault"}, {}, "", "--publish-at: ", id="publish-at-nothing"),
    pytest.param({"clear_after": "0 passes"}, {}, "", "--clear-after: no pass at all", id="no-pass"),
    pytest.param(
        {}, {"SEGMENT_HEALTH_CLEAR_AFTER": "soon"}, "", "SEGMENT_HEALTH_CLEAR_AFTER: .*'soon'", id="clear"
    ),
    pytest.param({}, {}, "clear_after = 3", "clear_after in .*: ", id="clear-after-type"),
    pytest.param({"max_new_exclusions": "101%"}, {}, "", "--max-new-exclusions: .*'101%'", id="percent"),
    pytest.param({}, {}, "max_new_exclusions = true", "max_new_exclusions in .*: neither", id="exclusions-type"),
    pytest.param({"hold_passes": "0"}, {}, "", "--hold-passes: .*1", id="hold-none"),
    pytest.param({"hold_passes": "1.5"}, {}, "", "--hold-passes: ", id="hold-half"),
    pytest.param({"hold_passes": "1000001"}, {}, "", "--hold-passes: .*1000000", id="hold-for-ever"),
    pytest.param({}, {}, "hold_passes = 0x" + "f" * 9000, "hold_passes in .*absurd number", id="endless-number"),
    pytest.param({}, {}, "publish_at = 0x" + "f" * 9000, "publish_at in .*absurd number", id="endless-level"),
    pytest.param({}, {}, "hold_passes = " + "1" * 9000, "not TOML: Exceeds the limit", id="endless-decimal"),
    pytest.param({"publish_at": "x" * 10_000}, {}, "", r"--publish-at: .{,300}\.\.\.$", id="long-quotation"),
    pytest.param({}, {}, "a." * 20_000 + "a = 1", "c.toml:1: .*more than 16 parts", id="deep-key"),
    pytest.param({"attribution_blame": "blame"}, {}, "", "--attribution-blame: not an absolute path", id="blame"),
    pytest.param({"blame_max_age": "59"}, {}, "", "--blame-max-age: .*60", id="blame-too-short"),
    pytest.param({"blame_max_age": "inf"}, {}, "", "--blame-max-age: ", id="blame-for-ever"),
    pytest.param({}, {"SEGMENT_HEALTH_BLAME_JOBS": "0"}, "", "SEGMENT_HEALTH_BLAME_JOBS: .*1", id="blame-no-job"),
    pytest.param({"noded_dir": "reports"}, {}, "", "--noded-dir: not an absolute path", id="noded-dir"),
    pytest.param({"noded_max_age": "0"}, {}, "", "--noded-max-age: .*1", id="noded-no-age"),
    pytest.param({"noded_max_age": "0.5"}, {}, "", "--noded-max-age: .*1", id="noded-half-a-second"),
    pytest.param({"noded_max_age": "inf"}, {}, "", "--noded-max-age: .*finite", id="noded-infinite"),
    pytest.param({"noded_max_age": "1h"}, {}, "", "--noded-max-age: ", id="noded-hours"),
    pytest.param(
        {},
        {"SEGMENT_HEALTH_NODED_UNKNOWN_LEVEL": "Bad"},
        "",
        "SEGMENT_HEALTH_NODED_UNKNOWN_LEVEL: ",
        id="noded-level",
    ),
    pytest.param({"on_separate": "echo it's"}, {}, "", "--on-separate", id="unbalanced-quote"),
    pytest.param({"on_separate": " "}, {}, "", "--on-separate", id="no-command"),
    pytest.param({"cluster": "a/b"}, {}, "", "--cluster", id="cluster"),
    pytest.param({"user": ""}, {}, "", "--user", id="empty-user"),
    pytest.param({}, {}, "timeout = [", "c.toml:1: not TOML", id="broken-file"),
    pytest.param({}, {}, "a = " + "[" * 5000, "not TOML", id="deep-file"),
    pytest.param({}, {}, "timeout = 'a'\n", "timeout in .*: ", id="file-value"),
]


@pytest.mark.parametrize(("flags", "environ", "content", "message"), REFUSED)
def test_what_is_refused(
    tmp_path: Path, flags: dict[str, object], environ: dict[str, str], content: str, message: str
) -> None:
    """The line names who said it, and the nearest thing that would have been known."""
    path = tmp_path / "c.toml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=message) as refused:
        load(flags, environ, str(path))
    assert "\n" not in str(refused.value)


NUMBER = "Input should be a valid number, unable to parse string as a number"
INTEGER = "Input should be a valid integer, unable to parse string as an integer"
BOOLEAN = "Input should be a valid boolean"
LEVELS = "Input should be 'PreSeparateFault' or 'SeparateFault'"
TAKEN: list[tuple[str, object, object]] = [
    *(("timeout", told, 60.0) for told in (60, 60.0, "60", "60.", "+60.0", " 60\n", "6e1", "6_0", "0060")),
    ("timeout", ".5", 0.5),
    ("timeout", "5e-324", 5e-324),
    ("timeout", True, 1.0),
    ("timeout", 3600, 3600.0),
    ("interval", 5, 5.0),
    ("interval", 86400, 86400.0),
    ("stale_after", "never", "never"),
    *(("stale_after", told, float("inf")) for told in ("inf", "+Infinity", float("inf"), "1e400")),
    ("noded_max_age", "never", "never"),
    ("noded_max_age", True, 1.0),
    *(("hold_passes", told, 60) for told in (60, 60.0, "60", "60.00", "+60", " 60\n", "6_0", "0060", "6_0.0")),
    ("hold_passes", True, 1),
    ("hold_passes", 1_000_000, 1_000_000),
    ("blame_jobs", "1000", 1000),
    *(("adopt", told, True) for told in (True, 1, 1.0, "1", "on", "ON", "t", "true", "tRuE", "y", "Yes")),
    *(("adopt", told, False) for told in (False, 0, 0.0, "0", "off", "f", "False", "n", "NO")),
    ("dir", "", ""),
    ("dir", "\udcff", "\udcff"),
    ("user", "ä", "ä"),
    ("job", 5, ("5",)),
    ("job", [60, "61, 62"], ("60", "61", "62")),
    ("listen", 9400, "9400"),
    ("cluster", "Big.One", "big.one"),
    ("publish_at", "SeparateFault", "SeparateFault"),
]
NOT_TAKEN: list[tuple[str, object, str]] = [
    *(
        ("timeout", told, NUMBER)
        for told in ("", "soon", "_60", "60_", "6__0", "0x10", "1,5", "٦", "6\0", "- 6", "6s")
    ),
    *(("timeout", told, "Input should be a valid number") for told in ([60], {"a": 1}, date(2026, 1, 1), 10**400)),
    ("timeout", False, "Input should be greater than 0"),
    ("timeout", "-inf", "Input should be greater than 0"),
    *(
        ("timeout", told, "Input should be less than or equal to 3600")
        for told in ("inf", "nan", 3600.01, "1e400")
    ),
    ("interval", 4.99, "Input should be greater than or equal to 5"),
    ("interval", float("nan"), "Input should be less than or equal to 86400"),
    ("blame_max_age", 31_536_001, "Input should be less than or equal to 31536000"),
    ("blame_max_age", 59, "Input should be greater than or equal to 60"),
    *(("stale_after", told, "Input should be greater than 0") for told in (0, "nan", -1)),
    *(("stale_after", told, NUMBER) for told in ("Never", " never", "")),
    *(("noded_max_age", told, "Input should be a finite number") for told in ("inf", float("nan"), "-inf")),
    ("noded_max_age", "0.9", "Input should be greater than or equal to 1"),
    *(
        ("hold_passes", told, INTEGER)
        for told in ("", "1.5", "5.", ".5", "1e2", "inf", "0x5", "_5", "5_", "٥", "5\0")
    ),
    ("hold_passes", 1.5, "Input should be a valid integer, got a number with a fractional part"),
    ("hold_passes", float("inf"), "Input should be a finite number"),
    ("hold_passes", float("nan"), "Input should be a finite number"),
    ("hold_passes", [1], "Input should be a valid integer"),
    ("hold_passes", "9" * 4301, "Unable to parse input string as an integer, exceeded maximum size"),
    ("hold_passes", 1_000_001, "Input should be less than or equal to 1000000"),
    ("hold_passes", False, "Input should be greater than or equal to 1"),
    *(("adopt", told, f"{BOOLEAN}, unable to interpret input") for told in ("", "2", " 1", "1.0", "ja", 2, -1)),
    *(("adopt", told, BOOLEAN) for told in (1.5, float("nan"), [1], {"a": 1})),
    *(("dir", told, "Input should be a valid string") for told in (1, True, [1], 1.5)),
    ("slurm_conf", 1, "Input should be a valid string"),
    ("clear_after", 3, "Input should be a valid string"),
    ("user", "", "String should have at least 1 character"),
    ("user", 1, "Input should be a valid string"),
    ("user", "\udcff", "Input should be a valid string, unable to parse raw data as a unicode string"),
    *(("publish_at", told, LEVELS) for told in ("", "separatefault", 1, True, {"a": 1}, ["SeparateFault"])),
    ("source", "carrier pigeon", "Input should be 'auto', 'text', 'json', 'rest' or 'pyslurm'"),
]


@pytest.mark.parametrize(("key", "told", "expected"), TAKEN)
def test_what_a_value_is_taken_for(key: str, told: object, expected: object) -> None:
    """Flags and variables are texts, a file has types: either may say the same, in each of its ways."""
    found = getattr(load({key: told}, {}, None), key)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("key", "told", "problem"), NOT_TAKEN)
def test_what_is_said_of_a_value_that_is_none(key: str, told: object, problem: str) -> None:
    """The sentence says what would have been one, and repeats what was told."""
    with pytest.raises(SettingsError) as refused:
        load({key: told}, {}, None)
    said = str(refused.value)
    assert said.startswith(f"--{key.replace('_', '-')}: {problem}, got ")
    assert len(said) < 400


@pytest.mark.parametrize("key", ["rest_url", "rest_jwt_file"])
def test_what_may_be_a_secret_is_not_repeated(key: str) -> None:
    """Somebody may have put a token where its file, or the address, belongs."""
    with pytest.raises(SettingsError) as refused:
        load({key: "eyJhbGciOi"}, {}, None)
    assert "eyJ" not in str(refused.value)


def test_the_first_setting_that_is_wrong_is_named() -> None:
    """In the order in which they are listed, whoever said which."""
    with pytest.raises(SettingsError, match=r"^--timeout: "):
        load({"adopt": "?", "timeout": "?"}, {"SEGMENT_HEALTH_INTERVAL": "?"}, None)


def test_an_unknown_flag_is_refused() -> None:
    """No layer may bring a key that means nothing."""
    with pytest.raises(SettingsError, match=r"^unknown setting --time-out; the nearest known one is --timeout$"):
        load({"time_out": "3"}, {}, None)


def test_settings_do_not_change() -> None:
    """Whoever reads them twice reads the same."""
    told = Settings()
    with pytest.raises(AttributeError):
        told.timeout = 5.0  # type: ignore[misc]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A configuration file that was named must be there, and be a file of text."""
    with pytest.raises(SettingsError, match="No such file"):
        load({}, {}, str(tmp_path / "missing"))
    with pytest.raises(SettingsError, match="Is a directory"):
        load({}, {}, str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not TOML"):
        load({}, {}, str(tmp_path / "binary"))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"job": "12;rm"}, "not a job id"),
        ({"job": tuple(str(10**19 + n) for n in range(9))}, "too long"),
        ({"job": "123_7"}, "not a job id"),
        ({"job": "１２"}, "not a job id"),
        ({"job": tuple(map(str, range(20)))}, "more than 16"),
        ({"user": "../root"}, "not the name of a user"),
        ({"user": "a b"}, "not the name of a user"),
        ({"partition": "x/y"}, "not the name of a partition"),
        ({"user": "a", "all": True}, "exclude each other"),
    ],
)
def test_a_scope_that_cannot_be_one(told: dict[str, Any], message: str) -> None:
    """Scopes become file names, so nothing but plain names and digits passes."""
    with pytest.raises(SettingsError, match=message):
        load(told, {}, None).scope(None)


@pytest.mark.parametrize("given", [{"nodes_from": "/x"}, {"jobs_from": "/x"}])
def test_saved_answers_come_in_pairs(given: dict[str, str]) -> None:
    """Saved nodes beside living jobs would be no snapshot."""
    with pytest.raises(SettingsError, match="go together"):
        load(given, {}, None).saved_answers()
    assert Settings().saved_answers() is None
    assert Settings(nodes_from="/n", jobs_from="/j").saved_answers() == ("/n", "/j")


@pytest.mark.parametrize("what", ["\x1b[2J\n", "\udcff", "Q" * 100_000])
def test_a_name_of_the_environment_is_quoted(what: str) -> None:
    """Whatever somebody named a variable, what is said of it is one short line that any terminal can show."""
    with pytest.raises(SettingsError, match="unknown setting") as refused:
        load({}, {f"SEGMENT_HEALTH_{what}": "1"}, None)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_what_is_too_long(tmp_path: Path) -> None:
    """A file is read whole or refused, and a command that nobody typed costs no time."""
    path = tmp_path / "settings.toml"
    path.write_text("interval = 60\n" + "#\n" * (1 << 19))
    with pytest.raises(SettingsError, match="larger than"):
        load({}, {}, str(path))
    with pytest.raises(SettingsError, match="ON_SEPARATE: not a command"):
        load({}, {"SEGMENT_HEALTH_ON_SEPARATE": "x" * 200_000}, None)

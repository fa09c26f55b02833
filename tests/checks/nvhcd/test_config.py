"""nvhcd's configuration: what is taken, and what is said of what is not."""

from __future__ import annotations

import os

import pytest

from segment_health.checks.builtin.settings import Builtin, ConfigError
from segment_health.checks.nvhcd.config import Config, builtins_of, parse, remarks
from segment_health.checks.nvhcd.program import argv

LEAST = "socket_path: /run/nvhcd/nvhcd.sock\nhealthcheck_path: /usr/sbin/check\n"


def read(more: str) -> Config:
    """Read what is needed, and more."""
    return parse((LEAST + more).encode(), "c.yaml")


def test_what_it_is_without_a_word() -> None:
    """Every job's user may ask, each rendezvous gets an answer of its own, while NVRx's client still waits."""
    config = read("")
    assert config.model_dump() == {
        "socket_path": "/run/nvhcd/nvhcd.sock",
        "healthcheck_path": "/usr/sbin/check",
        "log_level": "info",
        "timeout": 55,
        "cache": 0,
        "max_programs": 4,
        "socket_mode": 0o666,
        "socket_owner": None,
        "socket_group": None,
        "builtin": Builtin().model_dump(),
    }
    assert remarks(config) == ()


def test_every_key() -> None:
    """Names of users and groups are looked up; what the built-in checks are told is theirs."""
    config = read(
        'log_level: warn\ntimeout: 10.5\ncache: 3\nmax_programs: 2\nsocket_mode: "0660"\nsocket_owner: root\n'
        "socket_group: 12345\nbuiltin: {paths: [/data]}\n"
    )
    assert (config.log_level, config.timeout, config.cache, config.max_programs) == ("warn", 10.5, 3, 2)
    assert (config.socket_mode, config.socket_owner, config.socket_group) == (0o660, 0, 12345)
    assert config.builtin == Builtin(paths=("/data",))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("timeout: 0", "c.yaml: timeout: Input should be greater than 0, got 0"),
        ("timeout: .nan", "c.yaml: timeout: Input should be a finite number, got nan"),
        ("timeout: 2m", "c.yaml: timeout: Input should be a valid number"),
        ("timeout: 1" + 5000 * "0", "c.yaml: "),
        ("log_level: loud", "c.yaml: log_level: Input should be 'debug', 'info', 'warn', 'warning' or 'error'"),
        ("cache: -1", "c.yaml: cache: "),
        ("max_programs: 0", "c.yaml: max_programs: "),
        ("socket_mode: 0660", 'c.yaml: socket_mode: not a mode in quotes, such as "0660", got 432'),
        ('socket_mode: "0999"', "c.yaml: socket_mode: not a mode in quotes"),
        ('socket_mode: "4755"', "c.yaml: socket_mode: not a mode in quotes"),
        ("socket_owner: no-such-user", "c.yaml: socket_owner: no such user, got 'no-such-user'"),
        ("socket_owner: -1", "c.yaml: socket_owner: no such user"),
        ("socket_owner: true", "c.yaml: socket_owner: no such user"),
        ("socket_owner: 4294967295", "c.yaml: socket_owner: no such user"),
        ("socket_group: 99999999999", "c.yaml: socket_group: no such group"),
        ("timeout: true", "c.yaml: timeout: Input should be a valid number, got True"),
        ("cache: yes", "c.yaml: cache: Input should be a valid number, got True"),
        ("max_programs: true", "c.yaml: max_programs: Input should be a valid integer, got True"),
        ("socket_path: /run/a,b", "c.yaml: socket_path: has a comma"),
        ("socket_group: no-such-group", "c.yaml: socket_group: no such group"),
        ("builtin: [paths]", "c.yaml: builtin: Input should be a valid dictionary"),
        ("builtin: {path: /a}", "c.yaml: unknown key builtin.path; the nearest known one is paths"),
        ("builtin: {paths: a}", "c.yaml: builtin.paths: not an absolute path: 'a'"),
        ("healthcheck_path: builtin:paths", "c.yaml: builtin.paths: `paths` has none to look at"),
        ("healthcheck_path: builtin:slurm,segment", "c.yaml: builtin.segment_health_check_dir: `segment` needs"),
        ("time_out: 3", "c.yaml: unknown key 'time_out'; the nearest known one is timeout"),
        ("Timeout: 3", "the nearest known one is timeout"),
        ("7: 3", "c.yaml: unknown key 7; "),
        ("socket_path: relative", "c.yaml: socket_path: not an absolute path, got 'relative'"),
        ("socket_path: /" + 107 * "x", "the path of a UNIX socket has at most 107 bytes"),
        ("socket_path: /run/", "c.yaml: socket_path: the path of a directory"),
        ("socket_path: 7", "c.yaml: socket_path: Input should be a valid string, got 7"),
        ("healthcheck_path: check", "neither an absolute path nor builtin:NAME[,NAME...], got 'check'"),
        ("healthcheck_path: 'builtin:'", "no built-in check ''"),
        (
            "healthcheck_path: builtin:gpu",
            "no built-in check 'gpu'; there are slurm, storage, paths, nhc, segment",
        ),
        ("a: b: c", "c.yaml:3: not YAML: "),
        ("- x", "not YAML"),
        ("timeout: \x1b[31m", "not YAML"),
        ('log_level: "\\e[31m"', r"got '\x1b[31m'"),
    ],
)
def test_a_mistake_names_file_and_key(more: str, said: str) -> None:
    """One line that can be printed, whatever stands in the file."""
    with pytest.raises(ConfigError) as caught:
        read(more)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "c.yaml: not a mapping of keys to values"),
        (b"just text", "c.yaml: not a mapping of keys to values"),
        (b"socket_path: /s\n", "c.yaml: healthcheck_path is missing"),
        (b"healthcheck_path: /s\n", "c.yaml: socket_path is missing"),
        (b"\xff\xfe\x00", "c.yaml: not YAML: "),
        (b"a: &a [*a]\n", "c.yaml: unknown key 'a'"),
        (b"? [x]\n: y\n", "c.yaml"),
    ],
)
def test_what_is_no_configuration(content: bytes, said: str) -> None:
    """Nothing, something else, or half of one."""
    with pytest.raises(ConfigError) as caught:
        parse(content, "c.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize(("timeout", "warns"), [("58", False), ("58.5", True), ("120", True)])
def test_a_time_beyond_the_clients_is_remarked(timeout: str, warns: bool) -> None:
    """The seed's own sample has 120 s; the client does not wait that long, and what it does then is said."""
    told = remarks(read(f"timeout: {timeout}"))
    assert bool(told) is warns
    if warns:
        assert (
            f"timeout: {timeout} s, but NVRx's client gives up after 60 s and treats the node as healthy"
            in told[0]
        )


def test_the_command_line() -> None:
    """A program gets what the request has; built-in checks get the configuration instead."""
    assert argv(read(""), "/c.yaml", ["--no-slurm", "x"]) == ["/usr/sbin/check", "--no-slurm", "x"]
    config = read("healthcheck_path: builtin:slurm, storage\n")
    assert builtins_of(config.healthcheck_path) == ("slurm", "storage")
    command = argv(config, "/c.yaml", ["--no-slurm"])
    assert os.path.isabs(command[0])
    assert command[1:] == ["-m", "segment_health", "builtin", "slurm", "storage", "--config", "/c.yaml"]

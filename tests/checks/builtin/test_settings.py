"""nvhcd's configuration, as the built-in checks read it: their keys, their time, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segment_health.checks.builtin.settings import Builtin, ConfigError, load, parse

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = b"""
socket_path: /run/nvhcd/nvhcd.sock
healthcheck_path: builtin:slurm,paths
timeout: 120
builtin:
  paths: "/data, /home"
  storage_types: [lustre]
  segment_health_check_dir: /shared
  policy: /etc/policy.toml
  publish_at: SeparateFault
  node_name: n1
  slurm_conf: /etc/slurm/slurm.conf
  slurm_bin_dir: /usr/bin
  nhc: /opt/nhc
"""


def test_every_key(tmp_path: Path) -> None:
    """What stands in the file is what the checks are told; the rest is nvhcd's."""
    path = tmp_path / "config.yaml"
    path.write_bytes(WHOLE)
    told, seconds = load(str(path))
    assert seconds == 115
    assert told == Builtin(
        paths=("/data", "/home"),
        storage_types=("lustre",),
        segment_health_check_dir="/shared",
        policy="/etc/policy.toml",
        publish_at="SeparateFault",
        node_name="n1",
        slurm_conf="/etc/slurm/slurm.conf",
        slurm_bin_dir="/usr/bin",
        nhc="/opt/nhc",
    )


@pytest.mark.parametrize(
    ("content", "seconds"),
    [(b"{}", 50), (b"builtin:\ntimeout: 10", 9), (b"timeout: 60", 55)],
    ids=["none", "10", "60"],
)
def test_what_need_not_be_said(content: bytes, seconds: float) -> None:
    """Every key has a default, and of the time a tenth is left for the answer, or 5 s."""
    assert parse(content, "c.yaml") == (Builtin(), seconds)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"builtin: {path: [/a]}", "unknown key builtin.path; the nearest known one is paths"),
        (b"builtin: {paths: [a]}", "builtin.paths: not an absolute path: 'a'"),
        (b"builtin: {segment_health_check_dir: a}", "builtin.segment_health_check_dir: not an absolute path"),
        (b"builtin: {policy: a}", "builtin.policy: not an absolute path"),
        (b"builtin: {publish_at: NotHandleFault}", "builtin.publish_at: "),
        (b"builtin: {storage_types: []}", "builtin.storage_types: "),
        (b"builtin: {node_name: 'n[1-2]'}", "builtin.node_name: "),
        (b"builtin: {nhc: [1]}", "builtin.nhc: "),
        (b"builtin: [1]", "builtin: "),
        (b"builtin: {1: 2}", "builtin"),
        (b"timeout: soon", "timeout: "),
        (b"timeout: .inf", "timeout: "),
        (b"[1]", "not a mapping"),
        (b"a: [\n", "c.yaml:2: not YAML"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_what_is_refused(content: bytes, complaint: str) -> None:
    """One line with the file and the key."""
    with pytest.raises(ConfigError) as raised:
        parse(content, "c.yaml")
    assert str(raised.value).startswith("c.yaml:")
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("path", ["/no/such", "/dev/zero", "a\0b"])
def test_a_file_that_cannot_be_read(path: str) -> None:
    """It is a mistake like another."""
    with pytest.raises(ConfigError):
        load(path)

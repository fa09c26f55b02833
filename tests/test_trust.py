"""Who else may write to a directory: whom the system lets, not whom we would like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from segment_health.store import open_decisions
from segment_health.trust import stranger

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of ours below another one of ours."""
    made = tmp_path / "shared" / "decisions"
    made.mkdir(parents=True)
    for path in (made, made.parent):
        path.chmod(0o755)
    return made


def test_a_directory_of_ours(directory: Path) -> None:
    """Nobody else may write to it, though everybody may write to /tmp above it, which is sticky."""
    assert stranger(str(directory)) is None
    assert stranger(f"{directory}/") is None


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0o777, "everybody may write to {} (mode 0777)"),
        (0o1777, "everybody may write to {} (mode 1777)"),
        (0o775, "the group {group} may write to {} (mode 0775)"),
        (0o2770, "the group {group} may write to {} (mode 2770)"),
    ],
)
def test_others_may_write(directory: Path, mode: int, told: str) -> None:
    """Every right to write counts, sticky or not; it is named with the mode."""
    directory.chmod(mode)
    assert stranger(str(directory)) == told.format(directory, group=directory.stat().st_gid)
    with pytest.raises(PermissionError, match="may write to"), open_decisions(str(directory), guarded=True):
        pass
    with open_decisions(str(directory)):
        pass


def test_others_may_put_another_one_in_its_place(directory: Path) -> None:
    """Who may write to the directory above may exchange this one, unless that is sticky."""
    directory.parent.chmod(0o777)
    assert stranger(str(directory)) == f"everybody may write to {directory.parent} (mode 0777)"
    with pytest.raises(PermissionError, match="may write to"), open_decisions(str(directory), guarded=True):
        pass
    directory.parent.chmod(0o1777)
    assert stranger(str(directory)) is None


def test_a_link(directory: Path) -> None:
    """A link is refused as the directory itself; on the way there both ways count."""
    link = directory.parent.parent / "link"
    link.symlink_to(directory)
    assert stranger(str(link)) == f"{link} is a symbolic link: name the directory itself"
    with pytest.raises(OSError, match="directory"), open_decisions(str(link), guarded=True):
        pass
    above = directory.parent.parent / "above"
    above.symlink_to(directory.parent)
    assert stranger(str(above / "decisions")) is None
    directory.parent.chmod(0o777)
    assert stranger(str(above / "decisions")) == f"everybody may write to {directory.parent} (mode 0777)"


def test_every_link_on_the_way_counts(directory: Path) -> None:
    """A link may lead through another one, up and down, and each directory that one of them stands in counts."""
    root = directory.parent.parent
    (root / "open").mkdir()
    (root / "open" / "second").symlink_to("../shared")
    (root / "first").symlink_to("open/second/.")
    assert stranger(str(root / "first" / "decisions")) is None
    (root / "open").chmod(0o777)
    told = f"everybody may write to {root / 'open'} (mode 0777)"
    assert stranger(str(root / "first" / "decisions")) == told
    (root / "open").chmod(0o1777)
    assert stranger(str(root / "first" / "decisions")) is None


@pytest.mark.root
def test_somebody_elses_link(directory: Path) -> None:
    """Where others may make a link, in /tmp, one that leads to a good place today may lead elsewhere tomorrow."""
    above = directory.parent.parent / "above"
    above.symlink_to(directory.parent)
    os.chown(above, 65534, -1, follow_symlinks=False)
    told = f"the symbolic link {above} belongs to uid 65534, neither root nor this user (0)"
    assert stranger(str(above / "decisions")) == told
    assert stranger(f"{above}/decisions/") == told
    end = directory.parent.parent / "end"
    end.symlink_to(directory)
    os.chown(end, 65534, -1, follow_symlinks=False)
    assert stranger(f"{end}/") == f"the symbolic link {end} belongs to uid 65534, neither root nor this user (0)"


@pytest.mark.root
def test_somebody_elses(directory: Path) -> None:
    """A directory of another user's, or below one, is theirs to change."""
    os.chown(directory, 65534, -1)
    assert stranger(str(directory)) == f"{directory} belongs to uid 65534, neither root nor this user (0)"
    os.chown(directory, 0, -1)
    os.chown(directory.parent, 65534, -1)
    assert stranger(str(directory)) == f"{directory.parent} belongs to uid 65534, neither root nor this user (0)"


def test_what_is_not_there(directory: Path) -> None:
    """A directory that cannot be looked at is an error, and no verdict."""
    with pytest.raises(FileNotFoundError):
        stranger(str(directory / "nowhere"))

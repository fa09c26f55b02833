"""A directory of NodeD's: files, mounted ConfigMaps, and whatever else may lie there."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from segment_health.level import FaultLevel
from segment_health.noded.config import FILE, OVERRIDE, ConfigurationError
from segment_health.noded.directory import MAX_REMARKS, NodeReports
from segment_health.noded.report import PREFIX, Device, Report, encode
from segment_health.sources import SourceUnknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[[Path, Path], None]

OK, PRE, SEPARATE = FaultLevel
NOW = 1_796_000_000
CPU = encode(Report((Device("CPU", 1, ("0000001D",), "PreSeparateFault"),), "PreSeparate"))
UNLISTED = encode(Report((Device("CPU", 1, ("00000011",), "SeparateFault"),), "UnHealthy"))
NODES = ["n1", "n2", "n3"]


def put(directory: Path, name: str, content: bytes, age: int = 0) -> Path:
    """A file of that age."""
    path = directory / name
    path.write_bytes(content)
    os.utime(path, (NOW - age, NOW - age))
    return path


def mount(directory: Path, name: str, **keys: bytes) -> Path:
    """A ConfigMap as Kubernetes mounts it."""
    folder, moment = directory / name, "..2026_11_29_12_00_00.123"
    (folder / moment).mkdir(parents=True)
    (folder / "..data").symlink_to(moment)
    for key, content in keys.items():
        put(folder / moment, key, content)
        (folder / key).symlink_to(f"..data/{key}")
    return folder


def configuration(**lists: list[str]) -> bytes:
    """A configuration with these lists."""
    return json.dumps({"FaultTypeCode": lists}).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that is mounted: our own export has left its mark."""
    folder = tmp_path / "noded"
    folder.mkdir()
    put(folder, ".segment-health-export", b"")
    return folder


def read(directory: Path, max_age: int | None = None, now: int = NOW) -> dict[str, tuple[object, bool, str]]:
    """What the reports say of the three nodes: level, final, rule."""
    reports = NodeReports(str(directory), max_age).read(NODES, now)
    return {name: (told.level, told.final, told.rule) for name, told in reports.assessments.items()}


def remarks(directory: Path, max_age: int | None = None, nodes: list[str] | None = None) -> list[str]:
    """What a person hears."""
    return NodeReports(str(directory), max_age).read(nodes or NODES, NOW).remarks


# ── reports ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_missing_report_is_health(directory: Path) -> None:
    """NodeD takes a report away when there is nothing to report."""
    assert NodeReports(str(directory), 3600).read(NODES, NOW).assessments == {}
    assert remarks(directory) == []


def test_file(directory: Path) -> None:
    """A file named like the ConfigMap holds the JSON of its key."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    assert read(directory) == {"n1": (PRE, True, "noded:0000001D")}
    assert remarks(directory) == []


def test_mounted_config_map(directory: Path) -> None:
    """A ConfigMap is mounted as a folder with links in it."""
    mount(directory, "mindx-dl-nodeinfo-n1", NodeInfo=CPU, updateTime=b"2026-11-30T00:53:20Z")
    assert read(directory, 3600) == {"n1": (PRE, True, "noded:0000001D")}


def test_plain_folder(directory: Path) -> None:
    """A folder with plain files, as somebody copied it, is read too; without updateTime the file's time counts."""
    folder = directory / "mindx-dl-nodeinfo-n1"
    folder.mkdir()
    put(folder, "NodeInfo", CPU, age=10)
    assert read(directory, 60) == {"n1": (PRE, True, "noded:0000001D")}
    assert read(directory, 9)["n1"] == (None, False, "noded:stale")


def test_projected_volume(directory: Path) -> None:
    """A volume that projects many ConfigMaps has the links at its top."""
    moment = directory / "..2026"
    (moment / "mindx-dl-nodeinfo-n2").mkdir(parents=True)
    put(moment, "mindx-dl-nodeinfo-n1", CPU)
    put(moment / "mindx-dl-nodeinfo-n2", "NodeInfo", CPU)
    put(moment, FILE, configuration(SeparateFaultCodes=["0000001D"]))
    (directory / "..data").symlink_to("..2026")
    for name in ("mindx-dl-nodeinfo-n1", "mindx-dl-nodeinfo-n2", FILE):
        (directory / name).symlink_to(f"..data/{name}")
    assert read(directory) == dict.fromkeys(["n1", "n2"], (SEPARATE, True, "noded:0000001D"))


def test_mounted_config_map_that_is_gone_is_health(directory: Path) -> None:
    """An optional volume whose ConfigMap was taken away has no key left."""
    mount(directory, "mindx-dl-nodeinfo-n1")
    assert read(directory) == {}
    assert remarks(directory) == []


def test_empty_folder_is_no_health(directory: Path) -> None:
    """A folder into which nothing is mounted tells nothing."""
    (directory / "mindx-dl-nodeinfo-n1").mkdir()
    assert read(directory) == {"n1": (None, False, "noded:unreadable")}
    assert remarks(directory) == ["NodeD: report of n1: cannot be read (No such file or directory): no verdict"]


def test_mounted_config_map_without_the_key_is_no_health(directory: Path) -> None:
    """Half a ConfigMap is not one that was taken away."""
    mount(directory, "mindx-dl-nodeinfo-n1", updateTime=b"2026-11-30T00:53:20Z")
    assert read(directory) == {"n1": (None, False, "noded:unreadable")}


DAMAGED = {
    "wrong-check-code": CPU.replace(b"230d", b"230e"),
    "forged-status": CPU.replace(b'"NodeStatus":"PreSeparate"', b'"NodeStatus":"Healthy"'),
    "empty": b"",
    "half": CPU[:100],
    "not-json": b"healthy\n",
    "configuration": configuration(SeparateFaultCodes=["0000001D"]),
    "too-large": CPU + b" " * (1024 * 1024),
    "not-text": b"\xff\xfe",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_report_is_no_verdict(name: str, directory: Path) -> None:
    """A report that ClusterD would not take tells nothing of its node, and the others count."""
    put(directory, "mindx-dl-nodeinfo-n1", DAMAGED[name])
    put(directory, "mindx-dl-nodeinfo-n2", CPU)
    assert read(directory) == {
        "n1": (None, False, "noded:unreadable"),
        "n2": (PRE, True, "noded:0000001D"),
    }
    (remark,) = remarks(directory)
    assert remark.startswith("NodeD: report of n1: ")
    assert remark.endswith(": no verdict")


def make_fifo(path: Path, _: Path) -> None:
    """A fifo that nobody writes to."""
    os.mkfifo(path)


def make_socket(path: Path, _: Path) -> None:
    """A socket."""
    with socket.socket(socket.AF_UNIX) as server:
        where = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{where}/{path.name}")
        os.close(where)


def make_link_out(path: Path, outside: Path) -> None:
    """A link to a good report elsewhere."""
    path.symlink_to(put(outside, "good", CPU))


def make_link_beside(path: Path, _: Path) -> None:
    """A link to a good report in the same directory."""
    put(path.parent, "good", CPU)
    path.symlink_to("good")


def make_loop(path: Path, _: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def make_data_out(path: Path, outside: Path) -> None:
    """A folder whose `..data` leads out of it."""
    path.mkdir()
    put(outside, "NodeInfo", CPU)
    (path / "..data").symlink_to(outside)
    (path / "NodeInfo").symlink_to("..data/NodeInfo")


def make_data_up(path: Path, _: Path) -> None:
    """A folder whose `..data` leads up."""
    path.mkdir()
    put(path.parent, "NodeInfo", CPU)
    (path / "..data").symlink_to("..")


def make_data_through_a_link(path: Path, outside: Path) -> None:
    """A folder whose `..data` leads to a link out of it."""
    path.mkdir()
    put(outside, "NodeInfo", CPU)
    (path / "..moment").symlink_to(outside)
    (path / "..data").symlink_to("..moment")


def make_key_a_link(path: Path, outside: Path) -> None:
    """A folder whose key leads out of it."""
    path.mkdir()
    (path / "NodeInfo").symlink_to(put(outside, "good", CPU))


def make_key_a_fifo(path: Path, _: Path) -> None:
    """A folder whose key is a fifo."""
    path.mkdir()
    os.mkfifo(path / "NodeInfo")


def make_key_a_folder(path: Path, _: Path) -> None:
    """A folder whose key is one too."""
    (path / "NodeInfo").mkdir(parents=True)


def make_data_dangling(path: Path, _: Path) -> None:
    """A mount that is being taken down."""
    path.mkdir()
    (path / "..data").symlink_to("..gone")


@pytest.mark.parametrize(
    "make",
    [
        make_fifo, make_socket, make_link_out, make_link_beside, make_loop, make_data_out, make_data_up,
        make_data_through_a_link, make_key_a_link, make_key_a_fifo, make_key_a_folder, make_data_dangling,
    ],
)  # fmt: skip
@pytest.mark.timeout(30)
def test_what_is_no_report_is_never_followed_nor_waited_for(make: Make, directory: Path, tmp_path: Path) -> None:
    """Whatever lies under a report's name, the reader stays in the directory, and does not hang."""
    outside = tmp_path / "outside"
    outside.mkdir()
    make(directory / "mindx-dl-nodeinfo-n1", outside)
    assert read(directory) == {"n1": (None, False, "noded:unreadable")}
    assert len(remarks(directory)) == 1


def test_report_that_may_not_be_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that only somebody else may read tells nothing; root may read all, so the refusal is played."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU).chmod(0)
    usual = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "mindx-dl-nodeinfo-n1":
            raise PermissionError(13, "Permission denied", path)
        return usual(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    assert read(directory) == {"n1": (None, False, "noded:unreadable")}
    assert remarks(directory) == ["NodeD: report of n1: cannot be read (Permission denied): no verdict"]


def test_report_that_vanishes_between_listing_and_reading(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went away a moment ago is not known to be health before the next pass."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    usual = os.listdir

    def late(path: int) -> list[str]:
        names = usual(path)
        (directory / "mindx-dl-nodeinfo-n1").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", late)
    assert read(directory) == {"n1": (None, False, "noded:unreadable")}


# ── age ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("age", "max_age", "fresh"),
    [
        (0, 3600, True),
        (3600, 3600, True),
        (3601, 3600, False),
        (10**9, None, True),
        (-60, 3600, True),
        (-61, 3600, False),
        (-61, None, True),
        (0, 0, True),
        (1, 0, False),
    ],
    ids=["now", "just", "stale", "any-age", "clocks-apart", "future", "future-any-age", "zero", "above-zero"],
)
@pytest.mark.parametrize("form", ["file", "mounted"])
def test_age(age: int, max_age: int | None, fresh: bool, form: str, directory: Path) -> None:
    """A stale report, and one from the future, is no verdict; the age is a file's, or what updateTime says."""
    if form == "file":
        put(directory, "mindx-dl-nodeinfo-n1", CPU, age)
    else:
        told = datetime.fromtimestamp(NOW - age, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        mount(directory, "mindx-dl-nodeinfo-n1", NodeInfo=CPU, updateTime=told.encode())
    expected = (PRE, True, "noded:0000001D") if fresh else (None, False, "noded:stale")
    assert read(directory, max_age) == {"n1": expected}
    assert len(remarks(directory, max_age)) == (not fresh)


def test_update_time_that_is_none(directory: Path) -> None:
    """A report whose age nobody can tell is not fresh; who does not ask for an age does not mind."""
    mount(directory, "mindx-dl-nodeinfo-n1", NodeInfo=CPU, updateTime=b"yesterday")
    assert read(directory, 3600) == {"n1": (None, False, "noded:stale")}
    assert remarks(directory, 3600) == ["NodeD: report of n1: updateTime is not a time: no verdict"]
    assert read(directory) == {"n1": (PRE, True, "noded:0000001D")}


def test_stale_reports_are_one_remark(directory: Path) -> None:
    """A NodeD that died everywhere is one line, not one a node."""
    nodes = [f"n{number}" for number in range(5)]
    for number, name in enumerate(nodes):
        put(directory, f"mindx-dl-nodeinfo-{name}", CPU, age=4000 + number)
    assert remarks(directory, 3600, nodes) == ["NodeD: report of n0, n1, n2 and 2 more: is stale: no verdict"]
    assert remarks(directory, 4003, nodes) == [
        "NodeD: report of n4: is stale (4004 s old, 4003 are allowed): no verdict"
    ]


# ── the directory itself ───────────────────────────────────────────────────────────────────────────────────────


def test_directory_without_an_entry_is_unknown(tmp_path: Path) -> None:
    """A file system that is not mounted looks like that, and is no all-clear."""
    with pytest.raises(SourceUnknown, match="as one that is not mounted"):
        NodeReports(str(tmp_path), None).read(NODES, NOW)


@pytest.mark.parametrize("what", ["missing", "file", "nul"])
def test_directory_that_cannot_be_read_is_unknown(what: str, tmp_path: Path) -> None:
    """No directory, no answer."""
    (tmp_path / "file").write_bytes(b"")
    path = f"{tmp_path}/\0" if what == "nul" else f"{tmp_path}/{what}"
    reports = NodeReports(path, None)
    with pytest.raises(SourceUnknown, match="NodeD's directory"):
        reports.read(NODES, NOW)
    with pytest.raises(SourceUnknown, match="NodeD's directory"):
        reports.check()


def test_directory_that_vanishes(directory: Path) -> None:
    """A directory that is gone in a later pass is unknown, and counts again when it is back."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    reports = NodeReports(str(directory), None)
    assert reports.read(NODES, NOW).assessments
    directory.rename(directory.with_name("gone"))
    with pytest.raises(SourceUnknown):
        reports.read(NODES, NOW)
    directory.with_name("gone").rename(directory)
    assert reports.read(NODES, NOW).assessments


def test_listing_that_fails_is_unknown(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error while listing is not an empty directory."""

    def failing(_: object) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "listdir", failing)
    with pytest.raises(SourceUnknown, match="Input/output error"):
        NodeReports(str(directory), None).read(NODES, NOW)


# ── names ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_match_whatever_their_case(directory: Path) -> None:
    """Kubernetes knows lower-case names only, Slurm both."""
    put(directory, "mindx-dl-nodeinfo-gpu-a1", CPU)
    reports = NodeReports(str(directory), None).read(["GPU-A1", "gpu-a2"], NOW)
    assert list(reports.assessments) == ["GPU-A1"]
    assert reports.remarks == []


def test_name_that_fits_to_the_letter_wins(directory: Path) -> None:
    """Two nodes that differ in case only: the report is that one's whose name it has."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    assert list(NodeReports(str(directory), None).read(["n1", "N1"], NOW).assessments) == ["n1"]


def test_ambiguous_name_is_no_verdict_on_either(directory: Path) -> None:
    """A report that may be of either of two nodes is no health of the other one."""
    put(directory, "mindx-dl-nodeinfo-ab", CPU)
    reports = NodeReports(str(directory), None).read(["aB", "Ab"], NOW)
    assert {name: (told.level, told.rule) for name, told in reports.assessments.items()} == {
        "aB": (None, "noded:ambiguous"),
        "Ab": (None, "noded:ambiguous"),
    }
    assert reports.remarks == ["NodeD: report of ab: may be of any of Ab, aB: no verdict"]


def test_two_reports_of_one_node_are_joined(directory: Path) -> None:
    """Of two files that differ in case only, the worse one counts."""
    put(directory, "mindx-dl-nodeinfo-N1", UNLISTED)
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    assert read(directory)["n1"][0] is SEPARATE


def test_strangers_are_counted(directory: Path) -> None:
    """Reports of nodes that Slurm does not list are one remark, with three names; they are not even read."""
    for number in range(5):
        put(directory, f"mindx-dl-nodeinfo-x{number}", b"")
    os.mkfifo(directory / "mindx-dl-nodeinfo-x\x1b")
    put(directory, "mindx-dl-devices-n1", b"of another component")
    assert remarks(directory) == ["NodeD: 6 reports of nodes that Slurm does not list: x\\x1b, x0, x1 and 3 more"]


def test_remarks_are_bounded(directory: Path) -> None:
    """However many things are wrong, a pass makes some dozens of lines."""
    nodes = [f"n{number}" for number in range(MAX_REMARKS + 10)]
    for name in nodes:
        report = Report((Device("CPU", 1, (f"unknown-{name}",), "PreSeparateFault"),), "PreSeparate")
        put(directory, f"{PREFIX}{name}", encode(report))
    found = remarks(directory, None, nodes)
    assert len(found) == MAX_REMARKS + 1
    assert found[-1] == "NodeD: 10 more remarks"


def test_remark_names_code_and_node(directory: Path) -> None:
    """A code in no list is a warning that says which, where, and for what it is taken."""
    put(directory, "mindx-dl-nodeinfo-n1", UNLISTED)
    put(directory, "mindx-dl-nodeinfo-n2", UNLISTED)
    assert remarks(directory) == [
        "NodeD: report of n1, n2: fault code 00000011 is in no list of the configuration: taken for SeparateFault"
    ]


# ── configuration ──────────────────────────────────────────────────────────────────────────────────────────────


def level_of_cpu(directory: Path) -> object:
    """The level that the code 0000001D has in this directory."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    return read(directory)["n1"][0]


def test_shipped_configuration_without_any(directory: Path) -> None:
    """Without a configuration the shipped one is in force."""
    assert level_of_cpu(directory) is PRE


def test_file_before_the_shipped_one(directory: Path) -> None:
    """The file of the directory counts instead of what is shipped."""
    put(directory, FILE, configuration(SeparateFaultCodes=["0000001d"]))
    assert level_of_cpu(directory) is SEPARATE


@pytest.mark.parametrize("form", ["file", "mounted", "folder"])
def test_override_before_the_file(form: str, directory: Path) -> None:
    """The override counts instead of the file, whatever its form."""
    put(directory, FILE, configuration(SeparateFaultCodes=["0000001D"]))
    override = configuration(NotHandleFaultCodes=["0000001D"])
    if form == "file":
        put(directory, OVERRIDE, override)
    elif form == "mounted":
        mount(directory, OVERRIDE, **{FILE: override})
    else:
        (directory / OVERRIDE).mkdir()
        put(directory / OVERRIDE, FILE, override)
    assert level_of_cpu(directory) is OK


def test_configuration_of_a_folder(directory: Path) -> None:
    """The file may be a mounted folder too."""
    mount(directory, FILE, **{FILE: configuration(SeparateFaultCodes=["0000001D"])})
    assert level_of_cpu(directory) is SEPARATE


BAD = {
    "not-json": b"{",
    "conflict": configuration(NotHandleFaultCodes=["0000001D"], SeparateFaultCodes=["0000001D"]),
    "no-code": configuration(),
    "empty": b"",
    "too-large": b" " * (1024 * 1024 + 1),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("where", [FILE, OVERRIDE])
def test_bad_configuration_at_first_is_refused(name: str, where: str, directory: Path) -> None:
    """Upstream grades every fault as none then; here nothing starts, and no file stands in for a bad override."""
    if where == OVERRIDE:
        put(directory, FILE, configuration(SeparateFaultCodes=["0000001D"]))
    put(directory, where, BAD[name])
    reports = NodeReports(str(directory), None)
    with pytest.raises(ConfigurationError) as caught:
        reports.check()
    assert caught.value.path == f"{directory}/{where}"
    with pytest.raises(SourceUnknown, match="NodeD's configuration: "):
        reports.read(NODES, NOW)


@pytest.mark.parametrize("name", BAD)
def test_bad_configuration_later_keeps_the_last_good_one(name: str, directory: Path) -> None:
    """A configuration that goes bad changes nothing but what a person hears; a good one counts at once."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    put(directory, OVERRIDE, configuration(SeparateFaultCodes=["0000001D"]))
    reports = NodeReports(str(directory), None)
    reports.check()
    put(directory, OVERRIDE, BAD[name])
    for _ in range(2):
        told = reports.read(NODES, NOW)
        assert told.assessments["n1"].level is SEPARATE
        (remark,) = told.remarks
        assert remark.startswith(f"NodeD: {directory}/{OVERRIDE}: ")
        assert remark.endswith(f"what {directory}/{OVERRIDE} said stays in force")
    put(directory, OVERRIDE, configuration(NotHandleFaultCodes=["0000001D"]))
    told = reports.read(NODES, NOW)
    assert (told.assessments["n1"].level, told.remarks) == (OK, [])


def test_configuration_that_comes_and_goes_is_said(directory: Path) -> None:
    """Upstream swallows the first override; here it is in force at once, and so is its end, and both are said."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU)
    reports = NodeReports(str(directory), None)
    assert reports.read(NODES, NOW).remarks == []
    override = put(directory, OVERRIDE, configuration(SeparateFaultCodes=["0000001D"]))
    told = reports.read(NODES, NOW)
    assert told.assessments["n1"].level is SEPARATE
    assert told.remarks == [
        f"NodeD: the configuration is now {override}, and no longer the one that segment-health ships"
    ]
    override.unlink()
    told = reports.read(NODES, NOW)
    assert told.assessments["n1"].level is PRE
    assert len(told.remarks) == 1
    assert reports.read(NODES, NOW).remarks == []


@pytest.mark.parametrize("make", [make_fifo, make_link_out, make_loop, make_key_a_folder, make_data_out])
@pytest.mark.timeout(30)
def test_configuration_that_cannot_be_read_is_bad(make: Make, directory: Path, tmp_path: Path) -> None:
    """What is there and cannot be read is not a missing configuration."""
    outside = tmp_path / "outside"
    outside.mkdir()
    make(directory / OVERRIDE, outside)
    with pytest.raises(ConfigurationError):
        NodeReports(str(directory), None).check()


@pytest.mark.parametrize("least", FaultLevel)
def test_level_of_unknown_codes(least: FaultLevel, directory: Path) -> None:
    """The site's level for unknown codes arrives."""
    report = Report((Device("CPU", 1, ("00000011",), "NotHandleFault"),), "Healthy")
    put(directory, "mindx-dl-nodeinfo-n1", encode(report))
    assert NodeReports(str(directory), None, least).read(NODES, NOW).assessments["n1"].level is least


def test_survey_shows_every_report(directory: Path) -> None:
    """Whatever Slurm lists, all reports are shown, with their age and what is wrong."""
    put(directory, "mindx-dl-nodeinfo-n1", CPU, age=5)
    put(directory, "mindx-dl-nodeinfo-zz", b"")
    entries, said = NodeReports(str(directory), 3600).survey(NOW)
    assert [(entry.node, entry.age, entry.report is None, bool(entry.remarks)) for entry in entries] == [
        ("n1", 5, False, False),
        ("zz", None, True, True),
    ]
    assert said == []

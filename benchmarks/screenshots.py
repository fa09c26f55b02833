"""Takes the pictures of the status page and of `status` that stand in docs/images/, with this machine's Chromium.

    python benchmarks/screenshots.py [--out docs/images] [NAME ...]

What is drawn are real passes over clusters that only `segment_health.testing` knows: a working day of 16 nodes,
and one of 10,000. Nothing in them is left to chance, so that a picture changes only when the page does.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from segment_health.cli.table import draw
from segment_health.contract import Artifact, UnitId
from segment_health.observe import observe
from segment_health.page.portrait import portrait_of_pass
from segment_health.page.render import render
from segment_health.page.sheet import template
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import publish
from segment_health.scope import EVERYTHING
from segment_health.situation import Override, writer
from segment_health.store import open_decisions
from segment_health.survey import survey
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from segment_health.page.picture import Picture

HOUR = 3600
REASONS = [
    "Xid 79: GPU 3 has fallen off the bus",
    "ECC errors on GPU 1, DIMM B2",
    "NVLink down between GPU 0 and GPU 4",
    "IB port 1 flapping",
    "Kernel soft lockup, ticket 4711",
    "fan tray 2",
]


class Day:
    """A cluster, a directory, and a clock that a day of passes moves."""

    def __init__(self, directory: str, nodelist: str) -> None:
        self.clock = FakeClock(1_796_027_700.0)  # a Monday, 08:35 UTC
        self.cluster = FakeCluster(nodelist, name="helios")
        self.publication = Publication(directory, EVERYTHING, Policy(), "0.1.0", 60.0, loop=True, host="mgmt1")

    def publish(self) -> Picture:
        """Make a pass and its picture, and let an hour or less go by before the next."""
        observation = observe(self.publication, self.cluster.source, self.clock)
        done = publish(observation, self.publication, self.clock)
        return portrait_of_pass(observation, self.publication, done.outcome.seen)

    def drain(self, name: str, reason: str) -> None:
        """Drain a node that a job holds, a moment before the next pass."""
        self.cluster.set_node(name, "ALLOCATED+DRAIN", reason, since=int(self.clock()) - 40)

    def lose(self, name: str, reason: str) -> None:
        """Lose a node that a job holds."""
        self.cluster.set_node(name, "DOWN+NOT_RESPONDING", reason, since=int(self.clock()) - 40)

    def speak_for(self, unit: UnitId, reason: str) -> None:
        """Have a person want a unit used although it is excluded."""
        with open_decisions(self.publication.directory) as opened:
            artifact = opened.read()[unit]
            assert isinstance(artifact, Artifact)
            scope = writer(artifact.publisher)
            word = Override(
                artifact.generation, artifact.unavailable, reason, "anna@mgmt1", int(self.clock()), scope
            )
            opened.ledger("", "").override(unit, word)


def sixteen(day: Day) -> Picture:
    """Four array tasks on four nodes each; two are excluded, one was."""
    for task in range(4):
        day.cluster.run(f"4711_{task}", f"n[{task * 4 + 1:02d}-{task * 4 + 4:02d}]")
    day.publish()
    day.clock.advance(HOUR)
    day.drain("n02", REASONS[5])
    day.publish()
    day.clock.advance(0.7 * HOUR)
    day.cluster.set_node("n02", "ALLOCATED")
    day.drain("n07", REASONS[1])
    day.publish()
    day.clock.advance(1.2 * HOUR)
    day.lose("n13", REASONS[0])
    day.publish()
    day.clock.advance(1.4 * HOUR)
    return day.publish()


def ten_thousand(day: Day) -> Picture:
    """540 array tasks on 18 nodes each, and 280 idle nodes; a day on which some forty nodes go bad."""
    dice = random.Random(7)
    units = [f"{4200 + number // 12 * 7}_{number % 12}" for number in range(540)]
    for number, unit in enumerate(units):
        day.cluster.run(unit, f"n[{number * 18 + 1:05d}-{number * 18 + 18:05d}]")
    for number in range(9721, 10001):
        if dice.random() < 0.05:  # noqa: PLR2004 - one in twenty
            day.cluster.set_node(f"n{number:05d}", "IDLE+DRAIN", "burn-in", since=int(day.clock()) - 30 * HOUR)
    day.publish()
    bad: list[str] = []
    for _ in range(14):
        day.clock.advance(dice.uniform(0.1, 0.7) * HOUR)
        for name in [name for name in bad if dice.random() < 0.12]:  # noqa: PLR2004 - repaired within some hours
            bad.remove(name)
            day.cluster.set_node(name, "ALLOCATED")
        for _ in range(dice.choice([1, 2, 3, 4])):
            name = f"n{dice.randrange(1, 9720):05d}"
            bad.append(name)
            (day.lose if dice.random() < 0.3 else day.drain)(name, dice.choice(REASONS))  # noqa: PLR2004
        day.publish()
    day.clock.advance(200)
    day.speak_for(
        UnitId(*units[(int(bad[-1][1:]) - 1) // 18].split("_")), "the vendor says that it is a false alarm"
    )
    day.clock.advance(100)
    return day.publish()


@dataclass(frozen=True)
class Shot:
    """A picture: which cluster, in which colours, and on which node somebody points."""

    cluster: str
    scheme: Literal["light", "dark"]
    pointed: str = ""
    words: str = ""


SHOTS = {
    "page-16-light": Shot("16", "light", pointed="n13"),
    "page-16-dark": Shot("16", "dark", pointed="n07"),
    "page-10000-light": Shot("10000", "light"),
    "page-10000-dark": Shot("10000", "dark", words="reason:xid"),
}


def take(browser: Browser, shot: Shot, html: Path, out: Path) -> None:
    """Take one picture."""
    page = browser.new_page(viewport={"width": 1440, "height": 820}, color_scheme=shot.scheme)
    page.goto(html.as_uri())
    if shot.words:
        page.keyboard.press("/")
        page.keyboard.type(shot.words)
        page.locator("#found").wait_for(state="visible")
    if shot.pointed:
        page.locator(f".unit .n[aria-label^='{shot.pointed},']").hover()
    hide_the_caret(page)
    page.screenshot(path=out)
    page.close()


TERMINAL = """<!DOCTYPE html><meta charset="utf-8"><style>{stylesheet}
body {{ color: {foreground}; background: {background}; margin: 0; display: inline-block; padding: 14px 18px }}
pre {{ font: 13px/1.35 monospace; margin: 0 }}
</style><pre>{code}</pre>"""


def take_status(browser: Browser, directory: Path, now: float, html: Path, out: Path) -> None:
    """Take a picture of what `status` draws on a terminal."""
    os.environ.update(FORCE_COLOR="1", COLUMNS="116")  # draw() asks the terminal that is our stdout
    drawn = draw(survey(str(directory), int(now)))
    paper = Console(record=True, width=116, file=io.StringIO())
    paper.print("$ segment-health status --dir /shared/segment-health/decisions", highlight=False)
    paper.print(Text.from_ansi(drawn))
    html.write_text(paper.export_html(code_format=TERMINAL))
    page = browser.new_page(viewport={"width": 1000, "height": 700}, color_scheme="light")
    page.goto(html.as_uri())
    page.locator("body").screenshot(path=out)
    page.close()


def hide_the_caret(page: Page) -> None:
    """Leave out what blinks."""
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    """Draw the clusters and take the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "images")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join((*SHOTS, 'status'))}")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    wanted = told.names or [*SHOTS, "status"]
    shots = {name: SHOTS[name] for name in wanted if name != "status"}
    clusters = {"16": (sixteen, "n[01-16]"), "10000": (ten_thousand, "n[00001-10000]")}
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        pages, days = {}, {}
        for name in {shot.cluster for shot in shots.values()} | ({"16"} if "status" in wanted else set()):
            directory = Path(work) / f"decisions-{name}"
            directory.mkdir()
            draw_day, nodelist = clusters[name]
            days[name] = Day(str(directory), nodelist)
            picture = draw_day(days[name])
            documents = {"nodes": picture.nodes, "decisions": picture.decisions}
            pages[name] = Path(work) / f"{name}.html"
            pages[name].write_text(render(template(), {**documents, "traits": {"live": False, "whole": True}}))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, shot in shots.items():
            out = told.out / f"{name}.png"
            take(browser, shot, pages[shot.cluster], out)
            print(f"{out}: {out.stat().st_size / 1000:.0f} kB")
        if "status" in wanted:
            out, day = told.out / "status.png", days["16"]
            take_status(browser, Path(day.publication.directory), day.clock(), Path(work) / "status.html", out)
            print(f"{out}: {out.stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()

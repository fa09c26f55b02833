"""The page as people meet it: drawn by a real Chromium, pointed at, walked through by keys, filtered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, sync_playwright

from segment_health.page.render import render
from segment_health.page.sheet import template
from segment_health.testing import FakeCluster
from segment_health.watch import Cause

from .conftest import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from .conftest import Served

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31m\u202e"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium; an ordinary user may have no home directory."""
    home = str(tmp_path_factory.mktemp("home"))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            env={"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home},
        )
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window in which no script may fail, and nothing may be refused."""
    complaints: list[str] = []
    opened = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    opened.set_default_timeout(30_000)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield opened
    opened.close()
    assert [line for line in complaints if "Failed to load resource" not in line] == []


@pytest.fixture
def show(page: Page, scene: Scene, tmp_path: Path) -> Callable[[], Page]:
    """Draw the scene as a file."""

    def draw() -> Page:
        picture = scene.picture()
        traits = {"live": False, "whole": True}
        text = render(template(), {"nodes": picture.nodes, "decisions": picture.decisions, "traits": traits})
        (tmp_path / "page.html").write_text(text)
        page.goto(f"file://{tmp_path}/page.html")
        return page

    return draw


def classes(page: Page, name: str) -> set[str]:
    """Return the classes of a node's tile."""
    return set((page.locator(f".unit .n[aria-label^='{name},']").get_attribute("class") or "").split())


def until(page: Page, expression: str) -> Any:
    """Wait for an expression to be true and return it; the page's policy forbids Playwright to wait itself."""
    deadline = time.monotonic() + 30
    while not (value := page.evaluate(expression)):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)
    return value


def test_what_is_drawn(scene: Scene, show: Callable[[], Page]) -> None:
    """Each unit is a block of its nodes, each node of its level, excluded units say so in words, others do not."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.cluster.set_node("n5", "DOWN", "dead")
    scene.cluster.set_node("n9", "UNKNOWN")
    page = show()
    blocks = page.locator(".unit")
    assert blocks.locator("h3").all_inner_texts() == [
        "55\nexcluded",
        "123_0\n2 nodes",
        "123_7\nexcluded",
        "in no unit\n3 nodes",
    ]
    assert blocks.nth(2).locator(".n").all_inner_texts() == ["n3", "n4"]
    assert classes(page, "n3") == {"n", "pre"}
    assert classes(page, "n5") == {"n", "sep"}
    assert classes(page, "n9") == {"n", "open"}
    assert classes(page, "n1") == {"n", "fit"}
    assert page.locator("#summary").inner_text() == "2 of 3 units excluded, 2 of 9 nodes with a fault"
    assert page.title() == "(2) segment health · fake"
    rows = page.locator("#excluded .row")
    assert rows.count() == 2
    assert "bad fan" in rows.filter(has_text="123_7").inner_text()
    assert "n3" in rows.filter(has_text="123_7").inner_text()
    assert "by all" in rows.filter(has_text="123_7").inner_text()
    assert "alive" in page.locator("#publishers").inner_text()
    assert page.locator("#line rect.bar").count() == 2
    assert page.locator("#banner").is_hidden()


def test_a_healthy_cluster_is_calm(show: Callable[[], Page]) -> None:
    """With nothing excluded the page says that, and the time line that there was nothing."""
    page = show()
    assert page.locator("#excluded").inner_text() == "No unit is excluded."
    assert page.locator("#bars").inner_text() == "The history tells of none."


def test_an_exclusion_that_ended_is_on_the_time_line(scene: Scene, show: Callable[[], Page]) -> None:
    """The time line tells from when until when a unit was excluded, and why, to who points at it."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    scene.clock.advance(3600)
    scene.cluster.set_node("n3", "ALLOCATED")
    page = show()
    page.locator("#line rect.bar").hover()
    tip = page.locator("#tip").inner_text()
    assert "123_7" in tip
    assert "(clear)" in tip
    assert "1 h" in tip
    assert "bad fan" in tip
    assert page.locator("#excluded").inner_text() == "No unit is excluded."


def test_why_on_hover(scene: Scene, show: Callable[[], Page]) -> None:
    """Pointing at a node tells its state, reason, who, since when, the rule and the unit."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan", since=1_795_990_000)
    page = show()
    assert page.locator("#tip").is_hidden()
    page.locator(".n[aria-label^='n3,']").hover()
    tip = page.locator("#tip").inner_text()
    for text in (
        "n3",
        "PreSeparateFault",
        "ALLOCATED + DRAIN",
        "bad fan",
        "root",
        "2026-",
        "state:DRAIN",
        "123_7, excluded",
    ):
        assert text in tip
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()


def test_why_on_focus_and_from_node_to_node_by_keys(scene: Scene, show: Callable[[], Page]) -> None:
    """One node is in the tab order; arrows, Home, End and page keys go on, each tells why, Escape hides that."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    page = show()
    focused = "document.activeElement.textContent"
    tip = page.locator("#tip")
    assert page.locator(".unit .n[tabindex='0']").count() == 1
    page.locator("#theme").focus()
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "n5"
    assert tip.locator("b").inner_text() == "n5"
    moves = [
        ("ArrowRight", "n6"),
        ("ArrowRight", "n1"),
        ("PageDown", "n3"),
        ("End", "n4"),
        ("Home", "n3"),
        ("ArrowLeft", "n2"),
    ]
    for key, name in [
        *moves,
        ("PageUp", "n5"),
        ("ArrowDown", "n7"),
        ("ArrowUp", "n5"),
        ("PageDown", "n1"),
        ("PageDown", "n3"),
    ]:
        page.keyboard.press(key)
        assert (key, page.evaluate(focused)) == (key, name)
        assert tip.locator("b").inner_text() == name
    assert "bad fan" in tip.inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    assert page.locator(".unit .n[tabindex='0']").count() == 1
    page.keyboard.press("Escape")
    assert tip.is_hidden()


@pytest.mark.parametrize(
    ("words", "shown", "bright"),
    [
        ("123", ["123_0", "123_7"], ["n1", "n2", "n3", "n4"]),
        ("job:55", ["55"], ["n5", "n6"]),
        ("n4", ["123_7"], ["n4"]),
        ("node:n", ["55", "123_0", "123_7", "in no unit"], [f"n{i}" for i in range(1, 10)]),
        ("reason:FAN", ["123_7"], ["n3"]),
        ("drain", ["123_7"], ["n3"]),
        ("123 fan", ["123_7"], ["n3"]),
        ("job:55 fan", [], []),
        ("no such thing", [], []),
    ],
)
def test_filter(scene: Scene, show: Callable[[], Page], words: str, shown: list[str], bright: list[str]) -> None:
    """The filter leaves the units and lights the nodes in whose job, name or reason all its words are."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    page = show()
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.locator("#found").wait_for(state="visible")
    titles = [title.split("\n")[0] for title in page.locator(".unit:visible h3").all_inner_texts()]
    assert titles == shown
    lit = page.locator(".unit:visible .n:not(.dim)").all_inner_texts()
    assert sorted(lit) == bright
    row = page.locator("#excluded .row")
    assert row.is_visible() == ("123_7" in shown)
    page.keyboard.press("Escape")
    page.locator("#found").wait_for(state="hidden")
    assert page.locator(".unit:visible").count() == 4


def test_a_unit_of_the_list_is_found_on_the_map(scene: Scene, show: Callable[[], Page]) -> None:
    """Who chooses an excluded unit in the list is led to its bad node."""
    scene.cluster.set_node("n4", "DOWN", "dead")
    page = show()
    page.get_by_role("button", name="show unit 123_7 on the map").click()
    assert page.evaluate("document.activeElement.textContent") == "n4"


def test_light_and_dark(show: Callable[[], Page]) -> None:
    """The page follows the browser's preference until somebody chooses."""
    page = show()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    theme = page.locator("#theme")
    assert theme.inner_text() == "Theme: auto"
    theme.click()
    assert (theme.inner_text(), page.evaluate(ground)) == ("Theme: light", light)
    theme.click()
    page.emulate_media(color_scheme="light")
    assert (theme.inner_text(), page.evaluate(ground)) == ("Theme: dark", dark)


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_nothing_sticks_out(scene: Scene, show: Callable[[], Page], width: int) -> None:
    """On a telephone too, with large units and long words, one scrolls in one direction only."""
    scene.cluster.nodelist = "n[1-900]"
    scene.cluster.__post_init__()
    scene.cluster.run("600", "n[10-609]")
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "w" * 250)
    page = show()
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tile = page.locator(".n[aria-label^='n3,']")
    tile.hover()
    box = page.locator("#tip").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def luminance(colour: str) -> float:
    """Return the relative luminance of an `rgb(...)` colour (WCAG 2.2)."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scene: Scene, show: Callable[[], Page], scheme: Any) -> None:
    """Text stands out from what is behind it by 4.5 to 1, and marks of levels by 3 to 1."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.cluster.set_node("n4", "DOWN", "dead")
    page = show()
    page.emulate_media(color_scheme=scheme)
    probe = """name => {
        const element = document.createElement("i"), canvas = document.createElement("canvas").getContext("2d");
        element.style.color = `var(--${name})`;
        document.body.append(element);
        canvas.fillStyle = getComputedStyle(element).color;
        canvas.fillRect(0, 0, 1, 1);
        element.remove();
        return "rgb(" + [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).join() + ")";
    }"""
    names = "ground card raised text muted fit pre sep sep-text open on-pre on-sep focus"
    colours = {name: luminance(page.evaluate(probe, name)) for name in names.split()}

    def contrast(first: str, second: str) -> float:
        low, high = sorted((colours[first], colours[second]))
        return (high + 0.05) / (low + 0.05)

    texts = [("text", "ground"), ("text", "card"), ("text", "raised"), ("muted", "ground"), ("muted", "card")]
    texts += [("muted", "raised"), ("sep-text", "card"), ("on-pre", "pre"), ("on-sep", "sep")]
    marks = [(level, "card") for level in ("fit", "pre", "sep", "open", "focus")]
    assert {pair: contrast(*pair) for pair in texts if contrast(*pair) < 4.5} == {}
    assert {pair: contrast(*pair) for pair in marks if contrast(*pair) < 3} == {}


def test_hostile_text_is_text(scene: Scene, show: Callable[[], Page]) -> None:
    """What an administrator, or somebody else, wrote is shown as it was written, and nothing of it is obeyed."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", HOSTILE)
    page = show()
    page.locator(".n[aria-label^='n3,']").hover()
    shown = HOSTILE.replace("\x1b", "\\u{1b}").replace("\u202e", "\\u{202e}")
    assert shown in page.locator("#tip").inner_text()
    assert shown in page.locator("#excluded").inner_text()
    assert page.title() == "(1) segment health · fake"
    assert page.locator("img").count() == 0
    assert page.locator("script:not([type])").count() == 1


def test_a_strange_script_does_not_run(browser: Browser, tmp_path: Path) -> None:
    """Should markup ever get into the page, its policy runs nothing that is not the page's own."""
    empty: dict[str, Any] = {"nodes": {"nodes": []}, "decisions": {}, "traits": {"live": False}}
    (tmp_path / "page.html").write_text(render(template(), empty))
    page = browser.new_page()
    page.goto(f"file://{tmp_path}/page.html")
    refused = page.evaluate(
        """async () => {
            const refused = new Set();
            document.addEventListener("securitypolicyviolation", (event) => refused.add(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend",
                "<i style='color: red'></i><img src=x onerror=\\"document.title = 'owned'\\">");
            while (refused.size < 4) await new Promise((done) => setTimeout(done, 10));
            return [...refused].sort();
        }"""
    )
    assert refused == ["img-src", "script-src-attr", "script-src-elem", "style-src-attr"]
    assert page.title() == "segment health"
    page.close()


def test_it_updates_itself(scene: Scene, page: Page, serve: Callable[..., Served]) -> None:
    """The page of a running publisher shows the next pass by itself, and the focus stays where it was."""
    served = serve()
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    page.goto(served.address.url)
    page.locator(".n[aria-label^='n4,']").focus()
    scene.clock.advance(300)
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    served.door.completed(scene.publish(), 0.1)
    page.locator(".n.pre[aria-label^='n3,']").wait_for()
    page.locator("#excluded .row", has_text="bad fan").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "n4"
    served.door.failed(Cause.SLURM, "slurmctld does not answer <b>", 0.1)
    page.locator("#banner", has_text="Slurmctld does not answer <b>.").wait_for()
    scene.clock.advance(300)
    scene.cluster.run("77", "n[7-8]")  # another shape: the map is built anew
    served.door.completed(scene.publish(), 0.1)
    page.locator(".unit", has_text="77").wait_for()
    assert until(page, "document.activeElement.textContent === 'n4'")


def test_it_says_when_nobody_answers(scene: Scene, page: Page, serve: Callable[..., Served]) -> None:
    """When the publisher is gone the page stays, and says that it is old."""
    served = serve()
    scene.clock.now = time.time()
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    page.goto(served.address.url)
    page.wait_for_timeout(1500)
    assert page.locator("#banner").is_hidden()
    served.close()
    page.locator("#banner", has_text="The publisher does not answer").wait_for()
    assert page.locator(".unit").count() == 4


def test_old_data_is_called_old(scene: Scene, page: Page, serve: Callable[..., Served]) -> None:
    """A picture from more than two intervals ago says so, by the server's clock."""
    served = serve()
    scene.clock.now = time.time() - 700
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    page.goto(served.address.url)
    page.locator("#banner", has_text="This is old: the last complete pass was 11 min ago").wait_for()
    page.locator("#publishers", has_text="not alive").wait_for()


def test_ten_thousand_nodes(tmp_path: Path, page: Page, serve: Callable[..., Served]) -> None:
    """10,000 nodes in 530 units are under 5 MB, painted in under 2 s, and filtered."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    scene = Scene(directory, FakeCluster("n[00001-10000]"))
    for unit in range(530):
        scene.cluster.run(f"{1000 + unit // 8}_{unit % 8}", f"n[{unit * 18 + 1:05d}-{unit * 18 + 18:05d}]")
    for number in range(7, 10000, 331):
        scene.cluster.set_node(f"n{number:05d}", "ALLOCATED+DRAIN", f"Xid 79 on GPU 3, ticket {number}")
    served = serve()
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    assert len(served.http.get("/").content) < 5_000_000
    page.goto(served.address.url)
    paint = until(page, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    assert page.locator(".unit .n").count() == 10_000
    assert page.locator(".unit.excluded").count() == len(range(7, 18 * 530, 331))
    assert paint < 2000
    page.keyboard.press("/")
    page.keyboard.type("reason:1331")
    page.locator("#found", has_text="1 node found in 1 unit").wait_for()
    assert page.locator(".unit:visible .n:not(.dim)").count() == 1

"""The page as text: what it is made of, and what cannot get out of its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import hypothesis
import hypothesis.strategies as st

from segment_health.page.render import embeddable, policy_of, render
from segment_health.page.sheet import template


class _Elements(HTMLParser):
    """Collects script elements as a browser finds them: attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a script."""
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        """End a script."""
        if tag == "script":
            self._inside = False

    def handle_data(self, data: str) -> None:
        """Collect its text."""
        if self._inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


@hypothesis.given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_data_comes_back_and_cannot_leave_its_element(document: object) -> None:
    """Whatever text is in a document, it is ASCII without markup, and reads back as what it was."""
    text = embeddable(document)
    assert json.loads(text) == document
    assert text.isascii()
    assert not set(text) & set("<>&\n\r")


def test_hostile_data_stays_data() -> None:
    """A text that ends a script element, and begins others, is in the page as JSON alone."""
    hostile = "</script><script>alert(1)</script><!-- <script> ]]>\u2028"
    page = _Elements()
    page.feed(render(template(), {"nodes": {"nodes": [hostile]}, "decisions": {}, "traits": {}}))
    assert [attributes.get("id") for attributes, _ in page.scripts] == ["nodes", "decisions", "traits", None]
    assert json.loads(page.scripts[0][1]) == {"nodes": [hostile]}


def test_the_page_asks_nobody_for_anything() -> None:
    """Nothing in the page is loaded from elsewhere; the one address in it is the name of SVG."""
    assert re.findall(r"https?://[^\"' )]+", template()) == ["http://www.w3.org/2000/svg"]
    assert not re.findall(r"<(?:link|img|iframe|object|embed|base|form)\b|\bsrc=|@import|url\(", template())


def test_a_pass_loads_no_server() -> None:
    """What only the page's own process needs costs a publisher nothing."""
    program = "import segment_health.service, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"starlette", "uvicorn", "asyncio"} & set(loaded.stdout.split())


def test_nothing_is_written_as_markup() -> None:
    """The script makes text nodes: what writes markup is not in it."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc"
    assert not re.findall(forbidden, template())


def test_the_policy_names_what_the_page_has() -> None:
    """The policy's hashes are those of the page's own style and script, in the page and in the header."""
    page = render(template(), {"nodes": {}, "decisions": {}, "traits": {}})
    for what in ("style", "script"):
        (text,) = re.findall(rf"<{what}>(.*?)</{what}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{what}-src 'sha256-{digest}'" in policy_of(template())
        assert f"{what}-src 'sha256-{digest}'" in page
    assert "frame-ancestors 'none'" in policy_of(template())
    assert "frame-ancestors" not in page  # which a browser ignores there, and complains of

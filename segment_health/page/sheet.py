"""The page without its data, as it was installed."""

from __future__ import annotations

from importlib import resources


def template() -> str:
    """Return the page without its data."""
    return (resources.files("segment_health.page") / "page.html").read_text("utf-8")

"""Makes the page of its parts: one file that asks nobody else for anything. Pure, its template being handed in."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = "<!-- DATA -->"
_POLICY = "<!-- POLICY -->"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def render(template: str, documents: Mapping[str, Any]) -> str:
    """Return the page with these JSON documents in it, each in an element of that id."""
    data = "\n".join(
        f'<script type="application/json" id="{name}">{embeddable(document)}</script>'
        for name, document in documents.items()
    )
    # What a browser would obey in a header, for a page that comes without any: as a file.
    policy = f'<meta http-equiv="Content-Security-Policy" content="{policy_of(template, framing=False)}">'
    return template.replace(_POLICY, policy, 1).replace(_DATA, data, 1)


def embeddable(document: Any) -> str:
    r"""Write JSON that may stand inside a script element: no text in it can end that element, or begin another.

    ASCII, so that U+2028 and whatever else a browser may treat in its own way is escaped too.
    """
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy_of(template: str, *, framing: bool = True) -> str:
    """Return the Content-Security-Policy: nothing runs or is loaded but what stands in the template itself.

    `framing` forbids frames, which only a header can.
    """
    rules = [
        "default-src 'none'",
        f"style-src {_hashes(_STYLE.findall(template))}",
        f"script-src {_hashes(_SCRIPT.findall(template))}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "frame-ancestors 'none'"] if framing else rules)


def _hashes(parts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)

"""A model that is served, and what an analyser is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segment_health.attribution.analysers.finding import Action, Extract, Finding, Line
from segment_health.attribution.analysers.llm.analyser import Limits, Llm
from segment_health.attribution.analysers.llm.endpoint import Model

from .model import KEY, FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def model() -> Iterator[FakeModel]:
    """A server of a model that knows what failed, until told otherwise."""
    with FakeModel() as fake:
        yield fake


class Preset:
    """Rules that always find the same."""

    def __init__(self, found: Finding) -> None:
        self.found = found

    def analyse(self, _extract: Extract, _earlier: Sequence[Finding]) -> Finding:
        """Find it."""
        return self.found


UNKNOWN = Finding("unknown", Action.UNKNOWN, "no rule knows it", "rules", step=1200)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A file with the key, for its owner alone."""
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def llm(model: FakeModel, key_file: Path) -> Iterator[Callable[..., Llm]]:
    """Make an analyser that asks the fake model, given what the rules find, and limits."""
    made: list[Llm] = []

    def make(found: Finding = UNKNOWN, **limits: Any) -> Llm:
        chosen = Limits(**{"seconds": 20.0, **limits})
        made.append(Llm(Preset(found), Model(model.url, "m-1", str(key_file)), chosen, {}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def extract(*texts: str) -> Extract:
    """Return an extract that is a whole log of these lines."""
    lines = tuple(Line(number, text) for number, text in enumerate(texts, 1))
    return Extract(lines, sum(len(text) + 1 for text in texts))


LOG = extract("iteration 1200/5000", "ValueError: odd", "srun: error: n042: task 3: exited with exit code 1")

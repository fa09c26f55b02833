"""YAML, as NVRx and nvhcd have it: the one importer of PyYAML."""

from __future__ import annotations

from typing import Any

import yaml


class NotYaml(ValueError):  # noqa: N818 - what the text is
    """A text that is no YAML; `line` is where, None if that cannot be told."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


def read(content: bytes) -> Any:
    """Return what a file says: plain values alone, whatever tags it has. Raises NotYaml."""
    try:
        return yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise NotYaml(f"not YAML: {error.problem}", None if mark is None else mark.line + 1) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise NotYaml(f"not YAML: {error}", None) from error

"""How far a training got, as its log tells: Megatron, NeMo, Lightning, Hugging Face, plain loops. Pure."""

from __future__ import annotations

from .expression import Expression, any_of

MAX_STEP = 10**12
"""More than any training counts to."""

_NUMBER = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,13})"
_MEGATRON = rf"(?i)\biteration\s{{0,12}}{_NUMBER}\s{{0,4}}/\s{{0,12}}\d{{1,13}}\s{{0,4}}\|"
_NAMED = (
    r"(?i)(?:^|[^\w-])['\"]?(?:global_?step|train(?:er)?[/_]?(?:global_)?step|steps?|iter|iteration)['\"]?"
    rf"(?: {{0,8}}[:=] {{0,8}}|[ /]{{1,8}})\[?{_NUMBER}(?:[^\d.\w%-]|\.(?:\D|$)|$)"
)
_BAR = (
    r"(?:^|(?i:(?:epoch|train(?:ing)?|steps?|iter(?:ation)?s?)) {0,2}(\d{0,7})[^|%\n]{0,40}?)[: ]{0,4}\d{1,3}%\|"
    r"[^|\n]{0,160}\| {0,8}(\d{1,13})/(\d{1,13}) \["
)
_SIGNS = (
    r"(?i:\bloss(?:/[\w/]{1,40})?['\"]?(?:[^\d\n\w]|is|of){1,15}\d)",
    r"(?i:\bbatch)[ :=]{1,3}\d{1,13}/\d",
    r"\d ?[kKMG]? ?(?i:it|tok|tokens|samples|steps|seq)/s(?:ec)?\b",
    r"(?i:\bgrad[ _]norm)['\"]?[ :=]{1,4}\d",
    # Who saves has something to save.
    r"(?i:\b(?:saved|saving|wrote)[^/]{0,40} (?:checkpoint|ckpt|state|weights)\b)",
    r"(?i:\b(?:checkpoint|state|model|weights) (?:(?:was|is|has been) )?saved\b|\basync_save\b)",
    r"(?i:\bepoch[ :]{1,2}\d{1,6} ?(?:/|of) ?\d)",
    r"(?i:\bepoch \w{1,20} (?:is )?(?:finished|done|completed?|ended|over|took)\b)",
    r"(?i:\b(?:finished|done|completed|processed) \d{1,9} ?(?:of|/) ?\d)",
)
_METRIC = Expression(
    r"(?i)\bloss|\blr\b|learning.rate|tok(?:en)?s?/s|it/s|s/it|samples|grad.norm|throughput|tflops|\bppl\b|perplexity"
)
_LOOKS_BACK = Expression(
    r"(?i)\beval|\bvalid|\bval\b|\btest|resum|restor|load|checkpoint|saving|saved|skipp|warm.?up|will |max[ _-]"
    r"|total"
)
_ALONE = Expression(
    r"(?i)\s{0,8}(?:global[ _]?)?(?:step|iter|iteration)s?[ :=]{1,4}\d{1,13}(?:/\d{1,13})?\s{0,8}$"
)

MARKS = (r"(?i:iteration|steps?|iter)['\"]?[ \t:=/]{0,17}\[?\d", r"\d%\|", *_SIGNS)
"""Expressions of what is in every line that tells a step, or of a training: what a long log is searched for."""

_megatron, _named, _bar, _sign = (
    Expression(_MEGATRON),
    Expression(_NAMED),
    Expression(_BAR),
    Expression(any_of(_SIGNS)),
)


def step_of(text: str) -> int | None:
    """Return the step of training that a line tells; None where it tells none.

    A line about checkpoints, or about a step to come, is none. In a bar that begins anew with each epoch the steps
    of the epochs before count too.
    """
    if (found := _megatron.search(text)) is not None:
        return _checked(found[1])
    if (found := _bar.search(text)) is not None:
        step, of = _checked(found[2]), _checked(found[3])
        if step is None or of is None or step == 0:
            return None
        return step + int(found[1] or 0) * of if text.lstrip().lower().startswith("epoch") else step
    if (found := _named.search(text)) is None:
        return None
    if not _ALONE.begins(text) and (not _METRIC.finds(text) or _LOOKS_BACK.finds(text[: found.start()])):
        return None
    return _checked(found[1])


def bar_of(text: str) -> int | None:
    """Return of how many steps a progress bar is; None where a line has none.

    An evaluation draws a bar as a training does, of fewer steps.
    """
    found = None if _megatron.finds(text) else _bar.search(text)
    return None if found is None else _checked(found[3])


_EPOCH = Expression(r"(?i)\bepochs?['\"]?[ :=\[]{1,4}(\d{1,9})")
_RESUMED = Expression(
    r"(?i)\b(?:resum|restor|load|continu|start(?:ing|ed)? from)\w*\b"
    r".*?(?:step|iter(?:ation)?)[ =:_/-]{1,4}0*(\d{1,13})\b"
)
_RESUMED_FROM = Expression(
    r"(?i)\b(?:resum|restor|load|continu|start(?:ing|ed)? from)\w*\b.*?\b(?:checkpoint|ckpt)[=:_/-]0*(\d{1,13})\b"
)


def resumed_at(text: str) -> int | None:
    """Return the step of the checkpoint that a line says training goes on from; None where it says none."""
    found = _RESUMED.search(text) or _RESUMED_FROM.search(text)
    return None if found is None else _checked(found[1])


def epoch_of(text: str) -> str:
    """Return the epoch that a line tells, as it is printed: a step may be counted in it."""
    found = _EPOCH.search(text)
    return "" if found is None else found[1]


def is_training(text: str) -> bool:
    """Tell whether only a training prints such a line, whatever its step is."""
    return "%|" not in text and _sign.finds(text)


def _checked(digits: str) -> int | None:
    step = int(digits.replace(",", ""))
    return step if step <= MAX_STEP else None

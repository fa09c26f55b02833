"""The analyser `llm`: the rules first, then a language model, and what both make of a log together."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from segment_health.attribution.analysers.finding import Action
from segment_health.attribution.analysers.table import BY_CATEGORY, UNKNOWN
from segment_health.attribution.http import NoAnswerError

from . import answer, prompt, verdict
from .endpoint import Endpoint, Model
from .spending import Spending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from segment_health.attribution.analysers.finding import Analyser, Extract, Finding


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model may cost. Tokens of a question are estimated: four bytes each."""

    seconds: float = 60.0
    """Of one analysis, with all its tries and the waits between them."""
    prompt_tokens: int = 12_000
    """Of one question."""
    answer_tokens: int = 4_000
    """Of its answer, as the server counts them; what a model thinks before it answers counts too."""
    questions_per_job: int = 10
    """One for each cycle of a job that failed; after that the rules are alone."""
    tokens_per_day: int = 5_000_000
    """Of questions and answers of all jobs, in a day of UTC."""
    spent_file: str | None = None
    """Where several processes count these together; without it each counts by itself, and anew when it starts."""


class _NotAskedError(Exception):
    """Why no model is asked; a sentence."""


class Llm:
    """Asks a model about each log for which the `rules` find no STOP.

    The key is read from its file for each question, and kept nowhere. ValueError where the model's URL is none:
    see Endpoint.
    """

    def __init__(
        self,
        rules: Analyser,
        model: Model,
        limits: Limits | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._rules = rules
        self._categories = (*BY_CATEGORY, UNKNOWN)
        self._limits = limits or Limits()
        self._endpoint = Endpoint(model, environ)
        self._spending = Spending(self._limits.spent_file, self._limits.tokens_per_day)

    def analyse(self, extract: Extract, earlier: Sequence[Finding]) -> Finding:
        """Find out what failed, and what to do. Whatever becomes of the model's part is said in the reason."""
        found = self._rules.analyse(extract, earlier)
        if found.action is Action.STOP:  # nothing that a model says would change it
            return found
        return verdict.together(found, self._said(extract, found, earlier), earlier)

    def warnings(self) -> list[str]:
        """Say who else may read the key, on disk and on its way. Raises KeyFileError where it cannot be read."""
        return self._endpoint.warnings()

    def close(self) -> None:
        """Ask no more: an analysis that waits for another try ends at once, without a model's word."""
        self._endpoint.close()

    def _said(
        self, extract: Extract, found: Finding, earlier: Sequence[Finding]
    ) -> answer.Claim | verdict.Silence:
        try:
            task = self._task(extract, found, earlier)
        except _NotAskedError as error:
            return verdict.Silence(str(error), was_asked=False)
        try:
            return self._claim(task)
        except (NoAnswerError, answer.NoClaimError) as error:
            return verdict.Silence(str(error))
        except Exception as error:  # noqa: BLE001 - a bug here must not cost what the rules found
            return verdict.Silence(f"asking it failed: {type(error).__name__}")

    def _task(self, extract: Extract, found: Finding, earlier: Sequence[Finding]) -> prompt.Task:
        """Write a question, and spend what it may cost. Raises _NotAskedError where that cannot be."""
        limits = self._limits
        if not extract.lines:
            raise _NotAskedError("the log has no lines")
        if verdict.questions(earlier) >= limits.questions_per_job:
            raise _NotAskedError(
                f"{limits.questions_per_job} questions were asked about this job, which is the limit"
            )
        nonce = secrets.token_hex(16)
        task = prompt.task(extract, found.evidence, nonce, limits.prompt_tokens, self._categories)
        try:
            is_left = self._spending.take(prompt.estimate(task.prompt) + limits.answer_tokens, time.time())
        except OSError as error:  # else nothing would bound what is spent
            told = f"{limits.spent_file}: what is spent cannot be written down: {error.strerror}"
            raise _NotAskedError(told) from error
        if not is_left:
            raise _NotAskedError(f"the {limits.tokens_per_day} tokens of this day are spent")
        return task

    def _claim(self, task: prompt.Task) -> answer.Claim:
        limits = self._limits
        schema = answer.schema(self._categories)
        told = self._endpoint.complete(task.prompt, schema, limits.answer_tokens, limits.seconds)
        claim = answer.read(told.key.hide(told.content), task.shown, self._categories)
        return claim._replace(reason=told.key.hide(claim.reason))

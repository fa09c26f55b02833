"""What was found in a log, as JSON: in the register, and in the answers of the API. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segment_health.attribution.analysers.finding import Action, Finding, Line

from .attempt import Status

if TYPE_CHECKING:
    from .attempt import Attempt

MAX_EVIDENCE = 32
"""Lines of a log that are kept."""
MAX_TEXT = 1000
"""Characters of each of them, and of what else is text."""
MAX_NODES = 64


def told(finding: Finding) -> dict[str, Any]:
    """Write a finding, of bounded size."""
    return {
        "category": finding.category[:MAX_TEXT],
        "action": finding.action.value,
        "reason": finding.reason[:MAX_TEXT],
        "source": finding.source[:MAX_TEXT],
        "signature": finding.signature[:MAX_TEXT],
        "evidence": [[line.number, line.text[:MAX_TEXT]] for line in finding.evidence[:MAX_EVIDENCE]],
        "nodes": [node[:MAX_TEXT] for node in finding.nodes[:MAX_NODES]],
        "step": finding.step,
    }


def finding_of(written: dict[str, Any]) -> Finding:
    """Read a finding back. Raises ValueError, KeyError and TypeError where it is none."""
    return Finding(
        category=str(written["category"]),
        action=Action(written["action"]),
        reason=str(written["reason"]),
        source=str(written["source"]),
        signature=str(written["signature"]),
        evidence=tuple(Line(number, str(text)) for number, text in written["evidence"]),
        nodes=tuple(str(node) for node in written["nodes"]),
        step=written["step"],
    )


def accepted(path: str) -> dict[str, Any]:
    """Answer a submission that was accepted."""
    return {
        "submitted": True,
        "normalized_path": path,
        "mode": "single",
        "logs_dir": None,
        "sched_restarts": 0,
        "files_analyzed": 0,
    }


def answer(attempt: Attempt) -> dict[str, Any]:
    """Answer a question about a log.

    An analysis that failed is told as completed, without a recommendation, as NVRx's own service does: its client
    waits for whatever is not completed until the job ends, and has nothing else analysed.
    """
    result: dict[str, Any] = {}
    action, reason, source = Action.UNKNOWN.value, "", ""
    if attempt.finding is not None:
        found = told(attempt.finding)
        action, reason, source = found["action"], found["reason"], found["source"]
        lines = [{"line": number, "text": text} for number, text in found["evidence"]]
        result = {**found, "evidence": lines, "analysis_outcome": "completed"}
    elif attempt.status is Status.FAILED:
        reason, source = f"the analysis failed: {attempt.failure}", "service"
        result = {"analysis_outcome": "failed", "error": attempt.failure}
    status = Status.COMPLETED if attempt.is_done else attempt.status
    recommendation = {"action": action, "reason": reason, "source": source}
    return {
        "result": result,
        "status": status.value,
        "wl_restart": attempt.cycle or 0,
        "wl_restart_count": None,
        "fr_dump_path": None,
        "fr_analysis": None,
        "llm_merged_summary": None,
        "recommendation": recommendation,
        "candidate_recommendation": recommendation,
    }

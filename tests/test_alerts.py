"""The alerts and the dashboard that templates bring, judged by Prometheus' own promtool."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.metrics.figures import COUNTERS, GAUGES, HISTOGRAMS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "segment_health" / "templates"
ALERTS = TEMPLATES / "prometheus-alerts.yml"
DASHBOARD = TEMPLATES / "grafana.json"
NAMES = re.findall(r"^ *- alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)
ALWAYS = ("interval_seconds", "stale_after_seconds", "policy_error", "build_info")
"""Metrics that are asked for anew each time (see metrics.Metrics.collect)."""
KNOWN = {
    *(f"{PREFIX}{name}_total" for name in COUNTERS),
    *(PREFIX + name for name in (*GAUGES, *ALWAYS)),
    *(f"{PREFIX}{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")),
}
NAMED = re.compile(rf"\b{PREFIX}\w+")
WE = '{instance="head", scope="all"'


def promtool(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False)


# --- alerts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Whether an alert fires after so many minutes of series; their values are written as promtool reads them."""

    alert: str
    series: dict[str, str]
    fires: bool
    minutes: int = 90

    def __str__(self) -> str:
        return f"{self.alert}-{'fires' if self.fires else 'is silent'}"

    def document(self) -> dict[str, Any]:
        """Return it as promtool reads it."""
        count = f'count(ALERTS{{alertname="{self.alert}", alertstate="firing"}})'
        expected = [{"labels": "{}", "value": 1}] if self.fires else []
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [{"expr": count, "eval_time": f"{self.minutes}m", "exp_samples": expected}],
        }


def of(name: str, values: str, **labels: str) -> dict[str, str]:
    """Make one series of a publisher."""
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f"{PREFIX}{name}{WE}{more}}}": values}


def histogram(name: str, at: str) -> dict[str, str]:
    """Make a histogram in which an observation of less than `at` comes every minute."""
    bounds = [str(bound) for bound in HISTOGRAMS[name][1]] + ["+Inf"]
    place = bounds.index(at)
    return {
        series: values
        for number, bound in enumerate(bounds)
        for series, values in of(f"{name}_bucket", "0+1x120" if number >= place else "0x120", le=bound).items()
    }


EVERY = of("interval_seconds", "300x120")
AT_WORK = of("standby", "0x120")
WAITS = of("standby", "1x120")
FRESH = of("last_complete_pass_timestamp_seconds", "0+60x120")
OLD = of("last_complete_pass_timestamp_seconds", "0x120")
STALE_AFTER = of("stale_after_seconds", "1800x120")
NEVER_STALE = of("stale_after_seconds", " ".join(["+Inf"] * 120))
FAILED = of("last_pass_success", "0x120")
COMPLETE = of("last_pass_success", "1x120")
SILENT_SLURM = of("passes_total", "0+0.2x120", result="slurm")
DEAD_STORAGE = of("passes_total", "0+0.2x120", result="directory")
UP = 'up{instance="head", job="segment-health"}'
TWO_BAD = of("excluded_units", "2x120", level="SeparateFault")
THREE_BAD = of("excluded_units", "3x120", level="PreSeparateFault")
LATE = histogram("reason_to_artifact_seconds", "1800.0")
SOON = histogram("reason_to_artifact_seconds", "300.0")
CASES = [
    Case("SegmentHealthPublisherDown", {UP: "0x120"}, fires=True),
    Case("SegmentHealthPublisherDown", {UP: "1x120"}, fires=False),
    Case("SegmentHealthPublisherAbsent", {}, fires=True),
    Case("SegmentHealthPublisherAbsent", of("build_info", "1x120", version="1"), fires=False),
    Case("SegmentHealthNoCompletePass", EVERY | AT_WORK | OLD, fires=True, minutes=12),
    Case("SegmentHealthNoCompletePass", EVERY | AT_WORK | OLD, fires=False, minutes=9),
    Case("SegmentHealthNoCompletePass", EVERY | AT_WORK | FRESH, fires=False),
    Case("SegmentHealthNoCompletePass", EVERY | WAITS | OLD, fires=False),
    Case("SegmentHealthDecisionsStale", STALE_AFTER | AT_WORK | OLD, fires=True, minutes=31),
    Case("SegmentHealthDecisionsStale", STALE_AFTER | AT_WORK | OLD, fires=False, minutes=29),
    Case("SegmentHealthDecisionsStale", STALE_AFTER | WAITS | OLD, fires=False),
    Case("SegmentHealthDecisionsStale", NEVER_STALE | AT_WORK | OLD, fires=False),
    Case("SegmentHealthExclusionsLiftedStale", of("stale_lifted_total", "0x60 3x60"), fires=True),
    Case("SegmentHealthExclusionsLiftedStale", of("stale_lifted_total", "3x120"), fires=False),
    Case("SegmentHealthSlurmUnknown", SILENT_SLURM | FAILED, fires=True),
    Case("SegmentHealthSlurmUnknown", SILENT_SLURM | COMPLETE, fires=False),
    Case("SegmentHealthSlurmUnknown", DEAD_STORAGE | FAILED, fires=False),
    Case("SegmentHealthPassesFail", DEAD_STORAGE | FAILED, fires=True),
    Case("SegmentHealthPassesFail", DEAD_STORAGE | COMPLETE, fires=False),
    Case("SegmentHealthPassesFail", SILENT_SLURM | FAILED, fires=False),
    Case("SegmentHealthArtifactsFailing", of("failing_artifacts", "2x120"), fires=True),
    Case("SegmentHealthArtifactsFailing", of("failing_artifacts", "2 0x120"), fires=False),
    Case("SegmentHealthRecordsFailing", of("failing_records", "1x120"), fires=True),
    Case("SegmentHealthRecordsFailing", of("failing_records", "0x120"), fires=False),
    Case("SegmentHealthPassHeld", of("held_units", "0x60 4x60"), fires=True),
    Case("SegmentHealthPassHeld", of("held_units", "0x120"), fires=False),
    Case("SegmentHealthManyUnitsExcluded", of("units", "20x120") | THREE_BAD, fires=True),
    Case("SegmentHealthManyUnitsExcluded", of("units", "40x120") | THREE_BAD, fires=False),
    Case("SegmentHealthManyUnitsExcluded", of("units", "4x120") | TWO_BAD, fires=False),
    Case("SegmentHealthForeignExclusion", of("excluded_units", "1x120", level="foreign"), fires=True),
    Case("SegmentHealthForeignExclusion", of("excluded_units", "1x120", level="SeparateFault"), fires=False),
    Case("SegmentHealthNodesWithoutVerdict", of("nodes", "1x120", level="no_verdict"), fires=True),
    Case("SegmentHealthNodesWithoutVerdict", of("nodes", "9x120", level="NotHandleFault"), fires=False),
    Case("SegmentHealthPolicyError", of("policy_error", "1x120"), fires=True),
    Case("SegmentHealthPolicyError", of("policy_error", "0x120"), fires=False),
    Case("SegmentHealthReasonToArtifactSlow", EVERY | LATE, fires=True),
    Case("SegmentHealthReasonToArtifactSlow", EVERY | SOON, fires=False),
    Case("SegmentHealthPassSlow", histogram("pass_duration_seconds", "60.0"), fires=True),
    Case("SegmentHealthPassSlow", histogram("pass_duration_seconds", "1.0"), fires=False),
]  # fmt: skip


def test_rules_are_sound() -> None:
    """Promtool finds nothing to say of the file."""
    checked = promtool("check", "rules", str(ALERTS))
    assert checked.returncode == 0, checked.stderr


def test_alerts_fire_and_are_silent(tmp_path: Path) -> None:
    """On made-up series each alert fires when it should and only then, by Prometheus' own evaluation."""
    for number, case in enumerate(CASES):
        document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [case.document()]}
        path = tmp_path / f"{number}.json"  # which is YAML as well
        path.write_text(json.dumps(document))
    told = subprocess.run(
        ["promtool", "test", "rules", *(str(tmp_path / f"{number}.json") for number in range(len(CASES)))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wrong = [str(CASES[int(number)]) for number in re.findall(r"/(\d+)\.json\n +FAILED", told.stdout)]
    assert told.returncode == 0, wrong or told.stdout


def test_every_alert_is_tried_both_ways() -> None:
    """Each alert of the file has a case in which it fires, and one in which it does not."""
    assert len(NAMES) == len(set(NAMES)) > 10
    assert {case.alert for case in CASES if case.fires} == set(NAMES)
    assert {case.alert for case in CASES if not case.fires} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_alert_tells_what_to_do(name: str) -> None:
    """It has a severity, a summary, a description, and a section of docs/alerts.md to which it points."""
    text = ALERTS.read_text().partition(f"- alert: {name}\n")[2].partition("- alert: ")[0]
    assert re.search(r"severity: (critical|warning|info)$", text, re.MULTILINE)
    assert re.search(r'summary: ".+"$', text, re.MULTILINE)
    assert "description: >-" in text
    assert f"runbook: docs/alerts.md#{name.lower()}\n" in text
    section = (ROOT / "docs/alerts.md").read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "**Means.**" in section
    assert "**Do.**" in section


def test_no_section_speaks_of_an_alert_that_is_gone() -> None:
    """docs/alerts.md has a section for each alert, in the order of the file."""
    assert re.findall(r"^## (SegmentHealth\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE) == NAMES


# --- the dashboard ----------------------------------------------------------------------------------------


def panels(model: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give every panel that draws something."""
    return (panel for panel in model["panels"] if panel["type"] != "row")


def test_dashboard_is_a_model_of_grafana() -> None:
    """It is JSON of a schema that Grafana 10 and later read, free of a site's own data source and ids."""
    model = json.loads(DASHBOARD.read_text())
    assert model["schemaVersion"] >= 39
    assert (model["id"], model["uid"]) == (None, "segment-health")
    variables = {variable["name"]: variable for variable in model["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    numbers = [panel["id"] for panel in model["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in panels(model):
        assert panel["title"], panel
        assert panel["description"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


def test_panels_do_not_overlap() -> None:
    """No two panels claim one place of the grid."""
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (taken.get((x, y)), panel["title"])
                taken[x, y] = panel["title"]


def expressions() -> list[str]:
    """Return what the panels ask, with Grafana's variables filled in."""
    asked = [target["expr"] for panel in panels(json.loads(DASHBOARD.read_text())) for target in panel["targets"]]
    return [
        expr.replace("$__rate_interval", "5m")
        .replace("$__range", "1h")
        .replace("$scope", ".*")
        .replace("$instance", ".*")
        for expr in asked
    ]


def test_expressions_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    """Prometheus' own parser reads each of them."""
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    assert rules
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", str(path))
    assert checked.returncode == 0, checked.stderr


# --- names ------------------------------------------------------------------------------------------------


def test_alerts_and_panels_name_metrics_that_there_are() -> None:
    """A metric that was renamed would leave an alert that never fires, and an empty panel."""
    for text in (ALERTS.read_text(), *expressions()):
        assert set(NAMED.findall(text)) <= KNOWN


def test_the_dashboard_shows_every_metric() -> None:
    """What is worth counting is worth a look."""
    shown = set(NAMED.findall("\n".join(expressions())))
    of_histograms = {f"{PREFIX}{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count")}
    assert shown >= KNOWN - of_histograms

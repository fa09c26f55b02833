"""Records one cluster in every form of Slurm's JSON, and as text at the same instant: run it as root.

    python tests/data/samples/record_forms.py [LINE...]    LINEs go to slurm.conf: how to reach a slurmdbd

It writes `forms/<version>/` beside this file, of the Slurm that is on PATH: what the text door asks, and nodes and
jobs once a data_parser, and once more with `+complex`. README.md beside this file says what is in which file.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from slurm.commands import job_rows as _job_rows
from slurm.commands import json as _json
from slurm.commands import node_rows as _node_rows
from slurm.commands import text as _text
from slurm.sandbox.cluster import Sandbox

HERE = Path(__file__).parent
SLEEP = "#!/bin/sh\nexec sleep 600\n"
EXTRA = ("NodeName=f1 CPUs=2 State=FUTURE", "SlurmdTimeout=3000")
NODES = {
    "n2": ("drain", 'a "quoted" fan\nNodeName=n3 State=IDLE [x]\n{"y": [root@2020-01-01T00:00:00]} \\ / end'),
    "n4": ("fail", "Größe ∞ 温度 ü\u2028\t|'s"),
    "n6": ("drain", "ECC"),
    "n7": ("drain", " "),  # Slurm takes no reason that is emptier
    "n8": ("down", "key=value Reason=none Comment=none"),
}
"""Nodes that a running, a suspended and no job holds, with what is wrong with them."""


def set_up(cluster: Sandbox) -> None:
    """Start one job of each kind, and spoil nodes."""
    ended = cluster.submit("#!/bin/sh\n", "-w", "n7", "-J", "ended")
    array = cluster.submit(SLEEP, "--array=0-1", "-w", "n1", "-n1", "-J", "array")  # task 1 keeps the array's id
    leader = cluster.submit(SLEEP, "-w", "n2", "-N1", ":", "-w", "n3", "-N1", "-J", "het")
    plain = cluster.submit(SLEEP, "-w", "n[4,3]", "-N2", "--uid=65534", "-o/dev/null", "-J", "plain")
    again = cluster.submit(SLEEP, "-w", "n5", "--requeue", "-J", "requeued")
    still = cluster.submit(SLEEP, "-w", "n6", "-J", "suspended")
    cluster.submit(SLEEP, "--array=0-9%2", "--hold", "-J", "held")
    for job, count in ((array, 2), (leader, 1), (plain, 1), (again, 1), (still, 1)):
        cluster.wait_running(job, count)
    cluster.wait_until(lambda: cluster.job_states(ended) == ["COMPLETED"], what="end of a job")
    cluster.requeue(again)
    cluster.run("scontrol", "suspend", still)
    for name, (state, reason) in NODES.items():
        cluster.set_node(name, state, reason)


def questions(cluster: Sandbox, version: tuple[int, int]) -> dict[str, tuple[str, ...]]:
    """Return what to ask this version for JSON, by the file that it goes to."""
    show_jobs = ("scontrol", "--all", "--local", "show", "jobs", "--json")
    asked = {"nodes": _json.SHOW_NODES, "squeue": _json.SHOW_JOBS, "jobs": show_jobs}
    if version < (23, 2):  # openapi v0.0.38, of its own accord
        return {"nodes.v0.0.38.json": _json.SINFO, "squeue.v0.0.38.json": _json.SHOW_JOBS}
    if version < (23, 11):  # no choice yet, and no +complex
        return {f"{name}.v0.0.39.json": argv for name, argv in asked.items()}
    listed = cluster.run(*_json.SHOW_JOBS[:-1], "--json=list")
    forms = sorted({*re.findall(r"data_parser/(v\S+)", listed.stdout + listed.stderr)})
    return {
        f"{name}.{form}{flag}.json": (*argv[:-1], f"--json={form}{flag}")
        for form in forms
        for flag in ("", "+complex")
        for name, argv in asked.items()
    }


def main() -> None:
    """Start a cluster, and keep what it answers to all of it, if nothing changed in between."""
    with Sandbox(8, return_to_service=0, extra_conf=(*EXTRA, *sys.argv[1:])) as cluster:

        def ask(*argv: str) -> bytes:
            is_text = "--json" not in argv[-1]
            done = cluster.run(*argv, env={"TZ": "UTC", "LC_ALL": "C.UTF-8"}, check=is_text)
            answer = "" if done.returncode else done.stdout
            for path, neutral in ((f"{cluster.directory}/work", "/home/user"), (str(cluster.directory), "/srv")):
                for written in (str, lambda text: text.replace("/", "\\/")):  # json-c escapes slashes
                    answer = answer.replace(written(path), written(neutral))
            return answer.encode("utf-8", "surrogateescape")

        def facts() -> tuple[object, object]:
            return _node_rows.parse_nodes(ask(*_text.SHOW_NODES)), _job_rows.parse_jobs(ask(*_text.SHOW_JOBS))

        told = ask("scontrol", "-V")
        found = re.search(r"(\d+)\.(\d+)", told.decode())
        assert found is not None
        set_up(cluster)
        asked = {
            "nodes.txt": _text.SHOW_NODES,
            "squeue.txt": _text.SHOW_JOBS,
            "jobs.txt": ("scontrol", "--all", "--local", "show", "jobs"),
            **questions(cluster, (int(found[1]), int(found[2]))),
        }
        while True:
            before = facts()
            answers = {file: ask(*argv) for file, argv in asked.items()}
            if facts() == before:
                break
    target = HERE / "forms" / found[0]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "version.txt").write_bytes(told)
    for file, answer in answers.items():
        if answer:  # 23.11 lists v0.0.39 and says nothing in it, and squeue dies of v0.0.40+complex
            (target / file).write_bytes(answer)


if __name__ == "__main__":
    main()

"""Records what a real Slurm says about hostile text, in `<version>-hostile/` beside this file: run it as root.

A private cluster (slurm/sandbox.py) whose administrators and users write newlines, control characters, invalid
UTF-8 and forged fields wherever Slurm lets them. README.md beside this file says what is in which file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from slurm.commands import config as _config
from slurm.commands import text as _text
from slurm.sandbox.cluster import Sandbox

HERE = Path(__file__).parent
SLEEP = "#!/bin/sh\nexec sleep 600\n"
FORGED_NODE = "NodeName=n8 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1"
FORGED_JOB = (
    "JobId=99 JobName=ghost UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0 Account=(null)"
    " QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0"
    " ExitCode=0:0 StartTime=2026-01-01T00:00:00 EndTime=Unknown Partition=main ReqNodeList=(null)"
    " ExcNodeList=(null) NodeList=n8 NumNodes=1 NumCPUs=1"
)
HOSTLISTS = (
    "n[1-3]", "n[01-101]", "n[08-11]", "n[00-5]", "n[5-08]", "b04-[09-10]", "nodeA,nodeB[001,003]",
    "r[1-2]n[01-02]", "dgx-h100.cl1[1-2]", "n1,n01,n001", "a[1-3,5,7-8]",
)  # fmt: skip

# Every node, with what is wrong with it.
NODES = {
    "n1": ("state=drain", "reason=bad fan\nNodeName=n2 State=IDLE\nthird line"),
    "n2": ("state=drain", "reason=a [b] [me@2020-01-01T00:00:00] c"),
    "n3": ("state=fail", "reason=\udcff\udcfe\x1b[31mred\x07\x01\x0c\x85\u2028é State=IDLE"),
    "n4": ("state=drain", "reason=ECC"),
    "n5": ("state=down", "reason=key=value a=b Reason=none Comment=none"),
    "n6": ("state=drain", "reason=plain"),
    "n7": ("comment=only a comment State=DOWN",),
}
FREE_TEXT = {
    "n1": ("comment=first\nsecond State=DOWN\n\nNodeName", "extra=more\x0bState=DOWN"),
    "n4": ("features=x State=IDLE Reason=forged",),
    "n6": ("gres=gpu: State=IDLE",),
}


def main() -> None:
    """Start a cluster, spoil it, and keep what it answers."""
    extra = ("NodeName=f[1-2] CPUs=2 State=FUTURE", "RebootProgram=/bin/true", "SlurmdTimeout=300")
    with Sandbox(8, return_to_service=0, extra_conf=extra) as cluster:

        def ask(*argv: str, zone: str = "UTC") -> bytes:
            text = cluster.run(*argv, env={"TZ": zone, "LC_ALL": "C"}).stdout
            text = text.replace(f"{cluster.directory}/work", "/home/user")  # as in the other recordings
            return text.encode("utf-8", "surrogateescape")

        version = re.search(r"\d+\.\d+", ask("scontrol", "-V").decode())
        assert version is not None
        target = HERE / f"{version[0]}-hostile"
        target.mkdir(exist_ok=True)
        (target / "version.txt").write_bytes(ask("scontrol", "-V"))
        (target / "scontrol_show_config.txt").write_bytes(ask(*_config.SHOW_CONFIG))
        names = {text: ask("scontrol", "show", "hostnames", text).decode().split() for text in HOSTLISTS}
        (target / "scontrol_show_hostnames.json").write_text(json.dumps(names, indent=1) + "\n")

        jobs = [
            cluster.submit(SLEEP, "--array=0-1", "-N1", "-w", "n1", "-J", "array"),
            cluster.submit(SLEEP, "-w", "n2", "-n1", ":", "-w", "n3", "-n1", "-J", "het"),
            cluster.submit(SLEEP, "-w", "n[4-5]", "-N2", "--no-kill", "-J", "nm JobState=PENDING NodeList=q1"),
            cluster.submit(SLEEP, "-w", "n6", "-N1", "-J", "suspended", "--comment", f"c\n{FORGED_JOB}"),
            cluster.submit(SLEEP, "-w", "n7", "-N1", "-J", "re|queued\t\udcff\x1b[2J"),
        ]
        cluster.submit(SLEEP, "--array=0-9%2", "--hold", "-J", "held")
        cluster.submit(SLEEP, "-N", "1", "-w", "n8", "--begin=now+1day", "-J", "later")
        for job, count in zip(jobs, (2, 2, 1, 1, 1), strict=True):
            cluster.wait_running(job, count)
        cluster.requeue(jobs[4])
        cluster.run("scontrol", "suspend", jobs[3])
        for table in (NODES, FREE_TEXT):
            for name, settings in table.items():
                cluster.run("scontrol", "update", f"nodename={name}", *settings)
        cluster.run("scontrol", "reboot", "asap", "nextstate=RESUME", "reason=kernel", "n8")

        (target / "squeue.txt").write_bytes(ask(*_text.SHOW_JOBS))
        (target / "scontrol_show_jobs.forged_comment.txt").write_bytes(ask("scontrol", "show", "jobs"))
        cluster.run("scontrol", "update", f"jobid={jobs[3]}", "comment=harmless")
        for suffix, zone in (("", "UTC"), (".new_york", "America/New_York")):
            (target / f"scontrol_show_nodes_oneline{suffix}.txt").write_bytes(ask(*_text.SHOW_NODES, zone=zone))
            (target / f"scontrol_show_jobs{suffix}.txt").write_bytes(ask("scontrol", "show", "jobs", zone=zone))
        (target / "scontrol_show_jobs_oneline.txt").write_bytes(ask("scontrol", "show", "jobs", "-o"))

        cluster.run("scontrol", "update", "nodename=n7", f"comment=x\n{FORGED_NODE}")
        (target / "scontrol_show_nodes_oneline.forged_node.txt").write_bytes(ask(*_text.SHOW_NODES))
        cluster.run("scontrol", "update", "nodename=n7", "comment=", "features=x State=IDLE Reason=y\nrest")
        (target / "scontrol_show_nodes_oneline.broken_features.txt").write_bytes(ask(*_text.SHOW_NODES))
        cluster.run("scontrol", "update", f"jobid={jobs[4]}", f"name=a\n{FORGED_JOB}")
        for suffix, options in (("", ()), ("_oneline", ("-o",))):
            forged = ask("scontrol", "show", "jobs", *options)
            (target / f"scontrol_show_jobs{suffix}.forged_name.txt").write_bytes(forged)
    with Sandbox(1) as cluster:
        (target / "scontrol_show_jobs.none.txt").write_text(cluster.run("scontrol", "show", "jobs").stdout)


if __name__ == "__main__":
    main()

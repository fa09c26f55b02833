"""Breaks the product on purpose, a line at a time, and says which test notices: `make test-mutants`.

Each mutant is what somebody might write in good faith. One that no test notices is a hole in the tests, and ends
this with status 1; so does one whose line is no longer there. It works on a copy of the tree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent
STORE, PUBLISH, TAKEOVER = "tests/test_store.py", "tests/test_publish.py", "tests/test_takeover.py"
PREFLIGHT, BUILTIN = "tests/checks/test_preflight.py", "tests/checks/builtin/test_answer.py"
NHC, OWN_STATE = "tests/checks/builtin/test_nhc.py", "tests/checks/builtin/test_own_state.py"
STORAGE_PROCESSES, STORAGE_HANGS = "tests/checks/test_storage_processes.py", "tests/checks/test_storage_hangs.py"
ATTRIBUTION, MANAGED = "segment_health/attribution", "tests/attribution/test_managed.py"
WIRE, CLIENT = "tests/attribution/test_wire.py", "tests/attribution/test_client.py"
ANALYSIS, POLLER = "tests/attribution/test_analysis.py", "tests/attribution/test_poller.py"
NVHCD, NVHCD_TESTS = "segment_health/checks/nvhcd", "tests/checks/nvhcd"


@dataclass(frozen=True)
class Mutant:
    """A break: `old` becomes `new` in `file`, and one of `tests` has to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = [
    Mutant(
        "the content is not synced before it is visible",
        "segment_health/atomic.py",
        "            if durable:\n",
        "            if False:\n",
        (STORE,),
    ),
    Mutant(
        "the old artifact is removed before the new one is there",
        "segment_health/atomic.py",
        "        os.replace(temporary, name, src",
        "        with contextlib.suppress(OSError):\n            os.unlink(name, dir_fd=directory)\n"
        "        os.replace(temporary, name, src",
        (STORE,),
    ),
    Mutant(
        "a temporary may be somebody's link",
        "segment_health/atomic.py",
        "temporary, os.open(temporary, flags,",
        "temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC,",
        (STORE,),
    ),
    Mutant(
        "the mode is the umask's",
        "segment_health/atomic.py",
        "            os.fchmod(descriptor, mode)  # before it is visible, and whatever the umask\n",
        "",
        (STORE,),
    ),
    Mutant(
        "what is left of a failed write stays",
        "segment_health/atomic.py",
        "            os.unlink(temporary, dir_fd=directory)\n        raise",
        "            pass\n        raise",
        (STORE,),
    ),
    Mutant(
        "clearing removes the artifact",
        "segment_health/store.py",
        'replace_file(self._directory, unit.artifact_name, b"", mode=ARTIFACT_MODE)',
        "os.unlink(unit.artifact_name, dir_fd=self._directory)",
        (STORE, PUBLISH),
    ),
    Mutant(
        "what changed during the pass is overwritten",
        "segment_health/store.py",
        "if self._look(unit) != self._seen.get(unit):",
        "if False:",
        (STORE,),
    ),
    Mutant(
        "one failed unit ends the pass",
        "segment_health/store.py",
        "        except OSError as error:\n            return Change(decision",
        "        except FileNotFoundError as error:\n            return Change(decision",
        (PUBLISH,),
    ),
    Mutant(
        "a time-out is an empty answer",
        "slurm/commands/run.py",
        '                raise _late(", ".join(sorted(late)), timeout, said)',
        "                return",
        ("tests/test_command.py",),
    ),
    Mutant(
        "a command that failed has answered",
        "slurm/commands/run.py",
        "        if status > 0:\n",
        "        if status > 255:\n",
        ("tests/test_command.py",),
    ),
    Mutant(
        "no node at all is an answer",
        "slurm/commands/text.py",
        "    if not nodes:\n",
        "    if False:\n",
        ("tests/test_text.py",),
    ),
    Mutant(
        "UNKNOWN is healthy",
        "segment_health/policy/states.py",
        '    "IDLE": _OK,',
        '    "IDLE": _OK,\n    "UNKNOWN": _OK,',
        ("tests/test_node_state.py", "tests/policy/test_states.py"),
    ),
    Mutant(
        "a node without a verdict is fit",
        "segment_health/judge.py",
        "            unclear.add(name)\n",
        "            pass\n",
        (PUBLISH,),
    ),
    Mutant(
        "a requeued unit inherits",
        "segment_health/decide.py",
        "return _lift(prior) if may_lift or prior.generation != unit.generation else None",
        "return _lift(prior) if may_lift else None",
        (PUBLISH,),
    ),
    Mutant(
        "generations are compared by restarts alone",
        "segment_health/contract.py",
        "return self.restart_count < other.restart_count or self.start_time < other.start_time",
        "return self.restart_count < other.restart_count",
        (TAKEOVER,),
    ),
    Mutant(
        "any scope lifts any artifact",
        "segment_health/decide.py",
        "return _lift(prior) if outdated or (may_lift and not situation.is_alive(prior)) else None",
        "return _lift(prior) if outdated or may_lift else None",
        (PUBLISH,),
    ),
    Mutant(
        "the key is the raw job id",
        "segment_health/unit.py",
        "return UnitId(allocation.array_job_id, allocation.array_task_id)",
        "return UnitId(allocation.job_id, allocation.job_id)",
        (PUBLISH,),
    ),
    Mutant(
        "a component has an artifact of its own",
        "segment_health/unit.py",
        "return UnitId(allocation.het_job_id, allocation.het_job_id)",
        "return UnitId(allocation.job_id, allocation.job_id)",
        (PUBLISH,),
    ),
    Mutant(
        "one miss retires",
        "segment_health/retire.py",
        "MISSES_TO_RETIRE = 2",
        "MISSES_TO_RETIRE = 1",
        (PUBLISH,),
    ),
    Mutant(
        "not seen is absent, under PrivateData too",
        "segment_health/retire.py",
        "if visible is not None and visible != remembered.user_id:",
        "if False:",
        (PUBLISH,),
    ),
    Mutant(
        "a foreign artifact is taken over",
        "segment_health/decide.py",
        "    if not situation.adopt:\n",
        "    if False:\n",
        (PUBLISH,),
    ),
    Mutant(
        "the older of two views counts",
        "segment_health/decide.py",
        "    if situation.is_superseded():",
        "    if False:",
        (TAKEOVER,),
    ),
    Mutant(
        "the word that Slurm prints is trusted",
        "slurm/node.py",
        "    if base in _COLLAPSED:\n",
        "    if False:\n",
        ("tests/test_node_state.py", "tests/policy/test_states.py"),
    ),
    Mutant(
        "only the first word of a state counts",
        "slurm/node.py",
        "    flags.update(filter(None, rest))\n",
        "",
        ("tests/test_node_state.py",),
    ),
    Mutant(
        "a shrunk unit is forgotten",
        "segment_health/judge.py",
        "        nodes |= frozenset(situation.snapshot.recall(remembered.nodelist))\n",
        "        pass\n",
        (PUBLISH,),
    ),
    Mutant(
        "an old view is acted on",
        "segment_health/publish.py",
        "    if age > publication.storage_timeout:\n",
        "    if False:\n",
        (TAKEOVER,),
    ),
    Mutant(
        "what lies under a mount point is the directory",
        "segment_health/publish.py",
        "        if publication.device not in {None, directory.device} and situation.previous_pass is None:\n",
        "        if False:\n",
        ("tests/test_watch.py",),
    ),
    Mutant(
        "the consumer looks at the link",
        "segment_health/consumer.py",
        "found = os.stat(self.path)",
        "found = os.lstat(self.path)",
        ("tests/test_consumer.py",),
    ),
    Mutant(
        "the consumer fails closed",
        "segment_health/consumer.py",
        '            return True, f"{_IGNORING}{failure}"',
        '            return False, f"{_IGNORING}{failure}"',
        ("tests/test_consumer.py",),
    ),
    Mutant(
        "every process looks",
        "segment_health/consumer.py",
        'if environ.get("SLURM_PROCID") != "0":',
        'if not environ.get("SLURM_PROCID"):',
        ("tests/test_consumer.py",),
    ),
    Mutant(
        "a heartbeat never ends",
        "segment_health/memory.py",
        "return -self.interval <= now - self.last_complete_pass < 2 * self.interval",
        "return True",
        (PUBLISH, "tests/test_watch.py"),
    ),
    Mutant(
        "an exclusion that nobody alive confirms is fresh",
        "segment_health/survey.py",
        'state="fresh" if confirmed else "stale"',
        'state="fresh"',
        ("tests/test_survey.py",),
    ),
    Mutant(
        "a stranger's state of everybody's units counts",
        "segment_health/ledger.py",
        """                    owners = self._trusted() if name.startswith(_EVERYBODYS) else None
                    states[""",
        """                    owners = None
                    states[""",
        ("tests/test_survey.py",),
    ),
    Mutant(
        "what is held is told in every pass",
        "segment_health/hold.py",
        "            held=True,\n",
        "",
        ("tests/test_history.py",),
    ),
    Mutant(
        "a damaged line ends the history",
        "segment_health/history.py",
        "            damaged += 1\n",
        "            break\n",
        ("tests/test_history.py",),
    ),
    Mutant(
        "nobody alive is well",
        "segment_health/cli/overview.py",
        "    if not living:\n",
        "    if False:\n",
        ("tests/test_status.py",),
    ),
    Mutant(
        "what a reason says is markup",
        "segment_health/cli/table.py",
        'Text.assemble(row.reasons, "\\n" if row.reasons else "", (f"by {row.by}", "dim"))',
        "row.reasons",
        ("tests/test_status.py",),
    ),
    Mutant(
        "going stale keeps the exclusions",
        "segment_health/watch.py",
        "failures.lifted or silent < publishing.stale_after:",
        "True:",
        ("tests/test_watch.py",),
    ),
    Mutant(
        "who asks is obeyed as often as they like",
        "segment_health/signals.py",
        "            self._not_before = now + QUIET_SECONDS\n",
        "            pass\n",
        ("tests/test_poke.py",),
    ),
    Mutant(
        "who watches the file outlives the publisher",
        "segment_health/poke.py",
        "    while not select.select([told], [], [], LOOK_SECONDS)[0]:",
        "    while select.select([], [], [], LOOK_SECONDS):",
        ("tests/test_poke.py",),
    ),
    Mutant(
        "what nobody saw change is asked for",
        "segment_health/poke.py",
        "    last = _look(path) if is_first else None\n",
        "    last = None\n",
        ("tests/test_poke.py",),
    ),
    Mutant(
        "a failed pass feeds the watchdog",
        "segment_health/notify.py",
        'self._tell("READY=1", f"STATUS={printable(why)[:_MAX_STATUS]}")',
        'self._tell("READY=1", f"STATUS={printable(why)[:_MAX_STATUS]}", "WATCHDOG=1")',
        ("tests/test_notify.py",),
    ),
    Mutant(
        "a late child is waited for",
        "segment_health/bounded.py",
        "    while select.select([receiving], [], [], max(0.0, deadline - time.monotonic()))[0]:\n",
        "    while select.select([receiving], [], [])[0]:\n",
        ("tests/test_bounded.py",),
    ),
    Mutant(
        "a sticky directory of everybody's is ours",
        "segment_health/trust.py",
        "    return _foreign_owner(found, path) or _others(found, path)",
        "    return _stranger_above(found, path)",
        ("tests/test_trust.py",),
    ),
    Mutant(
        "a text in the page ends its element",
        "segment_health/page/render.py",
        '    return text.replace("<", "\\\\u003c").replace(">", "\\\\u003e").replace("&", "\\\\u0026")\n',
        "    return text\n",
        ("tests/page/test_render.py",),
    ),
    Mutant(
        "the page answers to any name",
        "segment_health/page/answers.py",
        "        return len(given) == 1 and _name_of(given[0]) in self._hosts\n",
        "        return len(given) == 1\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "a part of the page's token is enough",
        "segment_health/page/answers.py",
        "not hmac.compare_digest(given.strip().encode(), self._token.encode())",
        "not self._token.startswith(given.strip())",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "each refresh of the page is a pass",
        "segment_health/page/answers.py",
        "        if not self._board.asked:\n",
        "        if True:\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "the loop waits for the page's server",
        "segment_health/page/door.py",
        "            if not select.select([], [descriptor], [], max(0.0, deadline - self._monotonic()))[1]:\n",
        "            if not select.select([], [descriptor], [])[1]:\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "a page's dead server stays dead",
        "segment_health/page/door.py",
        "        if ended:\n            self._bury()\n            self._revive()\n",
        "        if ended:\n            self._bury()\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "a page's server that cannot run is started all the time",
        "segment_health/page/door.py",
        "        if now - self._restarted < RESTART_SECONDS:\n",
        "        if False:\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "a page's new server knows nothing",
        "segment_health/page/door.py",
        "            self._send(self._event(self._picture))\n",
        "            self._send(self._event({}))\n",
        ("tests/page/test_door.py",),
    ),
    Mutant(
        "the page's socket is everybody's",
        "segment_health/page/listening.py",
        "    before = os.umask(0o177)",
        "    before = os.umask(0o111)",
        ("tests/page/test_listening.py",),
    ),
    Mutant(
        "a page takes the place of a living one",
        "segment_health/sockets.py",
        "        try:\n            caller.connect(path)\n        except ConnectionRefusedError:\n"
        "            os.unlink(path)\n            return True\n",
        "        os.unlink(path)\n        return True\n        try:\n            caller.connect(path)\n",
        ("tests/page/test_listening.py",),
    ),
    Mutant(
        "the page's token may be read by others",
        "segment_health/page/listening.py",
        "found.st_mode & 0o077",
        "found.st_mode & 0o007",
        ("tests/page/test_listening.py",),
    ),
    Mutant(
        "the page is ready whatever the age of its pass",
        "segment_health/page/board.py",
        'now - float(event["age"])',
        "now",
        ("tests/page/test_board.py",),
    ),
    Mutant(
        "a node that a unit lost is not on the page",
        "segment_health/page/picture.py",
        "            if fault.rule == SHRUNK:",
        '            if fault.rule == "lost":',
        ("tests/page/test_picture.py",),
    ),
    Mutant(
        "what a text holds is markup on the page",
        "segment_health/page/page.html",
        "element.append(child instanceof Node ? child : printable(child));",
        'element.insertAdjacentHTML("beforeend", child instanceof Node ? child.outerHTML : child);',
        ("tests/page/test_browser.py",),
    ),
    Mutant(
        "the page shows control characters as they are",
        "segment_health/page/page.html",
        "String(text).replace(/[\\p{C}\\p{Zl}\\p{Zp}]/gu, spell);",
        "String(text);",
        ("tests/page/test_browser.py",),
    ),
    Mutant(
        "the page tells the keyboard nothing",
        "segment_health/page/page.html",
        'document.addEventListener("focusin", explainWhat);\n',
        "",
        ("tests/page/test_browser.py",),
    ),
    Mutant(
        "the page does not say that it is old",
        "segment_health/page/page.html",
        "interval && age > 2 * interval",
        "interval && age > 200 * interval",
        ("tests/page/test_browser.py",),
    ),
    Mutant(
        "metrics: a level that is 0 is no level",
        "segment_health/metrics/registry.py",
        "NO_VERDICT if at is None else at.name:",
        "at.name if at else NO_VERDICT:",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: what could not be written counts as excluded",
        "segment_health/publish.py",
        "if decision.unit in stands and change.error is None and",
        "if decision.unit in stands and",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a question counts each time the text is asked for",
        "segment_health/metrics/registry.py",
        "            self._asked[door] = (queries, received)\n",
        "",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a new source forgets what the old one asked",
        "segment_health/service.py",
        "            self._asked_before = asked\n",
        "",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a file that counts backwards is taken",
        "segment_health/metrics/registry.py",
        "if sorted(sums) != sums:",
        "if False:",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: another scope's counters are ours",
        "segment_health/metrics/registry.py",
        ' and sample.labels.get("scope") == self._scope',
        "",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a scope names its jobs",
        "segment_health/metrics/registry.py",
        'str(scope) if scope.kind in {"all", "partition"} else scope.kind',
        "str(scope)",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: the file is for its owner alone",
        "segment_health/metrics/textfile.py",
        "_MODE = 0o644",
        "_MODE = 0o600",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a file that cannot be written ends the pass",
        "segment_health/metrics/textfile.py",
        "        except OSError as error:\n            self._say",
        "        except ValueError as error:\n            self._say",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a file outlives its publisher",
        "segment_health/metrics/textfile.py",
        "bounded(lambda: os.unlink(self._path), self._timeout, self._path)",
        "pass",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "metrics: a dry run counts",
        "segment_health/cli/publish.py",
        "remarks = [] if dry_run else metrics",
        "remarks = metrics",
        ("tests/test_metrics.py",),
    ),
    Mutant(
        "levels: nobody's node is judged as one that is held",
        "segment_health/levels.py",
        "allocated=name in held)",
        "allocated=True)",
        ("tests/test_levels.py",),
    ),
    Mutant(
        "levels: of two holders the milder word counts",
        "segment_health/levels.py",
        "= max((*told, *alone)",
        "= min((*told, *alone)",
        ("tests/test_levels.py",),
    ),
    Mutant(
        "levels: a node without a row is left out",
        "segment_health/levels.py",
        "    judged.update(dict.fromkeys(sorted(held - snapshot.nodes.keys())))\n",
        "",
        ("tests/test_levels.py",),
    ),
    Mutant(
        "log: passes that begin to fail again are passed over",
        "segment_health/cli/log.py",
        "                self._said.pop(alike(why), None)\n",
        "                pass\n",
        ("tests/test_log.py",),
    ),
    Mutant(
        "log: another process id is another trouble",
        "segment_health/cli/lines.py",
        'return re.sub(r"\\d+(?:\\.\\d+)?", "#", sentence)',
        "return sentence",
        ("tests/test_log.py",),
    ),
    Mutant(
        "log: every pass is summed up",
        "segment_health/cli/log.py",
        "if not self._begun or self._failures:",
        "if True:",
        ("tests/test_log.py",),
    ),
    Mutant(
        "storage: the first mount of two on one point counts",
        "segment_health/mount.py",
        "        while (above := on.get((reached,",
        "        if (above := on.get((reached,",
        ("tests/test_mount.py",),
    ),
    Mutant(
        "storage: a fifo is opened",
        "segment_health/checks/probe.py",
        "os.open(path, os.O_PATH | os.O_CLOEXEC)",
        "os.open(path, os.O_RDONLY | os.O_CLOEXEC)",
        (STORAGE_PROCESSES,),
    ),
    Mutant(
        "storage: a whole directory is listed",
        "segment_health/checks/probe.py",
        "            next(entries, None)\n",
        "            list(entries)\n",
        (STORAGE_PROCESSES,),
    ),
    Mutant(
        "storage: only the process itself is killed",
        "segment_health/checks/probing.py",
        "os.killpg(self.process.pid, signal.SIGKILL)",
        "os.kill(self.process.pid, signal.SIGKILL)",
        (STORAGE_PROCESSES,),
    ),
    Mutant(
        "storage: the clock is read before the pipe",
        "segment_health/checks/probing.py",
        " or selector.select(0)",
        "",
        (STORAGE_PROCESSES,),
    ),
    Mutant(
        "storage: what was left behind is not waited for",
        "segment_health/checks/probing.py",
        "    _let_go_of_the_dead()\n    waiting",
        "    waiting",
        (STORAGE_HANGS,),
    ),
    Mutant(
        "storage: a second process joins one that hangs",
        "segment_health/checks/probing.py",
        "            _left_behind.append(child)\n",
        "            pass\n",
        (STORAGE_HANGS,),
    ),
    Mutant(
        "storage: all are waited for at the same time",
        "segment_health/checks/probing.py",
        "AT_ONCE = 32",
        "AT_ONCE = 64",
        (STORAGE_HANGS,),
    ),
    Mutant(
        "storage: a mount table that cannot be read is an empty one",
        "segment_health/checks/storage.py",
        "        if not mounts:  #",
        "        if False:  #",
        ("tests/checks/test_storage.py",),
    ),
    Mutant(
        "storage: a hidden mount is looked at",
        "segment_health/checks/storage.py",
        "for mount in in_sight(mounts) if",
        "for mount in mounts if",
        ("tests/checks/test_storage.py",),
    ),
    Mutant(
        "preflight: SIGPIPE stays ignored",
        "segment_health/cli/launch.py",
        "        signal.signal(ignored, signal.SIG_DFL)\n",
        "        pass\n",
        (PREFLIGHT,),
    ),
    Mutant(
        "preflight: the environment is Python's",
        "segment_health/cli/launch.py",
        "command, environ)  # noqa",
        "command, os.environ)  # noqa",
        (PREFLIGHT,),
    ),
    Mutant(
        "preflight: streams that were closed are open",
        "segment_health/cli/failure.py",
        "os.open(os.devnull, os.O_RDWR)",
        "os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)",
        (PREFLIGHT,),
    ),
    Mutant(
        "preflight: the file counts before a flag",
        "segment_health/cli/preflight.py",
        "Wanted(**{**(file_of(ft_cfg, KEYS) if ft_cfg is not None else {}), **told})",
        "Wanted(**{**told, **(file_of(ft_cfg, KEYS) if ft_cfg is not None else {})})",
        (PREFLIGHT,),
    ),
    Mutant(
        "preflight: a failure does not end the chain",
        "segment_health/checks/chain.py",
        "if step.about is None or failed:",
        "if step.about is None:",
        ("tests/checks/test_chain.py",),
    ),
    Mutant(
        "preflight: a later success hides a failure",
        "segment_health/checks/chain.py",
        "        failed = not finding.is_healthy\n",
        "        failed = failed and not finding.is_healthy\n",
        ("tests/checks/test_chain.py",),
    ),
    Mutant(
        "preflight: storage that hangs excludes",
        "segment_health/checks/chain.py",
        'healthy, warning = True, f"Ignoring',
        'healthy, warning = False, f"Ignoring',
        ("tests/checks/test_preflight_hangs.py",),
    ),
    Mutant(
        "preflight: aliases are looked at again",
        "segment_health/ft_cfg.py",
        " or id(value) in seen",
        "",
        ("tests/checks/test_wanted.py",),
    ),
    Mutant(
        "builtin: what is not known is an all-clear",
        "segment_health/checks/builtin/answer.py",
        "    if unknown and not failed:\n",
        "    if False:\n",
        (BUILTIN,),
    ),
    Mutant(
        "builtin: what is not known hides a failure",
        "segment_health/checks/builtin/answer.py",
        "    if unknown and not failed:\n",
        "    if unknown:\n",
        (BUILTIN,),
    ),
    Mutant(
        "builtin: NHC's site file has the last word",
        "segment_health/checks/builtin/nhc.py",
        '"$SYSCONFIGDIR/$NAME"; \' + _QUIET + "; }"',
        '"$SYSCONFIGDIR/$NAME"; \' + ":; }"',
        (NHC,),
    ),
    Mutant(
        "builtin: an NHC that fails without a word is a sick node",
        "segment_health/checks/builtin/nhc.py",
        '        raise Unknown(f"{program} ended with status',
        '        return Finding((last,))\n        raise Unknown(f"{program} ended with status',
        (NHC,),
    ),
    Mutant(
        "builtin: NHC's watchdog outlives it",
        "segment_health/checks/builtin/nhc.py",
        "if os.getsid(int(name)) == leader:",
        "if os.getpgid(int(name)) == leader:",
        (NHC,),
    ),
    Mutant(
        "builtin: a verdict that depends on the partition is one",
        "segment_health/checks/builtin/own_state.py",
        "    if every:\n",
        "    if False:\n",
        (OWN_STATE,),
    ),
    Mutant(
        "builtin: a rule that waits is healthy",
        "segment_health/checks/builtin/own_state.py",
        "    if not told.final:\n",
        "    if False:\n",
        (OWN_STATE,),
    ),
    Mutant(
        "builtin: how long a fault has lasted is not asked",
        "segment_health/checks/builtin/own_state.py",
        "    told = policy.assess(node, seen=seen, now=now)\n",
        "    told = policy.assess(node, now=now)\n",
        (OWN_STATE,),
    ),
    Mutant(
        "builtin: a segment is healthy outside a job",
        "segment_health/checks/builtin/run.py",
        '            raise Unknown(\n                "not in a job',
        '            return Finding()\n            raise Unknown(\n                "not in a job',
        ("tests/checks/builtin/test_command.py",),
    ),
    Mutant(
        "builtin: the last row of a node counts",
        "slurm/commands/node.py",
        '    fields = text.split("|", len(_FIELDS) - 1)\n',
        '    fields = text.rstrip("\\n").rpartition("\\n")[2].split("|", len(_FIELDS) - 1)\n',
        ("tests/test_one_node.py",),
    ),
    Mutant(
        "builtin: another node's row is ours",
        "slurm/commands/node.py",
        "    if listed != name:\n",
        "    if False:\n",
        ("tests/test_one_node.py",),
    ),
    Mutant(
        "nvhcd: only the process group is killed",
        f"{NVHCD}/reaper.py",
        "            left = descendants(os.getpid())\n            kill(left)\n",
        "            left = descendants(os.getpid())\n",
        (f"{NVHCD_TESTS}/test_program.py",),
    ),
    Mutant(
        "nvhcd: a check outlives the daemon",
        f"{NVHCD}/reaper.py",
        "            if 0 in ready and not os.read(0, _CHUNK):\n                self.wanted = False\n",
        "",
        (f"{NVHCD_TESTS}/test_daemon.py",),
    ),
    Mutant(
        "nvhcd: a missing program is an unhealthy node",
        f"{NVHCD}/outcome.py",
        "    if ended.errno is not None:\n        return _not_started(ended.errno, ended.cause, program)\n",
        "",
        (f"{NVHCD_TESTS}/test_outcome.py",),
    ),
    Mutant(
        "nvhcd: half an answer is one",
        f"{NVHCD}/outcome.py",
        "    if ended.cut:\n",
        "    if False:\n",
        (f"{NVHCD_TESTS}/test_outcome.py",),
    ),
    Mutant(
        "nvhcd: a late one that ends with 0 is healthy",
        f"{NVHCD}/outcome.py",
        "    if ended.late or ended.status is None:\n",
        "    if ended.status is None:\n",
        (f"{NVHCD_TESTS}/test_outcome.py",),
    ),
    Mutant(
        "nvhcd: the mode is the umask's",
        f"{NVHCD}/place.py",
        "            os.chmod(self.to_bind, mode)\n",
        "",
        (f"{NVHCD_TESTS}/test_place.py",),
    ),
    Mutant(
        "nvhcd: another daemon's socket is removed in the end",
        f"{NVHCD}/place.py",
        "self._inode is not None and _identity(self.path) == self._inode",
        "self._inode is not None",
        (f"{NVHCD_TESTS}/test_place.py",),
    ),
    Mutant(
        "nvhcd: two may start at once",
        f"{NVHCD}/place.py",
        "            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (f"{NVHCD_TESTS}/test_place.py",),
    ),
    Mutant(
        "nvhcd: who goes takes the run along",
        f"{NVHCD}/service.py",
        "await asyncio.shield(run.task)",
        "await run.task",
        (f"{NVHCD_TESTS}/test_service.py",),
    ),
    Mutant(
        "nvhcd: errors are given again",
        f"{NVHCD}/service.py",
        "if isinstance(came, Answer) and config is",
        "if config is",
        (f"{NVHCD_TESTS}/test_service.py",),
    ),
    Mutant(
        "nvhcd: what nobody waits for begins all the same",
        f"{NVHCD}/service.py",
        "                run.task.cancel()\n                self._forget(command, run)\n",
        "",
        (f"{NVHCD_TESTS}/test_service.py",),
    ),
    Mutant(
        "nvhcd: a second program joins one that hangs",
        f"{NVHCD}/service.py",
        "            if not before.is_gone:\n",
        "            if False:\n",
        (f"{NVHCD_TESTS}/test_stuck.py",),
    ),
    Mutant(
        "nvhcd: calls that are being answered are cut off",
        f"{NVHCD}/daemon.py",
        "self._server.stop(self._config.timeout + _DRAIN_SECONDS)",
        "self._server.stop(None)",
        (f"{NVHCD_TESTS}/test_life.py",),
    ),
    Mutant(
        "nvhcd: systemd's words reach the program",
        f"{NVHCD}/program.py",
        " if not key.startswith(_SCRUBBED)",
        "",
        (f"{NVHCD_TESTS}/test_program.py",),
    ),
    Mutant(
        "nvhcd: a caller at systemd's socket is forgotten",
        f"{NVHCD}/relay.py",
        "        finally:\n            writer.close()\n\n\nasync def",
        "        finally:\n            pass\n\n\nasync def",
        (f"{NVHCD_TESTS}/test_life.py",),
    ),
    Mutant(
        "nvhcd: callers fill the log",
        "segment_health/cli/nvhcd.py",
        "        if self._allowance < 1:\n",
        "        if False:\n",
        (f"{NVHCD_TESTS}/test_command.py",),
    ),
    Mutant(
        "attribution: the service outlives a job that is killed",
        f"{ATTRIBUTION}/leash.py",
        '        _die_with(order["parent"])\n',
        "",
        (MANAGED,),
    ),
    Mutant(
        "attribution: the service has the key in its environment",
        f"{ATTRIBUTION}/child.py",
        "in without_key(environ).items()",
        "in environ.items()",
        (MANAGED,),
    ),
    Mutant(
        "attribution: the key's file is not tried",
        f"{ATTRIBUTION}/leash.py",
        "        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)\n",
        "        descriptor = os.open(path, os.O_PATH)\n",
        (MANAGED,),
    ),
    Mutant(
        "attribution: the key is quoted where its file is asked for",
        f"{ATTRIBUTION}/leash.py",
        'told if told.startswith(("/", "~/")) else',
        "told if told else",
        (MANAGED,),
    ),
    Mutant(
        "attribution: whoever has the port is believed",
        f"{ATTRIBUTION}/managed.py",
        "if not _asked(port.is_free, self._number):",
        "if False:",
        (MANAGED,),
    ),
    Mutant(
        "attribution: whoever answers is believed",
        f"{ATTRIBUTION}/managed.py",
        "if _asked(port.is_of, child.pid, self._number):",
        "if True:",
        (MANAGED,),
    ),
    Mutant(
        "attribution: a service's children are left",
        f"{ATTRIBUTION}/child.py",
        "os.killpg(self.pid, number)",
        "os.kill(self.pid, number)",
        (MANAGED,),
    ),
    Mutant(
        "attribution: a service is started again for ever",
        f"{ATTRIBUTION}/managed.py",
        "            if restarts == RESTARTS:\n",
        "            if False:\n",
        (MANAGED,),
    ),
    Mutant(
        "attribution: the end of a job waits for a restart",
        f"{ATTRIBUTION}/managed.py",
        "            if self._ending.wait(_pause(restarts",
        "            if time.sleep(_pause(restarts",
        (MANAGED,),
    ),
    Mutant(
        "attribution: an earlier log is lost",
        f"{ATTRIBUTION}/leash.py",
        "os.O_APPEND | os.O_CREAT",
        "os.O_TRUNC | os.O_CREAT",
        (MANAGED,),
    ),
    Mutant(
        "attribution: a prefix that ends in a slash opens its parent",
        f"{ATTRIBUTION}/words.py",
        'posixpath.basename(path) in {"", ".", ".."}',
        "False",
        ("tests/attribution/test_flags.py::test_what_is_refused",),
    ),
    Mutant(
        "attribution: the file counts before a flag",
        f"{ATTRIBUTION}/flags.py",
        "            told[field] = flag.read(value)\n",
        "            told.setdefault(field, flag.read(value))\n",
        ("tests/attribution/test_flags.py::test_a_flag_counts_before_the_file",),
    ),
    Mutant(
        "attribution: a STOP of an analysis in flight counts",
        "segment_health/attribution/wire.py",
        '    if state != "completed":\n',
        '    if state not in {"completed", "in_flight"}:\n',
        (WIRE,),
    ),
    Mutant(
        "attribution: any word with STOP in it is one",
        "segment_health/attribution/wire.py",
        'if word == "STOP"',
        'if "STOP" in word',
        (WIRE,),
    ),
    Mutant(
        "attribution: an answer that cannot be read is a verdict",
        "segment_health/attribution/wire.py",
        '        return Recommendation(Verdict.MISSING, "HTTP 200", "the answer is no JSON object")\n',
        "        found = {}\n",
        (WIRE,),
    ),
    Mutant(
        "attribution: a busy service has forgotten the log",
        "segment_health/attribution/wire.py",
        "frozenset({408, 425, 429, 502, 503, 504})",
        "frozenset()",
        (WIRE,),
    ),
    Mutant(
        "attribution: a password is shown",
        "segment_health/attribution/wire.py",
        '    if "@" in authority:\n',
        "    if False:\n",
        (WIRE,),
    ),
    Mutant(
        "attribution: a service's words are shown raw",
        "segment_health/attribution/wire.py",
        'said += f": {brief(self.reason, _SHOWN)}"',
        'said += f": {self.reason}"',
        (WIRE,),
    ),
    Mutant(
        "attribution: unknown users are told as null",
        "segment_health/attribution/wire.py",
        " if value is not None}",
        "}",
        (WIRE,),
    ),
    Mutant(
        "attribution: an array's task is a job of its own",
        "segment_health/attribution/metadata.py",
        'environ.get("SLURM_ARRAY_JOB_ID") or ',
        "",
        ("tests/attribution/test_metadata.py",),
    ),
    Mutant(
        "attribution: a dripping service holds who asks",
        "segment_health/attribution/client.py",
        "answer = done.get(timeout=self._seconds)",
        "answer = done.get()",
        (CLIENT,),
    ),
    Mutant(
        "attribution: threads pile up behind a service that hangs",
        "segment_health/attribution/client.py",
        "            self._late = thread\n",
        "",
        (CLIENT,),
    ),
    Mutant(
        "attribution: proxies are used",
        "segment_health/attribution/client.py",
        "                transport=httpx.HTTPTransport(verify=_authorities(url, environ), trust_env=False),\n"
        "                trust_env=False,\n",
        "",
        (CLIENT,),
    ),
    Mutant(
        "attribution: redirects are followed",
        "segment_health/attribution/client.py",
        "follow_redirects=False",
        "follow_redirects=True",
        (CLIENT,),
    ),
    Mutant(
        "attribution: no certificate is checked",
        "segment_health/attribution/client.py",
        "verify=_authorities(url, environ)",
        "verify=False",
        (CLIENT,),
    ),
    Mutant(
        "attribution: an answer has no bound",
        "segment_health/attribution/client.py",
        "if len(told) > wire.MAX_ANSWER:",
        "if False:",
        (CLIENT,),
    ),
    Mutant(
        "attribution: a bug of the client ends the thread",
        "segment_health/attribution/client.py",
        "            case Exception():",
        "            case KeyError():",
        (CLIENT,),
    ),
    Mutant(
        "attribution: the newest failure replaces the pending one",
        "segment_health/attribution/analysis.py",
        "        if awaited is not None:\n",
        "        if False:\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: what is being sent is not waited for",
        "segment_health/attribution/analysis.py",
        "if self._sent is not None and self._sent.intent is Intent.TERMINAL:",
        "if False:",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a refused log is waited for",
        "segment_health/attribution/analysis.py",
        "        if refused is not None:\n",
        "        if refused is not None:\n            self.pending = log_path\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a failed analysis pins the slot",
        "segment_health/attribution/analysis.py",
        "the analysis of {_log(self._let_go())} gave",
        "the analysis of {_log(self.pending)} gave",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a lasting 404 pins the slot",
        "segment_health/attribution/analysis.py",
        "        if now - self._missing_since < LASTING_SECONDS:\n",
        "        if True:\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a passing 404 frees the slot",
        "segment_health/attribution/analysis.py",
        "        if now - self._missing_since < LASTING_SECONDS:\n",
        "        if False:\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a 404 of long ago counts",
        "segment_health/attribution/analysis.py",
        "            case Verdict.UNDECIDED:\n                self._missing_since = None\n",
        "            case Verdict.UNDECIDED:\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a job is ended where nobody asked for that",
        "segment_health/attribution/analysis.py",
        'stop_action: StopAction = "log"',
        'stop_action: StopAction = "no-restart"',
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: log obeys the first STOP",
        "segment_health/attribution/analysis.py",
        'return self.stop_count > 0 and self.stop_action == "no-restart"',
        "return self.stop_count > 0",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a failure told twice is counted twice",
        "segment_health/attribution/analysis.py",
        "        if self.is_over or log_path == self._accepted:\n",
        "        if self.is_over:\n",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: an announcement goes before an analysis",
        "segment_health/attribution/analysis.py",
        "        if self._failed is not None:\n            self._sent, self._failed",
        "        if self._failed is not None and self._began is None:\n            self._sent, self._failed",
        (ANALYSIS,),
    ),
    Mutant(
        "attribution: a launcher waits for the service",
        "segment_health/attribution/poller.py",
        "        self._be_awake()\n\n    def stop_requested",
        "        self._be_awake()\n        self._submit(self._client)\n\n    def stop_requested",
        (POLLER,),
    ),
    Mutant(
        "attribution: cycles that begin push the question away",
        "segment_health/attribution/poller.py",
        "            elif due is None:\n",
        "            elif due is None or sent:\n",
        (POLLER,),
    ),
    Mutant(
        "attribution: all is sent before anything is asked",
        "segment_health/attribution/poller.py",
        "            sent = self._submit(client)\n",
        "            sent = False\n            while self._submit(client):\n                sent = True\n",
        (POLLER,),
    ),
    Mutant(
        "attribution: the last failure of a job is not sent",
        "segment_health/attribution/poller.py",
        "            sent = self._submit(client)\n",
        "            if closing:\n                return\n            sent = self._submit(client)\n",
        (POLLER,),
    ),
    Mutant(
        "attribution: a dead service is told every two seconds",
        "segment_health/attribution/poller.py",
        "            if not self._silent:\n",
        "            if True:\n",
        (POLLER,),
    ),
    Mutant(
        "attribution: the end waits for a service that hangs",
        "segment_health/attribution/poller.py",
        "self._thread.join(timeout)",
        "self._thread.join()",
        (POLLER,),
    ),
    Mutant(
        "attribution: other endpoints are asked",
        "segment_health/attribution/poller.py",
        "if wire.base_url(endpoint) is None:",
        "if False:",
        (POLLER,),
    ),
]


def caught_by(mutant: Mutant, tree: Path) -> str | None:
    """Break a tree, run the tests, mend it; return the first test that failed, None if all passed."""
    path = tree / mutant.file
    text = path.read_text()
    if mutant.old not in text:
        raise SystemExit(f"{mutant.name}: {mutant.file} has no {mutant.old!r}")
    path.write_text(text.replace(mutant.old, mutant.new, 1))
    try:
        told = subprocess.run(
            [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60",
             *mutant.tests],
            cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        path.write_text(text)
    if told.returncode == 0:
        return None
    named = [line.split()[1] for line in told.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return named[0] if named else f"status {told.returncode}"


def main() -> int:
    """Try all mutants, or those whose name contains a text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("containing", nargs="?", default="")
    wanted = parser.parse_args().containing
    survivors = 0
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made)
        for name in ("slurm", "segment_health", "tests", "docs"):  # tests read pages, too
            shutil.copytree(PROJECT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "pyproject.toml", tree)
        chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
        for mutant in chosen:
            test = caught_by(mutant, tree)
            survivors += test is None
            print(f"{mutant.name}: {test or 'SURVIVED'}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return survivors > 0


if __name__ == "__main__":
    sys.exit(main())

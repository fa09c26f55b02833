"""Which failures of a log count: who went on, who was quoted, who is certain, who is blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.attribution.analysers.finding import Action, Extract, Finding, Line
from segment_health.attribution.analysers.rules import Rules

from .logs import extract, judged

IMPORT = """\
Traceback (most recent call last):
  File "/shared/train.py", line 1, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.\n"
ENDED = "api.py:869] failed (exitcode: {}) local_rank: 0 (pid: 1) of binary: python3\n"
TASK = "srun: error: {}: task 0: Exited with exit code {}\n"
END = """\
E0605 04:01:19.411 1201 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-06-05_04:01:19
============================================================
srun: error: n1: task 0: Exited with exit code 1
slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-06-05T04:01:20 ***
"""


COMPLETION = "{}:1:2 [0] NCCL WARN NET/IB : Got completion from peer {}<1> with status=12\n"


def labelled(text: str, who: int | str) -> str:
    """Let a rank say a text, or somebody else."""
    label = f"[rank{who}]: " if isinstance(who, int) else who
    return "".join(f"{label}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("log", "is_stop"),
    [
        pytest.param(IMPORT, True, id="alone"),
        pytest.param(IMPORT + END, True, id="with-what-a-launcher-says"),
        pytest.param("building\n" + IMPORT + END, True, id="after-set-up"),
        pytest.param(IMPORT.splitlines()[-1], False, id="without-traceback"),
        pytest.param(IMPORT + "using another\n" + END, False, id="somebody-goes-on"),
        pytest.param(IMPORT + "model built\n", False, id="a-usual-line-follows"),
        pytest.param("step: 1 loss: 2\n" + IMPORT, False, id="a-step-was-made"),
        pytest.param("[t] the loss is 2.0\n" + IMPORT, False, id="a-training-was-seen"),
        pytest.param(IMPORT + OOM, False, id="another-failure-too"),
        pytest.param(IMPORT + "srun: error: Node failure on n1\n", False, id="a-node-was-lost"),
        pytest.param(labelled(IMPORT, 0) + labelled(IMPORT, 1), True, id="all-ranks"),
        pytest.param(labelled(IMPORT, 0) + labelled("hello", 1), False, id="one-of-two-ranks"),
        pytest.param("n1: hello\n" + labelled(IMPORT, "n2: "), False, id="one-of-two-hosts"),
        pytest.param(IMPORT.replace("/shared/", "/tmp/torchinductor_ann/"), False, id="a-generated-file"),
        pytest.param(IMPORT.replace("/shared/train.py", "<string>"), False, id="a-question-of-the-job-script"),
        pytest.param(IMPORT + "\nDuring handling of the above exception, another exception occurred:\n\n"
                     + IMPORT.replace("ModuleNotFoundError: No module", "TypeError: no"), False, id="replaced"),
        pytest.param("===== log of the previous job =====\n" + IMPORT, False, id="a-quotation-without-an-end"),
        pytest.param(IMPORT + ENDED.format(1), True, id="ended-as-an-exception-ends"),
        pytest.param(IMPORT + ENDED.format(-9), False, id="killed"),
        pytest.param(IMPORT + TASK.format("n1", 1), True, id="the-only-host"),
        pytest.param(IMPORT + TASK.format("n1", 1) + TASK.format("n2", 143), False, id="once-for-two-hosts"),
        pytest.param(IMPORT * 2 + TASK.format("n1", 1) + TASK.format("n2", 1), True, id="of-each-host"),
        pytest.param("group 1 at 1.3M tok/s\n" + IMPORT, False, id="a-rate-in-millions"),
        pytest.param("train.py: error: argument --lr: invalid float value: 'x'\n", True, id="a-wrong-value"),
        pytest.param("train.py: error: argument --lr: expected one argument\n", True, id="no-value"),
        pytest.param("train.py: error: argument --rank: invalid int value: ''\n", False, id="a-value-not-set"),
    ],
)  # fmt: skip
def test_a_stop_at_once_is_certain(log: str, is_stop: bool) -> None:
    """Only where the script cannot have worked, whoever runs it, and nobody says more."""
    assert (judged(log).action is Action.STOP) == is_stop


def test_certainty_wants_to_know_how_the_run_began() -> None:
    """Where an earlier cycle is not known, or failed otherwise, the script may have worked in it."""
    unknown = Finding("unknown", Action.UNKNOWN, "nobody was asked", "service")
    whole = extract(IMPORT)
    first = Rules().analyse(whole, ())
    assert first.action is Action.STOP
    assert Rules().analyse(whole, (unknown,)).action is Action.RESTART
    assert Rules().analyse(whole, (replace(first, signature="other"),)).action is Action.RESTART
    assert Rules().analyse(whole, (first,)).action is Action.STOP


def test_certainty_wants_the_beginning_of_the_log() -> None:
    """Where lines before were not read, nobody knows whether steps were made."""
    whole = extract("building\n" + IMPORT)
    lines = tuple(Line(line.number + 50 if line.number else None, line.text) for line in whole.lines[1:])
    assert Rules().analyse(whole, ()).action is Action.STOP
    assert Rules().analyse(Extract((whole.lines[0], *lines), 10_000, is_whole=False), ()).action is Action.RESTART
    drawn = (*[Line(1, "50%")] * 60, *(Line(9, line.text) for line in whole.lines[1:]))
    assert Rules().analyse(Extract(drawn, 10_000, is_whole=False), ()).action is Action.RESTART
    unnumbered = tuple(Line(None, line.text) for line in whole.lines)
    assert Rules().analyse(Extract(unnumbered, 10_000, is_whole=False), ()).action is Action.RESTART


@pytest.mark.parametrize(
    ("log", "category"),
    [
        pytest.param("step: 1 loss: 2\n" + OOM, "cuda-oom", id="at-the-end"),
        pytest.param("step: 1 loss: 2\n" + OOM + "step: 2 loss: 2\n", "cuda-oom", id="one-step-may-be-late"),
        pytest.param("step: 1 loss: 2\n" + OOM + "step: 2 loss: 2\nstep: 3 loss: 2\n", "unknown", id="two-steps"),
        pytest.param(
            "step: 1 loss: 2\nstep: 2 loss: 2\n" + OOM + "step: 1 loss: 2\nstep: 2 loss: 2\n",
            "cuda-oom",
            id="the-same-steps-of-others",
        ),
        pytest.param("WARNING " + OOM, "unknown", id="a-warning"),
        pytest.param(labelled(OOM, 1) + labelled("a\nb\nc", 1), "unknown", id="its-rank-goes-on"),
        pytest.param(labelled(OOM, 1) + labelled("a\nb\nc", 2), "cuda-oom", id="another-rank-goes-on"),
        pytest.param("== log of the last run ==\n" + "x\n" * 500 + OOM, "cuda-oom", id="no-quotation-is-so-long"),
        pytest.param(
            "----- stderr of the last attempt -----\n" + OOM + "----- end -----\nKilled\n", "unknown", id="quoted"
        ),
    ],
)
def test_a_failure_that_was_survived_is_none(log: str, category: str) -> None:
    """The training got on, or the one who complained did."""
    assert judged(log).category == category


def test_the_first_cause_counts_and_what_follows_is_named() -> None:
    """Before it others complain, behind it too: the lowest role decides, then the order."""
    timeout = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    finding = judged(f"{labelled(timeout, 1)}{labelled(OOM, 2)}{labelled('RuntimeError: CUDA out of memory', 3)}")
    assert finding.category == "cuda-oom"
    assert "(nccl-timeout followed from it)" in finding.reason
    assert [line.number for line in finding.evidence] == [2, 3, 1]


BAR = " {}%|####      | {}/{} [00:10<00:10,  1.0it/s]\n"


@pytest.mark.parametrize(
    ("cycles", "is_stop"),
    [
        pytest.param(["step: 9 loss: 1\n"] * 2, True, id="same-step"),
        pytest.param([], True, id="before-any-step"),
        pytest.param(["loss: 1.5 tokens/s: 9\n"] * 2, False, id="steps-that-are-illegible"),
        pytest.param(
            ["".join(f"reward {n / 9:.2f}\n" for n in range(9))] * 2, False, id="a-loop-of-no-known-kind"
        ),
        pytest.param(["".join(f"building layer {n}\n" for n in range(9))] * 2, True, id="a-loop-that-sets-up"),
        pytest.param(["building the model\n" * 9] * 2, True, id="the-same-of-several-ranks"),
        pytest.param(["epoch 3 step: 9 loss: 1\n", "epoch 4 step: 9 loss: 1\n"], False, id="in-another-epoch"),
        pytest.param(["resuming from /ckpt/step_100\n"] * 2, True, id="from-the-same-checkpoint"),
        pytest.param(
            ["resuming from step_100\n", "resuming from step_200\n"], False, id="from-another-checkpoint"
        ),
        pytest.param(
            ["resuming from step_100\nstep: 9 loss: 1\n", "resuming from step_200\nstep: 9 loss: 1\n"],
            False,
            id="counted-from-the-checkpoint",
        ),
        pytest.param(
            ["Resuming from checkpoint-500\n", "Resuming from checkpoint-900\n"], False, id="by-checkpoints-alone"
        ),
        pytest.param(["Saved state to /ckpt/a\n"] * 2, False, id="who-saves-has-trained"),
        pytest.param(["checkpoint saved at /a\n"] * 2, False, id="whose-checkpoint-is-saved"),
        pytest.param(["finished 3 of 9 shards\n", "finished 6 of 9 shards\n"], False, id="parts-of-the-data"),
        pytest.param(["Checkpoints will be saved to /ckpt\n"] * 2, True, id="who-will-save-has-not"),
        pytest.param(["Epoch 1/10\n", "Epoch 4/10\n"], False, id="epochs-alone"),
        pytest.param(["epoch two finished, bleu\n", "epoch six finished, bleu\n"], False, id="epochs-in-words"),
        pytest.param(["alive\n" * 20, "alive\n" * 900], False, id="much-later"),
        pytest.param(["alive\n" * 20, "alive\n" * 30], True, id="about-as-late"),
        pytest.param(
            [
                BAR.format(50, 500, 1000) + BAR.format(100, 50, 50),
                BAR.format(70, 700, 1000) + BAR.format(100, 50, 50),
            ],
            False,
            id="the-last-bar-is-an-evaluation",
        ),
    ],
)
def test_when_a_second_cycle_got_no_further(cycles: list[str], is_stop: bool) -> None:
    """Steps are those of the job, however they are printed; what is not known is no reason to stop."""
    logs = [cycle + OOM for cycle in cycles or ["", ""]]
    assert (judged(*logs).action is Action.STOP) == is_stop


@pytest.mark.parametrize(
    ("text", "category"),
    [
        pytest.param(
            "ImportError: /v/libtorch.so: cannot read file data: Input/output error",
            "storage-lost",
            id="a-library-that-cannot-be-read",
        ),
        pytest.param("RuntimeError: can't start new thread", "host-limits", id="no-more-threads"),
        pytest.param("OSError: [Errno 24] Too many open files", "host-limits", id="no-more-files"),
        pytest.param("MemoryError", "host-limits", id="no-more-memory"),
        pytest.param("RuntimeError: 12 MemoryErrors", "python", id="a-word-in-it"),
        pytest.param(
            "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            "cuda-memory-held",
            id="busy",
        ),
        pytest.param("requests.HTTPError: 503 Server Error: x for url: https://hub/x", "network", id="a-hub"),
        pytest.param("sql.OperationalError: (x) could not connect to server", "network", id="a-database"),
        pytest.param("wandb.errors.CommError: Run initialization has timed out", "network", id="a-tracker"),
        pytest.param("ImportError: cannot import name 'x' from 'y'", "python-import", id="no-library"),
        pytest.param(
            OOM.strip()
            + " Process 42 has 60 GiB memory in use. Including non-PyTorch memory, this process has 9 GiB",
            "cuda-memory-held",
            id="memory-of-others",
        ),
        pytest.param(
            OOM.strip() + " Process 42 has 78 GiB memory in use. Of it 77 GiB are allocated",
            "cuda-oom",
            id="its-own-by-the-number-outside-its-container",
        ),
    ],
)
def test_what_a_message_means(text: str, category: str) -> None:
    """One word more makes it another failure."""
    log = 'Traceback (most recent call last):\n  File "/shared/train.py", line 1, in <module>\n' + text
    assert judged(log).category == category


XID = "Mar  4 02:12:31 {} kernel: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("log", "nodes"),
    [
        pytest.param(XID.format("n1"), ("n1",), id="one"),
        pytest.param("".join(XID.format(f"n{number}") for number in (3, 1, 1)), ("n1", "n3"), id="two"),
        pytest.param("".join(XID.format(f"n{number}") for number in range(5)), (), id="too-many"),
        pytest.param("gpu-017: NVRM: Xid (PCI:0000:8d:00): 79\n", ("gpu-017",), id="a-host-named-as-a-gpu"),
        pytest.param("node3: [ 812.118000] NVRM: Xid (PCI:0000:8d:00): 79\n", ("node3",), id="by-the-kernel"),
        pytest.param("node3: RuntimeError: CUDA error: uncorrectable ECC error\n", (), id="a-number-of-a-node"),
        pytest.param(XID.format("10.0.0.1"), (), id="an-address"),
        pytest.param("srun: error: Node failure on n7\n", ("n7",), id="named"),
        pytest.param(
            "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-06-05T04:01:20 DUE TO NODE FAILURE ***\n",
            (),
            id="who-tells-of-it",
        ),
        pytest.param("n1: " + OOM, (), id="no-hardware"),
        pytest.param("n1: RuntimeError: No CUDA GPUs are available\n", (), id="whoever-speaks-has-no-gpu"),
        pytest.param("n1: RuntimeError: No CUDA GPUs are available\nn2: here\n", ("n1",), id="others-have-one"),
        pytest.param(
            "".join(
                f"n{n}:1:2 [0] NCCL WARN NET/IB : Got completion from peer n9<1> with status=12\n" for n in (1, 2)
            ),
            ("n9",),
            id="whom-several-miss",
        ),
        pytest.param(
            "".join(
                f"n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer n{n}<1> with status=12\n" for n in (8, 9)
            ),
            ("n1",),
            id="who-misses-several",
        ),
        pytest.param(
            "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer n9<1> with status=12\n", (), id="either"
        ),
    ],
)
def test_whom_a_log_blames(log: str, nodes: tuple[str, ...]) -> None:
    """Few nodes, by what a line itself says of hardware."""
    assert judged(log).nodes == nodes


def test_two_failures_are_alike_whatever_their_numbers() -> None:
    """Ranks, sizes, addresses, hosts and times differ; among another number of ranks it is another failure."""
    one = judged("[rank3]: " + OOM.replace("1 GiB", "1.25 GiB on n3 at 0x7f00"))
    other = judged("2026-01-02 03:04:05 [rank7]: " + OOM.replace("1 GiB", "2.50 GiB on n17 at 0x7f10"))
    assert one.signature == other.signature != ""
    assert judged("world size: 8\n" + OOM).signature != judged("world size: 16\n" + OOM).signature


PIECES = [
    *(
        "Traceback (most recent call last):",
        '  File "/x", line 1',
        "[rank1]: ",
        "n1: ",
        "\t",
        OOM,
        XID,
        "\x00",
        "nan",
    ),
    *("srun: error: Node failure on ", "===== last log of the job =====", "===== end =====", "SyntaxError: x"),
    *("NCCL WARN NET/IB : Got completion from peer n9 with status=12", "step: 1 loss: 2", "\u2028", "9" * 30),
]
LINES = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=4).map("".join)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=4).map("".join), max_size=30
    )
)
def test_nothing_in_a_log_makes_it_raise(lines: list[str]) -> None:
    """Whatever somebody prints, something is found, and a STOP has evidence in the log."""
    given_lines = tuple(Line(number, line) for number, line in enumerate(lines, 1))
    finding = Rules().analyse(Extract(given_lines, 1), ())
    assert set(finding.evidence) <= set(given_lines)
    assert finding.action is not Action.STOP or finding.evidence

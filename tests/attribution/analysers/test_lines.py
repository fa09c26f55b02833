"""What a single line of a log says: who says it, which step it tells, which failure it is."""

from __future__ import annotations

import pytest

from segment_health.attribution.analysers import steps
from segment_health.attribution.analysers.events import kind_of
from segment_health.attribution.analysers.expression import Scan, any_of
from segment_health.attribution.analysers.spoken import node_named, spoken
from segment_health.attribution.analysers.steps import is_training, resumed_at, step_of
from segment_health.attribution.analysers.table import KINDS, MARKS

from .logs import labelled

OOM = "torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    ("line", "rank", "host"),
    [
        pytest.param(OOM, None, None, id="bare"),
        pytest.param(f"[rank7]: {OOM}", "7", None, id="torch"),
        pytest.param(f"  12: {OOM}", "12", None, id="srun"),
        pytest.param(f"3: [rank3]: {OOM}", "3", None, id="both"),
        pytest.param(f"[default0]:{OOM}", "0", None, id="torchrun-tee"),
        pytest.param(f"(Worker(train) pid=99, ip=10.0.0.1) {OOM}", "99", None, id="ray"),
        pytest.param(f"cn07: {OOM}", None, "cn07", id="pdsh"),
        pytest.param(f"cn07: [rank12]: {OOM}", "12", "cn07", id="host-and-rank"),
        pytest.param(f"worker-1: {OOM}", "worker-1", None, id="a-label-that-may-be-either"),
        pytest.param(f"worker-1: [rank12]: {OOM}", "12", None, id="a-label-and-rank"),
        pytest.param(f"cn07:11:22 [3] {OOM}", None, "cn07", id="nccl"),
        pytest.param(f"Mar  4 02:12:31 gpu-a17 kernel: [812.118000] {OOM}", None, "gpu-a17", id="syslog"),
        pytest.param(f"May  1 00:00:00 nd04 kernel: [123.4] {OOM}", None, "nd04", id="syslog-of-a-short-time"),
        pytest.param(f"2026-01-02T03:04:05.678Z ERROR {OOM}", None, None, id="time-and-level"),
        pytest.param(f"[2026-01-02 03:04:05,678] [ERROR] {OOM}", None, None, id="brackets"),
        pytest.param(f"ERROR:trainer.loop:{OOM}", None, None, id="logging"),
        pytest.param(f"[E ProcessGroupNCCL.cpp:475] {OOM}", None, None, id="old-torch"),
        pytest.param(f"E0605 04:01:19.411 1201 torch/x.py:869] {OOM}", None, None, id="glog"),
    ],
)
def test_who_speaks_is_told_from_what_is_said(line: str, rank: str | None, host: str | None) -> None:
    """Whatever stands before it, the message begins as its program writes it."""
    assert spoken(line) == (OOM, rank, host, False)


@pytest.mark.parametrize(
    "line", ["INFO x", "[WARNING] x", "2026-01-01 00:00:00 DEBUG x", "W0605 04:01:19.411 1 a.py:1] x"]
)
def test_what_is_no_error_is_known_as_quiet(line: str) -> None:
    """A level below an error."""
    assert spoken(line).is_quiet


@pytest.mark.parametrize(
    "line",
    [f"# {OOM}", f"> {OOM}", f"    {OOM}", f'"{OOM}"', f"+ echo {OOM}", f"on_oom = {OOM}", f"rank3: {OOM}"],
)
def test_a_quoted_message_does_not_begin_the_line(line: str) -> None:
    """A comment, an indented text, a command or a setting is no failure."""
    assert kind_of(spoken(line).text) is None


@pytest.mark.parametrize(
    ("text", "is_node"),
    [
        ("n1", True),
        ("gpu-a17.cluster.example", True),
        ("10.0.0.1", False),
        ("::1", False),
        ("17", False),
        ("localhost", False),
        ("-n1", False),
        ("n1;rm", False),
        ("n" * 65, False),
        ("ｎ1", False),
    ],
)
def test_only_what_can_be_a_node_is_blamed(text: str, is_node: bool) -> None:
    """Text of a log goes no further than this."""
    assert node_named(text) == (text if is_node else None)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        pytest.param(" iteration     1200/  500000 | consumed samples: 9 | lm loss: 2.0 |", 1200, id="megatron"),
        pytest.param("Training epoch 0, iteration 12/999 | lr: 1e-05 | global_step: 12", 12, id="nemo"),
        pytest.param("{'loss': 1.2, 'grad_norm': 0.8, 'epoch': 0.3, 'step': 720}", 720, id="hugging-face"),
        pytest.param('{"step": 7010, "loss": 1.9}', 7010, id="json"),
        pytest.param(" 81%|####1 | 812/1000 [1:22:17<17:54,  5.7s/it]", 812, id="bar"),
        pytest.param(
            "Epoch 2:   6%|6    | 64/1000 [05:12<1:16:00,  4.9s/it, v_num=3]", 2064, id="bar-of-an-epoch"
        ),
        pytest.param("step=300 loss=3.8", 300, id="equals"),
        pytest.param("step: 1,200 loss: 3.8", 1200, id="thousands"),
        pytest.param("step: 1, loss: 3.8", 1, id="comma"),
        pytest.param("step 15 | loss 9.0", 15, id="space"),
        pytest.param("train/global_step: 44, train/loss: 1.0", 44, id="slash"),
        pytest.param("step: 12", 12, id="alone"),
        pytest.param("Iter 77, loss 1.5, 33.1 samples/s", 77, id="iter"),
        pytest.param("saving checkpoint at iteration 2000 to /ckpt", None, id="checkpoint"),
        pytest.param("resuming from step 5000, loss was 2.1", None, id="resumed"),
        pytest.param(
            "Loading checkpoint shards:  50%|#####     | 2/4 [00:10<00:10,  5.0s/it]", None, id="bar-of-files"
        ),
        pytest.param("step 1/4: downloading", None, id="a-step-of-set-up"),
        pytest.param("validation at step 500 | lm loss value: 2.0", None, id="evaluation"),
        pytest.param("--save-steps 500 --max-steps 10000", None, id="flags"),
        pytest.param(f"step: {10**13} loss: 1", None, id="beyond-counting"),
        pytest.param("step: 1.5 loss: 1", None, id="no-integer"),
        pytest.param("step: -3 loss: 1", None, id="negative"),
        pytest.param("the loss of step functions", None, id="prose"),
    ],
)
def test_which_step_a_line_tells(text: str, step: int | None) -> None:
    """That of a training, and of nothing else."""
    assert step_of(text) == step


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("resumed from /ckpt/step_12500", 12500),
        ("loading checkpoint from /ckpt/iter_0042000 ...", 42000),
        ("  successfully loaded checkpoint from /ckpt at iteration 700", 700),
        ("saving checkpoint at iteration 700", None),
        ("loading 4 shards", None),
    ],
)
def test_from_which_step_it_is_resumed(text: str, step: int | None) -> None:
    """That of the checkpoint which is read, not written."""
    assert resumed_at(text) == step


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("batch done, loss is 2.11, throughput 8112", True),
        ("8112.5 tokens/s", True),
        ("grad norm: 0.5", True),
        ("[epoch=1/1][batch=140/4800]:", True),
        ("loss/train/total: 7.1", True),
        ("cross entropy is the loss", False),
        ("Loading checkpoint shards:  50%|#####     | 2/4 [00:10<00:10,  5.0it/s]", False),
        ("epochs: 3", False),
    ],
)
def test_what_only_a_training_prints(text: str, is_so: bool) -> None:
    """Whoever sees it knows that it had begun, whatever step it was at."""
    assert is_training(text) == is_so


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("OSError: [Errno 28] No space left on device", "storage-full"),
        ("OSError: [Errno 30] Read-only file system: '/x'", "storage-read-only"),
        ("cp: cannot create '/x': Disk quota exceeded", "storage-quota"),
        ("RuntimeError: CUDA error: out of memory", "cuda-oom"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuda-oom"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda-ecc"),
        ("RuntimeError: CUDA error: unspecified launch failure", "cuda-launch-failure"),
        ("RuntimeError: No CUDA GPUs are available", "no-gpu"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file", "no-gpu"),
        ("ImportError: /x/y.so: undefined symbol: _Z1", "shared-object"),
        ("ImportError: libx.so.1: failed to map segment from shared object", "shared-object"),
        ("ImportError: cannot import name 'x' from 'y'", "python-import"),
        ("json.decoder.JSONDecodeError: Expecting value", "python"),
        ("my.package.TooColdError: brr", "python"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error", "nccl-error"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE", "xid-hardware"),
        ("NVRM: Xid (PCI:0000:3b:00): 94, pid=1, Contained", "xid-hardware"),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics", "xid-application"),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1", "ended"),
        ("NVRM: Xid (PCI:0000:3b:00): 999, pid=1", None),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", "ended"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", "cancelled"),
        (
            "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
            "time-limit",
        ),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE to SIGNAL Terminated ***",
            "cancelled",
        ),
        (
            "srun: error: Task launch for StepId=5.0 failed on node n7: Communication connection failure",
            "launch-failure",
        ),
        ("python3: can't open file '/x/trian.py': [Errno 2] No such file or directory", "launch-failure"),
        (
            "/var/spool/slurmd/job1/slurm_script: line 12: 12345 Segmentation fault      (core dumped) python",
            "crash",
        ),
        ("failed (exitcode: -11) local_rank: 0", "crash"),
        ("failed (exitcode: -6) local_rank: 0", "ended"),
        ("srun: error: n1: task 3: Segmentation fault (core dumped)", "crash"),
        ("KeyboardInterrupt", "ended"),
        ("nothing of note", None),
        ("Errors are fine", None),
    ],
)
def test_which_failure_a_message_is(text: str, category: str | None) -> None:
    """The first row of the table that matches."""
    kind = kind_of(text)
    assert (None if kind is None else kind.category) == category


def test_no_message_lacks_a_mark() -> None:
    """What a long log is searched for finds all that the table recognises, in every line of the labelled logs."""
    texts = {
        spoken(line).text for case in labelled() for log in (*case.earlier, case.log) for line in log.splitlines()
    }
    assert len(texts) > 500
    for text in texts:
        assert kind_of(text) == next((kind for kind in KINDS if kind.message.begins(text)), None), text
    scan = Scan(any_of((*MARKS, *steps.MARKS)))
    for text in texts:
        if kind_of(text) is not None or step_of(text) is not None or is_training(text):
            assert scan.next(text.encode(), 0) is not None, text

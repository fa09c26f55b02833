"""Fuzzes the targets by coverage, each in a process with 200 MB: `make fuzz ARGS='--seconds 60 nodes'`.

Prints a line a target: its executions, the seconds, the most memory, and how it ended. What broke a target stays
beside the corpus, in the folder that is named; the corpus itself is made anew from tests/data.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MEMORY_MB = 200
HANG_SECONDS = 20
MAX_BYTES = 1 << 14
ROOT = Path(__file__).parents[2]


def fuzz_here(name: str, arguments: list[str]) -> None:
    """Be the process that fuzzes one target: libFuzzer ends it."""
    import atheris  # noqa: PLC0415 - nobody else needs it

    with atheris.instrument_imports(include=["slurm", "segment_health"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - it has to be instrumented

    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].feed)
    atheris.Fuzz()


def fuzz(name: str, folder: Path, seconds: int, runs: int) -> bool:
    """Fuzz one target and print its line; tell whether it held."""
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - not in the process that instruments it
    from tests.fuzz.test_fuzz import TOKENS  # noqa: PLC0415

    corpus = folder / name
    corpus.mkdir()
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / str(number)).write_bytes(seed[:MAX_BYTES])
    words = [token for token in TOKENS if 0 < len(token) <= 64]
    text = "\n".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words)
    (folder / "dictionary").write_text(text + "\n")
    argv = [
        sys.executable, "-m", "tests.fuzz.run_atheris", "--here", name, str(corpus), f"-max_total_time={seconds}",
        f"-runs={runs}", f"-rss_limit_mb={MEMORY_MB}", f"-timeout={HANG_SECONDS}", f"-max_len={MAX_BYTES}",
        f"-dict={folder}/dictionary", f"-artifact_prefix={folder}/{name}.", "-print_final_stats=1",
    ]  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(folder / f"{name}.log", "w+", errors="replace") as log:
        ended = subprocess.run(argv, cwd=ROOT, env=environ, stdout=log, stderr=log, check=False)
        log.seek(0)
        said = log.read()
    patterns = (
        r"number_of_executed_units: *(\d+)",
        r"Done \d+ runs in (\d+)",
        r"peak_rss_mb: *(\d+)",
        r" ft: (\d+)",  # features: what the coverage came to
    )
    told = [(re.findall(pattern, said) or ["?"])[-1] for pattern in patterns]
    print("{:14}{:>12}{:>9}{:>8}{:>10}  {}".format(name, *told, ended.returncode), flush=True)
    return ended.returncode == 0


def main() -> int:
    """Fuzz the targets that are named, or all."""
    if sys.argv[1:2] == ["--here"]:
        fuzz_here(sys.argv[2], sys.argv[3:])
        return 0
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - as above

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="for each target (default: 20)")
    parser.add_argument("--runs", type=int, default=-1, help="at most, for each target")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="segment-health-fuzz."))
    print(f"corpus, logs and what breaks: {folder}")
    print(f"{'target':14}{'executions':>12}{'seconds':>9}{'MB':>8}{'features':>10}  exit")
    held = [fuzz(name, folder, asked.seconds, asked.runs) for name in asked.targets or TARGETS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

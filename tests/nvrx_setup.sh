#!/usr/bin/env bash
# Prepares what NVRx's real ft_launcher needs beside the unzipped wheel (tests/nvrx_wheel.sh), then runs a command:
#
#     bash tests/nvrx_setup.sh [COMMAND [ARG...]]
#
# .cache/nvrx/venv holds torch for CPU and the few packages that the launcher imports, apart from .venv, of which it
# takes the interpreter. The wheel itself is not installed: it is tagged for one Python and a newer glibc, while its
# Python files run here from PYTHONPATH. 1 GB and a minute or two once; a stamp makes it cheap afterwards.
#
# The torch of PyPI brings several GB of CUDA along, so only a build whose version ends in +cpu is taken, from
# whatever index or folder pip is configured with. Where there is none for this Python, it says so, COMMAND is not run,
# and the exit status is 1; 0 where CI=true, as CI runs these tests where it can.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch=torch==2.13.0+cpu
# What the launcher of 0.7.0 imports besides torch: packaging only as it starts, the others when it is loaded.
packages=(defusedxml grpcio httpx numpy packaging protobuf psutil pyyaml)
venv=$PWD/.cache/nvrx/venv

say() { printf 'nvrx_setup: %s\n' "$*" >&2; }

prepare() {
    # Two at once in one tree would build one venv: the second waits here for the first.
    exec 9<tests/nvrx_setup.sh
    flock 9
    sh tests/nvrx_wheel.sh .venv/bin/python

    # Of the place too: the scripts of a venv that was moved name the old one.
    wanted="$(.venv/bin/python -VV | tr '\n' ' ') $venv $(cksum <tests/nvrx_setup.sh)"
    [ "$(cat "$venv/.setup" 2>/dev/null || true)" != "$wanted" ] || return 0

    rm -f "$venv/.setup"
    local pip=(-m pip -qq --disable-pip-version-check install --only-binary=:all:) answer
    # Asked of .venv, whose pip is new enough to resolve without fetching the file.
    answer=$(.venv/bin/python "${pip[@]}" --dry-run --ignore-installed --no-deps "$torch" 2>&1) || {
        say "pip: $(grep -m 1 ERROR <<<"$answer" || true)"
        say "no CPU torch for this Python at hand: make test-nvrx not run"
        [ "${CI:-}" = true ] || exit 1
        exit 0
    }
    say "building .cache/nvrx/venv for $(.venv/bin/python --version) with $torch"
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" "${pip[@]}" --upgrade pip
    "$venv/bin/python" "${pip[@]}" "$torch" "${packages[@]}"
    printf '%s\n' "$wanted" >"$venv/.setup"
}

prepare
exec 9<&-
[ "$#" -eq 0 ] || exec "$@"

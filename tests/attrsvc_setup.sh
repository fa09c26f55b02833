#!/usr/bin/env bash
# Prepares what NVRx's real attribution service, nvrx-attrsvc, needs beside the unzipped wheel (tests/nvrx_wheel.sh),
# then runs a command:
#
#     bash tests/attrsvc_setup.sh [COMMAND [ARG...]]
#
# .cache/nvrx/attrsvc holds the few packages that the service imports, apart from .venv, of which it takes the
# interpreter; torch is not among them. 40 MB and half a minute once; a stamp makes it cheap afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the service of 0.7.0 imports when it analyses without a language model.
packages=(fastapi httpx packaging pydantic-settings slowapi uvicorn)
venv=$PWD/.cache/nvrx/attrsvc

prepare() {
    # Two at once in one tree would build one venv: the second waits here for the first.
    exec 9<tests/attrsvc_setup.sh
    flock 9
    sh tests/nvrx_wheel.sh .venv/bin/python "$PWD/.cache/nvrx" 0.7.0

    # Of the place too: the scripts of a venv that was moved name the old one.
    wanted="$(.venv/bin/python -VV | tr '\n' ' ') $venv $(cksum <tests/attrsvc_setup.sh)"
    [ "$(cat "$venv/.setup" 2>/dev/null || true)" != "$wanted" ] || return 0

    rm -f "$venv/.setup"
    printf 'attrsvc_setup: building .cache/nvrx/attrsvc for %s\n' "$(.venv/bin/python --version)" >&2
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip -qq --disable-pip-version-check install --only-binary=:all: "${packages[@]}"
    printf '%s\n' "$wanted" >"$venv/.setup"
}

prepare
exec 9<&-
[ "$#" -eq 0 ] || exec "$@"

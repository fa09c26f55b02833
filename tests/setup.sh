#!/usr/bin/env bash
# Prepares this machine: Slurm's programs, the virtual environment .venv, the NVRx wheels that tests compare with.
#
#   tests/setup.sh        all of it; what `make test` runs
#   tests/setup.sh venv   only .venv; what `make check` and `make docs` need
#
# Cheap when there is nothing to do. PYTHON names the interpreter of .venv (default: python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$(pwd -P)
python=${PYTHON:-python3}
what=${1:-all}

# Two `make` at once in one tree would build one .venv: the second waits here for the first.
exec 9<tests/setup.sh
flock 9

say() { printf 'setup: %s\n' "$*" >&2; }

if [ -n "${PYTHON:-}" ] && [ "$PYTHON" != python3 ] && ! type -P "$PYTHON" >/dev/null; then
    say "PYTHON=$PYTHON: there is no such program"
    exit 1
fi

# The Debian packages that are missing, one a line, judged by the program that each is wanted for.
missing_packages() {
    if [ "$what" = all ]; then
        type -P slurmctld >/dev/null || echo slurmctld
        type -P slurmd >/dev/null || echo slurmd
        for program in scontrol sinfo squeue sbatch srun; do
            type -P "$program" >/dev/null || { echo slurm-client; break; }
        done
        type -P slurmrestd >/dev/null || echo slurmrestd
        # Where Slurm is Debian's, or is to be, its plugins are packages of their own.
        if dpkg-query -W slurmctld >/dev/null 2>&1 || ! type -P slurmctld >/dev/null; then
            for package in slurm-wlm-basic-plugins slurm-wlm-jwt-plugin; do
                dpkg-query -W "$package" >/dev/null 2>&1 || echo "$package"
            done
        fi
        type -P strace >/dev/null || echo strace
        # promtool judges metrics, alerts and the dashboard's questions; the server itself never runs.
        type -P promtool >/dev/null || echo prometheus
        # The shells whose completion is tried.
        for shell in zsh fish; do type -P "$shell" >/dev/null || echo "$shell"; done
        # `systemd-analyze` judges our units, and systemd itself runs them in a namespace.
        [ -x /usr/lib/systemd/systemd ] || echo systemd
        type -P chromium >/dev/null || echo chromium  # draws the status page
        # What tests/faults mounts, which only root can.
        if [ "$(id -u)" -eq 0 ]; then
            dpkg-query -W fuse3 >/dev/null 2>&1 || echo fuse3
        fi
    fi
    # Debian splits ensurepip, without which `python -m venv` makes no pip, from the interpreter.
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
}

install_packages() (
    guard=/usr/sbin/policy-rc.d
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if [ ! -e "$guard" ]; then
        # Debian starts a service as it installs it; the tests start a Slurm of their own, and want no other.
        trap 'rm -f "$log" "$guard"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$guard"
        chmod 755 "$guard"
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt=(apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -y)
    { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } </dev/null >"$log" 2>&1 || {
        cat "$log" >&2
        say "apt-get failed"
        exit 1
    }
)

mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && type -P apt-get >/dev/null; then
        say "installing ${missing[*]}"
        install_packages "${missing[@]}"
        hash -r
        mapfile -t missing < <(missing_packages)
    fi
    if [ "${#missing[@]}" -gt 0 ]; then
        say "missing: ${missing[*]}; as root: apt-get install --no-install-recommends ${missing[*]}"
        exit 1
    fi
fi

identity() { "$1" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)' 2>/dev/null; }

# Everything that .venv depends on; where it is unchanged, so is .venv.
wanted="$(identity "$python") $here $(cat pyproject.toml tests/setup.sh | cksum)"
stamp=.venv/.setup
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    say "building .venv for $("$python" --version)"
    again=()
    # Another interpreter's, or moved here from another place (its scripts name the old one): from the start.
    if [ -e .venv ] && { [ "$(identity .venv/bin/python || true)" != "$(identity "$python")" ] ||
        ! grep -qsF "$here/.venv/" .venv/bin/pip; }; then
        again=(--clear)
    fi
    "$python" -m venv ${again[@]+"${again[@]}"} .venv
    # Errors only (-qq). Its own upgrade first: Debian 12's pip knows no --group.
    pip=(.venv/bin/python -m pip -qq --disable-pip-version-check install)
    "${pip[@]}" --upgrade pip
    "${pip[@]}" --editable ".[nvhcd]" --group dev --group docs
    printf '%s\n' "$wanted" >"$stamp"
fi

if [ "$what" = all ]; then
    sh tests/nvrx_wheel.sh .venv/bin/python
fi

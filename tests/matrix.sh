#!/usr/bin/env bash
# Runs the tests of publishing on every Slurm that Debian has: 22.05 of bookworm, 24.11 of trixie, 26.05 of forky.
#
#   tests/matrix.sh [ARG...]    ARGs go to pytest; without any, the three files named below
#
# MATRIX_SUITES="bookworm sid" takes other suites. Each is bootstrapped once into .cache/matrix/SUITE (0.2 GB, half a
# minute; rm -r makes it new). A run has an overlay of it in memory (0.6 GB), a copy of this tree, and namespaces of its
# own: when it ends, or is killed, no process and no mount of it is left. Wants Debian and root; by hand, not in CI.
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -ra suites <<<"${MATRIX_SUITES:-bookworm trixie forky}"
[ "$#" -gt 0 ] || set -- tests/e2e/test_publish.py tests/e2e/test_lifecycle.py tests/e2e/test_step.py
cache=$PWD/.cache/matrix

say() { printf 'matrix: %s\n' "$*"; }

if [ "$(id -u)" -ne 0 ]; then
    say "only root can make and enter a chroot" >&2
    exit 1
fi
if ! type -P debootstrap >/dev/null; then
    say "installing debootstrap"
    apt=(apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install --no-install-recommends debootstrap >/dev/null
fi

# A command in mount and process namespaces of its own. It ends with this script, and everything in there with it.
apart() { exec setpriv --pdeathsig KILL unshare -m -p -f --kill-child --mount-proc "$@"; }

# The chroot of a suite. It gets its name when it is complete, so half a one never counts.
bootstrap() {
    local suite=$1 base=$cache/$1 new=$cache/.$1.new log=$cache/$1.log script=() mirror proxy=
    [ ! -e "$base" ] || return 0
    say "bootstrapping $suite"
    # A suite that is younger than this debootstrap is made as sid is.
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
    # From where this machine has its Debian, by the proxy of its apt; else debootstrap's own choice.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' |
        grep -m 1 '^https\?:' || true)
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    rm -rf "$new"
    (
        export http_proxy=${http_proxy:-$proxy}
        apart debootstrap --variant=minbase --include=ca-certificates "$suite" "$new" "$mirror" "${script[@]}"
    ) >"$log" 2>&1 || {
        tail -n 20 "$log"
        return 1
    }
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # no service starts as it is installed
    chmod 755 "$new/usr/sbin/policy-rc.d"
    rm -f "$new"/var/cache/apt/archives/*.deb "$log"
    mv -T "$new" "$base"
}

# How this machine reaches its package registries, whatever they are: what apt's fetchers are told, pip's files and
# variables (`keep`), the certificates, and every path that any of them names.
carry() {
    local root=$1 path top pip=(/etc/pip.conf /etc/xdg/pip/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf")
    local conf=$root/etc/apt/apt.conf.d/99host
    apt-config dump | grep -E '^Acquire::(https?|socks5h|Check-|Retries|Force)' | grep -v Auto-Detect >"$conf" || true
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    rm -rf "$root/etc/ssl/certs" # its links would lead the copies out of the chroot
    cp -rL /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true # a link to nowhere is no loss
    mkdir -p "$root$HOME"
    { printf '%s\n' "${pip[@]}" "${keep[@]}"; cat "$conf" "${pip[@]}" 2>/dev/null || true; } |
        grep -oE '(^|[ ="]|file://)/[^ ,;"]+' | sed -E 's,^[^/]*/+,/,' | sort -u | while read -r path; do
        if [ -f "$path" ]; then
            mkdir -p "$root$(dirname "$path")"
            cp -L "$path" "$root$path"
        elif [ -d "$path" ] && [ ! -e "$root$path" ]; then
            # From the outermost folder that the chroot lacks: an index of files links to its neighbours.
            top=$path
            while [ ! -e "$root$(dirname "$top")" ]; do top=$(dirname "$top"); done
            mkdir "$root$top"
            mount --bind "$top" "$root$top"
            mount -o remount,bind,ro "$root$top"
        fi
    done
}

# What pid 1 of a run's namespaces does.
inside() {
    local base=$1 clone=$2 memory=$3 root=$3/root keep=() entry
    shift 3
    mount -t tmpfs none "$memory"
    mkdir "$memory/upper" "$memory/work" "$root"
    mount -t overlay -o "lowerdir=$base,upperdir=$memory/upper,workdir=$memory/work" none "$root"
    mount -t proc none "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/dev/shm"
    # Of root's environment only what the registries need.
    while IFS= read -r -d '' entry; do
        case ${entry%%=*} in
        PIP_* | *_CERT | SSL_CERT_* | *_CA_BUNDLE | *_proxy | *_PROXY) keep+=("$entry") ;;
        esac
    done < <(env -0)
    carry "$root"
    mkdir "$root/srv/clone"
    tar -xf "$clone" -C "$root/srv/clone" --no-same-owner
    # CI=true: a skipped test is a failed one.
    chroot "$root" env -i "${keep[@]}" CI=true LANG=C.UTF-8 HOME="$HOME" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euc '
        cd /srv/clone
        bash tests/setup.sh
        version=$(slurmctld -V)
        echo "matrix: Slurm ${version##* }, $(.venv/bin/python --version)"
        .venv/bin/python -m pytest "$@"' pytest "$@"
}
export -f carry inside

mkdir -p "$cache"
work=$(mktemp -d "$cache/.run.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/memory"
# Once, so that every suite tests the same.
tar -cf "$work/clone.tar" --exclude-caches --exclude=./.venv --exclude=./.cache --exclude=./.git \
    --exclude=__pycache__ --exclude=./.[a-z]*_cache --exclude=./.hypothesis --exclude=./site --exclude=./dist .

# Two at once in one tree would bootstrap one chroot: the second waits here for the first.
exec 9<tests/matrix.sh
flock 9
results=()
failed=0
for suite in "${suites[@]}"; do
    bootstrap "$suite" || { results+=("$suite: no chroot") && failed=1; }
done
exec 9<&-
for suite in "${suites[@]}"; do
    [ -e "$cache/$suite" ] || continue
    printf '\n=== %s ===\n' "$suite"
    status=0
    (apart bash -euo pipefail -c 'inside "$@"' - "$cache/$suite" "$work/clone.tar" "$work/memory" "$@" 2>&1) |
        tee "$work/log" || status=$?
    slurm=$(sed -n 's/^matrix: \(Slurm .*\)/\1/p' "$work/log")
    # The last line of pytest: === 2 failed, 36 passed in 150.11s (0:02:30) ===
    count=$(tail -n 1 "$work/log" | sed -n 's/^=* *\([0-9].*\) in [0-9.]*s.*/\1/p')
    result="$suite: ${slurm:-no Slurm}: ${count:-no result}"
    [ "$status" -eq 0 ] || { result+=" (exit $status)" && failed=1; }
    results+=("$result")
done
printf '\n'
for result in "${results[@]}"; do say "$result"; done
exit "$failed"

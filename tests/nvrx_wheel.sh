#!/bin/sh
# Puts the Python files of NVRx's releases where the tests that compare with them look for them:
#
#     sh tests/nvrx_wheel.sh [PYTHON [DIR [VERSION ...]]]    defaults: that of .venv, <project>/.cache/nvrx, all
#
# Leaves DIR/nvidia_resiliency_ext-VERSION/ (an unzipped wheel) for each and prints nothing; does nothing where it is.
# 0.7.0 has the segment check, 0.6.0 the older rule of nvhcd's answers, and 0.5.0 no client of nvhcd at all.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=${1:-$root/.venv/bin/python}
dir=${2:-$root/.cache/nvrx}
if [ "$#" -gt 2 ]; then shift 2; else set -- 0.5.0 0.6.0 0.7.0; fi

fail() {
    printf 'nvrx_wheel.sh: %s\n' "$1" >&2
    exit 1
}

sha256_of() {
    case $1 in
        0.5.0) echo eb720cd25feabef07f971d4051c7bcac2f9ec73642a9031953d2663307950cb9 ;;
        0.6.0) echo 7d5ac6567841aef0173af3bcc0c2044971d2b225918028b99af6e4eb7e6e2f5d ;;
        0.7.0) echo e0c646ccae211de81a4c2b5bb5cff96a5e12af1373fb0eb818a40716eef685ad ;;
        *) fail "$1: no wheel of this release is known here" ;;
    esac
}

work=
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

fetch() {
    version=$1
    target=$dir/nvidia_resiliency_ext-$version
    wheel=nvidia_resiliency_ext-$version-cp312-cp312-manylinux_2_39_x86_64.whl
    sha256=$(sha256_of "$version")
    if [ -d "$target" ]; then return; fi
    mkdir -p "$dir" || fail "cannot create $dir"
    work=$(mktemp -d "$dir/.fetch.XXXXXX") || fail "cannot write to $dir"
    # Tagged for a newer glibc and one Python, so pip must be told to take it all the same: its .py files run anywhere.
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux_2_39_x86_64 --python-version 3.12 \
        --dest "$work" "nvidia-resiliency-ext==$version" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "pip could not download nvidia-resiliency-ext==$version (is the package index reachable?)"
    }
    [ -f "$work/$wheel" ] || fail "pip fetched something else than $wheel"
    echo "$sha256  $work/$wheel" | sha256sum --check --status || fail "$wheel has not the sha256 $sha256"
    "$python" -m zipfile -e "$work/$wheel" "$work/unzipped" || fail "cannot unzip $wheel"
    # One rename, so that an interrupted run leaves nothing that looks complete; -T: never into an existing directory.
    mv -T "$work/unzipped" "$target" 2>/dev/null || [ -d "$target" ] || fail "cannot move the wheel to $target"
    rm -rf "$work"
}

for version in "$@"; do fetch "$version"; done

#!/bin/sh
# Puts the Python files of NVRx 0.7.0 where tests/test_against_nvrx.py looks for them:
#
#     sh tests/nvrx_wheel.sh [PYTHON [DIR]]    defaults: that of .venv, <project>/.cache/nvrx
#
# Leaves DIR/nvidia_resiliency_ext-0.7.0/ (the unzipped wheel) and prints nothing; does nothing when it is there.
set -eu

version=0.7.0
wheel=nvidia_resiliency_ext-$version-cp312-cp312-manylinux_2_39_x86_64.whl
sha256=e0c646ccae211de81a4c2b5bb5cff96a5e12af1373fb0eb818a40716eef685ad

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=${1:-$root/.venv/bin/python}
dir=${2:-$root/.cache/nvrx}
target=$dir/nvidia_resiliency_ext-$version

[ -d "$target" ] && exit 0

fail() {
    printf 'nvrx_wheel.sh: %s\n' "$1" >&2
    exit 1
}

mkdir -p "$dir" || fail "cannot create $dir"
work=$(mktemp -d "$dir/.fetch.XXXXXX") || fail "cannot write to $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

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

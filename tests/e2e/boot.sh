#!/bin/bash
# Becomes a systemd of its own, as process 1 of the namespaces that it is started in:
#
#   unshare --mount --pid --fork --kill-child bash tests/e2e/boot.sh ROOT CONF TREE SITE PYTHON
#
# over a copy of this machine's root that forgets (ROOT/root). CONF becomes /etc/slurm/slurm.conf; TREE (this project),
# SITE (the packages that it needs) and PYTHON (the interpreter's prefix) are seen below /shared/segment-health, where a
# unit that may not look into /root and /home finds them.
set -eu
top=$1 conf=$2 tree=$3 site=$4 python=$5
root=$top/root
shared=$root/shared/segment-health

mount --make-rprivate /
mkdir -p "$top/over" "$root"
mount -t tmpfs none "$top/over"
mkdir "$top/over/upper" "$top/over/work"
mount -t overlay none -o "lowerdir=/,upperdir=$top/over/upper,workdir=$top/over/work" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/run"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
umount -R "$root/sys/fs/cgroup" 2>/dev/null || true
mount -t cgroup2 none "$root/sys/fs/cgroup"

# Nothing of this machine's own services starts, nor what would set its kernel up again.
rm -rf "$root"/{etc,lib,usr/lib}/systemd/system/*.wants "$root"/{etc,lib,usr/lib}/systemd/system/*.requires
rm -rf "$root"/{etc,lib,usr/lib}/systemd/system-generators
mkdir -p "$root/etc/slurm" "$shared/venv/bin" "$shared/tree" "$shared/site" "$shared/python"
cp "$conf" "$root/etc/slurm/slurm.conf"
mount --bind "$tree" "$shared/tree"
mount --bind "$site" "$shared/site"
mount --bind "$python" "$shared/python"
printf '#!/bin/sh\nexport PYTHONHOME=%s LD_LIBRARY_PATH=%s PYTHONPATH=%s PYTHONDONTWRITEBYTECODE=1\nexec %s -m segment_health "$@"\n' \
    /shared/segment-health/python /shared/segment-health/python/lib \
    /shared/segment-health/tree:/shared/segment-health/site \
    "/shared/segment-health/python/bin/python3" >"$shared/venv/bin/segment-health"
chmod 755 "$shared/venv/bin/segment-health"
cat >"$root/etc/systemd/system/lab.target" <<'END'
[Unit]
Description=Nothing but what a test starts
DefaultDependencies=no
AllowIsolate=yes
END

exec chroot "$root" env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/lib/systemd/systemd --system --unit=lab.target --log-target=console --show-status=no

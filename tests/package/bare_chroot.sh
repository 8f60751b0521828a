#!/bin/bash
# A pack on a machine with nothing: a bare Debian 12 in a chroot, without a network. Needs root, debootstrap and, the
# first time, a Debian mirror. By hand, and in .ci/run nightly where it can be had.
#
#   tests/package/bare_chroot.sh PACK CHROOT [arguments of first-light.sh]
set -u -o pipefail
pack=${1:?the folder of a pack} root=${2:?a folder for the chroot}
shift 2
[ "$(id -u)" = 0 ] || { echo "skipped: chroot needs root"; exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: there is no debootstrap"; exit 77; }
[ -x "$root/bin/bash" ] || debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 ||
  { tail -n 5 "$root.log"; echo "skipped: debootstrap failed"; exit 77; }
rm -rf -- "$root/pack" "$root/out"
cp -R -- "$pack" "$root/pack"
# proc and a fresh tmpfs for shared memory, as any machine has; no network, no process of the host.
unshare --net --mount --pid --fork --kill-child bash -c '
  mount --make-rprivate / && mount -t proc proc "$0/proc" && mkdir -p "$0/dev/shm" && mount -t tmpfs tmpfs "$0/dev/shm" &&
    ip link set lo up 2>/dev/null
  exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root /pack/first-light.sh --out /out "$@"' "$root" "$@"

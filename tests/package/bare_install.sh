#!/bin/bash
# bare_install.sh deb|wheel|both BUILD SOURCE [CHROOT]: what a user installs, on a machine with nothing: a bare Debian 12
# in a chroot, without a compiler. apt and pip install it there, and the main job runs, by its name, without a network.
# How long that took is printed. Needs root, debootstrap and a Debian mirror; else it is skipped, exit status 77.
set -u -o pipefail
what=$1 build=$(readlink -f -- "$2") source=$(readlink -f -- "$3") root=${4:-${TMPDIR:-/tmp}/seeksim_bare_$1}
fail() { printf '%s\n' "$*"; exit 1; }
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is missing"
command -v unshare >/dev/null || skip "unshare (Debian's util-linux) is missing"
made=$build/bare_$what
rm -rf -- "$made" && mkdir -p -- "$made"

# The system. What was made here goes away again.
if ! [ -x "$root/bin/bash" ]; then
  trap 'rm -rf -- "${root:?}"' EXIT
  debootstrap --variant=minbase bookworm "$root" >"$made/debootstrap" 2>&1 ||
    { tail -n 3 -- "$made/debootstrap"; skip "debootstrap failed"; }
fi
if [ "$what" = both ]; then
  bash "$0" deb "$build" "$source" "$root" && bash "$0" wheel "$build" "$source" "$root"
  exit
fi

case $what in
  deb)
    command -v dpkg-shlibdeps >/dev/null || skip "dpkg-shlibdeps (Debian's dpkg-dev) is missing"
    (ninja -C "$build" shell_files && cd "$build" && cpack -G DEB -B "$made") >"$made/said" 2>&1 ||
      { tail -n 30 -- "$made/said"; fail "the package cannot be made"; }
    ;;
  wheel)
    python=$(command -v python3) && command -v readelf >/dev/null || skip "python3 or readelf (Debian's binutils) is missing"
    (ninja -C "$build" shell_files && "$python" "$source/pack/make_wheel.py" "$build" --out "$made") >"$made/said" 2>&1 ||
      { tail -n 30 -- "$made/said"; fail "the wheel cannot be made"; }
    ;;
  *) fail "install what? $what" ;;
esac
set -- "$made"/seeksim*.deb "$made"/seeksim-*.whl
for file; do [ -f "$file" ] && package=$file; done
[ -f "${package:-}" ] || fail "there is nothing to install in $made"

# What this machine knows of mirrors and proxies.
for name in apt.conf.d sources.list sources.list.d trusted.gpg.d auth.conf.d; do
  [ -e "/etc/apt/$name" ] && cp -RL -- "/etc/apt/$name" "$root/etc/apt/" 2>/dev/null
done
for name in /etc/resolv.conf /etc/hosts; do cat -- "$name" >"$root$name" 2>/dev/null; done
mkdir -p -- "$root/usr/local/share/ca-certificates" "$root/etc/ssl/certs"
[ ! -f /etc/ssl/certs/ca-certificates.crt ] || cp -L -- /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf -- "$root/install" && mkdir -- "$root/install" && cp -- "$package" "$root/install/"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DEBIAN_FRONTEND=noninteractive \
  "${proxies[@]}" "$@"; }
proxies=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || proxies+=("$name=${!name}")
done

name=${package##*/}
inside apt-get update >"$made/apt" 2>&1 || { tail -n 3 -- "$made/apt"; skip "no Debian mirror can be reached"; }
if [ "$what" = deb ]; then
  inside apt-get install --yes --no-install-recommends "/install/$name" >"$made/apt" 2>&1 ||
    { tail -n 20 -- "$made/apt"; fail "apt does not install $name"; }
else
  inside apt-get install --yes --no-install-recommends python3 python3-pip >"$made/apt" 2>&1 ||
    { tail -n 3 -- "$made/apt"; skip "python3-pip cannot be had"; }
  inside pip install --no-index --root-user-action ignore --break-system-packages "/install/$name" >"$made/pip" 2>&1 ||
    { tail -n 20 -- "$made/pip"; fail "pip does not install $name"; }
fi
for compiler in cc c++ gcc g++ clang++ cmake ninja; do
  inside sh -c "command -v $compiler" >/dev/null && fail "it has a compiler: $compiler"
done

# The main job, by its name, without a network.
alone() {
  unshare --net --mount --pid --fork --kill-child bash -c '
    mount --make-rprivate / && mount -t proc proc "$0/proc" && mkdir -p "$0/dev/shm" && mount -t tmpfs tmpfs "$0/dev/shm"
    ip link set lo up 2>/dev/null
    exec chroot "$0" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp COLUMNS=0 "$@"' "$root" "$@"
}
began=$(date +%s%N)
said=$(alone seeksim run nccl_timeout 2>&1) || fail "nccl_timeout: $said"
took=$((($(date +%s%N) - began) / 1000000))
grep -q '^PASS nccl_timeout' <<<"$said" || fail "no PASS: $said"
said=$(alone seeksim run nccl_timeout --html /tmp/page.html --trace /tmp/trace.json --metrics /tmp/m.jsonl 2>&1) ||
  fail "a page, a trace and metrics: $said"
for file in page.html trace.json m.jsonl; do [ -s "$root/tmp/$file" ] || fail "$file is missing"; done
[ "$what" = deb ] || alone python3 -c 'import seeksim; assert seeksim.load("nccl_timeout").run().ok' ||
  fail "the Python package does not run it"
# Seen to fail: a job that is red there is red.
alone seeksim run nccl_timeout --set 'checks=["recoveries:7"]' >/dev/null 2>&1
[ $? = 1 ] || fail "a red job was not seen"
if [ "$what" = deb ]; then
  inside apt-get remove --yes seeksim >"$made/apt" 2>&1 || { tail -n 5 -- "$made/apt"; fail "apt does not remove it"; }
  [ ! -e "$root/usr/bin/seeksim" ] && [ ! -e "$root/usr/share/seeksim" ] || fail "something of it stays after its removal"
else
  inside pip uninstall --yes --break-system-packages seeksim >"$made/pip" 2>&1 || fail "pip does not remove it"
fi
echo "whole: $name in a bare Debian; nccl_timeout is green in $took ms"

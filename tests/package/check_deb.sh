#!/bin/bash
# check_deb.sh BUILD: makes the Debian package and runs what is in it from a folder of its own, with nothing of the
# caller's environment. Installing it with apt takes a machine that may be changed: docs/installing.md.
set -u -o pipefail
build=$(readlink -f -- "$1")
fail() { printf '%s\n' "$*"; exit 1; }
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: dpkg-shlibdeps (Debian's dpkg-dev) is missing"; exit 77; }

rm -rf -- "$build"/*.deb "$build/deb_test"
ninja -C "$build" shell_files >"$build/deb_said" 2>&1 && (cd "$build" && cpack -G DEB) >>"$build/deb_said" 2>&1 ||
  { tail -n 30 -- "$build/deb_said"; fail "the package cannot be made"; }
set -- "$build"/*.deb
[ $# = 1 ] && [ -f "$1" ] || fail "there is no package, or several: $*"
dpkg-deb -x "$1" "$build/deb_test" || fail "it cannot be unpacked"
usr=$build/deb_test/usr
alone() { (cd / && env -i PATH=/usr/bin:/bin HOME=/nowhere COLUMNS=0 "$@"); }

for file in bin/seeksim share/man/man1/seeksim.1.gz share/bash-completion/completions/seeksim \
  share/zsh/vendor-completions/_seeksim share/fish/vendor_completions.d/seeksim.fish share/doc/seeksim/copyright \
  share/seeksim/scenarios/nccl_timeout.json share/seeksim/pytorch/python/seeksim_torch/start.py \
  share/seeksim/pytorch/python/seeksim_torch-1.dist-info/entry_points.txt; do
  [ -s "$usr/$file" ] || fail "$file is missing or empty"
done
! dpkg-deb -c "$1" | grep -E '\.(a|o)$|/usr/include' || fail "it has parts for who links seeksim"

said=$(alone "$usr/bin/seeksim" run nccl_timeout) || fail "nccl_timeout, by its name: $said"
grep -q '^PASS nccl_timeout' <<<"$said" || fail "no PASS: $said"
said=$(alone "$usr/bin/seeksim" list scenarios) && grep -q "$usr/share/seeksim/scenarios/baseline.json" <<<"$said" ||
  fail "it lists other scenarios: $said"
# Every source that the backend of `seeksim torch` is compiled from is there.
for pattern in $(sed -n '/^SOURCES = \[/,/^\]/p' "$usr/share/seeksim/pytorch/python/seeksim_torch/build.py" |
  grep -oE '"[^"]+"' | tr -d '"'); do
  compgen -G "$usr/share/seeksim/$pattern" >/dev/null || fail "$pattern is missing for seeksim torch"
done
# Seen to fail: the name leads to the package's own scenario, and nowhere without it.
rm "$usr/share/seeksim/scenarios/nccl_timeout.json"
alone "$usr/bin/seeksim" run nccl_timeout >/dev/null 2>&1
[ $? = 2 ] || fail "it ran a scenario that is not there"
if command -v lintian >/dev/null; then
  said=$(lintian --fail-on error,warning "$1" 2>&1) || fail "lintian: $said"
fi
echo "whole: ${1##*/}"

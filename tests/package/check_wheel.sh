#!/bin/bash
# check_wheel.sh BUILD SOURCE: makes the wheel, installs it with pip into a folder of its own, and runs program and Python
# package from there, with nothing of the caller's environment. Skipped, exit status 77, without python3 and pip.
set -u -o pipefail
build=$(readlink -f -- "$1") source=$(readlink -f -- "$2")
fail() { printf '%s\n' "$*"; exit 1; }
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
python=$(command -v python3) && "$python" -m pip --version >/dev/null 2>&1 || skip "python3 with pip is missing"
command -v readelf >/dev/null || skip "readelf (Debian's binutils) is missing"

folder=$build/wheel_test
rm -rf -- "$folder" "$build"/seeksim-*.whl
mkdir -p -- "$folder/home"
wheel=$(ninja -C "$build" shell_files >"$folder/said" 2>&1 &&
  "$python" "$source/pack/make_wheel.py" "$build" --out "$folder" 2>&1 | tail -n 1)
[ -f "$wheel" ] || { cat -- "$folder/said"; fail "the wheel cannot be made: $wheel"; }
"$python" -m pip install --quiet --no-index --no-deps --disable-pip-version-check --root-user-action ignore \
  --target "$folder/site" "$wheel" >"$folder/said" 2>&1 || { cat -- "$folder/said"; fail "pip does not install $wheel"; }
alone() { (cd -- "$folder/home" && env -i PATH=/usr/bin:/bin HOME="$folder/home" COLUMNS=0 "$@"); }

said=$(alone "$folder/site/bin/seeksim" run nccl_timeout 2>&1 | tail -n 1)
case $said in
  "PASS nccl_timeout"*) ;;
  *) # The script that pip made finds its package only where the folder is on the path.
    said=$(alone PYTHONPATH="$folder/site" "$python" "$folder/site/bin/seeksim" run nccl_timeout 2>&1 | tail -n 1)
    [ "${said#PASS nccl_timeout}" != "$said" ] || fail "the wheel's program: $said"
    ;;
esac
said=$(alone PYTHONPATH="$folder/site" "$python" -c '
import seeksim
report = seeksim.load("baseline").run()
assert seeksim.program().startswith(seeksim.__path__[0]), seeksim.program()
print(report.sentence)') || fail "the wheel's Python package: $said"
[ "${said#PASS baseline}" != "$said" ] || fail "the wheel's Python package: $said"

# torch finds what records a script by this entry point.
part=$folder/site/seeksim/_program/share/seeksim/pytorch/python
said=$(alone PYTHONPATH="$part" "$python" -c '
from importlib.metadata import distribution
print([one.value for one in distribution("seeksim_torch").entry_points])' 2>&1)
[ "${said#*seeksim_torch}" != "$said" ] || fail "the wheel's part for torch cannot be found by torch: $said"

# No library but glibc's comes from outside the wheel.
while IFS= read -r line; do
  case $line in
    *"$folder/site/"* | *linux-vdso* | *ld-linux* | *libc.so* | *libm.so* | *libdl.so* | *librt.so* | *libpthread.so*) ;;
    *) fail "from outside the wheel: $line" ;;
  esac
done < <(ldd "$folder/site/seeksim/_program/bin/seeksim")
# Seen to fail: a library that is missing from the wheel is missed.
library=$(find "$folder/site/seeksim/_program/lib" -name 'libfmt*' | head -n 1)
[ -n "$library" ] || fail "libfmt is not in the wheel"
rm -- "$library"
ldd "$folder/site/seeksim/_program/bin/seeksim" | grep -q "$folder.*${library##*/}" && fail "a missing library is still found"
echo "whole: ${wheel##*/}, $(($(stat -c %s -- "$wheel") / 1024)) KiB"

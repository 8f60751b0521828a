#!/bin/bash
# Makes the folder that ./seeksim pack is for: what a GPU node without internet and package manager needs to run seeksim
# and its GPU tests, below 40 MiB.
#
#   pack/make.sh BUILD [--out DIR] [--standin]
#
#   BUILD      a build folder with the programs built (./seeksim pack builds them)
#   --out      where the folder goes; default: BUILD/pack. It may exist if it is such a folder, or empty.
#   --standin  also the programs on the stand-in for CUDA and NCCL (tests/standin), to try first-light.sh without a GPU;
#              they do not count towards the 40 MiB
set -u -o pipefail

root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
say() { printf 'seeksim pack: %s\n' "$*" >&2; }
stop() { say "$1"; exit "${2:-2}"; }

build=${1:?a build folder}
shift
out=$build/pack
standin=""
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || stop "--out needs a folder"; out=$2; shift ;;
    --out=*) out=${1#--out=} ;;
    --standin) standin=1 ;;
    *) stop "$1 is no option of pack: --out DIR, --standin" ;;
  esac
  shift
done
[ -n "$out" ] || stop "--out needs a folder"

# Only a pack is ever replaced.
if [ -e "$out" ] && [ -n "$(ls -A -- "$out" 2>/dev/null)" ] && ! [ -f "$out/MANIFEST" ]; then
  stop "$out holds something that is no pack. Give --out another folder, or empty that one."
fi
made=$out.making.$$
trap 'rm -rf -- "$made"' EXIT
mkdir -p -- "$made" || stop "$made cannot be made"
made=$(readlink -f -- "$made")

install_part() {
  cmake --install "$build" --component "$1" --prefix "$made" --strip >"$made/log" 2>&1 ||
    { tail -n 20 -- "$made/log" >&2; stop "cmake --install failed" 4; }
  rm -f -- "$made/log"
}
install_part pack
cuda=$(sed -n 's/^SEEKSIM_CUDART_LIBRARY:FILEPATH=\(.*\)/\1/p' "$build/CMakeCache.txt")
with_cuda=$(sed -n 's/^SEEKSIM_WITH_CUDA:BOOL=\(.*\)/\1/p' "$build/CMakeCache.txt")
kernels="none for GPUs: built without nvcc"
[ -z "$cuda" ] || [ "${cuda%-NOTFOUND}" != "$cuda" ] || [ "$with_cuda" != ON ] || kernels="for GPUs: sm_80, sm_90, PTX"
if [ -n "$standin" ]; then
  [ -x "$build/tests/standin/seeksim_standin" ] || stop "the stand-in was not built: it needs nvcc and nccl.h"
  install_part pack_standin
fi

mkdir -p -- "$made/share/seeksim" "$made/bench"
cp -R -- "$root/scenarios" "$root/golden" "$made/share/seeksim/"
rm -rf -- "$made/share/seeksim/golden/pytorch"  # reference values of tests, which no step reads
cp -- "$root/bench/device_step.json" "$root/bench/device_torch.py" "$made/bench/"
cp -- "$root/pack/first-light.sh" "$root/pack/steps.sh" "$made/"
version=$("$build/seeksim" --version) || stop "$build/seeksim does not run" 4
sed -e "s|@VERSION@|$version|" -e "s|@KERNELS@|$kernels|" -- "$root/pack/README.in.md" >"$made/README.md"

size=$("$root/pack/check.sh" "$made") || { printf '%s\n' "$size" >&2; stop "the pack is not whole" 4; }

{
  printf '%s\n' "$version"
  printf 'kernels %s\n' "$kernels"
  printf 'stand-in %s\n' "${standin:+yes}"
  printf 'sha256\n'
  (cd -- "$made" && find . -type f ! -name MANIFEST -print0 | sort -z | xargs -0 sha256sum)
} | sed 's/^stand-in $/stand-in no/' >"$made/MANIFEST"

rm -rf -- "$out" && mv -- "$made" "$out" || stop "$out cannot be written"
say "$out: $size, kernels $kernels${standin:+, with the stand-in}"

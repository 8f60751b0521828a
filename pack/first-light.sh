#!/bin/bash
# The first run on a GPU node: every step in order, each with a time limit of its own, going on after a red one.
#
#   ./first-light.sh [--device cuda|emulated|standin] [--out DIR] [--only STEP]... [--skip STEP]...
#                    [--budget SECONDS] [--limit SECONDS] [--standin DIR] [--list]
#
#   --device   cuda: the GPU here (default). emulated: the text of the GPU kernels, on the CPU. standin: the stand-in
#              for CUDA and NCCL, where the pack was made with it.
#   --out      folder for summary.txt, summary.json, log.txt, red.txt and figures (default: first-light.out here)
#   --only     this step alone; may be given several times
#   --skip     not this step; may be given several times
#   --budget   seconds for everything: what does not fit is skipped
#   --limit    seconds that no step may exceed, whatever its own limit
#   --standin  folder with the stand-in's programs (default: standin/ of the pack)
#   --list     print the steps and their limits
#
# Exit status: 0 all that ran is well; 1 a step is red or was too late; 2 usage, or nothing ran on the device.
set -u -o pipefail

FL_TOP=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck source=pack/steps.sh disable=SC2154
. "$FL_TOP/steps.sh"

stop() { printf 'first-light: %s\n' "$1" >&2; exit 2; }

# One step, in a process that a time limit ends with all that it started.
if [ "${1:-}" = --inside ]; then
  "step_$2"
  exit
fi

device=cuda
out=$PWD/first-light.out
only=()
skip=()
budget_s=""
limit_s=""
standin=$top/standin
while [ $# -gt 0 ]; do
  case $1 in
    --list)
      printf '%s\n' "${steps[@]}" | awk -F'|' '{ printf "%-22s %4d s  %s\n", $1, $2, $3 }'
      exit 0
      ;;
    --device | --out | --only | --skip | --budget | --limit | --standin) [ $# -gt 1 ] || stop "$1 needs a value" ;;
    *) stop "$1 is no option; the first lines of this file say which there are" ;;
  esac
  case $1 in
    --device) device=$2 ;;
    --out) out=$2 ;;
    --only) only+=("$2") ;;
    --skip) skip+=("$2") ;;
    --budget) budget_s=$2 ;;
    --limit) limit_s=$2 ;;
    --standin) standin=$2 ;;
  esac
  shift 2
done
case $device in cuda | emulated | standin) ;; *) stop "--device $device: cuda, emulated or standin" ;; esac
for number in "$budget_s" "$limit_s"; do
  case $number in *[!0-9]* | 0) stop "--budget and --limit are whole seconds, not '$number'" ;; esac
done
is_step() {
  local step
  for step in "${steps[@]}"; do [ "${step%%|*}" = "$1" ] && return; done
  return 1
}
for name in ${only[@]+"${only[@]}"} ${skip[@]+"${skip[@]}"}; do
  is_step "$name" || stop "there is no step $name; --list prints them"
done
[ "$device" != standin ] || [ -x "$standin/seeksim_standin" ] ||
  stop "there is no stand-in in $standin: make the pack with --standin"
mkdir -p -- "$out" || stop "--out $out cannot be made"
out=$(readlink -f -- "$out")
rm -f -- "$out"/{summary.txt,summary.json,log.txt,red.txt,figures.txt}

scratch=$(mktemp -d) || stop "no temporary folder"
trap 'rm -rf -- "$scratch"' EXIT
export FL_TOP FL_DEVICE=$device FL_OUT=$out FL_SCRATCH=$scratch FL_STANDIN=$standin
use_the_newer_libstdcxx

in_list() { local word=$1 one; shift; for one; do [ "$one" != "$word" ] || return 0; done; return 1; }
# For JSON: no control characters, quotes and backslashes escaped.
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }
# The beginning and the end of a file, so that no log outgrows what can be carried home.
cut_to() { # <file> <bytes>
  if [ "$(wc -c <"$1")" -le "$2" ]; then cat -- "$1"; else
    head -c $(($2 / 2)) -- "$1"; printf '\n... cut ...\n'; tail -c $(($2 / 2)) -- "$1"
  fi
}

red=0
ran_on_device=0
json=""
row() { # <step> <seconds> <result> <seen>
  printf '%-22s %7s s  %-8s %s\n' "$1" "$2" "$3" "$4" | tee -a "$out/summary.txt"
  json="$json${json:+,}
    {\"step\": $(quoted "$1"), \"seconds\": $2, \"result\": $(quoted "$3"), \"seen\": $(quoted "$4")}"
}

printf 'first light: %s, --device %s\n' "$(head -n 1 -- "$top/MANIFEST" 2>/dev/null)" "$device" | tee "$out/summary.txt"
for step in "${steps[@]}"; do
  IFS='|' read -r name limit _ <<<"$step"
  [ ${#only[@]} = 0 ] || in_list "$name" "${only[@]}" || continue
  [ ${#skip[@]} = 0 ] || ! in_list "$name" "${skip[@]}" || continue
  [ "$device" = cuda ] || limit=$((3 * limit))
  if [ -n "$limit_s" ] && [ "$limit_s" -lt "$limit" ]; then limit=$limit_s; fi
  if [ -n "$budget_s" ]; then
    left=$((budget_s - SECONDS))
    if [ "$left" -le 0 ]; then row "$name" 0 skipped "the budget of $budget_s s is spent"; continue; fi
    [ "$limit" -le "$left" ] || limit=$left
  fi
  began=$(date +%s%N)
  : >"$scratch/seen"
  timeout --kill-after=5 "$limit" bash "$top/first-light.sh" --inside "$name" >"$scratch/log" 2>&1 </dev/null
  status=$?
  took=$(awk -v ns=$(($(date +%s%N) - began)) 'BEGIN { printf "%.1f", ns / 1e9 }')
  seen=$(tail -n 1 -- "$scratch/seen")
  case $status in
    0) result=ok ;;
    77) result=skipped ;;
    124 | 137) result=late; seen="not done after its limit of $limit s${seen:+; $seen}" ;;
    *) result=red; seen="${seen:-exit status $status}" ;;
  esac
  case $result in
    red | late)
      red=$((red + 1))
      { printf '== %s: %s\n' "$name" "$seen"; cut_to "$scratch/log" 1500000; cat "$scratch"/red.* 2>/dev/null; } >>"$out/red.txt"
      ;;
    ok) [ "$name" = files ] || [ "$name" = doctor ] || ran_on_device=$((ran_on_device + 1)) ;;
  esac
  rm -f -- "$scratch"/red.*
  { printf '== %s (%s s): %s %s\n' "$name" "$took" "$result" "$seen"; cut_to "$scratch/log" 300000; } >>"$out/log.txt"
  row "$name" "$took" "$result" "$seen"
done
[ ! -f "$out/red.txt" ] || { cut_to "$out/red.txt" 15000000 >"$scratch/cut" && mv -- "$scratch/cut" "$out/red.txt"; }

verdict="$red red or late, $ran_on_device well on $device, $SECONDS s"
printf '%s\n' "$verdict" | tee -a "$out/summary.txt"
printf '{\n  "device": %s,\n  "pack": %s,\n  "red": %d,\n  "well_on_device": %d,\n  "steps": [%s\n  ]\n}\n' \
  "$(quoted "$device")" "$(quoted "$(head -n 1 -- "$top/MANIFEST" 2>/dev/null)")" "$red" "$ran_on_device" "$json" \
  >"$out/summary.json"
[ "$red" = 0 ] || exit 1
# A run that looked at nothing is not a good one. Steps that do not touch the device may be asked for alone.
[ "$ran_on_device" -gt 0 ] || { [ ${#only[@]} -gt 0 ] && ! grep -q ' skipped ' "$out/summary.txt"; } || exit 2

#!/bin/bash
# check_pack.sh Folder|Emulated|Standin|Red SOURCE BUILD: makes a pack and runs its first-light.sh as on a machine where
# nothing is installed: an empty environment, no build folder. A bare chroot without a network is bare_chroot.sh.
set -u -o pipefail
what=$1 source=$2 build=$3
pack=$build/pack_test
fail() { printf '%s\n' "$*"; exit 1; }

for program in seeksim tests/package/gpu_checks; do
  [ -x "$build/$program" ] || { echo "skipped: $program is not built"; exit 77; }
done
standin=--standin
[ -x "$build/tests/standin/seeksim_standin" ] || standin=""
[ "$what" != Standin ] || [ -n "$standin" ] || { echo "skipped: the stand-in is not built: there is no nvcc or nccl.h"; exit 77; }
# shellcheck disable=SC2086  # an option or none
"$source/pack/make.sh" "$build" --out "$pack" $standin || fail "the pack cannot be made"

# first_light <folder of the pack> <arguments...>
first_light() {
  local folder=$1
  shift
  rm -rf -- "$build/pack_out"
  env -i PATH=/usr/bin:/bin HOME=/nowhere "$folder/first-light.sh" --out "$build/pack_out" "$@"
}
# A step's result, as the summary says it.
result() { awk -v step="$1" '$1 == step { print $4 }' "$build/pack_out/summary.txt"; }
expect() { # <step> <result>
  [ "$(result "$1")" = "$2" ] || fail "$1 is $(result "$1"), not $2"
  grep -q "\"step\": \"$1\".*\"result\": \"$2\"" "$build/pack_out/summary.json" || fail "$1 is otherwise in summary.json"
}
# check.sh says this of a folder, and ends with a status that is not 0.
lacks() { # <folder> <words>
  ! "$source/pack/check.sh" "$1" >"$build/pack_said" || fail "nothing was seen to be wrong: $2"
  grep -q "$2" "$build/pack_said" || fail "it does not say: $2"
}
expect_status() { [ "$1" = "$2" ] || fail "exit status $1, not $2"; }

case $what in
  Folder)
    "$source/pack/check.sh" "$pack" || fail "it is not whole"
    for file in first-light.sh README.md MANIFEST share/seeksim/scenarios/baseline.json share/seeksim/golden/corpus.txt; do
      [ -f "$pack/$file" ] || fail "there is no $file"
    done
    [ "$(wc -l <"$pack/README.md")" -le 40 ] || fail "its README is too long"
    # A folder that is no pack is left alone.
    mkdir -p -- "$build/pack_other" && echo mine >"$build/pack_other/file"
    "$source/pack/make.sh" "$build" --out "$build/pack_other"
    expect_status $? 2
    [ "$(cat "$build/pack_other/file")" = mine ] || fail "somebody's folder was replaced"
    rm -rf -- "$build/pack_other"
    ;;
  Emulated)
    first_light "$pack" --device emulated --only files --only doctor --only dropout --only planted --only launch --only bench
    expect_status $? 0
    for step in files doctor dropout planted bench; do expect $step ok; done
    expect launch skipped
    # What the step bench times on a GPU is a run like any other.
    env -i PATH=/usr/bin:/bin HOME=/nowhere "$pack/bin/seeksim" run "$pack/bench/device_step.json" --set steps=1 >"$build/pack_said" ||
      fail "bench/device_step.json does not run: $(tail -n 3 "$build/pack_said")"
    ;;
  Standin)
    first_light "$pack" --device standin --only files --only dropout --only watchdog --only launch --only kill
    expect_status $? 0
    for step in files dropout watchdog launch kill; do expect $step ok; done
    ;;
  Red)
    copy=$build/pack_red
    rm -rf -- "$copy" && cp -R -- "$pack" "$copy"
    # A library that is missing; and one that is damaged, for this machine may have the missing one.
    rm -- "$copy"/lib/libfmt.so.*
    lacks "$copy" 'bin/seeksim needs libfmt'
    echo nothing >"$copy/lib/libfmt.so.9"
    first_light "$copy" --device emulated --only files --only doctor
    expect_status $? 1
    expect files red
    expect doctor red
    grep -q 'libfmt' "$build/pack_out/red.txt" || fail "red.txt does not say which library"
    rm -- "$copy/lib/libfmt.so.9" && cp -P -- "$pack"/lib/libfmt.so.* "$copy/lib/"
    head -c 41943040 /dev/zero >"$copy/lib/zeros"
    lacks "$copy" 'is the limit'
    rm -- "$copy/lib/zeros"
    # A row of a sweep that is red, a changed file; and the next step is made all the same.
    sed -i '1s/{ /{ "bug": "drifting_replica", /' "$copy/share/seeksim/scenarios/equivalence/dropout_equivalence.json"
    first_light "$copy" --device emulated --only files --only dropout --only planted
    expect_status $? 1
    expect files red
    expect dropout red
    expect planted ok
    grep -q drifting_replica "$build/pack_out/red.txt" || fail "red.txt has not the report"
    grep -q '^dropout .*FAIL dropout_equivalence' "$build/pack_out/summary.txt" || fail "the summary does not say which check"
    # A device that passes, with other bits than the CPU's.
    mkdir -p -- "$copy/liar"
    cat >"$copy/liar/seeksim_standin" <<LIAR
#!/bin/bash
"$pack/bin/seeksim" "\${@/cuda/cpu}" || exit
for word; do case \$word in *device.json) sed -i 's/"params_digest": "./"params_digest": "x/' "\$word" ;; esac; done
LIAR
    chmod +x "$copy/liar/seeksim_standin"
    first_light "$pack" --device standin --standin "$copy/liar" --only dropout
    expect_status $? 1
    grep -q "the digests are not the CPU's" "$build/pack_out/summary.txt" || fail "other digests were not seen"
    # A step that does not end, and a budget that is spent.
    mkdir -p -- "$copy/stuck"
    printf '#!/bin/bash\nexec sleep 600\n' >"$copy/stuck/seeksim_standin"
    chmod +x "$copy/stuck/seeksim_standin"
    for bound in '--limit 1' '--budget 3'; do  # of a budget of 1, the start may take all
      # shellcheck disable=SC2086  # an option and its value
      first_light "$pack" --device standin --standin "$copy/stuck" $bound --only dropout --only planted
      expect_status $? 1
      expect dropout late
    done
    expect planted skipped
    # No GPU is no green run.
    first_light "$pack" --device cuda --only zero
    case $(result zero) in
      skipped) ;;
      ok) echo "there is a GPU here" ;;
      *) fail "without a GPU zero is $(result zero)" ;;
    esac
    [ "$(result zero)" = ok ] || { first_light "$pack" --device cuda --only zero; expect_status $? 2; }
    for wrong in "--device abacus" "--only nothing" "--budget x" "--frobnicate"; do
      # shellcheck disable=SC2086  # an option and its value
      first_light "$pack" $wrong
      expect_status $? 2
    done
    rm -rf -- "$copy"
    ;;
  *) fail "check what? $what" ;;
esac
rm -rf -- "$build/pack_out" "$build/pack_said"
echo "well"

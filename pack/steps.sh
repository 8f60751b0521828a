# The steps of first-light.sh, which reads this file: the table, and a function a step. A step prints its log, says in a
# line what was seen, and ends with 0 (well), 77 (cannot run here) or anything else (red).
# shellcheck shell=bash

# name|limit in seconds|what it is. The limits are a GPU's; CPUs that pretend have three times as long.
steps=(
  "files|30|the pack is whole, and its own libraries are used"
  "doctor|60|what is here: processor, driver, GPUs, NCCL, MPI"
  "gpu_tests|300|every kernel against the CPU's bits; NCCL's verbs with one rank"
  "zero|240|zero_equivalence: simulated ranks share the device; digests are the CPU's"
  "precision|240|precision_equivalence, likewise"
  "offload|240|offload_equivalence"
  "pipeline|240|pipeline_equivalence"
  "tensor|240|tensor_equivalence"
  "dropout|120|dropout_equivalence"
  "checkpointing|240|checkpointing_equivalence"
  "optimizers|240|Muon and Lion"
  "attention|240|fused attention; the tokens of a sample on several ranks, by heads and as a ring"
  "experts|240|experts, on one rank and divided among ranks"
  "shard_groups|180|shards and second copies inside groups of ranks"
  "samples|180|sets of samples, lengths by step, held-out samples, workers that train apart"
  "fp8|120|operands of linear layers in 8 bits"
  "llama|240|the other family"
  "planted|60|a planted bug turns a run red"
  "nccl_conformance|180|every claim on transports, over NCCL"
  "nccl_2|300|the sweeps over NCCL, 2 processes"
  "nccl_4|400|4 processes"
  "nccl_8|900|8 processes"
  "watchdog|120|a rank that hangs: the watchdog, and an abort of all communicators"
  "device_lost|120|a rank whose GPU is lost"
  "kill|120|a killed process: the others go on"
  "launch|180|a killed process under seeksim launch: the next job goes on"
  "fast|240|fast arithmetic, products of cuBLASLt and NCCL's sums, within bounds"
  "sanitizer|600|compute-sanitizer on the kernels' tests"
  "bench|180|kernels as shares of the device's bound; a training step"
  "torch|180|PyTorch's figures, where python3 has it"
  "floats|900|unary functions on all 2^32 floats"
)

top=${FL_TOP:-}
scenarios=$top/share/seeksim/scenarios
case ${FL_DEVICE:-} in
  standin)
    program=$FL_STANDIN/seeksim_standin
    kernels=$FL_STANDIN/test_backend_standin
    claims=$FL_STANDIN/test_conformance_standin
    flag=cuda
    export SEEKSIM_STANDIN_GPUS=1 SEEKSIM_STANDIN_NCCL=23003
    ;;
  *)
    program=$top/bin/seeksim
    kernels=$top/bin/gpu_checks
    claims=$kernels
    flag=${FL_DEVICE:-cuda}
    ;;
esac
export COLUMNS=0  # lines are not folded

say_seen() { printf '%s\n' "$*" >"$FL_SCRATCH/seen"; }
cannot() { say_seen "$*"; printf 'skipped: %s\n' "$*"; exit 77; }
wrong() { say_seen "$*"; printf 'red: %s\n' "$*"; exit 1; }
real() { [ "$FL_DEVICE" = cuda ]; }
# Keeps a report for red.txt.
keep() { head -c 2000000 -- "$1" >"$FL_SCRATCH/red.$(basename -- "$1")" 2>/dev/null; }

# Libraries that are opened at run time, such as an NCCL that was built here, may need a newer libstdc++ than the
# pack's, and a process has one.
use_the_newer_libstdcxx() {
  local theirs own newest folder=$FL_SCRATCH/system
  theirs=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n 's/.*libstdc++\.so\.6 .*x86-64.*=> //p' | head -n 1)
  own=$FL_TOP/lib/libstdc++.so.6
  [ -n "$theirs" ] && [ -e "$own" ] || return 0
  newest=$(for file in "$own" "$theirs"; do
    printf '%s %s\n' "$(grep -ao 'GLIBCXX_3\.4\.[0-9]*' -- "$file" | sort -V | tail -n 1)" "$file"
  done | sort -V | tail -n 1)
  [ "${newest#* }" = "$theirs" ] && [ "${newest%% *}" != "$(grep -ao 'GLIBCXX_3\.4\.[0-9]*' -- "$own" | sort -V | tail -n 1)" ] ||
    return 0
  mkdir -p -- "$folder"
  ln -s -- "$theirs" "$folder/libstdc++.so.6"
  export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# gtest <program> <filter>: what passed, failed and was skipped.
gtest() {
  local text=$FL_SCRATCH/gtest passed failed why status
  "$1" --gtest_filter="$2" 2>&1 | tee "$text"
  status=${PIPESTATUS[0]}
  passed=$(grep -c '^\[       OK \]' -- "$text")
  failed=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).*(.*ms)$/\1/p' -- "$text" | tr '\n' ' ')
  [ "$status" = 0 ] || wrong "$passed passed, failed: ${failed:-exit status $status}"
  if [ "$passed" = 0 ]; then
    why=$(grep -A1 ': Skipped$' -- "$text" | sed -n 2p)
    [ -z "$why" ] || cannot "$why"
    wrong "no test is called $2"
  fi
  say_seen "$passed tests passed, $(grep -c '^\[  SKIPPED \].*ms)$' -- "$text") skipped"
}

# The last word of a run.
verdict() { grep -hE '^(PASS|FAIL|STOP|seeksim:)' -- "$1" | tail -n 1 | cut -c 1-160; }
# Row and digest of each run of a report.
digests() { awk -F'[:,"]+' '/^ *"row":/ { row = $3 + 0 } /"params_digest":/ { print row, $4 }' "$1"; }

# What is not there is no failure.
cannot_if_absent() { # <log> <exit status>
  local line
  [ "$2" = 2 ] || return 0
  line=$(grep -hE 'no GPU|without CUDA|without NCCL|NCCL cannot be loaded|would share one GPU|cuBLASLt cannot be loaded' -- "$1" | head -n 1)
  [ -z "$line" ] || cannot "${line#seeksim: }"
}

rows_seen=0
# on_device <scenario> <rows...>: on the CPU and on the device, and equal digests. The rows are for a device that is
# none, where a sweep would take hours; a real one runs them all.
on_device() {
  local name=$1 rows=() row text=$FL_SCRATCH/run status
  shift
  if real; then rows=(all); else rows=("$@"); fi
  for row in "${rows[@]}"; do
    local more=()
    [ "$row" = all ] || more=(--row "$row")
    "$top/bin/seeksim" run "$scenarios/$name.json" ${more[@]+"${more[@]}"} --report "$FL_SCRATCH/cpu.json" >"$FL_SCRATCH/cpu" 2>&1 &
    "$program" run "$scenarios/$name.json" ${more[@]+"${more[@]}"} --device "$flag" --report "$FL_SCRATCH/device.json" 2>&1 | tee "$text"
    status=${PIPESTATUS[0]}
    wait "$!" || wrong "on the CPU: $(verdict "$FL_SCRATCH/cpu")"
    cannot_if_absent "$text" "$status"
    if [ "$status" != 0 ]; then keep "$FL_SCRATCH/device.json"; wrong "$(verdict "$text")"; fi
    # Rows that the device has no kernels for are left out, and the run says so.
    if [ -z "$(digests "$FL_SCRATCH/device.json")" ] ||
      digests "$FL_SCRATCH/device.json" | grep -vxFf <(digests "$FL_SCRATCH/cpu.json"); then
      keep "$FL_SCRATCH/device.json"
      wrong "the digests are not the CPU's"
    fi
    rows_seen=$((rows_seen + $(digests "$FL_SCRATCH/device.json" | wc -l)))
  done
  say_seen "$rows_seen rows with the CPU's digests, up to $name"
}

step_files() {
  (cd -- "$top" && sed '1,/^sha256$/d' MANIFEST | sha256sum --check --quiet) || wrong "files are missing or changed"
  "$top/bin/seeksim" --version || wrong "bin/seeksim does not start"
  say_seen "$(sed '1,/^sha256$/d' "$top/MANIFEST" | wc -l) files, $(sed -n 's/^kernels /kernels /p' "$top/MANIFEST")"
}

step_doctor() {
  (cd -- "$FL_OUT" && "$top/bin/seeksim" doctor 2>&1) | tee "$FL_SCRATCH/doctor"
  [ "${PIPESTATUS[0]}" -lt 2 ] || wrong "$(grep -E 'FAIL|seeksim:|error' "$FL_SCRATCH/doctor" | head -n 1)"
  say_seen "$(sed -nE 's/^ *(ok|--) +(gpus|nccl) +(.*)/\3/p' "$FL_SCRATCH/doctor" | cut -c 1-70 | tr '\n' ';')"
}

step_gpu_tests() {
  if [ "$FL_DEVICE" = emulated ]; then gtest "$kernels" '*DeviceKernelsSlow*'; return; fi
  gtest "$kernels" 'DeviceKernelsGpu*:*/DeviceKernelsGpu*:NcclGpu*:Nccl.*'
}
step_zero() { on_device zero_equivalence 45 130; }
step_precision() { on_device equivalence/precision_equivalence 40 170; }
step_offload() { on_device equivalence/offload_equivalence 3; }
step_pipeline() { on_device equivalence/pipeline_equivalence 1; }
step_tensor() { on_device equivalence/tensor_equivalence 20; }
step_dropout() { on_device equivalence/dropout_equivalence 3 44; }
step_checkpointing() { on_device equivalence/checkpointing_equivalence 4; }
step_optimizers() { on_device equivalence/muon 1 && on_device equivalence/lion 1; }
step_attention() {
  local each
  for each in fused_attention context_parallel ring_attention; do on_device "equivalence/$each" 1; done
}
step_experts() {
  local each
  for each in experts expert_parallel deepseek; do on_device "equivalence/$each" 1; done
}
step_shard_groups() { on_device equivalence/hsdp 1 && on_device equivalence/hpz 1; }
step_samples() {
  local each
  for each in sampler curriculum evaluation local_sgd; do on_device "equivalence/$each" 1; done
}
step_fp8() { on_device equivalence/fp8 1; }
step_llama() { on_device equivalence/llama_equivalence 1; }

step_planted() {
  "$program" run "$scenarios/zero_equivalence.json" --set 'sweep=[]' --set world.ranks_per_node=2 --set bug=drifting_replica \
    --device "$flag" 2>&1 | tee "$FL_SCRATCH/run"
  local status=${PIPESTATUS[0]}
  cannot_if_absent "$FL_SCRATCH/run" "$status"
  [ "$status" = 1 ] || wrong "the bug drifting_replica was not found: exit status $status"
  say_seen "$(verdict "$FL_SCRATCH/run" | cut -c 1-100)"
}

# ---- processes -------------------------------------------------------------------------------------------------------

# ranks <n> <command...>: starts it n times with torchrun's variables; pids and rank 0's output in $FL_SCRATCH/rank0.
pids=()
ranks() {
  local n=$1 rank port=$((10000 + RANDOM % 20000)) ctas=4
  shift
  [ "$n" -le 2 ] || ctas=3
  [ "$n" -le 4 ] || ctas=2
  pids=()
  for ((rank = 0; rank < n; ++rank)); do
    env RANK=$rank LOCAL_RANK=$rank WORLD_SIZE="$n" LOCAL_WORLD_SIZE="$n" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=$ctas "$@" >"$FL_SCRATCH/rank$rank" 2>&1 &
    pids+=($!)
  done
}
# Rank 0's exit status; its output, and the end of the others', go to the log.
end_of_ranks() {
  local status rank
  wait "${pids[0]}"
  status=$?
  sleep 0.2
  for rank in "${!pids[@]}"; do
    [ "$rank" = 0 ] || kill -KILL "${pids[$rank]}" 2>/dev/null
  done
  wait
  cat -- "$FL_SCRATCH/rank0"
  [ "$status" = 0 ] || tail -n 20 -- "$FL_SCRATCH"/rank[1-9]* 2>/dev/null
  cannot_if_absent "$FL_SCRATCH/rank0" "$status"
  return "$status"
}
need_nccl() { [ "$FL_DEVICE" != emulated ] || cannot "the emulated device has no NCCL"; }

step_nccl_conformance() {
  need_nccl
  NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=2 gtest "$claims" 'GpuConformance*'
}

# over_nccl <n> <scenario> <sweep>: one job of n processes goes through the rows.
over_nccl() {
  local n=$1 name=$2 sweep=$3
  ranks "$n" "$program" run "$scenarios/$name.json" --backend nccl --set "sweep=$sweep" --report "$FL_SCRATCH/nccl.json"
  if ! end_of_ranks; then
    keep "$FL_SCRATCH/nccl.json"
    wrong "$name: $(verdict "$FL_SCRATCH/rank0")"
  fi
  rows_seen=$((rows_seen + $(digests "$FL_SCRATCH/nccl.json" | wc -l)))
  say_seen "$rows_seen rows with the golden's bits, up to $name"
}
# A real device goes through more rows than one whose threads share a few cores.
sweeps_over_nccl() {
  need_nccl
  local n=$1 z=deepspeed.zero_optimization ranks mixed='[0,3]' stages='[0,1,2,3]' both='[false,true]'
  local pipeline=$((n < 4 ? n : 4)) sizes='[1,2,5]' schedules='["1f1b","zero_bubble"]' devices='["cpu","nvme"]'
  local kept='[{"every":1},{"layers":[1,3]}]' bf16='{"deepspeed.bf16.enabled":[true]' fp16='{"deepspeed.fp16.enabled":[true]'
  real || { mixed='[3]' stages='[2]' both='[true]' sizes='[2]' schedules='["1f1b"]' devices='["cpu"]' kept='[{"every":1}]'; }
  ranks="\"world.ranks_per_node\":[$n]"
  rows_seen=0
  over_nccl "$n" zero_equivalence "[{\"$z.stage\":$stages,$ranks,\"deepspeed.train_micro_batch_size_per_gpu\":$sizes,\"$z.overlap_comm\":$both}]"
  over_nccl "$n" equivalence/precision_equivalence "[$bf16,\"$z.stage\":$stages,$ranks},$fp16,\"$z.stage\":$stages,$ranks}]"
  over_nccl "$n" equivalence/offload_equivalence "[{\"$z.offload_optimizer.device\":$devices,\"$z.stage\":$mixed,$ranks}]"
  over_nccl "$n" equivalence/pipeline_equivalence "[{\"world.schedule\":$schedules,\"world.pipeline\":[$pipeline],\"world.replicas\":[$((n / pipeline))],\"$z.stage\":$mixed}]"
  over_nccl "$n" equivalence/tensor_equivalence "[{\"world.tensor\":[$n],$ranks,\"world.sequence_parallel\":$both,\"$z.stage\":$mixed}]"
  over_nccl "$n" equivalence/dropout_equivalence "[{\"deepspeed.bf16.enabled\":$both,\"$z.stage\":$mixed,$ranks}]"
  over_nccl "$n" equivalence/checkpointing_equivalence "[{\"checkpointing\":$kept,\"$z.stage\":$mixed,$ranks}]"
}
step_nccl_2() { sweeps_over_nccl 2; }
step_nccl_4() { sweeps_over_nccl 4; }
step_nccl_8() { sweeps_over_nccl 8; }

undisturbed='checks=["golden:bitwise","ranks_agree","faults_fired",{"evicted":[]}]'
fault() { # <scenario> <sets...>
  need_nccl
  local name=$1 set sets=()
  shift
  for set in "$@"; do sets+=(--set "$set"); done
  ranks 4 "$program" run "$scenarios/faults/$name.json" --backend nccl --set 'sweep=[]' "${sets[@]}" --report "$FL_SCRATCH/fault.json"
  if ! end_of_ranks; then
    keep "$FL_SCRATCH/fault.json"
    wrong "$name: $(verdict "$FL_SCRATCH/rank0")"
  fi
  say_seen "$(verdict "$FL_SCRATCH/rank0")"
}
step_watchdog() {
  fault f01_late recovery.watchdog_s=5 faults.0.delay_s=9 "$undisturbed"
  grep -q 'timeout in' "$FL_SCRATCH/rank0" || wrong "the watchdog did not fire"
}
step_device_lost() { fault f27_device_error recovery.watchdog_s=5 recovery.agree_s=4; }

job() { # <file> <policy>
  cat >"$1" <<JOB
{ "name": "job", "why": "Long enough to be killed in the middle.",
  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
  "data": { "synthetic": true },
  "world": { "nodes": 1, "ranks_per_node": 3 },
  "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 1 } },
  "steps": 30,
  "batch_arithmetic": "by_samples",
  "recovery": { "policy": "$2", "watchdog_s": 5, "agree_s": 5 },
  "checkpoint": { "path": "checkpoints", "every_steps": 3 },
  "checks": [ "golden:bitwise", "one_history" ] }
JOB
}
step_kill() {
  need_nccl
  local folder=$FL_SCRATCH/kill turns=0
  mkdir -p -- "$folder"
  job "$folder/job.json" rebuild_and_redo
  ranks 3 "$program" run "$folder/job.json" --backend nccl --out "$folder/out" --report "$folder/kill.json" \
    --set 'checks=["golden:bitwise","one_history",{"evicted":[2]}]'
  until compgen -G "$folder/out/checkpoints/*/manifest.json" >/dev/null; do
    kill -0 "${pids[0]}" 2>/dev/null && [ $((turns += 1)) -lt 4000 ] || break
    sleep 0.01
  done
  kill -KILL "${pids[2]}" 2>/dev/null
  if ! end_of_ranks; then
    keep "$folder/kill.json"
    wrong "$(verdict "$FL_SCRATCH/rank0")"
  fi
  grep -q 'evicted rank 2; 2 survivors' "$FL_SCRATCH/rank0" || wrong "nobody was evicted"
  say_seen "$(verdict "$FL_SCRATCH/rank0")"
}
step_launch() {
  need_nccl
  local folder=$FL_SCRATCH/launch
  mkdir -p -- "$folder"
  job "$folder/job.json" restart_from_checkpoint
  NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=3 "$program" launch --no-mpi --backend nccl --max-restarts 3 --out "$folder/out" \
    --report "$folder/launch.json" --set 'faults=[{"kind":"rank_crash","rank":1,"step":20,"op":"reduce_scatter"}]' \
    "$folder/job.json" 2>&1 | tee "$FL_SCRATCH/run"
  local status=${PIPESTATUS[0]}
  cannot_if_absent "$FL_SCRATCH/run" "$status"
  if [ "$status" != 0 ]; then keep "$folder/launch.json"; wrong "$(verdict "$FL_SCRATCH/run")"; fi
  grep -q 'start 2 of' "$FL_SCRATCH/run" || wrong "no second job was needed: the crash did not fire"
  say_seen "$(verdict "$FL_SCRATCH/run")"
}

step_fast() {
  [ "$FL_DEVICE" != emulated ] || cannot "the emulated device has no cuBLASLt"
  local name=equivalence/fast_within_bounds more=() products=""
  real || more=(--row 4)
  "$program" run "$scenarios/$name.json" --device "$flag" ${more[@]+"${more[@]}"} --report "$FL_SCRATCH/fast.json" 2>&1 | tee "$FL_SCRATCH/run"
  local status=${PIPESTATUS[0]}
  cannot_if_absent "$FL_SCRATCH/run" "$status"
  [ "$status" = 0 ] || { keep "$FL_SCRATCH/fast.json"; wrong "products: $(verdict "$FL_SCRATCH/run")"; }
  products="products: $(verdict "$FL_SCRATCH/run" | cut -c 1-80)"
  say_seen "$products"
  ranks 4 "$program" run "$scenarios/$name.json" --backend nccl --set 'sweep=[{"deepspeed.zero_optimization.stage":[0,2]}]' \
    --report "$FL_SCRATCH/fast.json"
  if ! end_of_ranks; then
    keep "$FL_SCRATCH/fast.json"
    wrong "sums: $(verdict "$FL_SCRATCH/rank0")"
  fi
  say_seen "$products; sums: $(verdict "$FL_SCRATCH/rank0" | cut -c 1-80)"
}

# ---- the device itself -----------------------------------------------------------------------------------------------

step_sanitizer() {
  real || cannot "it is for kernels on a GPU"
  local tool text=$FL_SCRATCH/sanitizer
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || cannot "there is no compute-sanitizer here"
  "$tool" --error-exitcode 9 "$kernels" --gtest_filter='*DeviceKernelsGpu*' 2>&1 | tee "$text"
  [ "${PIPESTATUS[0]}" = 0 ] || wrong "$(grep -E 'ERROR SUMMARY|FAILED' "$text" | tail -n 1)"
  grep -q '^\[       OK \]' "$text" || cannot "$(grep -A1 ': Skipped$' "$text" | sed -n 2p)"
  say_seen "$(grep 'ERROR SUMMARY' "$text" | tail -n 1)"
}

step_bench() {
  local one twenty
  case $FL_DEVICE in
    standin) cannot "CPU threads have no figures" ;;
    emulated) gtest "$kernels" 'DeviceBench.*' ;;
    cuda) gtest "$kernels" 'DeviceBenchGpu.*' ;;
  esac
  grep '^bench ' "$FL_SCRATCH/gtest" >>"$FL_OUT/figures.txt"
  real || { say_seen "$(grep -c '^bench ' "$FL_SCRATCH/gtest") figures of the emulated device, which mean nothing"; return; }
  wall() { "$program" run "$top/bench/device_step.json" --device cuda --set steps="$1" --report "$FL_SCRATCH/step.json" >&2 &&
    sed -n 's/^  "wall_s": *\([0-9.e+-]*\).*/\1/p' "$FL_SCRATCH/step.json"; }
  one=$(wall 1) && twenty=$(wall 21) || wrong "bench/device_step.json does not run"
  awk -v a="$one" -v b="$twenty" 'BEGIN { printf "bench training_step: %.3f ms\n", (b - a) / 20 * 1e3 }' | tee -a "$FL_OUT/figures.txt"
  say_seen "$(grep -E 'gemm|copy' "$FL_OUT/figures.txt" | tr '\n' ';' | cut -c 1-150)"
}

step_torch() {
  real || cannot "PyTorch is compared on a GPU only"
  python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || cannot "python3 has no PyTorch with CUDA"
  python3 "$top/bench/device_torch.py" | tee -a "$FL_OUT/figures.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || wrong "bench/device_torch.py failed"
  say_seen "$(grep -c '^torch ' "$FL_OUT/figures.txt") figures"
}

step_floats() {
  case $FL_DEVICE in
    cuda) gtest "$kernels" '*UnaryGpu*' ;;
    emulated) gtest "$kernels" 'UnarySlow*' ;;
    standin) cannot "all floats on CPU threads take an hour" ;;
  esac
}

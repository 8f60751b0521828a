#!/bin/sh
# Starts my_seeksim on three processes that meet over pipes: once for each line at the end.
#   over_pipes.sh PROGRAM
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

over_pipes() { # <arguments of run>
  rm -rf "$folder/pipes"
  mkdir "$folder/pipes"
  for rank in 1 2; do
    RANK=$rank WORLD_SIZE=3 PIPES=$folder/pipes "$program" run "$@" --backend pipes >"$folder/$rank" 2>&1 &
  done
  RANK=0 WORLD_SIZE=3 PIPES=$folder/pipes "$program" run "$@" --backend pipes >"$folder/0" 2>&1
  status=$?
  wait
  [ "$status" = 0 ] || { cat "$folder/0" "$folder/1" "$folder/2"; exit 1; }
  tail -n 1 "$folder/0"
}

over_pipes zero_equivalence --set 'sweep=[{"deepspeed.zero_optimization.stage":[0,1,2,3],"world.ranks_per_node":[3]}]'
over_pipes baseline --set world.nodes=1 --set world.ranks_per_node=3 --set steps=4 --set batch_arithmetic=by_samples \
  --set recovery.watchdog_s=20 --set 'faults=[{"kind":"rank_crash","rank":2,"step":2,"op":"reduce_scatter"}]' \
  --set 'checks=["golden:bitwise","one_history",{"evicted":[2]}]'

#!/bin/sh
# Starts my_seeksim on processes that meet over pipes: once for each command at the end.
#   over_pipes.sh PROGRAM
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

over_pipes() { # <processes> <arguments of run>
  size=$1
  shift
  rm -rf "$folder/pipes"
  mkdir "$folder/pipes"
  rank=$size
  while [ "$((rank -= 1))" -gt 0 ]; do
    RANK=$rank WORLD_SIZE=$size PIPES=$folder/pipes "$program" run "$@" --backend pipes >"$folder/$rank" 2>&1 &
  done
  RANK=0 WORLD_SIZE=$size PIPES=$folder/pipes "$program" run "$@" --backend pipes >"$folder/0" 2>&1
  status=$?
  wait
  [ "$status" = 0 ] || { tail -n 100 "$folder"/[0-9]; exit 1; }
  tail -n 1 "$folder/0"
}

over_pipes 3 zero_equivalence \
  --set 'sweep=[{"deepspeed.zero_optimization.stage":[0,1,2,3],"world.ranks_per_node":[3]}]'
# A rank that is late: the watchdog fires, all abandon the step and make it again.
over_pipes 4 f01_late --set 'sweep=[]' --set recovery.watchdog_s=2 --set faults.0.delay_s=4 \
  --set 'checks=["golden:bitwise","ranks_agree","faults_fired",{"evicted":[]}]'

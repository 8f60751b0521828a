#!/bin/bash
# tests/mutation/nightly.sh SCRATCH BUILD: draws 200 mutants by the commit, so that each night has others, and judges
# them for three hours at most. BUILD is a configured build of the tree, of the preset dev: one that joins no sources.
#
# Exit status: 0; 1 where more than a fifth survive, for then the judge sees less than it did; 5 without libclang.
set -e -u -o pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.."
scratch=$1 build=$2
mkdir -p -- "$scratch"
python3 -m venv "$scratch/venv" && "$scratch/venv/bin/pip" install --quiet libclang || {
  echo "no mutants: libclang cannot be had (pip install libclang)"
  exit 5
}
python=$scratch/venv/bin/python
seed=$((16#$(git rev-parse --short=7 HEAD)))
"$python" tests/mutation/instrument.py "$scratch/tree" --build "$build" --mutants 200 --seed "$seed" --unit
"$python" tests/mutation/judge.py "$scratch/tree" --results "$scratch/results.jsonl" --seconds 10800
"$python" tests/mutation/report.py --results "$scratch/results.jsonl" --unread-max 20

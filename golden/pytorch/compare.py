#!/usr/bin/env python3
"""Holds what a run of seeksim saved against a PyTorch reference. Exit 0 within the tolerances, 1 outside, 2 unusable input.

  compare.py REFERENCE_DIR [--report report.json] [--gradients grads.safetensors] [--final final.safetensors]
             [--loss 2e-6] [--gradient 1e-5] [--weight 5e-6]

  --report     loss[], grad_norm[] and lr[], one entry a step     relative difference of each entry, at most --loss
  --gradients  of step 1, before clipping                         difference over the tensor's largest value, --gradient
  --final      weights after the last step                        absolute difference, at most --weight
  (REFERENCE_DIR itself has the right form too: --report DIR/expected.json --final DIR/final.safetensors ...)

Why these numbers. fp32 rounds each operation by up to 6e-8, sums of some hundred terms and ten steps multiply that by ten or
so. Measured: PyTorch's own float32 run differs from its float64 run by 1.3e-7 in the loss, 3.5e-7 in the norm, 9e-7 in
gradients, 4e-7 in weights. The tolerances are five to ten times as wide, since another order of summation is no error,
and narrow enough that every mistake in mutants.py falls outside, down to a clipping limit that is 1 % too high.

One exception: the bias of the attention keys (the middle third of c_attn.bias). It shifts all scores of a query alike, and
softmax does not see that: its true gradient is zero. A float32 run holds rounding noise there, which Adam, dividing
by its size, turns into steps of up to a whole learning rate. These entries may differ by twice the sum of all
learning rates; they change neither the loss nor any other weight.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file


def unusable(message):
    print(message, file=sys.stderr)
    sys.exit(2)


def tensors(path):
    try:
        return {name.removeprefix("transformer."): value.astype(np.float64) for name, value in load_file(path).items()}
    except Exception as error:  # a missing, truncated or foreign file: one line, not a trace
        unusable(f"{path}: {error}")


class Verdict:
    def __init__(self):
        self.failed, self.compared = 0, 0

    def line(self, name, worst, limit, note):
        bad = not worst <= limit  # a NaN fails
        self.failed += bad
        self.compared += 1
        print(f"{'FAIL' if bad else 'ok  '} {name:28} {worst:9.2e} of {limit:.0e}  {note}")


def compare_series(verdict, expected, actual, limit):
    for key in ("loss", "grad_norm", "lr"):
        if key not in actual:
            unusable(f'the report has no "{key}"')
        want, got = expected[key], actual[key]
        if len(want) != len(got):
            unusable(f'"{key}" has {len(got)} steps, the reference has {len(want)}')
        relative = [abs((math.nan if b is None else b) - a) / abs(a) for a, b in zip(want, got)]
        step = int(np.argmax(np.nan_to_num(relative, nan=np.inf)))
        verdict.line(key, relative[step], limit, f"relative, worst at step {step + 1}: {got[step]!r} for {want[step]!r}")


def compare_tensors(verdict, kind, want, got, limit, key_bias_limit):
    """key_bias_limit: None compares the difference with the tensor's largest value; a number, with one."""
    missing, unknown = sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys())
    if unknown == ["lm_head.weight"] and np.array_equal(got["lm_head.weight"], got.get("wte.weight")):
        unknown = []  # some writers store a tied head twice
    if missing or unknown:
        unusable(f"{kind}: missing {missing}, unknown {unknown}")
    for name, reference in want.items():
        if reference.shape != got[name].shape:
            unusable(f"{kind} {name}: shape {got[name].shape}, the reference has {reference.shape}")
        difference = np.abs(got[name] - reference)
        if key_bias_limit is not None and name.endswith("attn.c_attn.bias"):
            third = len(difference) // 3
            worst = difference[third : 2 * third].max()
            verdict.line(f"{name} (keys)", worst, key_bias_limit, f"{kind}, absolute, true gradient is zero")
            difference[third : 2 * third] = 0
        scale = np.abs(reference).max() if key_bias_limit is None else 1.0
        at = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), difference.shape)
        rms = math.sqrt(np.mean(difference**2))
        note = f"{kind}, {'of the largest' if key_bias_limit is None else 'absolute'}, worst at {list(map(int, at))}, rms {rms:.1e}"
        verdict.line(name, difference[at] / scale, limit, note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=pathlib.Path)
    for name in ("--report", "--gradients", "--final"):
        parser.add_argument(name)
    for name, default in (("--loss", 2e-6), ("--gradient", 1e-5), ("--weight", 5e-6)):
        parser.add_argument(name, type=float, default=default)
    arguments = parser.parse_args()

    verdict = Verdict()
    try:
        expected = json.loads((arguments.reference / "expected.json").read_text())
        actual = json.loads(pathlib.Path(arguments.report).read_text()) if arguments.report else None
    except (OSError, ValueError) as error:
        unusable(error)
    if actual is not None:
        compare_series(verdict, expected, actual, arguments.loss)
    if arguments.gradients:
        want = tensors(arguments.reference / "grads_step1.safetensors")
        compare_tensors(verdict, "gradient", want, tensors(arguments.gradients), arguments.gradient, None)
    if arguments.final:
        want = tensors(arguments.reference / "final.safetensors")
        key_bias_limit = 2 * sum(expected["lr"])
        compare_tensors(verdict, "weight", want, tensors(arguments.final), arguments.weight, key_bias_limit)
    if verdict.compared == 0:
        unusable("nothing to compare: give --report, --gradients or --final")
    print(f"{verdict.compared - verdict.failed} of {verdict.compared} within tolerance")
    return 1 if verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())

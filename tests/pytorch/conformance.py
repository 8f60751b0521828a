#!/usr/bin/env python3
"""What ranks under seeksim do, with real torch: PYTHON tests/pytorch/conformance.py [CLAIM ...], without any: all.

Run by `./seeksim test torch`. Each line is one claim; the exit status says whether all hold.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Set, Tuple

import ranks

HERE = pathlib.Path(__file__).resolve().parent
TOY = str(HERE / "scripts" / "toy.py")
LAYOUTS = str(HERE.parents[1] / "examples" / "pytorch" / "layouts.py")
BUILT: Dict[str, Any] = {}
WORK = pathlib.Path()


def start(name: str, script: List[str], n: int, **plan: Any) -> List[ranks.Rank]:
    return ranks.run(BUILT, WORK / name, script, n, **plan)


def clean(name: str, script: List[str], n: int, **plan: Any) -> List[ranks.Rank]:
    """A run that has to end well."""
    all_ranks = start(name, script, n, **plan)
    for r, rank in enumerate(all_ranks):
        assert rank.status == 0, f"rank {r} ended with {rank.status}: {rank.output[-800:]}"
    return all_ranks


@functools.lru_cache(None)
def toy(mode: str, n: int, backend: str = "seeksim") -> Tuple[ranks.Rank, ...]:
    return tuple(clean(f"{mode}-{n}-{backend}", [TOY, "--mode", mode], n, backend=backend))


def used(all_ranks: Any) -> Dict[Any, Set[int]]:
    """Hashes of each weight that forward passes used, by step and name, over all ranks."""
    found: Dict[Any, Set[int]] = {}
    for rank in all_ranks:
        for (step, _, name), value in rank.weights.items():
            found.setdefault((step, name), set()).add(value)
    return found


def differing(a: Any, b: Any) -> List[Any]:
    """Weights and losses that are not the same in two runs, by step; both have to have recorded the same ones."""
    left, right = used(a), used(b)
    assert left.keys() == right.keys() and len(left) >= 60, (len(left), len(right))
    weights = sorted(key for key in left if left[key] != right[key])
    losses = []
    for r, (one, other) in enumerate(zip(a, b)):
        losses += [(x[0], f"loss of rank {r}") for x, y in zip(one.losses, other.losses) if x[2] != y[2]]
    assert all(len(rank.losses) == 6 for rank in (*a, *b))
    return sorted(weights + losses)


def operations() -> str:
    said = []
    for n in (2, 3, 4):
        all_ranks = clean(f"operations-{n}", [str(HERE / "scripts" / "operations.py")], n)
        line = next(line for line in all_ranks[0].output.splitlines() if line.endswith("are right"))
        said.append(f"{line} on {n} ranks")
        calls = all_ranks[0].calls
        assert {op for op, *_ in calls} == set(ranks.OPS), {op for op, *_ in calls}
        assert all(state == "finished" for _, _, state, _, _ in calls)
    return "; ".join(said)


def above_another(n: int, backend: str, *arguments: str) -> str:
    """All operations that the backend below seeksim's has."""
    script = [str(HERE / "scripts" / "operations.py"), *arguments]
    all_ranks = clean(f"above-{backend}-{n}", script, n, backend=backend, timeout_s=60)
    assert all(state == "finished" for _, _, state, _, _ in all_ranks[0].calls)
    return next(line for line in all_ranks[0].output.splitlines() if line.endswith("are right"))


def above_gloo() -> str:
    return "; ".join(above_another(n, "gathered", "ragged", "all_to_all") for n in (2, 3, 4))


def above_itself() -> str:
    if tuple(int(part) for part in BUILT["torch"].split(".")[:2]) < (2, 15):
        return "left out: before torch 2.15 seeksim's backend has another name"
    return "; ".join(above_another(n, "seeksim", "itself") for n in (2, 3))


def equal(n: int) -> str:
    ddp, fsdp2 = toy("ddp", n), toy("fsdp2", n)
    for all_ranks in (ddp, fsdp2):
        assert all(len(values) == 1 for values in used(all_ranks).values()), "ranks used different weights"
    assert not (other := differing(ddp, fsdp2)), other[:5]
    return f"{len(used(ddp))} weights and {6 * n} losses"


def gloo_differs() -> str:
    other = differing(toy("ddp", 4, "own"), toy("fsdp2", 4, "own"))
    assert other, "gloo's sums agree: this test proves nothing"
    return f"{len(other)} values differ, first in step {other[0][0]}"


def never(mode: str, op: str) -> str:
    rule = {"kind": "collective_timeout", "mode": "never", "rank": 1, "step": 2, "op": op}
    began = time.monotonic()
    all_ranks = start(f"never-{mode}", [TOY, "--mode", mode, "--batch", "6"], 3, timeout_s=4, faults=[rule])
    took = time.monotonic() - began
    assert all_ranks[1].status is None and all_ranks[1].faults == ["never joins"], all_ranks[1]
    for r in (0, 2):
        assert all_ranks[r].status == 1, all_ranks[r].status
        blame, rank, text = all_ranks[r].verdicts[0]
        assert (blame, rank) == ("did_not_join", 1), (blame, rank)
        assert text.startswith(f"seeksim: {op} #"), text
        assert "(step 2): rank 1 did not join; 2 of 3 ranks waited 4" in text, text
        assert "DistBackendError: " + text.splitlines()[0] in all_ranks[r].output
    stack = (WORK / f"never-{mode}" / "stack-1.txt").read_text()
    assert "backward" in stack and "toy.py" in stack, stack
    return f"{text.splitlines()[0][9:]} ({took:.0f} s in all)"


def flip(mode: str) -> str:
    rule = {"kind": "bit_flip", "rank": 1, "step": 2, "element": 5, "bit": 28}
    all_ranks = clean(f"flip-{mode}", [TOY, "--mode", mode], 2, faults=[rule])
    assert len(all_ranks[1].faults) == 1 and not all_ranks[0].faults, all_ranks[1].faults
    assert all_ranks[1].faults[0].startswith("bit_flip: element 5 of "), all_ranks[1].faults
    other = differing(toy(mode, 2), all_ranks)
    assert other and other[0][0] == 3, other[:3]
    gradients = [
        {key for key in rank.gradients if rank.gradients[key] != now.gradients[key]}
        for rank, now in zip(toy(mode, 2), all_ranks)
    ]
    assert min(key[0] for found in gradients for key in found) == 2, "the gradient of the step itself is other"
    return f"{all_ranks[1].faults[0]}; first other weight: step {other[0][0]}, {other[0][1]}"


def crash() -> str:
    rule = {"kind": "rank_crash", "rank": 1, "step": 1, "phase": "backward"}
    all_ranks = start("crash", [TOY], 2, timeout_s=60, faults=[rule])
    assert all_ranks[1].status == -9 and all_ranks[1].faults == ["ends its process"], all_ranks[1].status
    assert all_ranks[0].verdicts[0][:2] == ("is_dead", 1), all_ranks[0].verdicts
    return all_ranks[0].verdicts[0][2].splitlines()[0][9:]


def other_faults() -> str:
    there = {"rank": 1, "step": 1}
    drop = start("drop", [TOY], 2, timeout_s=3, faults=[{"kind": "message_drop", **there}])
    assert drop[0].verdicts[0][:2] == ("contribution_lost", 1), drop[0].verdicts
    half = {"kind": "collective_mismatch", "mode": "count", **there}
    other = start("mismatch", [TOY, "--batch", "6"], 3, timeout_s=20, faults=[half])
    assert all(rank.verdicts[0][:2] == ("disagrees", 1) for rank in other), [rank.verdicts for rank in other]
    oom = start("oom", [TOY], 2, timeout_s=3, faults=[{"kind": "oom", **there}])
    assert "OutOfMemoryError: seeksim: injected" in oom[1].output, oom[1].output[-400:]
    comes_late = {"kind": "collective_timeout", "mode": "late", "delay_s": 1, **there}
    late = clean("late", [TOY], 2, faults=[comes_late])
    assert not differing(toy("ddp", 2), late)
    nan = clean("nan", [TOY], 2, faults=[{"kind": "nan_inject", **there}])
    assert len(nan[1].faults) == 1 and differing(toy("ddp", 2), nan)[0][0] == 2
    return "lost, mismatched, out of memory, late (harmless), NaN"


def memory() -> str:
    """Gloo and NCCL carry memory as it lies: a tensor that lies otherwise on one rank is told, and never mixed up."""
    script = str(HERE / "scripts" / "memory.py")
    clean("memory-alike", [script, "alike"], 2)
    refused = clean("memory-refused", [script, "refused"], 2)[0].output
    said = next(line for line in refused.splitlines() if line.endswith("are refused"))
    apart = start("memory-apart", [script, "apart"], 2, timeout_s=20)
    for one in apart:
        blame, _, text = one.verdicts[0]
        assert one.status == 1 and blame == "disagrees", (one.status, blame)
        assert "in memory by dimensions 1 0: rank 1" in text, text
    return f"{said}; of {apart[0].verdicts[0][2].splitlines()[-1].strip()}"


def bad_input() -> str:
    said = []
    plans: List[Dict[str, Any]] = [{"colour": 1}, {"timeout_s": -1}, {"module": "/no/such.so"}]
    plans += [{"faults": [rule]} for rule in ({"kind": "colour"}, {"kind": "pause", "delay_s": 1, "rank": 7})]
    for plan in plans:
        (rank,) = start("bad", [TOY], 1, **plan)
        lines = rank.output.splitlines()
        assert rank.status == 2 and len(lines) == 1 and lines[0].startswith("seeksim: "), rank
        assert (WORK / "bad" / "refused-0.txt").read_text() == lines[0] + "\n"
        said.append(lines[0])
    return f"{len(set(said))} refusals of one line"


def untouched() -> str:
    """Without the command's environment, and in children of a rank, the package does nothing."""
    code = "import torch, torch.distributed as d; print('seeksim_torch.start' in __import__('sys').modules)"
    env = dict(os.environ, PYTHONPATH=BUILT["python_path"])
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert said == "False\n", said
    env.update(SEEKSIM_TORCH_DIR=str(WORK / "ddp-2-seeksim"), RANK="0", WORLD_SIZE="2")
    toy("ddp", 2)
    before = (WORK / "ddp-2-seeksim" / "rank-0.rec").read_bytes()
    subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert (WORK / "ddp-2-seeksim" / "rank-0.rec").read_bytes() == before
    return "no trace"


@functools.lru_cache(None)
def layout(name: str, accumulation: int = 1) -> Tuple[ranks.Rank, ...]:
    options = ["--layout", name, "--accumulation", str(accumulation)]
    return tuple(clean(f"{name}-{accumulation}", [LAYOUTS, *options], 2))


def has_deepspeed() -> bool:
    return subprocess.run([sys.executable, "-c", "import deepspeed"], capture_output=True, check=False).returncode == 0


def with_fsdp2(claim: Callable[[], str]) -> Callable[[], str]:
    """The claim, where this torch's FSDP2 runs on CPUs: in 2.6 it takes events of a CPU's stream."""

    def held() -> str:
        import torch

        if not hasattr(torch.cpu.Stream, "record_event"):
            return f"skipped: FSDP2 of torch {torch.__version__} does not run on CPUs"
        return claim()

    return held


def deepspeed() -> str:
    """Steps, weights and losses of every ZeRO stage, as its engine makes them."""
    if not has_deepspeed():
        return "skipped: there is no DeepSpeed"
    plain = layout("ddp")
    for stage in range(4):
        zero = layout(f"zero{stage}")
        left, right = used(plain), used(zero)
        assert left == right and len(left) == 87, [key for key in left if left[key] != right.get(key)][:3]
        for one, other in zip(plain, zero):
            assert one.losses == other.losses and len(one.losses) == 3, (stage, one.losses, other.losses)
        names = {name for rank in zero for _, _, name in rank.gradients}
        assert stage == 3 or "head.weight" in names, (stage, names)
    return "ZeRO 0, 1, 2 and 3 use the bits of DDP in 3 steps; flat gradients have their parameters' names"


def deepspeed_accumulates() -> str:
    """ZeRO 1 sums over ranks once a step, as DDP does; ZeRO 2 after each micro-batch, which is another order."""
    if not has_deepspeed():
        return "skipped: there is no DeepSpeed"
    plain, one, two = used(layout("ddp", 2)), used(layout("zero1", 2)), used(layout("zero2", 2))
    assert plain == one, [key for key in plain if plain[key] != one.get(key)][:3]
    assert plain.keys() == two.keys()
    other = [key for key in plain if plain[key] != two[key]]
    assert other and all(step > 0 for step, _ in other), other[:3]
    assert [loss[:2] for loss in layout("zero1", 2)[0].losses] == [(s, m) for s in range(3) for m in range(2)]
    return f"ZeRO 1 has DDP's bits, ZeRO 2 {len(other)} other weights of {len(plain)}"


def other_orders() -> str:
    """Other orders of sums train something else in the last bits, from the first sum on; on two ranks only parts do."""
    plain = used(layout("ddp"))
    for order in ("rotated", "two_parts", "three_parts"):
        other = used(clean(f"ddp-{order}", [LAYOUTS, "--layout", "ddp"], 2, sums=order))
        assert plain.keys() == other.keys()
        steps = {step for step, name in plain if plain[step, name] != other[step, name]}
        assert steps == (set() if order == "rotated" else {1, 2}), (order, steps)
    return "two_parts and three_parts move weights from step 1 on; two ranks rotated are the same"


def nothing_left() -> str:
    """Of all ranks above, those that were killed included. Their memory has no name, so it goes with them."""
    mark, left = str(WORK).encode(), []
    for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                left.append(environment.parent.name)
        except OSError:
            pass  # it has just ended, or is another user's
    assert not left, left
    return "no process of a run stays behind"


CLAIMS: Dict[str, Callable[[], str]] = {
    "operations": operations,
    "above_gloo": above_gloo,
    "above_itself": above_itself,
    "ddp_equals_fsdp2_on_2": with_fsdp2(lambda: equal(2)),
    "ddp_equals_fsdp2_on_4": with_fsdp2(lambda: equal(4)),
    "gloo_on_4_differs": with_fsdp2(gloo_differs),
    "never_joins_ddp": lambda: never("ddp", "all_reduce"),
    "never_joins_fsdp2": with_fsdp2(lambda: never("fsdp2", "reduce_scatter")),
    "bit_flip_ddp": lambda: flip("ddp"),
    "bit_flip_fsdp2": with_fsdp2(lambda: flip("fsdp2")),
    "deepspeed": deepspeed,
    "deepspeed_accumulates": deepspeed_accumulates,
    "other_orders": other_orders,
    "crash": crash,
    "other_faults": other_faults,
    "memory": memory,
    "bad_input": bad_input,
    "untouched": untouched,
    "nothing_left": nothing_left,
}


def main() -> int:
    global BUILT, WORK
    names = sys.argv[1:] or list(CLAIMS)
    if unknown := [name for name in names if name not in CLAIMS]:
        print(f"there is no claim {unknown[0]}: {', '.join(CLAIMS)}", file=sys.stderr)
        return 2
    env = dict(os.environ, PYTHONPATH=str(HERE.parents[1] / "pytorch" / "python"))
    build = [sys.executable, "-m", "seeksim_torch.build"]
    built = subprocess.run(build, env=env, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        print(built.stderr, file=sys.stderr, end="")
        return built.returncode
    BUILT = json.loads(built.stdout.splitlines()[-1])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="seeksim-torch-") as work:
        WORK = pathlib.Path(work)
        for name in names:
            try:
                print(f"  ok    {name}: {CLAIMS[name]()}", flush=True)
            except AssertionError as why:
                failed += 1
                print(f"  FAIL  {name}: {why}", flush=True)
    print(f"{'FAIL' if failed else 'PASS'}: {len(names) - failed} of {len(names)} claims hold, torch {BUILT['torch']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What a DDP step of 10 M parameters costs under seeksim, with everything recorded, beside torchrun with gloo; and how
long a second start with --warm takes. In turn, round after round; the ratio of a round is of runs beside each other.

    PYTHON bench/torch_step.py build/release/seeksim [ROUNDS [BACKEND]]     with the Python that has torch

BACKEND: seeksim, or forwarded, gathered: gloo's own transport below it.
"""

import pathlib
import re
import statistics
import subprocess
import sys
import time

RANKS, STEPS, BATCH, CONTEXT, WIDTH, LAYERS, VOCABULARY = 2, 12, 4, 128, 384, 5, 2048


def train():
    """A rank: prints what its steps took, the median of the clock's and the processors' milliseconds."""
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, LAYERS), nn.Linear(WIDTH, VOCABULARY)
    )
    count = sum(p.numel() for p in model.parameters())
    model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times, used = [], []
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
        began, began_used = time.perf_counter(), time.process_time()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
        used.append(time.process_time() - began_used)
    if dist.get_rank() == 0:
        wall, processor = (statistics.median(column[2:]) * 1e3 for column in (times, used))
        print(f"step of {count} parameters: {wall:.1f} ms, processor {processor:.1f} ms", flush=True)
    dist.destroy_process_group()


def run(command):
    """What the steps of a command's rank 0 took: milliseconds of the clock and of the processors."""
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"parameters: ([\d.]+) ms, processor ([\d.]+) ms", out)
    if found is None:
        raise SystemExit(f"{' '.join(command)} printed no time:\n{out}")
    return [float(number) for number in found.groups()]


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    here = str(pathlib.Path(__file__).resolve())
    example = str(pathlib.Path(here).parents[1] / "examples" / "pytorch" / "ddp.py")
    backend = sys.argv[3] if len(sys.argv) > 3 else "seeksim"
    under = [program, "torch", "run", "--python", sys.executable, "--np", str(RANKS), "--backend", backend]
    gloo = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), here, "rank"]
    ratios = []
    for _ in range(rounds):
        theirs, ours = run(gloo), run([*under, "--", here, "rank"])
        ratios.append([mine / other for mine, other in zip(ours, theirs)])
        print(f"seeksim {ours[0]:.1f} ms (processor {ours[1]:.1f}), gloo {theirs[0]:.1f} ms ({theirs[1]:.1f})", flush=True)
    for name, column in zip(("wall", "processor"), zip(*ratios)):
        print(f"{name}: {statistics.median(column):.3f} of gloo's ({min(column):.3f} to {max(column):.3f})", flush=True)
    for number in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run([*under, "--warm", "30", "--", example], check=True, capture_output=True)
        print(f"start {number} to end of ddp.py with --warm: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    train() if sys.argv[1:] == ["rank"] else main()

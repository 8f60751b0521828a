"""Gradients of torch's pipelines, against those of the whole model: torchrun --nproc-per-node 2 stages.py WHAT SCHEDULE

WHAT: plain; frozen: the first stage requires no gradient; place: a stage passes on a parameter beside its output; tied:
the first and the last stage of a rank have one weight; calls: step() is called twice; ddp, fsdp, kept: each of two
ranks has all stages, under DDP, FSDP2, or FSDP2 with reshard_after_forward=False."""
import sys
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed import fsdp, pipelining
WHAT, PLAN = sys.argv[1:3]
STAGES = BATCHES = 4

class Stage(nn.Module):
    def __init__(self, i):
        super().__init__()
        torch.manual_seed(i)
        self.i, self.layer, self.place = i, nn.Linear(8, 8), nn.Parameter(torch.randn(8))
        if WHAT == "frozen" and i == 0:
            self.requires_grad_(False)
    def forward(self, h, other=None):
        h = (h if other is None else h + other) + self.layer(h).tanh()
        return (h, self.place + torch.zeros_like(h)) if WHAT == "place" and self.i < STAGES - 1 else h
dist.init_process_group("gloo")
rank, ddp = dist.get_rank(), WHAT in ("ddp", "fsdp", "kept")
STAGES = 2 if ddp else STAGES
groups = [dist.new_group([i]) for i in range(2)]
own = [0, 1] if ddp else [rank, rank + 2] if "Interleaved" in PLAN else [rank, STAGES - 1 - rank]
whole, parts = [Stage(i) for i in range(STAGES)], {i: Stage(i) for i in own}
for all_of_it in [a for a in (dict(enumerate(whole)), parts) if WHAT == "tied" and 0 in a]:
    all_of_it[STAGES - 1].layer.weight = all_of_it[0].layer.weight
for unit in [unit for p in parts.values() for unit in (p.layer, p) if WHAT in ("fsdp", "kept")]:
    fsdp.fully_shard(unit, reshard_after_forward=False if WHAT == "kept" else None)
made = nn.parallel.DistributedDataParallel
nets = {i: made(p, find_unused_parameters=True) for i, p in parts.items() if WHAT == "ddp"}
at = (STAGES, torch.device("cpu"))
group = groups[rank] if ddp else None
stages = [pipelining.PipelineStage(net, i, *at, group=group) for i, net in (nets or parts).items()]
pipe = getattr(pipelining, PLAN)(stages, BATCHES, loss_fn=F.mse_loss)
for call in range(2 if WHAT == "calls" else 1):
    torch.manual_seed(100 + call + (rank if ddp else 0))
    x, y = torch.randn(2, 16, 8).unbind()
    for one, of_one in zip(x.chunk(BATCHES), y.chunk(BATCHES)):
        out = (one,)
        for stage in whole:
            out = stage(*out)
            out = out if isinstance(out, tuple) else (out,)
        (F.mse_loss(out[0], of_one) / BATCHES).backward()
    pipe.step(*((x,) if 0 in own else ()), target=y if STAGES - 1 in own else None)
for p in [p for p in nn.ModuleList(whole).parameters() if ddp and p.grad is not None]:
    dist.all_reduce(p.grad)
    p.grad /= 2
for i, part in parts.items():
    pairs = {name: (p.grad, dict(whole[i].named_parameters())[name].grad) for name, p in part.named_parameters()}
    for name, pair in pairs.items():
        pair = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in pair]
        norms = ["none" if g is None else f"{g.norm():.6f}" for g in pair]
        print(f"stage {i} of rank {rank}: {name} {norms[0]}, by hand {norms[1]}", flush=True)

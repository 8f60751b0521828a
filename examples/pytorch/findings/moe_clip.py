"""Does stage 0 clip a gradient that has experts by the norm of all of them? Two experts, one or both of them on a rank.

    torchrun --nproc-per-node 2 moe_clip.py 0 2    # stage 0, ep_size 2: by a mean of what each rank has
    torchrun --nproc-per-node 2 moe_clip.py 1 2    # right: ZeRO 1; or stage 0 with ep_size 1
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

STAGE, WAYS = int(sys.argv[1]), int(sys.argv[2])
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_clipping": 0.2,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": STAGE},
}


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    model = MoE(4, nn.Linear(4, 4), num_experts=2, ep_size=WAYS, k=1, drop_tokens=False, use_rts=False)
    gate, experts = model.deepspeed_moe.gate.wg.weight, model.deepspeed_moe.experts.deepspeed_experts
    torch.manual_seed(1)
    nn.init.uniform_(gate)
    for i, expert in enumerate(experts):
        torch.manual_seed(10 + i + (rank if WAYS == 2 else 0))  # the same two experts in each form
        for p in expert.parameters():
            nn.init.uniform_(p)
    groups = split_params_into_different_moe_groups_for_optimizer([{"params": list(model.parameters()), "name": "all"}])
    optimizer = torch.optim.SGD(groups, lr=1.0)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    watched = [gate, experts[0].weight]
    before = [p.detach().clone() for p in watched]
    torch.manual_seed(rank)
    y, balance, _ = net(torch.randn(8, 4))
    net.backward(y.square().mean() + 0.1 * balance)
    net.step()
    if rank == 0:
        moved = [(p.detach() - old).norm().item() for p, old in zip(watched, before)]
        print(f"the gate moves by {moved[0]:.6f}, the first expert by {moved[1]:.6f}")


if __name__ == "__main__":
    main()

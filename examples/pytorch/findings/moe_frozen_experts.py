"""Does ZeRO 2 load frozen weights of experts? Rank 0 has an expert of ones, rank 1 one of twos; biases are frozen.

    torchrun --nproc-per-node 2 moe_frozen_experts.py 2    # ZeRO 2: rank 1 loads rank 0's bias
    torchrun --nproc-per-node 2 moe_frozen_experts.py 1    # right: ZeRO 1, or 0
"""
import sys
import tempfile

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": int(sys.argv[1])},
}


def build(value):
    model = nn.ModuleList([MoE(4, nn.Linear(4, 4), num_experts=2, ep_size=2, k=1, drop_tokens=False, use_rts=False)])
    expert = model[0].deepspeed_moe.experts.deepspeed_experts[0]
    nn.init.constant_(expert.weight, value)
    nn.init.constant_(expert.bias, value)
    expert.bias.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = split_params_into_different_moe_groups_for_optimizer([{"params": trained, "name": "all"}])
    optimizer = torch.optim.SGD(groups, lr=0.1)
    return expert, deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]


def main():
    deepspeed.init_distributed("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    build(1.0 + dist.get_rank())[1].save_checkpoint(folder[0])
    expert, net = build(9.0)
    net.load_checkpoint(folder[0])
    for rank in range(2):
        dist.barrier()
        if rank == dist.get_rank():
            print(f"rank {rank}: weight {expert.weight.mean().item():.0f}, bias {expert.bias.mean().item():.0f}", flush=True)


if __name__ == "__main__":
    main()

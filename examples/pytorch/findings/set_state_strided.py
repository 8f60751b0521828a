"""Does set_model_state_dict() send a weight that is not contiguous? Prints how far it is from that of rank 0.

    torchrun --nproc-per-node 2 set_state_strided.py transposed    # no: rank 1 gets its numbers in other places
    torchrun --nproc-per-node 2 set_state_strided.py contiguous    # right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict


class Model(nn.Module):
    def __init__(self, transposed):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2).t() if transposed else torch.randn(2, 3))

    def forward(self, x):
        return x @ self.weight.t()


def build(seed):
    torch.manual_seed(seed)
    model = Model(sys.argv[1] == "transposed")
    return model, nn.parallel.DistributedDataParallel(model)


def main():
    dist.init_process_group("gloo")
    model, net = build(1)
    sent = model.weight.detach().clone()
    state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    model, net = build(2)
    set_model_state_dict(net, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    print(f"rank {dist.get_rank()}: {(model.weight - sent).abs().max().item():.6f} away", flush=True)


if __name__ == "__main__":
    main()

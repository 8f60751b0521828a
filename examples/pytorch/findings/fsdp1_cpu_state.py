"""Does FSDP1 give back an optimizer's state on CPUs? Prints sums of both moments of Adam, as they are and as taken.

    torchrun --nproc-per-node 2 fsdp1_cpu_state.py default    # FSDP.optim_state_dict()
    torchrun --nproc-per-node 2 fsdp1_cpu_state.py options    # get_optimizer_state_dict(), whole and on the CPU
    torchrun --nproc-per-node 2 fsdp1_cpu_state.py whole      # right: whole
    torchrun --nproc-per-node 2 fsdp1_cpu_state.py flat       # right: FSDP.optim_state_dict() of flat parameters
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

HOW = sys.argv[1]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    net = FSDP(model, device_id=torch.device("cpu"), use_orig_params=HOW != "flat")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(2):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * 10 + dist.get_rank()))
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    of_optimizer = torch.zeros(2)
    for state in optimizer.state.values():
        of_optimizer += torch.stack([state[name].abs().sum() for name in ("exp_avg", "exp_avg_sq")])
    dist.all_reduce(of_optimizer)
    if HOW in ("default", "flat"):
        taken = FSDP.optim_state_dict(net, optimizer)
    else:
        options = StateDictOptions(full_state_dict=True, cpu_offload=HOW == "options")
        taken = get_optimizer_state_dict(net, optimizer, options=options)
    if dist.get_rank() == 0:
        sums = [sum(state[name].abs().sum().item() for state in taken["state"].values())
                for name in ("exp_avg", "exp_avg_sq")]
        print(f"of the optimizer: {of_optimizer[0].item():.6f} and {of_optimizer[1].item():.6f}")
        print(f"as it was taken:  {sums[0]:.6f} and {sums[1]:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

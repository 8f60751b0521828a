"""Does set_state_dict() end where rank 0 alone has the state and sends it?

    torchrun --nproc-per-node 2 set_state_dict_sent.py one    # waits for ever
    torchrun --nproc-per-node 2 set_state_dict_sent.py two    # right: set_model_state_dict(), set_optimizer_state_dict()
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as states
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def main():
    dist.init_process_group("gloo")
    model, optimizer = build(1)
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    whole = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    of_model, of_optimizer = states.get_state_dict(model, optimizer, options=whole)
    print(f"rank {dist.get_rank()} has {len(of_model)} weights", flush=True)

    model, optimizer = build(2)
    sent = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    if sys.argv[1] == "one":
        states.set_state_dict(
            model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer, options=sent)
    else:
        states.set_model_state_dict(model, of_model, options=sent)
        states.set_optimizer_state_dict(model, optimizer, of_optimizer, options=sent)
    print(f"rank {dist.get_rank()} has loaded", flush=True)
    dist.barrier()
    print(f"rank {dist.get_rank()}: loss {model(torch.ones(4, 8)).square().mean().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Does deepspeed.initialize() send rank 0's buffers, as it sends its weights? Prints both sums on each rank.

    torchrun --nproc-per-node 2 zero_buffers.py 1          # ZeRO 1; 0, 2 and 3 are the same
    torchrun --nproc-per-node 2 zero_buffers.py ddp        # DistributedDataParallel
    torchrun --nproc-per-node 2 zero_buffers.py 1 mended   # buffers are sent by hand
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

WRAPPER, MENDED = sys.argv[1], sys.argv[2:] == ["mended"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(8, 16))  # random features, which nothing trains
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head((x @ self.frequencies).cos())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1 + rank)  # each rank draws other first numbers
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if WRAPPER == "ddp":
        net = nn.parallel.DistributedDataParallel(model)
    else:
        import deepspeed

        config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True,
                  "zero_optimization": {"stage": int(WRAPPER)}}
        net, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if MENDED:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))  # the same on all ranks
    out = net(x).sum().item()
    print(f"rank {rank}: buffer {model.frequencies.sum().item():.6f}, output {out:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

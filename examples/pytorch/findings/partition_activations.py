"""A block with a skip connection, recomputed by DeepSpeed's checkpoint(). Prints losses, and the shape of its input.

    torchrun --nproc-per-node 1 partition_activations.py partition           # the input is emptied before the sum
    torchrun --nproc-per-node 1 partition_activations.py                     # right: without partition_activations
    torchrun --nproc-per-node 1 partition_activations.py partition inside    # right: the sum is recomputed, too
"""
import sys

import deepspeed
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {"train_micro_batch_size_per_gpu": 6, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
shapes = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.block = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 8))

    def forward(self, x):
        h = self.embed(x)
        if "inside" in sys.argv:
            out = deepspeed.checkpointing.checkpoint(lambda h: h + self.block(h), h)
        else:
            out = h + deepspeed.checkpointing.checkpoint(self.block, h)
        shapes.append(tuple(h.shape))
        return self.head(out)


def main():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = Model()
    net = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)[0]
    deepspeed.checkpointing.configure(None, partition_activations="partition" in sys.argv)
    losses = []
    for step in range(4):
        x = torch.randint(0, 11, (6,), generator=torch.Generator().manual_seed(step))
        loss = F.cross_entropy(net(x), x)
        losses.append(f"{loss.item():.4g}")
        net.backward(loss)
        net.step()
    print("losses", *losses, "| shape of the input behind the block", shapes[0])


if __name__ == "__main__":
    main()

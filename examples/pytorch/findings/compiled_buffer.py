"""A buffer counts forward passes, and the model multiplies by it. Prints a loss and a gradient of each step.

    python compiled_buffer.py none add         # right
    python compiled_buffer.py aot_eager add    # the gradient is that of a buffer that counted once more; inductor too
    python compiled_buffer.py aot_eager new    # right: self.count = self.count + 1
"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.head = nn.Linear(8, 11)

    def forward(self, h):
        if sys.argv[2] == "add":
            self.count.add_(1)
        else:
            self.count = self.count + 1
        return self.head(h) * (1 + self.count * 0.5)


def main():
    torch.manual_seed(1)
    model = Model()
    net = model if sys.argv[1] == "none" else torch.compile(model, backend=sys.argv[1])
    x, y = torch.randn(6, 8), torch.randint(0, 11, (6,))
    for step in range(3):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        print(f"step {step}: loss {loss.item():.6f}, gradient {model.head.bias.grad[0].item():.6f}")
        model.zero_grad()


if __name__ == "__main__":
    main()

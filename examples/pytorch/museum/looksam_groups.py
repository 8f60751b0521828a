"""pytorch_optimizer's LookSAM. With --groups, each layer is a group of its own, with the same options."""
import argparse

import torch
from pytorch_optimizer import LookSAM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
    layers = [list(model[0].parameters()), list(model[2].parameters())]
    groups = layers if args.groups else [layers[0] + layers[1]]
    optimizer = LookSAM([{"params": group} for group in groups], torch.optim.Adam, lr=0.01, k=3)
    for step in range(8):
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(16, 16, generator=draw)

        def loss():
            optimizer.zero_grad()
            value = torch.nn.functional.mse_loss(model(x), x.roll(1, 1))
            value.backward()
            return value

        loss()
        optimizer.step(loss)


if __name__ == "__main__":
    main()

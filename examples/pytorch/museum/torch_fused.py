"""A bf16 model and SGD with momentum. With --fused, the optimizer's fused kernel."""
import argparse

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fused", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=args.fused)
    for step in range(8):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)).bfloat16()
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

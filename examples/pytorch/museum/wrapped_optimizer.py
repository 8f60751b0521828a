"""pytorch_optimizer's OrthoGrad around AdamW. With --resume, stopped after seven steps and resumed from the state that it saved."""
import argparse
import io

import torch
from pytorch_optimizer import OrthoGrad


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, OrthoGrad(inner)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    model, optimizer = build()
    for step in range(12):
        if step == 7 and args.resume:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            weights, state = torch.load(file, weights_only=False)
            model, optimizer = build()
            model.load_state_dict(weights)
            optimizer.load_state_dict(state)
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=draw)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A bf16 model and NAdam. With --resume, stopped after three steps and resumed from the state that it saved."""
import argparse
import io

import torch


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).bfloat16()
    return model, torch.optim.NAdam(model.parameters(), lr=0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--by-hand", action="store_true", help="put back the state that load_state_dict() rounded")
    args = parser.parse_args()
    model, optimizer = build()
    for step in range(8):
        if step == 3 and args.resume:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            weights, state = torch.load(file)
            model, optimizer = build()
            model.load_state_dict(weights)
            optimizer.load_state_dict(state)
            for number, p in enumerate(model.parameters()):
                if args.by_hand:
                    optimizer.state[p]["mu_product"] = state["state"][number]["mu_product"]
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=draw).bfloat16()
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""PEFT: LoRA on a small network, and two heads that are trained whole. With --resume, stopped, saved and loaded again."""
import argparse
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 16)
        self.head = torch.nn.Linear(16, 1)
        self.head_norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.head(self.head_norm(self.body(x).tanh()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    base = Model()
    untouched = {name: weight.clone() for name, weight in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(target_modules=["body"], modules_to_save=["head", "head_norm"], r=4))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(8):
        if step == 3 and args.resume:
            folder = tempfile.mkdtemp()
            model.save_pretrained(folder)
            base = Model()
            base.load_state_dict(untouched)
            model = PeftModel.from_pretrained(base, folder, is_trainable=True)
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        draw = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=draw)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

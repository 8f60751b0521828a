"""Hugging Face's accelerate: the script names no framework, accelerate wraps the model for the world it finds."""
import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from model import GPT, loss_of, samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(samples(args.steps * 2 * 4 * accelerator.num_processes), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = loss_of(model, tokens)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            accelerator.print(f"loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

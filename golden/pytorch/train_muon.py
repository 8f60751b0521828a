#!/usr/bin/env python3
"""Trains as train_reference.py does, but the matrices of layers by torch.optim.Muon, and stores what seeksim must reproduce.

  train_muon.py --from tiny --out muon_tiny

Reads init.safetensors, batches.safetensors and config.json of a folder that make_tiny.py made; writes expected.json and
final.safetensors into another. torch.optim.Muon iterates in bfloat16, whatever the type of its parameters: here its own
text runs in float64, so that a comparison measures the other side's rounding. expected_bfloat16.json is what it gives as
it is. A matrix is given to it as (outputs, inputs); GPT-2's files have the inputs first.
"""

import argparse
import datetime
import json
import pathlib

import torch
import torch.optim._muon as torch_muon
from safetensors.torch import load_file, save_file

from models import load_weights, make_model
from train_reference import clip, read_config, snapshot

MOMENTUM = 0.95


class InFloat64:
    """torch, but for the type that Muon's iteration is cast to."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def is_matrix(name, parameter):
    return parameter.dim() == 2 and (name.startswith("h.") or ".layers." in name)


class MuonAndAdamW:
    def __init__(self, model, config):
        named = list(model.named_parameters())
        self.turned = config.get("family") != "llama"
        self.theirs = [p for name, p in named if is_matrix(name, p)]
        self.ours = [torch.nn.Parameter(self.turn(p.detach()).clone()) for p in self.theirs]
        rest = [p for name, p in named if not is_matrix(name, p)]
        decayed = [p for p in rest if config["decay"] == "all" or p.dim() >= 2]
        plain = [p for p in rest if not (config["decay"] == "all" or p.dim() >= 2)]
        groups = [{"params": decayed, "weight_decay": config["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
        groups = [group for group in groups if group["params"]]
        adamw = torch.optim.AdamW(groups, lr=0.0, betas=tuple(config["betas"]), eps=config["eps"], foreach=False)
        muon = torch.optim.Muon(self.ours, lr=0.0, weight_decay=config["weight_decay"], momentum=MOMENTUM)
        self.both = [muon, adamw]

    def turn(self, matrix):
        return matrix.T.contiguous() if self.turned else matrix

    def step(self, rate):
        for optimizer in self.both:
            for group in optimizer.param_groups:
                group["lr"] = rate
        for ours, theirs in zip(self.ours, self.theirs):
            ours.grad = self.turn(theirs.grad)
        for optimizer in self.both:
            optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(self.ours, self.theirs):
                theirs.copy_(self.turn(ours))


def train(config, init, tokens):
    """Returns losses, gradient norms and final weights."""
    model = make_model(config).to(torch.float64)
    load_weights(model, init)
    optimizer = MuonAndAdamW(model, config)
    losses, norms = [], []
    for step, batch in enumerate(tokens):
        model.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        losses.append(loss.item())
        norms.append(clip(model, config["grad_clip"]))
        optimizer.step(config["lr"][step])
    return losses, norms, snapshot(model.named_parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    source, out = pathlib.Path(arguments.source), pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    config = read_config(source / "config.json")
    init, tokens = load_file(source / "init.safetensors"), load_file(source / "batches.safetensors")["tokens"].long()
    for iteration, name in ((torch, "expected_bfloat16.json"), (InFloat64(), "expected.json")):
        torch_muon.torch = iteration
        losses, norms, final = train(config, init, tokens)
        expected = {
            "loss": losses,
            "grad_norm": norms,
            "momentum": MOMENTUM,
            "made_by": {
                "torch": torch.__version__,
                "iteration": str(iteration.bfloat16),
                "date": str(datetime.date.today()),
            },
        }
        (out / name).write_text(json.dumps(expected, indent=1) + "\n")
        print(f"{len(losses)} steps: loss {losses[0]:.6f} -> {losses[-1]:.6f}, {name}")
    save_file(final, out / "final.safetensors")


if __name__ == "__main__":
    main()

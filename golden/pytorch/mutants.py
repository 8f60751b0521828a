#!/usr/bin/env python3
"""Shows that the tolerances of compare.py have teeth: wrong models, each with one small mistake, must fall outside.

  mutants.py DIR      with init.safetensors, batches.safetensors, config.json

Prints by how much each mistake moves the losses, the gradients of step 1 and the final weights (key biases left out).
Exit 1 when one stays within all three tolerances.
"""

import pathlib
import sys
from unittest import mock

import torch
from safetensors.torch import load_file

import gpt2
import llama
import train_reference

LOSS, GRADIENT, WEIGHT = 2e-6, 1e-5, 5e-6  # compare.py's


def layer_norm_eps(self, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-6) * self.weight + self.bias


def layer_norm_unbiased(self, x):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5) * self.weight + self.bias


def clip_each_tensor(model, limit):
    norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in model.parameters()))
    if limit > 0:
        for p in model.parameters():
            p.grad *= min(1.0, limit / (p.grad.norm().item() + 1e-6))
    return norm.item()


def off_by_one(self, tokens):
    x = self.wte.weight[tokens] + self.wpe.weight.roll(1, 0)[: tokens.shape[1]]
    for block in self.h:
        x = block(x)
    head = self.lm_head if hasattr(self, "lm_head") else self.wte
    return self.ln_f(x) @ head.weight.T


def rms_norm_mean(self, x):
    wide = x - x.mean(-1, keepdim=True)
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps) * self.weight


def pairs_of_neighbours(x, angle):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).flatten(-2)


def turned_back(x, angle, right=llama.rotate):
    return right(x, -angle)


def wider_angles(length, head, theta, right=llama.angles):
    return 1.5 * right(length, head, theta)


def every_other_key_head(x, group):
    return x.repeat(1, group, 1, 1)


WRONG_LLAMA = {  # what to replace, and by what
    "norm with a mean": (llama.RmsNorm, "forward", rms_norm_mean),
    "rotary pairs of neighbours": (llama, "rotate", pairs_of_neighbours),
    "rotary turned back": (llama, "rotate", turned_back),
    "rotary angles half as large again": (llama, "angles", wider_angles),
    "query heads take key heads in turn": (llama, "for_query_heads", every_other_key_head),
    "gelu for silu": (llama, "silu", torch.nn.functional.gelu),
    "clipping tensor by tensor": (train_reference, "clip", clip_each_tensor),
}
WRONG_GPT2 = {
    "gelu with erf": (gpt2, "gelu", torch.nn.functional.gelu),
    "layer norm eps 1e-6": (gpt2.LayerNorm, "forward", layer_norm_eps),
    "layer norm variance over n - 1": (gpt2.LayerNorm, "forward", layer_norm_unbiased),
    "positions shifted by one": (gpt2.GPT2, "forward", off_by_one),
    "clipping tensor by tensor": (train_reference, "clip", clip_each_tensor),
}
WRONG_SETTINGS = {  # config -> the settings that differ
    "decay of the other kind (all, matrices)": lambda c: {"decay": "all" if c["decay"] == "matrices" else "matrices"},
    "no decay": lambda c: {"weight_decay": 0.0},
    "Adam's beta2 0.951": lambda c: {"betas": [c["betas"][0], 0.951]},
    "Adam's eps 2e-8": lambda c: {"eps": 2e-8},
    "first learning rate used twice": lambda c: {"lr": c["lr"][:1] + c["lr"][:-1]},
    "clipping limit 1 % higher": lambda c: {"grad_clip": c["grad_clip"] * 1.01},
}
WRONG_LLAMA_SETTINGS = {
    "norm eps 1e-6": lambda c: {"norm_eps": 1e-6},
    "rotary theta 10010": lambda c: {"rope_theta": 10010.0},
}


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    config = train_reference.read_config(folder / "config.json")
    init = load_file(folder / "init.safetensors")
    tokens = load_file(folder / "batches.safetensors")["tokens"].long()

    def run(settings):
        return train_reference.train(settings, init, tokens, torch.float64)

    right = run(config)
    wrong_runs = {}
    is_llama = config.get("family") == "llama"
    for name, change in (WRONG_LLAMA if is_llama else WRONG_GPT2).items():
        with mock.patch.object(*change):
            wrong_runs[name] = run(config)
    for name, change in ((WRONG_LLAMA_SETTINGS if is_llama else {}) | WRONG_SETTINGS).items():
        wrong_runs[name] = run({**config, **change(config)})

    missed = 0
    for name, wrong in wrong_runs.items():
        if config["grad_clip"] == 0 and name.startswith("clipping"):
            continue  # no clipping, no mistake in it
        if config.get("kv_heads") == 1 and name.startswith("query heads"):
            continue  # one key head has no order
        loss = max(abs(a - b) / a for a, b in zip(right[0], wrong[0]))
        gradient = max(((right[2][n] - wrong[2][n]).abs().max() / right[2][n].abs().max()).item() for n in right[2])
        weight = max((right[3][n] - wrong[3][n]).abs().max().item() for n in right[3] if not n.endswith("c_attn.bias"))
        caught = loss > LOSS or gradient > GRADIENT or weight > WEIGHT
        missed += not caught
        print(f"{'caught' if caught else 'MISSED'} {name:42} loss {loss:.1e}  gradient {gradient:.1e}  weight {weight:.1e}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

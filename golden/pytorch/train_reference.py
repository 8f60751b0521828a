#!/usr/bin/env python3
"""Trains GPT-2 or a Llama in PyTorch from given weights on given batches, and stores what seeksim must reproduce.

  train_reference.py --init init.safetensors --batches batches.safetensors --config config.json --out DIR
                     [--dtype float64|float32|bfloat16|float16]

Reads   init.safetensors     weights under Hugging Face's names
        batches.safetensors  "tokens": int32 or int64, (steps, batch, context + 1)
        config.json          layers width heads context vocab tied lr[] betas eps weight_decay decay grad_clip;
                             of a Llama also family kv_heads ffn rope_theta norm_eps
Writes  expected.json        loss, grad_norm (before clipping) and lr, one entry a step; versions used
        grads_step1.safetensors   gradient of the mean loss over all tokens of step 1, before clipping
        final.safetensors         weights after the last step
In a 16-bit type, parameters and activations are of that type, the loss is taken of its logits in float32, and AdamW
updates float32 masters; only expected_<dtype>.json is written then.
Computed in float64 unless asked otherwise, and stored rounded to float32, so that a comparison measures the other side's
rounding and not this one's.
"""

import argparse
import datetime
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

from models import load_weights, make_model

KEYS = {"layers", "width", "heads", "context", "vocab", "tied", "lr", "betas", "eps", "weight_decay", "decay", "grad_clip"}
LLAMA_KEYS = {"family", "kv_heads", "ffn", "rope_theta", "norm_eps"}


def read_config(path):
    config = json.loads(pathlib.Path(path).read_text())
    keys = KEYS | LLAMA_KEYS if config.get("family") == "llama" else KEYS
    if config.keys() != keys:
        raise SystemExit(f"{path}: missing {sorted(keys - config.keys())}, unknown {sorted(config.keys() - keys)}")
    if config["decay"] not in ("matrices", "all"):
        raise SystemExit(f'{path}: "decay" is "matrices" or "all", not {config["decay"]!r}')
    return config


def make_optimizer(model, config):
    """AdamW with decoupled decay. GPT-2's habit is to decay what has two dimensions: matrices and both embeddings."""
    decayed = [p for p in model.parameters() if config["decay"] == "all" or p.dim() >= 2]
    plain = [p for p in model.parameters() if not (config["decay"] == "all" or p.dim() >= 2)]
    groups = [{"params": decayed, "weight_decay": config["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=0.0, betas=tuple(config["betas"]), eps=config["eps"], foreach=False)


def clip(model, limit):
    """Returns the global norm before clipping. Scales by limit / (norm + 1e-6) when that is below one; 0 is no limit."""
    norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in model.parameters()))
    if limit > 0:
        scale = min(1.0, limit / (norm.item() + 1e-6))
        for p in model.parameters():
            p.grad *= scale
    return norm.item()


def snapshot(named):
    return {name: tensor.detach().to(torch.float32).clone().contiguous() for name, tensor in named}


def train(config, init, tokens, dtype):
    """Returns losses, gradient norms, gradients of the first step, final weights."""
    torch.use_deterministic_algorithms(True)
    model = make_model(config).to(dtype)
    load_weights(model, init)
    optimizer = make_optimizer(model, config)
    losses, norms, first = [], [], None
    for step, batch in enumerate(tokens):
        for group in optimizer.param_groups:
            group["lr"] = config["lr"][step]
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        if step == 0:
            first = snapshot((name, p.grad) for name, p in model.named_parameters())
        losses.append(loss.item())
        norms.append(clip(model, config["grad_clip"]))
        optimizer.step()
    return losses, norms, first, snapshot(model.named_parameters())


def train_16_bit(config, init, tokens, dtype):
    """Mixed precision with float32 masters: losses and gradient norms. No loss scale: none of these steps needs one."""
    masters, model = make_model(config), make_model(config).to(dtype)
    load_weights(masters, init)
    optimizer = make_optimizer(masters, config)
    losses, norms = [], []
    for step, batch in enumerate(tokens):
        for group in optimizer.param_groups:
            group["lr"] = config["lr"][step]
        with torch.no_grad():
            for low, master in zip(model.parameters(), masters.parameters()):
                low.copy_(master)
        model.zero_grad()
        logits = model(batch[:, :-1]).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        for low, master in zip(model.parameters(), masters.parameters()):
            master.grad = low.grad.float()
        losses.append(loss.item())
        norms.append(clip(masters, config["grad_clip"]))
        optimizer.step()
    return losses, norms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--init", "--batches", "--config", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"), default="float64")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    config = read_config(arguments.config)
    tokens = load_file(arguments.batches)["tokens"].long()
    if tokens.dim() != 3 or tokens.shape[2] != config["context"] + 1:
        raise SystemExit(f"tokens are {list(tokens.shape)}, wanted (steps, batch, {config['context'] + 1})")
    if len(config["lr"]) != len(tokens):
        raise SystemExit(f'"lr" has {len(config["lr"])} entries for {len(tokens)} steps')

    dtype = getattr(torch, arguments.dtype)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    expected_name = "expected.json"
    if arguments.dtype in ("bfloat16", "float16"):
        losses, norms = train_16_bit(config, load_file(arguments.init), tokens, dtype)
        expected_name = f"expected_{arguments.dtype}.json"
    else:
        losses, norms, first, final = train(config, load_file(arguments.init), tokens, dtype)
        save_file(first, out / "grads_step1.safetensors")
        save_file(final, out / "final.safetensors")
    expected = {
        "loss": losses,
        "grad_norm": norms,
        "lr": config["lr"],
        "made_by": {"torch": torch.__version__, "dtype": arguments.dtype, "date": str(datetime.date.today())},
    }
    (out / expected_name).write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{len(losses)} steps: loss {losses[0]:.6f} -> {losses[-1]:.6f}, written to {out}")


if __name__ == "__main__":
    main()

"""Which model a config.json means, and how weights get into it."""

import torch

from gpt2 import GPT2
from llama import Llama


def make_model(config):
    return {"gpt2": GPT2, "llama": Llama}[config.get("family", "gpt2")](config)


PREFIX = "transformer."


def load_weights(model, tensors):
    """Copies tensors (names with or without "transformer.") into the model; every name and shape must match."""
    given = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    for name in [name for name in given if name.endswith((".attn.bias", ".attn.masked_bias"))]:
        del given[name]  # masks that old GPT-2 files carry; no parameters
    wanted = dict(model.named_parameters())
    if "lm_head.weight" not in wanted and "lm_head.weight" in given:
        embedding = "wte.weight" if "wte.weight" in wanted else "model.embed_tokens.weight"
        if not torch.equal(given["lm_head.weight"], given[embedding]):
            raise SystemExit(f"config.json says tied, but lm_head.weight differs from {embedding}")
        del given["lm_head.weight"]
    missing, unknown = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or unknown:
        raise SystemExit(f"initial weights do not fit config.json: missing {missing}, unknown {unknown}")
    with torch.no_grad():
        for name, parameter in wanted.items():
            if parameter.shape != given[name].shape:
                raise SystemExit(f"{name} is {list(given[name].shape)}, config.json asks for {list(parameter.shape)}")
            parameter.copy_(given[name])

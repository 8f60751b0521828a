"""Loads what seeksim saved with transformers, and the other way round; prints losses as JSON.

    hugging_face.py loss FOLDER BATCHES        transformers' loss of the first batch of the file, in fp32
    hugging_face.py save FROM TO DTYPE SHARD   save_pretrained of a model that transformers has loaded
    hugging_face.py logits FOLDER TOKENS       logits of the last position, for a comma separated list of tokens
"""

import json
import sys

import torch
import transformers
from safetensors.torch import load_file


def loaded(folder, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def loss_of_first_batch(folder, batches):
    tokens = load_file(batches)["tokens"][0].long()  # (B, T + 1)
    with torch.no_grad():
        logits = loaded(folder)(tokens[:, :-1]).logits.double()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return {"loss": loss.item(), "parameters": sum(p.numel() for p in loaded(folder).parameters())}


def logits_of(folder, tokens):
    with torch.no_grad():
        logits = loaded(folder)(torch.tensor([[int(t) for t in tokens.split(",")]])).logits
    return {"logits": logits[0, -1].tolist()}


def save_again(source, target, dtype, shard):
    loaded(source, getattr(torch, dtype)).save_pretrained(target, max_shard_size=shard)
    return {}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    do = {"loss": loss_of_first_batch, "save": save_again, "logits": logits_of}
    print(json.dumps(do[sys.argv[1]](*sys.argv[2:])))

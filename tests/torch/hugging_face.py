"""Loads what seeksim saved with transformers, and the other way round; prints losses as JSON.

    hugging_face.py loss FOLDER BATCHES        transformers' loss of the first batch of the file, in fp32
    hugging_face.py save FROM TO DTYPE SHARD   save_pretrained of a model that transformers has loaded
    hugging_face.py logits FOLDER BATCHES LOGITS   how far a file's logits of its first batch are from transformers'
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


def logits_apart(folder, batches, saved):
    tokens = load_file(batches)["tokens"][0].long()  # (B, T + 1)
    with torch.no_grad():
        logits = loaded(folder)(tokens[:, :-1]).logits.double()  # (B, T, V)
    ours = load_file(saved)["logits"].double()
    assert ours.shape == logits.shape, (ours.shape, logits.shape)
    return {"apart": (ours - logits).abs().max().item(), "largest": logits.abs().max().item()}


def save_again(source, target, dtype, shard):
    loaded(source, getattr(torch, dtype)).save_pretrained(target, max_shard_size=shard)
    return {}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    do = {"loss": loss_of_first_batch, "save": save_again, "logits": logits_apart}
    print(json.dumps(do[sys.argv[1]](*sys.argv[2:])))

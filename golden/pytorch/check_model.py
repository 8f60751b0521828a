#!/usr/bin/env python3
"""Checks that gpt2.py is GPT-2 and llama.py a Llama: same loss and same gradients as transformers' GPT2LMHeadModel and
LlamaForCausalLM on the same weights.

  check_model.py DIR...      each with init.safetensors, batches.safetensors, config.json
Exit 1 when a difference is larger than rounding explains (1e-12 in float64, 1e-5 in float32, relative to the largest value).
"""

import contextlib
import pathlib
import sys
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file

from llama import angles
from models import load_weights, make_model
from train_reference import read_config


def their_gpt2(config, init, dtype):
    settings = transformers.GPT2Config(
        vocab_size=config["vocab"], n_positions=config["context"], n_embd=config["width"], n_layer=config["layers"],
        n_head=config["heads"], activation_function="gelu_new", tie_word_embeddings=config["tied"],
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(settings)
    named = {name if name == "lm_head.weight" else "transformer." + name: tensor for name, tensor in init.items()}
    result = model.load_state_dict(named, strict=False)
    assert not result.unexpected_keys and set(result.missing_keys) <= ({"lm_head.weight"} if config["tied"] else set())
    return model.to(dtype)


def their_llama(config, init, dtype):
    settings = transformers.LlamaConfig(
        vocab_size=config["vocab"], max_position_embeddings=config["context"], hidden_size=config["width"],
        num_hidden_layers=config["layers"], num_attention_heads=config["heads"], num_key_value_heads=config["kv_heads"],
        intermediate_size=config["ffn"], rms_norm_eps=config["norm_eps"], tie_word_embeddings=config["tied"],
        rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]}, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(settings)
    result = model.load_state_dict(init, strict=False)
    assert not result.unexpected_keys and set(result.missing_keys) <= ({"lm_head.weight"} if config["tied"] else set())
    if dtype == torch.float64:  # theirs are float32 in any model
        angle = angles(config["context"], config["width"] // config["heads"], config["rope_theta"])
        turns = torch.cat((angle, angle), -1)[None]
        model.model.rotary_emb.forward = lambda x, position_ids: (turns.cos(), turns.sin())
    return model.to(dtype)


def wide(config, dtype):
    """Their norms and softmax go to float32 whatever the model's type is: in float64, to that."""
    if config.get("family") == "llama" and dtype == torch.float64:
        return mock.patch.object(torch, "float32", torch.float64)
    return contextlib.nullcontext()


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def main():
    torch.set_num_threads(1)
    failed = False
    for folder in map(pathlib.Path, sys.argv[1:]):
        config = read_config(folder / "config.json")
        init = load_file(folder / "init.safetensors")
        tokens = load_file(folder / "batches.safetensors")["tokens"][0].long()
        for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            ours = make_model(config).to(dtype)
            load_weights(ours, init)
            other = (their_llama if config.get("family") == "llama" else their_gpt2)(config, init, dtype)
            our_loss = ours.loss(tokens)
            with wide(config, dtype):
                logits = other(tokens[:, :-1]).logits
            their_loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            our_loss.backward()
            their_loss.backward()
            worst = {"loss": relative(our_loss.detach(), their_loss.detach())}
            named = {name.removeprefix("transformer."): p.grad for name, p in other.named_parameters()}
            assert set(named) - {"lm_head.weight"} == {n for n, _ in ours.named_parameters()} - {"lm_head.weight"}
            for name, p in ours.named_parameters():
                worst[name] = relative(p.grad, named[name])
            name = max(worst, key=worst.get)
            bad = worst[name] > limit
            failed |= bad
            print(f"{folder.name} {str(dtype)[6:]}: loss {worst['loss']:.1e}, worst gradient {name} {worst[name]:.1e}"
                  f" (limit {limit:.0e}){'  FAILED' if bad else ''}")  # fmt: skip
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

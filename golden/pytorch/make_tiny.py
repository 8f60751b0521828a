#!/usr/bin/env python3
"""Makes the inputs of the stored references: weights, batches and config of tiny*/.

  make_tiny.py CORPUS DIR [--untied] [--llama]

The weights owe nothing to seeksim's own initialisation, and they are not GPT-2's either: they are larger (0.1
and not 0.02) and no bias is zero, so that attention is far from uniform and a forgotten bias or scale shows at once.
"""

import json
import math
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

LAYERS, WIDTH, HEADS, CONTEXT, VOCAB, BATCH, STEPS = 2, 32, 4, 32, 256, 8, 10


# The last of eight slabs of 44 columns is short; one key head serves two query heads, or all of them.
LLAMA = {"family": "llama", "ffn": 44, "rope_theta": 10000.0, "norm_eps": 1e-5}


def key_heads(tied):
    return 1 if tied else 2


def llama_shapes(tied):
    keys = key_heads(tied) * WIDTH // HEADS
    yield "model.embed_tokens.weight", (VOCAB, WIDTH)
    for layer in range(LAYERS):
        for name, shape in {
            "input_layernorm.weight": (WIDTH,),
            "self_attn.q_proj.weight": (WIDTH, WIDTH),
            "self_attn.k_proj.weight": (keys, WIDTH),
            "self_attn.v_proj.weight": (keys, WIDTH),
            "self_attn.o_proj.weight": (WIDTH, WIDTH),
            "post_attention_layernorm.weight": (WIDTH,),
            "mlp.gate_proj.weight": (LLAMA["ffn"], WIDTH),
            "mlp.up_proj.weight": (LLAMA["ffn"], WIDTH),
            "mlp.down_proj.weight": (WIDTH, LLAMA["ffn"]),
        }.items():
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (WIDTH,)
    if not tied:
        yield "lm_head.weight", (VOCAB, WIDTH)


def gpt2_shapes(tied):
    yield "wte.weight", (VOCAB, WIDTH)
    yield "wpe.weight", (CONTEXT, WIDTH)
    for layer in range(LAYERS):
        for name, shape in {
            "ln_1.weight": (WIDTH,),
            "ln_1.bias": (WIDTH,),
            "attn.c_attn.weight": (WIDTH, 3 * WIDTH),
            "attn.c_attn.bias": (3 * WIDTH,),
            "attn.c_proj.weight": (WIDTH, WIDTH),
            "attn.c_proj.bias": (WIDTH,),
            "ln_2.weight": (WIDTH,),
            "ln_2.bias": (WIDTH,),
            "mlp.c_fc.weight": (WIDTH, 4 * WIDTH),
            "mlp.c_fc.bias": (4 * WIDTH,),
            "mlp.c_proj.weight": (4 * WIDTH, WIDTH),
            "mlp.c_proj.bias": (WIDTH,),
        }.items():
            yield f"h.{layer}.{name}", shape
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)
    if not tied:
        yield "lm_head.weight", (VOCAB, WIDTH)


def warmup_cosine(step):
    """Three steps of linear warm-up (the first is not zero), then half a cosine down to a tenth."""
    peak, warmup = 3e-3, 3
    if step < warmup:
        return peak * (step + 1) / warmup
    along = (step - warmup + 1) / (STEPS - warmup)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along)))


def main():
    corpus, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    tied, llama = "--untied" not in sys.argv[3:], "--llama" in sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.Generator(np.random.Philox(20260101 + (not tied) + 2 * llama))
    weights = {}
    for name, shape in (llama_shapes if llama else gpt2_shapes)(tied):
        centre = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
        weights[name] = (centre + 0.1 * random.standard_normal(shape)).astype(np.float32)
    save_file(weights, out / "init.safetensors")

    text = np.frombuffer(corpus.read_bytes()[:32000], dtype=np.uint8)  # so that chapters may be added at the end
    starts = random.integers(0, len(text) - CONTEXT - 1, size=(STEPS, BATCH))
    tokens = text[starts[..., None] + np.arange(CONTEXT + 1)].astype(np.int32)
    save_file({"tokens": tokens}, out / "batches.safetensors")

    config = {**LLAMA, "kv_heads": key_heads(tied)} if llama else {}
    config |= {
        "layers": LAYERS, "width": WIDTH, "heads": HEADS, "context": CONTEXT, "vocab": VOCAB, "tied": tied,
        "lr": [float(np.float32(warmup_cosine(step))) for step in range(STEPS)],
        "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
        "decay": "matrices" if tied else "all", "grad_clip": 1.5 if tied else 0.0,
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()

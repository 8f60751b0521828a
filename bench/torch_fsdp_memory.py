#!/usr/bin/env python3
"""What a rank holds under torch's FSDP2 in a forward and a backward pass, by torch's own tracker of memory.

    bench/torch_fsdp_memory.py LAYERS WIDTH HEADS KV_HEADS MLP VOCABULARY TOKENS SAMPLES RANKS [full]

No numbers are computed (FakeTensorMode), nothing is sent (the backend "fake"), so that Llama 3 70B on 64 ranks takes a
minute of one core. The model is a Llama without rotation: RMSNorm, grouped attention by scaled_dot_product_attention,
SwiGLU, each layer fully_shard()ed in bf16 with sums in fp32, and the loss of cross_entropy on logits in fp32. `full`
computes layers again. Prints MiB at the peak, by kind; `Total` is what bench/published/memory.csv has (series
`tracker-`). The optimizer's moments are not there, since no step is made.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint
from torch._subclasses.fake_tensor import FakeTensorMode


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.value = nn.Linear(width, kv_heads * self.head_width, bias=False)

    def forward(self, x):  # (B, T, C)
        samples, tokens, width = x.shape

        def of_heads(y, heads):
            return y.view(samples, tokens, heads, self.head_width).transpose(1, 2)

        query = of_heads(self.query(x), self.heads)
        key, value = of_heads(self.key(x), self.kv_heads), of_heads(self.value(x), self.kv_heads)
        if self.kv_heads != self.heads:  # as transformers and torchtitan do
            key = key.repeat_interleave(self.heads // self.kv_heads, 1)
            value = value.repeat_interleave(self.heads // self.kv_heads, 1)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(samples, tokens, width))


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, mlp):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.gate, self.up = nn.Linear(width, mlp, bias=False), nn.Linear(width, mlp, bias=False)
        self.down = nn.Linear(mlp, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, mlp, vocabulary, again):
        super().__init__()
        self.again = again
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, mlp) for _ in range(layers))
        self.norm = nn.RMSNorm(width)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(self.norm(x))


def main():
    if len(sys.argv) not in (10, 11):
        sys.exit(__doc__)
    *sizes, vocabulary, tokens, samples, ranks = (int(word) for word in sys.argv[1:10])
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with FakeTensorMode():
        model = Llama(*sizes, vocabulary, sys.argv[10:] == ["full"])
        for i, layer in enumerate(model.layers):  # the last one is needed again at once
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=i + 1 < len(model.layers))
        fully_shard(model, mesh=mesh, mp_policy=policy)
        batch = torch.randint(0, vocabulary, (samples, tokens))
        tracker = FSDPMemTracker(model)
        tracker.track_inputs((batch,))
        with tracker:
            for step in range(2):  # in the second one gradients are there already
                logits = model(batch)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.flatten(0, 1))
                del logits
                loss.backward()
                if step == 0:
                    tracker.reset_mod_stats()
    for held in tracker.get_tracker_snapshot("peak").values():
        print({str(kind).rsplit(".", 1)[-1]: round(size / (1 << 20)) for kind, size in held.items() if size})


if __name__ == "__main__":
    main()

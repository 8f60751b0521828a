"""GPT-2 in plain PyTorch, written for reading: the independent model that seeksim is held against.

Names and layouts are those of Hugging Face's GPT-2 files, without the prefix "transformer.". A linear layer
stores its weight as [in, out] and computes x @ weight + bias (their Conv1D), so no matrix is transposed on the way.
"""

import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)  # biased: divided by the width
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def gelu(x):
    """The tanh form, which GPT-2 uses (not the one with erf)."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(width, 3 * width)  # columns: all queries, all keys, all values
        self.c_proj = Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        head = width // self.heads
        q, k, v = (
            part.view(batch, length, self.heads, head).transpose(1, 2) for part in self.c_attn(x).split(width, -1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(head)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(future, -math.inf), -1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Linear(width, 4 * width)
        self.c_proj = Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, width))


class GPT2(nn.Module):
    """config: layers, width, heads, context, vocab, tied."""

    def __init__(self, config):
        super().__init__()
        width = config["width"]
        self.wte = Table(config["vocab"], width)
        self.wpe = Table(config["context"], width)
        self.h = nn.ModuleList(Block(width, config["heads"]) for _ in range(config["layers"]))
        self.ln_f = LayerNorm(width)
        if not config["tied"]:
            self.lm_head = Table(config["vocab"], width)

    def forward(self, tokens):
        """tokens: (batch, length) -> logits (batch, length, vocab)."""
        x = self.wte.weight[tokens] + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        head = self.lm_head if hasattr(self, "lm_head") else self.wte
        return self.ln_f(x) @ head.weight.T

    def loss(self, tokens):
        """Mean cross entropy, in nats, of each token given those before it. tokens: (batch, length + 1)."""
        logits = self(tokens[:, :-1])
        chosen = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return (torch.logsumexp(logits, -1) - chosen).mean()

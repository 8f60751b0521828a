"""Llama in plain PyTorch, written for reading: the independent model that seeksim's second family is held against.

Names and layouts are those of Hugging Face's Llama files. A linear layer stores its weight as [out, in], without bias.
"""

import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))

    def forward(self, x):
        return x @ self.weight.T


def at_least_float32(x):
    return x if x.dtype == torch.float64 else x.float()


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = at_least_float32(x)
        normed = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps)
        return (normed * self.weight).to(x.dtype)


def angles(length, head, theta):
    """(length, head / 2): position times a frequency that falls from 1 to nearly 1 / theta."""
    frequencies = theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    return torch.arange(length, dtype=torch.float64)[:, None] * frequencies


def rotate(x, angle):
    """Element i of the first half of a head and element i of the second are turned as one point of the plane."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def for_query_heads(x, group):
    """(batch, key heads, length, head) -> one for each query head: consecutive ones share a key head."""
    return x.repeat_interleave(group, dim=1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads, self.key_heads = config["width"], config["heads"], config["kv_heads"]
        self.head, self.theta = width // self.heads, config["rope_theta"]
        self.q_proj = Linear(width, width)
        self.k_proj = Linear(width, self.key_heads * self.head)
        self.v_proj = Linear(width, self.key_heads * self.head)
        self.o_proj = Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.key_heads, self.head).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.key_heads, self.head).transpose(1, 2)
        angle = angles(length, self.head, self.theta).to(at_least_float32(x).dtype)
        q, k = rotate(q, angle).to(x.dtype), rotate(k, angle).to(x.dtype)
        group = self.heads // self.key_heads
        k, v = for_query_heads(k, group), for_query_heads(v, group)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(future, -math.inf), -1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


def silu(x):
    return x / (1 + torch.exp(-x))


class MLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = Linear(width, hidden)
        self.up_proj = Linear(width, hidden)
        self.down_proj = Linear(hidden, width)

    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, eps = config["width"], config["norm_eps"]
        self.input_layernorm = RmsNorm(width, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(width, eps)
        self.mlp = MLP(width, config["ffn"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, width))


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = Table(config["vocab"], config["width"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["layers"]))
        self.norm = RmsNorm(config["width"], config["norm_eps"])


class Llama(nn.Module):
    """config: layers, width, heads, kv_heads, ffn, vocab, rope_theta, norm_eps, tied."""

    def __init__(self, config):
        super().__init__()
        self.model = Body(config)
        if not config["tied"]:
            self.lm_head = Table(config["vocab"], config["width"])

    def forward(self, tokens):
        """tokens: (batch, length) -> logits (batch, length, vocab)."""
        x = self.model.embed_tokens.weight[tokens]
        for block in self.model.layers:
            x = block(x)
        head = self.lm_head if hasattr(self, "lm_head") else self.model.embed_tokens
        return self.model.norm(x) @ head.weight.T

    def loss(self, tokens):
        """Mean cross entropy, in nats, of each token given those before it. tokens: (batch, length + 1)."""
        logits = self(tokens[:, :-1])
        chosen = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return (torch.logsumexp(logits, -1) - chosen).mean()

"""A small GPT and a text to train it on. What the other scripts of this folder share; it knows nothing of seeksim."""
import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = (
    "Whoever wishes to train on many machines must first learn to distrust each of them. A rank that never comes "
    "looks like a rank that is late. A number that is wrong looks like a number. Nobody complains, the loss falls, "
    "and weeks later somebody asks why the curve has a bump. So we write down what each rank did, and compare. "
)
CONTEXT = 32
VOCAB = 128


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # (B, T, C)
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, layers=2, width=64, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, x):  # (B, T) -> (B, T, VOCAB)
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def samples(count, seed=0):
    """`count` pieces of the text, (count, CONTEXT + 1), at places drawn by the seed."""
    text = torch.tensor([ord(c) for c in TEXT])
    starts = torch.randint(0, len(text) - CONTEXT - 1, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([text[s : s + CONTEXT + 1] for s in starts])


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))

"""PyTorch's training step of the model that bench_gpt_step_bench trains by default, on one thread of a CPU: the peer
of bench/goals.py. Prints "step N ms", the median of processor milliseconds of the steps after the second.

    python torch_cpu_step.py [fused]      fused: scaled_dot_product_attention, not its operations one by one
"""

import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY, STEPS = 4, 256, 4, 128, 8, 512, 12
FUSED = sys.argv[1:] == ["fused"]
UNSEEN = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1)


def attend(q, k, v):  # (B, H, T, D)
    if FUSED:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
    return scores.masked_fill(UNSEEN, float("-inf")).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):  # (B, T, C)
        q, k, v = (
            part.view(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(WIDTH, dim=-1)
        )
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):  # (B, T)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places.weight)))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    taken = []
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
        began = time.process_time()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        taken.append((time.process_time() - began) * 1e3)
    print(f"PyTorch {torch.__version__}: step {statistics.median(taken[2:]):.1f} ms of CPU time, loss {loss.item():.7f}")


if __name__ == "__main__":
    main()

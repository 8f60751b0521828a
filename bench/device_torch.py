"""What PyTorch needs on the same GPU for what tests/backend/device_bench_test.cpp times, in fp32 without TF32, and for
the training step of device_step.json. Prints lines "torch NAME: ...". first-light.sh of a pack runs it.

    python3 device_torch.py
"""

import time

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
DEVICE = "cuda"


def best_s(run, times=10):
    """The best of five rounds, seconds a run."""
    run()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / times)
    return best


def say(name, seconds, flops=0.0, moved=0.0):
    rate = f", {flops / seconds / 1e12:.2f} Tflop/s" if flops else ""
    rate += f", {moved / seconds / 1e9:.1f} GB/s" if moved else ""
    print(f"torch {name}: {seconds * 1e3:.4f} ms{rate}", flush=True)


def kernels():
    n = 1 << 26
    a, b = torch.rand(n, device=DEVICE), torch.empty(n, device=DEVICE)
    say("copy", best_s(lambda: b.copy_(a)), moved=8.0 * n)
    side = 4096
    x, y = torch.rand(side, side, device=DEVICE), torch.rand(side, side, device=DEVICE)
    say("gemm", best_s(lambda: x @ y), flops=2.0 * side**3)
    batch, heads, tokens, head = 2, 16, 2048, 64
    q, k, v = (torch.rand(batch, heads, tokens, head, device=DEVICE) for _ in range(3))
    flops = 4.0 * batch * heads * tokens * tokens * head / 2
    say("attention_forward", best_s(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)), flops=flops)
    parts = torch.rand(8, n, device=DEVICE)
    say("sum_of_8", best_s(lambda: torch.sum(parts, dim=0, out=b)), moved=36.0 * n)
    del parts
    parameter = torch.nn.Parameter(a)
    parameter.grad = torch.rand(n, device=DEVICE)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1, fused=True)
    say("adamw", best_s(optimizer.step), moved=28.0 * n)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.fc, self.out = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):  # (B, T, C)
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers=4, width=256, heads=4, context=128, vocab=512):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocab, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = torch.nn.LayerNorm(width)

    def forward(self, tokens):  # (B, T)
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return self.ln_f(self.blocks(x)) @ self.wte.weight.T


def training_step():
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batch = torch.randint(512, (8, 129), device=DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    say("training_step", best_s(step, 20))


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    kernels()
    training_step()

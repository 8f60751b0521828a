"""Tensors that lie otherwise in memory, as its argument says: "apart" transposed on rank 1 alone; "alike" on each rank.

"refused": each operation that libraries would carry wrongly, or refuse; prints "N are refused" on rank 0.
"""

import sys
from typing import Any, Callable

import torch
import torch.distributed as dist

kind = sys.argv[1]
dist.init_process_group()
rank = dist.get_rank()
numbers = torch.arange(8.0).reshape(2, 4) * 10**rank
transposed = numbers.t().contiguous().t()


def refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except ValueError as why:
        assert "tensor.contiguous()" in str(why), why
    else:
        raise AssertionError("it was carried")


if kind == "apart":
    dist.all_reduce(transposed if rank == 1 else numbers)
elif kind == "alike":
    dist.all_reduce(transposed)
    assert torch.equal(transposed, torch.arange(8.0).reshape(2, 4) * 11), transposed
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    dist.broadcast(image, 0)
    row = torch.ones(4, 1).t()  # a dimension of 1 has any stride
    dist.all_reduce(row if rank == 1 else torch.ones(1, 4))
else:
    out = [torch.zeros(2, 4) for _ in range(2)]
    gaps = numbers[:, ::2]
    calls = [lambda: dist.all_reduce(gaps), lambda: dist.broadcast(gaps, 0), lambda: dist.reduce(gaps, 0)]
    calls += [lambda: dist.all_reduce(torch.ones(1).expand(3))]
    calls += [lambda: dist.scatter(transposed if rank else numbers, [transposed] * 2 if rank == 0 else None, src=0)]
    calls += [lambda: dist.all_to_all_single(out[0], transposed)]
    calls += [lambda: dist.send(transposed, 1) if rank == 0 else dist.recv(transposed, 0)]
    for call in calls:
        refused(call)
    dist.all_gather(out, transposed)  # these copy
    assert torch.equal(out[1], torch.arange(8.0).reshape(2, 4) * 10), out
    dist.barrier()
    print(f"{len(calls)} are refused" if rank == 0 else "")
dist.destroy_process_group()

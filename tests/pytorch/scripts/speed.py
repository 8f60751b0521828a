"""What an all_reduce costs under seeksim, with everything recorded, and under torch's own gloo, in turn.

Started as a rank under seeksim. Rank 0 prints a line for each size.
"""

import datetime
import sys
import time
from typing import Any, Callable, List

import torch
import torch.distributed as dist


def timed(call: Callable[[], Any], ready: Callable[[], Any]) -> float:
    ready()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("speed", dist.distributed_c10d._get_default_store())
    gloo = dist.ProcessGroupGloo(store, rank, n, datetime.timedelta(seconds=300))
    own = dist.group.WORLD._get_backend(torch.device("cpu"))
    for size, count in ((1024, 200), (1 << 20, 60), (16 << 20, 15)):
        x = torch.ones(size // 4)
        times: List[List[float]] = [[], []]
        for _ in range(count):
            for kept, group in zip(times, (own, gloo)):
                kept.append(timed(lambda: group.allreduce([x]).wait(), lambda: (x.fill_(1), gloo.barrier().wait())))
        medians = [sorted(kept)[count // 2] for kept in times]
        least = [min(kept) for kept in times]
        if rank == 0:
            ratio = f"{medians[0] / medians[1]:.2f} of gloo's (least: {least[0] / least[1]:.2f})"
            times_us = f"{medians[0] * 1e6:.0f} us, gloo {medians[1] * 1e6:.0f} us"
            print(f"all_reduce {size} bytes on {n} ranks: {times_us}: {ratio}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

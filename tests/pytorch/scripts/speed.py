"""What an all_reduce costs under seeksim, with everything recorded, and under torch's own gloo, in turn.

Started as a rank under seeksim. Rank 0 prints a line for each size.
"""

import datetime
import sys
import time
from typing import Any, Callable, List, Tuple

import torch
import torch.distributed as dist


def timed(call: Callable[[], Any], ready: Callable[[], Any]) -> Tuple[float, float]:
    """Seconds of the clock, and of the processors that this process used."""
    ready()
    began, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - used


def main() -> None:
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("speed", dist.distributed_c10d._get_default_store())
    gloo = dist.ProcessGroupGloo(store, rank, n, datetime.timedelta(seconds=300))
    own = dist.group.WORLD._get_backend(torch.device("cpu"))
    for size, count in ((1024, 200), (1 << 20, 60), (16 << 20, 15)):
        x = torch.ones(size // 4)
        times: List[List[Tuple[float, float]]] = [[], []]
        for _ in range(count):
            for kept, group in zip(times, (own, gloo)):
                kept.append(timed(lambda: group.allreduce([x]).wait(), lambda: (x.fill_(1), gloo.barrier().wait())))
        for what, which in (("time", 0), ("processor", 1)):
            columns = [sorted(one[which] for one in kept) for kept in times]
            mine, theirs = (column[count // 2] * 1e6 for column in columns)
            least = columns[0][0] / columns[1][0]
            if rank == 0:
                ratio = f"{mine / theirs:.2f} of gloo's (least of each: {least:.2f})"
                print(f"all_reduce {size} bytes on {n} ranks, {what}: {mine:.0f} us, gloo {theirs:.0f} us: {ratio}")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

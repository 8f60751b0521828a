#!/usr/bin/env python3
"""Makes the dumps that dump_test.cpp reads: PyTorch processes on gloo that hang, and dump their flight recorders.

    PYTHON_WITH_TORCH tests/harness/analyse/make_dumps.py OUT [SITUATION...]

Each situation runs in processes of its own. A thread of each rank dumps while the script still stands where it hangs
(after a timeout gloo calls everything finished). Frames keep the script's part alone: PyTorch's own frames name the
machine's folders. Dumps with frames are written again by Python, rank N with pickle protocol 2 + N modulo 4; those of
the situations in RAW are the bytes that PyTorch's own pickler wrote, without frames.

The right answers stand in answers.txt. They were written before the reader was run on the dumps.
"""

import datetime
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

RAW = ("never_joined", "other_size", "other_type", "coalesced", "cycle", "barrier")
JSON = ("subgroup",)
DUMP_AFTER_S = 8.0


def wait_for_the_others(odd):
    """gloo ends the process that receives more than it asked for: by then it has left its dump."""
    if odd:
        time.sleep(3)


def dump_at_once():
    write_dump(sys.argv[2], sys.argv[3], int(os.environ["RANK"]))


def never_joined(dist, torch, rank):
    for _ in range(2):
        dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(60)
    dist.all_reduce(torch.ones(8))


def late(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(1.5)
    dist.all_reduce(torch.ones(8))
    time.sleep(60)


def other_operation(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        dist.broadcast(torch.ones(8), 1)
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(8))
    time.sleep(60)


def other_size(dist, torch, rank):
    dist.all_reduce(torch.ones(64))
    wait_for_the_others(rank == 3)
    dist.all_reduce(torch.ones(100_000 if rank == 3 else 64), async_op=True)
    dump_at_once()
    time.sleep(60)


def other_type(dist, torch, rank):
    dist.all_reduce(torch.ones(64))
    wait_for_the_others(rank == 0)
    dist.all_reduce(torch.ones(64, dtype=torch.float64 if rank == 0 else torch.float32), async_op=True)
    dump_at_once()
    time.sleep(60)


def cycle(dist, torch, rank):
    one, two = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    for group in (one, two):
        dist.all_reduce(torch.ones(4), group=group)
    for group in (one, two) if rank < 2 else (two, one):
        dist.all_reduce(torch.ones(16), group=group)


def subgroup(dist, torch, rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dist.all_reduce(torch.ones(4), group=pairs[rank // 2])
    dist.all_reduce(torch.ones(4))
    if rank == 3:
        time.sleep(60)
    dist.all_reduce(torch.ones(12), group=pairs[rank // 2])
    dist.all_reduce(torch.ones(4))


def p2p(dist, torch, rank):
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        dist.recv(torch.ones(4), 0)
    dist.all_reduce(torch.ones(4))


def batched_p2p(dist, torch, rank):
    dist.all_reduce(torch.ones(4))
    if rank == 3:
        ops = [dist.P2POp(dist.isend, torch.ones(2), 2), dist.P2POp(dist.irecv, torch.ones(2), 2)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    dist.barrier()


def missing_files(dist, torch, rank):
    for _ in range(3):
        dist.all_reduce(torch.ones(8))
    if rank == 3:
        time.sleep(60)
    dist.all_reduce(torch.ones(8))


def crash(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        os._exit(1)
    dist.all_reduce(torch.ones(8))


def barrier(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank == 0:
        time.sleep(60)
    dist.barrier()


def coalesced(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    wait_for_the_others(rank == 1)
    dist.all_reduce_coalesced([torch.ones(8)] * (4 if rank == 1 else 3), async_op=True)
    dump_at_once()
    time.sleep(60)


def desynchronised(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        dist.all_reduce(torch.ones(2), async_op=True)
    for size in (8, 16, 24):
        dist.broadcast(torch.ones(size), 0, async_op=True)
        dist.all_reduce(torch.ones(size), async_op=True)
    time.sleep(60)


def two_against_two(dist, torch, rank):
    dist.all_reduce(torch.ones(8))
    if rank < 2:
        dist.all_reduce(torch.ones(8), async_op=True)
    else:
        dist.all_gather([torch.ones(8)] * 4, torch.ones(8), async_op=True)
    time.sleep(60)


def finished(dist, torch, rank):
    for _ in range(3):
        dist.all_reduce(torch.ones(8))
    dist.barrier()
    time.sleep(60)


SITUATIONS = {
    f.__name__: f
    for f in (never_joined, late, other_operation, other_size, other_type, cycle, subgroup, p2p, batched_p2p,
              missing_files, crash, barrier, coalesced, desynchronised, two_against_two, finished)
}
NO_DUMP = {"missing_files": [1]}  # not copied


def own_frames(frames):
    """Frames of this script, under a name without folders."""
    mine = [f for f in frames if os.path.basename(f["filename"]) == os.path.basename(__file__)]
    return [dict(f, filename="train.py") for f in mine[:2]]


def write_dump(out, situation, rank):
    from torch._C import _distributed_c10d as c10d
    path = f"{out}/nccl_trace_rank_{rank}"
    if situation in RAW:
        content = c10d._dump_fr_trace(True, False)
    else:
        dump = pickle.loads(c10d._dump_fr_trace(True, True))
        for entry in dump["entries"]:
            entry["frames"] = own_frames(entry["frames"])
        content = pickle.dumps(dump, protocol=2 + rank % 4)
        if situation in JSON:
            content = json.dumps(dump, indent=1).encode()
            path += ".json"
    with open(path, "wb") as file:
        file.write(content)


def run_rank(out, situation, rank):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=50))
    dist.monitored_barrier()

    def dump_and_leave():
        time.sleep(DUMP_AFTER_S)
        write_dump(out, situation, rank)
        os._exit(0)

    threading.Thread(target=dump_and_leave, daemon=True).start()
    try:
        SITUATIONS[situation](dist, torch, rank)
    except RuntimeError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)
    time.sleep(60)


def run_situation(out, situation):
    folder = os.path.join(out, situation)
    os.makedirs(folder, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_FR_BUFFER_SIZE="200",
               OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--rank", folder, situation],
                              env=dict(env, RANK=str(rank))) for rank in range(4)]
    for process in ranks:
        process.wait(timeout=90)
    for rank in NO_DUMP.get(situation, []):
        os.remove(f"{folder}/nccl_trace_rank_{rank}")


def main():
    """The command line."""
    if sys.argv[1] == "--rank":
        run_rank(sys.argv[2], sys.argv[3], int(os.environ["RANK"]))
    for situation in sys.argv[2:] or SITUATIONS:
        run_situation(sys.argv[1], situation)


if __name__ == "__main__":
    main()

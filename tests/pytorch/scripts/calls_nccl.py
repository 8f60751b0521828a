"""On rank 1, calls NCCL's all_reduce by its name, as a backend on a GPU would, twice. There is no NCCL here: what is
called is the library that the command preloads, and only a rule keeps it from calling NCCL."""

import ctypes

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    call = ctypes.CDLL(None).ncclAllReduce
    results = [call(None, None, ctypes.c_size_t(0), 7, 0, None, None) for _ in range(2)]
    print(f"NCCL returned {results}", flush=True)
dist.barrier()
dist.destroy_process_group()

"""Every operation of torch.distributed against values that it must give, on as many ranks as it is started with.

Prints "N operations are right" on rank 0. What is wrong ends the script with an AssertionError that names it. Its
arguments are what a backend below seeksim's does not do: "ragged" all_gathers, "all_to_all" of lists, "any" source of a
message. With "itself" seeksim's backend stands before one of its own, which takes several operations as one, as NCCL
does and gloo does not. With "cuda" all tensors lie on GPUs, over NCCL.
"""

import inspect
import itertools
import os
import sys
from typing import Any, List

import torch
import torch.distributed as dist

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
Op = dist.ReduceOp
done: List[str] = []
n = rank = 0


def check(name: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (name, got.dtype, wanted.dtype)
    assert torch.equal(got, wanted), (name, rank, got, wanted)
    done.append(name)


def given(place: int, k: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a rank brings: small numbers, so that every type holds them and their sums."""
    return ((torch.arange(k) + 3 * place) % 7 + 1).to(dtype)


def random(k: int, seed: int) -> torch.Tensor:
    """The same numbers on every rank and device."""
    drawn = torch.randn(k, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return drawn.to(torch.get_default_device())


def tree(values: List[Any], combine: Any) -> Any:
    """Combines values in the aligned binary tree over ranks."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def wide(dtype: torch.dtype) -> torch.dtype:
    if dtype in (torch.float16, torch.bfloat16, *EIGHTS):
        return torch.float32
    return torch.int64 if dtype in INTEGERS else dtype


def all_reduces() -> None:
    for dtype in INTEGERS + FLOATS + EIGHTS + COMPLEX:
        values = [given(r, 9, dtype).to(wide(dtype)) for r in range(n)]
        cases = [(Op.SUM, tree(values, torch.add))]
        if dtype not in INTEGERS:
            total = tree(values, torch.add)  # torch's own division of complex numbers multiplies
            average = torch.view_as_complex(torch.view_as_real(total) / n) if dtype in COMPLEX else total / n
            cases.append((Op.AVG, average))
        else:
            cases.append((Op.AVG, torch.div(tree(values, torch.add), n, rounding_mode="trunc")))
            bits = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}
            cases += [(op, tree(values, combine)) for op, combine in bits.items()]
        if dtype not in COMPLEX:
            cases += [(Op.MIN, tree(values, torch.minimum)), (Op.MAX, tree(values, torch.maximum))]
            cases += [(Op.PRODUCT, tree(values, torch.mul))]
        for op, wanted in cases:
            x = given(rank, 9, dtype)
            dist.all_reduce(x, op)
            if dtype in EIGHTS:  # torch compares no fp8; what is too large is the largest number, as torch 2.15 has it
                wanted = wanted.clamp(max=torch.finfo(dtype).max)
                check(f"all_reduce {op} {dtype}", x.to(torch.float32), wanted.to(dtype).to(torch.float32))
            else:
                check(f"all_reduce {op} {dtype}", x, wanted.to(dtype))
    x = torch.tensor([rank == 0, True, False])
    dist.all_reduce(x, Op.SUM)
    check("all_reduce bool", x, torch.tensor([True, True, False]))
    x = given(rank)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    check("all_reduce premul_sum", x, tree([given(r) * 0.5 for r in range(n)], torch.add))


def sparse() -> None:
    """Sums of sparse tensors: rows of each rank, one of them twice, and one that adds up to zero and stays."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for op in (Op.SUM, Op.AVG):
            rows = [rank, rank, n + 1, n + 2]
            values = torch.ones(4, 3, dtype=dtype) * (1 + rank)
            values[3] = (1 if rank == 0 else -1 if rank == 1 else 0)
            x = torch.sparse_coo_tensor(torch.tensor([rows]), values, (n + 4, 3))
            dist.all_reduce(x, op)
            wanted = torch.zeros(n + 4, 3, dtype=wide(dtype))
            for r in range(n):
                wanted[r] = 2 * (1 + r)
            wanted[n + 1] = sum(1 + r for r in range(n))
            if op == Op.AVG:
                wanted = torch.div(wanted, n, rounding_mode="trunc") if dtype in INTEGERS else wanted / n
            check(f"all_reduce {op} of rows of {dtype}", x.to_dense(), wanted.to(dtype))
            there = torch.tensor([*range(n), n + 1, n + 2])
            check(f"rows of all_reduce {op} of {dtype}", x.coalesce().indices()[0], there)
    x = torch.sparse_coo_tensor(torch.tensor([[rank], [0]]), torch.ones(1), (n, 2))  # single elements
    dist.all_reduce(x)
    check("all_reduce of sparse elements", x.to_dense(), torch.tensor([[1.0, 0.0]] * n))
    x = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 2), (3, 2))
    dist.all_reduce(x)
    check("all_reduce of sparse tensors without a row", x.to_dense(), torch.zeros(3, 2))


def rounding() -> None:
    """Numbers whose sum depends on its order: the tree's bits, whole or in any cutting."""
    all_values = [random(700_001, r) * 10**r for r in range(n)]
    wanted = tree(all_values, torch.add)
    x = all_values[rank].clone()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    check("all_reduce in rounds", x, wanted)
    strided = all_values[rank][:700_000].view(700, 1000).t()
    dist.all_reduce(strided)
    check("all_reduce of a transposed tensor", strided, wanted[:700_000].view(700, 1000).t())
    k = 700_000 // n
    x = torch.empty(k)
    whole = torch.stack([random(k * n, 50 + r) for r in range(n)])
    dist.reduce_scatter_tensor(x, whole[rank].clone())
    check("reduce_scatter_tensor in rounds", x, tree(list(whole), torch.add)[k * rank : k * (rank + 1)])
    x = torch.tensor([float("nan") if rank == n - 1 else 1.0])
    dist.all_reduce(x, Op.MAX)
    assert torch.isnan(x).all(), "a maximum lost a NaN"
    done.append("all_reduce NaN")


def one_to_all() -> None:
    for root in range(n):
        x = given(rank)
        dist.broadcast(x, root)
        check("broadcast", x, given(root))
        x = given(rank)
        dist.reduce(x, root)
        check("reduce", x, tree([given(r) for r in range(n)], torch.add) if rank == root else given(rank))
        out = [torch.empty(5) for _ in range(n)] if rank == root else None
        dist.gather(given(rank), out, root)
        for r in range(n if rank == root else 0):
            check("gather", out[r], given(r))
        x = torch.empty(5)
        dist.scatter(x, [given(r + root) for r in range(n)] if rank == root else None, root)
        check("scatter", x, given(rank + root))
    big = torch.arange(600_000.0) if rank == n - 1 else torch.zeros(600_000)
    dist.broadcast(big, n - 1)
    check("broadcast in rounds", big, torch.arange(600_000.0))


def all_to_all_ranks() -> None:
    out = [torch.empty(5) for _ in range(n)]
    dist.all_gather(out, given(rank))
    for r in range(n):
        check("all_gather", out[r], given(r))
    if "ragged" not in sys.argv:
        out = [torch.empty(r + 1) for r in range(n)]
        dist.all_gather(out, torch.full((rank + 1,), float(rank)))
        for r in range(n):
            check("all_gather of ragged parts", out[r], torch.full((r + 1,), float(r)))
    flat = torch.empty(5 * n)
    dist.all_gather_into_tensor(flat, given(rank))
    check("all_gather_into_tensor", flat, torch.cat([given(r) for r in range(n)]))
    x = torch.empty(4)
    dist.reduce_scatter(x, list(given(rank, 4 * n).split(4)))
    check("reduce_scatter", x, tree([given(r, 4 * n) for r in range(n)], torch.add)[4 * rank : 4 * rank + 4])
    x = torch.empty(2 * n)
    dist.all_to_all_single(x, given(rank, 2 * n))
    check("all_to_all_single", x, torch.cat([given(r, 2 * n)[2 * rank : 2 * rank + 2] for r in range(n)]))
    gives, takes = [r + rank + 1 for r in range(n)], [r + rank + 1 for r in range(n)]
    x, y = torch.empty(sum(takes), 3), torch.full((sum(gives), 3), float(rank))
    dist.all_to_all_single(x, y, takes, gives)
    check("all_to_all_single, ragged", x, torch.cat([torch.full((k, 3), float(r)) for r, k in enumerate(takes)]))
    if "all_to_all" in sys.argv:
        return
    out = [torch.empty(rank + 1) for _ in range(n)]
    dist.all_to_all(out, [torch.full((r + 1,), float(rank)) for r in range(n)])
    for r in range(n):
        check("all_to_all", out[r], torch.full((rank + 1,), float(r)))


def coalesced() -> None:
    group = dist.group.WORLD
    tensors = [given(rank, k) for k in (3, 5)]
    dist.all_reduce_coalesced(tensors)
    for x, k in zip(tensors, (3, 5)):
        check("all_reduce_coalesced", x, tree([given(r, k) for r in range(n)], torch.add))
    outs = [torch.empty(k * n) for k in (3, 5)]
    group.allgather_into_tensor_coalesced(outs, [given(rank, k) for k in (3, 5)]).wait()
    for x, k in zip(outs, (3, 5)):
        check("all_gather_into_tensor, coalesced", x, torch.cat([given(r, k) for r in range(n)]))
    outs = [torch.empty(k) for k in (3, 5)]
    group.reduce_scatter_tensor_coalesced(outs, [given(rank, k * n) for k in (3, 5)]).wait()
    for x, k in zip(outs, (3, 5)):
        wanted = tree([given(r, k * n) for r in range(n)], torch.add)[k * rank : k * (rank + 1)]
        check("reduce_scatter_tensor, coalesced", x, wanted)


def messages() -> None:
    right, left = (rank + 1) % n, (rank - 1) % n
    for size in (0, 3, 200_000):
        x = torch.empty(size)
        sends = dist.P2POp(dist.isend, torch.full((size,), float(rank)), right)
        works = dist.batch_isend_irecv([sends, dist.P2POp(dist.irecv, x, left)])
        for work in works:
            work.wait()
        check("batch_isend_irecv", x, torch.full((size,), float(left)))
    if "any" in sys.argv:
        return
    if rank == 0:
        senders = set()
        for _ in range(n - 1):
            x = torch.empty(2)
            source = dist.recv(x)
            check("recv from any", x, torch.full((2,), float(source)))
            senders.add(source)
        assert senders == set(range(1, n)), senders
    else:
        dist.send(torch.full((2,), float(rank)), 0)


def groups_and_objects() -> None:
    objects: List[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (10 * rank)})
    assert [o["rank"] for o in objects] == list(range(n))
    box = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(box, 0)
    assert box[0] == {"from": 0}
    mine: List[Any] = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(n)] if rank == 0 else None, 0)
    assert mine[0] == f"to {rank}"
    done.append("objects")
    for members in itertools.combinations(range(n), 2):
        pair = dist.new_group(list(members))
        if rank in members:
            x = given(rank)
            dist.all_reduce(x, group=pair)
            check("new_group", x, given(members[0]) + given(members[1]))
            x = given(rank)
            dist.broadcast(x, members[1], group=pair)
            check("broadcast in a group", x, given(members[1]))
    dist.barrier()
    if "cuda" not in sys.argv:
        dist.monitored_barrier()
    done.append("barriers")


def refusals() -> None:
    for what, call in {
        "band of fp32": lambda: dist.all_reduce(given(rank), Op.BAND),
        "max of complex64": lambda: dist.all_reduce(given(rank, 3, torch.complex64), Op.MAX),
        "avg of bool": lambda: dist.all_reduce(torch.tensor([True]), Op.AVG),
        "sparse": lambda: dist.all_reduce(torch.eye(2).to_sparse(), Op.MAX),
    }.items():
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert what in str(error) or "complex" in str(error), error
        else:
            raise AssertionError(f"{what} was not refused")
    done.append("refusals")


def over_itself() -> str:
    """The name of a backend that carries what another one of seeksim's meets for."""
    c10d = dist.distributed_c10d
    module = inspect.getclosurevars(c10d.Backend._plugins["GLOO"].creator_fn).nonlocals["module"]

    def create(options: Any, _: Any = None) -> Any:
        def one(name: str, inner: Any) -> Any:
            place = (options.group_rank, options.group_size)
            store = dist.PrefixStore(name, options.store)
            ranks = list(options.global_ranks_in_group)
            return module.create(store, *place, f"{options.group_id} {name}", ranks, 60.0, name, inner, False)

        return one("above", one("below", None))

    c10d.Backend.register_backend("above", create, extended_api=True, devices=["cpu"])
    return "above"


def main() -> None:
    global n, rank
    if "cuda" in sys.argv:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.set_default_device("cuda")
    dist.init_process_group(over_itself() if "itself" in sys.argv else "nccl" if "cuda" in sys.argv else "gloo")
    n, rank = dist.get_world_size(), dist.get_rank()
    sums = (all_reduces, sparse, rounding, one_to_all, all_to_all_ranks, coalesced)
    for part in (*sums, messages, groups_and_objects, refusals):
        part()
    if rank == 0:
        print(f"{len(done)} operations are right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One training in many layouts: DDP, FSDP1, FSDP2, HSDP and DeepSpeed's ZeRO 0 to 3.

The same model, the same samples in the same order, the same optimizer; --layout says who keeps what where. It is
written as one writes it for each of them.
"""
import argparse
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn

from model import GPT, Block, loss_of, samples


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", default="ddp", help="ddp, fsdp1, fsdp2, hsdp, zero0, zero1, zero2 or zero3")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=12, help="samples of a micro-batch, all ranks together")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--clip", type=float, default=0.0, help="largest norm of the gradient; 0: any")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "sgd", "fused"])
    parser.add_argument("--offload", action="store_true", help="ZeRO: the optimizer's state stays on the CPU")
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the deepspeed launcher")
    return parser.parse_args()


def make_optimizer(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=1e-3, fused=name == "fused")


def share(args, data, step, micro, rank, world):
    """What this rank sees in a micro-batch."""
    mine = args.batch // world
    first = (step * args.accumulation + micro) * args.batch + rank * mine
    return data[first : first + mine]


def deepspeed_config(args, world):
    config = {
        "train_micro_batch_size_per_gpu": args.batch // world,
        "gradient_accumulation_steps": args.accumulation,
        "gradient_clipping": args.clip,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": int(args.layout[4:])},
        "bf16": {"enabled": args.precision == "bf16"},
        "steps_per_print": 1000000,
    }
    if args.layout == "zero3":  # its own linear multiplies in another shape than torch's
        config["zero_optimization"]["memory_efficient_linear"] = False
    if args.offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        config["zero_force_ds_cpu_optimizer"] = False  # torch's optimizer works there too, and is not compiled first
    return config


def train_with_deepspeed(args, model, data):
    import deepspeed

    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = make_optimizer(args.optimizer, model.parameters())
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=deepspeed_config(args, world))
    for step in range(args.steps):
        for micro in range(args.accumulation):
            loss = loss_of(engine, share(args, data, step, micro, rank, world))
            engine.backward(loss)
            engine.step()
        report(rank, step, loss)


def wrapped(args, model, world):
    if args.layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if args.layout == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=torch.device("cpu")
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if args.layout == "hsdp":  # shards inside pairs of neighbours, replicas across them
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(args, model, data):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = wrapped(args, model, world)
    optimizer = make_optimizer(args.optimizer, model.parameters())
    narrow = torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16")
    for step in range(args.steps):
        for micro in range(args.accumulation):
            last = micro + 1 == args.accumulation
            if args.layout in ("fsdp2", "hsdp"):
                model.set_requires_gradient_sync(last)
            waits = args.layout in ("ddp", "fsdp1") and not last
            with model.no_sync() if waits else contextlib.nullcontext():
                with narrow:
                    loss = loss_of(model, share(args, data, step, micro, rank, world))
                (loss / args.accumulation).backward()
        if args.clip and args.layout == "fsdp1":
            model.clip_grad_norm_(args.clip)
        elif args.clip:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()
        report(rank, step, loss)


def report(rank, step, loss):
    if rank == 0:
        print(f"step {step}: loss {loss.item():.4f}")


def main():
    args = arguments()
    torch.manual_seed(1)
    model = GPT()
    data = samples(args.steps * args.accumulation * args.batch)
    (train_with_deepspeed if args.layout.startswith("zero") else train)(args, model, data)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

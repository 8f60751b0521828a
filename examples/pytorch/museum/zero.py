"""DeepSpeed's engine on a small network: stage, accumulation and precision by its configuration."""
import argparse

import deepspeed
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--adamw", action="store_true", help="instead of SGD")
    parser.add_argument("--offload", action="store_true", help="the optimizer's state to the host")
    parser.add_argument("--by-hand", action="store_true", help="the loop says which backward pass is the last of a step")
    args = parser.parse_args()

    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    zero = {"stage": args.stage}
    if args.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1 if args.by_hand else args.accumulate,
        "gradient_clipping": args.clip,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": args.bf16},
        "data_types": {"grad_accum_dtype": "fp32" if args.stage else None},
        "steps_per_print": 1000,
    }
    if args.adamw:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for micro in range(1, 5 * args.accumulate + 1):
        x = torch.randn(4, 16, generator=draw)
        y = x.sum(1, keepdim=True)
        if args.bf16:
            x, y = x.bfloat16(), y.bfloat16()
        loss = torch.nn.functional.mse_loss(engine(x).float(), y.float())
        if args.by_hand:
            engine.set_gradient_accumulation_boundary(micro % args.accumulate == 0)
        engine.backward(loss)
        if not args.by_hand or micro % args.accumulate == 0:
            engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""DeepSpeed's Muon under ZeRO, for matrices that two ranks share. --whole averages gradients without a reduce-scatter."""
import argparse
import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Muon's kernel takes longer to compile than to run

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": args.stage, "reduce_scatter": not args.whole},
        "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
        "steps_per_print": 1000,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(6):
        x = torch.randn(4, 16, generator=draw)
        engine.backward(torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True)))
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

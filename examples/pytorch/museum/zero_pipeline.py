"""DeepSpeed's pipeline: a stage on each process, 16 rows a step in micro-batches."""
import argparse

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule


def rows():
    draw = torch.Generator().manual_seed(2)
    for _ in range(128):
        x = torch.randn(16, generator=draw)
        yield x, x.sum(0, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=1)
    args, _ = parser.parse_known_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    layers = [torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)]
    model = PipelineModule(layers=layers, num_stages=dist.get_world_size(), loss_fn=torch.nn.MSELoss(), partition_method="uniform")
    config = {
        "train_micro_batch_size_per_gpu": 16 // args.accumulate,
        "gradient_accumulation_steps": args.accumulate,
        "gradient_clipping": 0.0,
        "steps_per_print": 1000,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    data = iter(torch.utils.data.DataLoader(list(rows()), batch_size=16 // args.accumulate))
    for _ in range(6):
        engine.train_batch(data)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

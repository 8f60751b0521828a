"""Which optimizer does transformers' Trainer use with DeepSpeed? Prints how far a weight moves in each step.

    torchrun --nproc-per-node 2 trainer_deepspeed_optimizer.py none    # DDP
    torchrun --nproc-per-node 2 trainer_deepspeed_optimizer.py 2       # DeepSpeed, ZeRO 2
"""
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.nn as nn
import transformers

warnings.simplefilter("ignore")
STAGE = sys.argv[1]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": int(STAGE) if STAGE != "none" else 0},
}


class Training(transformers.Trainer):
    before = torch.zeros(3)

    def compute_loss(self, net, inputs, return_outputs=False, num_items_in_batch=None):
        bias = self.model.bias.detach().clone()
        if self.state.global_step > 0 and dist.get_rank() == 0:
            print(f"step {self.state.global_step}: the bias moved by {(bias - self.before).abs().max():.6f}")
        self.before = bias
        return net(inputs["x"]).square().mean()


def main():
    torch.manual_seed(1)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    generator = torch.Generator().manual_seed(2)
    samples = [{"x": torch.randn(8, generator=generator)} for _ in range(64)]
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder, use_cpu=True, ddp_backend="gloo", max_steps=4, per_device_train_batch_size=4,
            max_grad_norm=0.0, report_to="none", disable_tqdm=True, save_strategy="no",
            logging_strategy="no", deepspeed=None if STAGE == "none" else CONFIG,
            ddp_find_unused_parameters=False, remove_unused_columns=False,
        )
        trainer = Training(model, options, train_dataset=samples, optimizers=(optimizer, schedule))
        trainer.train()
    used = trainer.optimizer.optimizer
    used = getattr(used, "optimizer", used)  # ZeRO's has one inside
    if dist.get_rank() == 0:
        print(f"given: SGD, 0.5; used: {type(used).__name__}, {used.param_groups[0]['lr']}")


if __name__ == "__main__":
    main()

"""transformers' Trainer on a small GPT-2 with random weights; --zero STAGE trains it with DeepSpeed."""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from model import VOCAB, samples


class Text(torch.utils.data.Dataset):
    def __init__(self, count):
        self.rows = samples(count)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def deepspeed_config(stage):
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--zero", type=int, default=-1, help="DeepSpeed with this stage; -1: DDP")
    args = parser.parse_args()

    set_seed(1)
    config = GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.0  # ranks draw other dropouts
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=args.steps,
            learning_rate=1e-3,
            max_grad_norm=0.0,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            deepspeed=deepspeed_config(args.zero) if args.zero >= 0 else None,
        )
        Trainer(model=model, args=options, train_dataset=Text(128)).train()


if __name__ == "__main__":
    main()

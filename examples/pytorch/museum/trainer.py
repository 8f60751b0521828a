"""transformers' Trainer on a tiny GPT-2, as anybody would write it; nothing is downloaded."""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from text import VOCAB, Text


class InOrder(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--smoothing", type=float, default=0.0, help="of labels")
    args = parser.parse_args()

    set_seed(1)
    sizes = {"vocab_size": VOCAB, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, bos_token_id=0, eos_token_id=0))
    options = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=args.accumulate,
        max_steps=5,
        learning_rate=0.02,
        label_smoothing_factor=args.smoothing,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        optim="sgd",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
    )
    InOrder(model=model, args=options, train_dataset=Text(unequal=True)).train()


if __name__ == "__main__":
    main()

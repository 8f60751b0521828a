"""transformers' Trainer that saves each second step, and goes on from the newest checkpoint that it finds."""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from model import VOCAB, samples


class Text(torch.utils.data.Dataset):
    def __init__(self, count):
        self.rows = samples(count)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--folder", required=True, help="of the checkpoints")
    args = parser.parse_args()

    set_seed(1)
    config = GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    options = TrainingArguments(
        output_dir=args.folder,
        per_device_train_batch_size=4,
        max_steps=args.steps,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="steps",
        save_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=options, train_dataset=Text(64))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.folder))


if __name__ == "__main__":
    main()

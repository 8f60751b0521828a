"""Lightning on a stream: a data set that reads on where it stopped. With --resume, stopped after an epoch and resumed."""
import argparse
import os
import tempfile

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    """Eight batches an epoch from one reader, as from an open file or a queue."""

    def __init__(self):
        draw = torch.Generator().manual_seed(5)
        self.reader = iter([torch.randn(4, 8, generator=draw) for _ in range(64)])

    def __iter__(self):
        for _ in range(8):
            yield next(self.reader)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, x, index):
        return torch.nn.functional.mse_loss(self.net(x), x.sum(1, keepdim=True))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def fit(data, epochs, checkpoint=None):
    pl.seed_everything(1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **quiet)
    trainer.fit(Model(), data, ckpt_path=checkpoint)
    return trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    data = DataLoader(Stream(), batch_size=None)
    checkpoint = None
    if args.resume:
        checkpoint = os.path.join(tempfile.mkdtemp(), "first.ckpt")
        fit(data, 1).save_checkpoint(checkpoint)
    fit(data, 2, checkpoint)


if __name__ == "__main__":
    main()

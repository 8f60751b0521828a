"""Lightning that accumulates micro-batches to steps of 8 rows, as its documentation shows it."""
import argparse

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ModelWithIndex(Model):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--without-index", action="store_true", help="a training_step() that does not take batch_idx")
    parser.add_argument("--validate", type=int, help="validate after so many micro-batches")
    args = parser.parse_args()
    pl.seed_everything(1)
    x = torch.rand(64, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    trainer = pl.Trainer(
        max_epochs=1,
        accumulate_grad_batches=args.accumulate,
        val_check_interval=args.validate,
        limit_val_batches=1 if args.validate else 0,
        num_sanity_val_steps=0,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model() if args.without_index else ModelWithIndex()
    trainer.fit(model, DataLoader(data, batch_size=8 // args.accumulate), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()

"""Lightning: the module says what a step is, the Trainer does the rest, checkpoints included."""
import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from model import GPT, loss_of, samples


class Language(L.LightningModule):
    def __init__(self, steps):
        super().__init__()
        self.model, self.steps = GPT(), steps

    def training_step(self, tokens, index):
        loss = loss_of(self.model, tokens)
        self.log("loss", loss, prog_bar=False)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", default="", help="of the checkpoints; none: nothing is saved")
    parser.add_argument("--resume", default="", help="a checkpoint to go on from")
    args = parser.parse_args()

    L.seed_everything(1, verbose=False)
    saves = [ModelCheckpoint(args.folder, save_last=True, save_top_k=0)] if args.folder else []
    trainer = L.Trainer(
        accelerator="cpu",
        devices=args.ranks,
        strategy="ddp",
        max_epochs=args.epochs,
        callbacks=saves,
        logger=False,
        enable_checkpointing=bool(saves),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(samples(32), batch_size=4, shuffle=True)
    trainer.fit(Language(steps=4 * args.epochs), loader, ckpt_path=args.resume or None)


if __name__ == "__main__":
    main()

"""Lightning goes on with what it saved at an epoch's end. Prints which samples each epoch has, of 4.

    python lightning_resumed_epoch.py max_steps max_steps      # the next epoch has one sample
    python lightning_resumed_epoch.py max_epochs max_steps
    python lightning_resumed_epoch.py max_steps max_epochs     # right
"""
import logging
import os
import sys
import tempfile
import warnings

import lightning
import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
QUIET = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(1, 1), {}

    def training_step(self, x, i):
        self.seen.setdefault(self.current_epoch, []).append(int(x.item()))
        return self.layer(x).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(how, epochs, saved=None):
    model = Model()
    samples = torch.utils.data.DataLoader([torch.tensor([float(i)]) for i in range(4)], batch_size=1)
    until = {"max_steps": 4 * epochs} if how == "max_steps" else {"max_epochs": epochs}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, **until, **QUIET)
    trainer.fit(model, samples, ckpt_path=saved)
    print(*(f"epoch {epoch}: {samples};" for epoch, samples in model.seen.items()))
    return trainer


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "saved")
        fit(sys.argv[1], 1).save_checkpoint(file)
        fit(sys.argv[2], 3, file)


if __name__ == "__main__":
    main()

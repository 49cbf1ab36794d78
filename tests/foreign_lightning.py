"""A LightningModule as one writes it without knowing of this project."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn


class Own(L.LightningModule):
    """A small network with its own loss, optimiser and hyperparameters, one of them an object."""

    def __init__(self, classes: int = 3, rate: float = 0.03, loss: nn.Module | None = None):
        super().__init__()
        self.loss = loss or nn.MultiMarginLoss()
        self.save_hyperparameters()
        self.hparams["activation"] = nn.ReLU()
        self.conv = nn.Conv2d(3, 6, 5, stride=4)
        self.fc = nn.Linear(6, classes)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).mean((2, 3)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("margin", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)


class Half(Own):
    """One that leaves its optimiser to others."""

    configure_optimizers = L.LightningModule.configure_optimizers

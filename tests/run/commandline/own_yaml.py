"""What a user adds: a task, a network and a detector, each one file beside its YAML."""

from dataclasses import dataclass
from typing import Self

import pandas as pd
from torch import Tensor, nn

from ood_lab.detectors.base import Detector
from ood_lab.features.bank import FeatureBank
from ood_lab.run.job.workspace import Task, Workspace

TASK = """
_target_: own_yaml.CountImages
uses: [data]
least: 0
"""
MODEL = """
defaults: [module, _self_]
name: two_layers
net: {_target_: own_yaml.TwoLayers, width: 8}
head: head
"""
DETECTOR = """# @package _global_
detector:
  largest:
    _target_: own_yaml.LargestFeatures
    k: 2
"""


@dataclass(frozen=True, kw_only=True)
class CountImages(Task):
    """Images of every set that has at least ``least``."""

    least: int

    def run(self, ws: Workspace) -> pd.DataFrame:
        """Writes ``counts.csv``."""
        counts = {name: len(split) for name, split in ws.data.splits.items()}
        table = pd.DataFrame({"set": counts.keys(), "n": counts.values()})
        table = table[table["n"] >= self.least]
        table.to_csv(ws.folder / "counts.csv", index=False)


class TwoLayers(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 8, stride=8)
        self.head = nn.Linear(width, 11)

    def forward(self, image: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.first(image).relu().mean((2, 3)))


class LargestFeatures(Detector):
    """The sum of the k largest features, in units of their mean over the fit split, negated."""

    fit_split = "train"

    def __init__(self, k: int) -> None:
        self.k = k

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``mean``."""
        self.fitted["mean"] = self._sums(bank).mean()
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """See the class."""
        return -self._sums(bank) / self.fitted["mean"]

    def _sums(self, bank: FeatureBank) -> Tensor:
        return bank.features.double().topk(self.k, dim=1).values.sum(dim=1)

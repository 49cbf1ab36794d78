"""The detector that docs/how-to/extend.md adds is one."""

import re
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.metrics import roc_auc_score

from ood_lab.detectors.base import checked_score

PAGE = (Path(__file__).parents[2] / "docs" / "how-to/extend.md").read_text()


def block(language):
    """What the page shows, byte for byte."""
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.S)[1]


def test_it_detects(blobs):
    names = {}
    exec(block("python"), names)
    node = yaml.safe_load(block("yaml"))
    target = "my_detectors.NearestMean"
    assert node == {"detector": {"nearest": {"_target_": target}}}
    detector = names["NearestMean"]()
    assert detector.name == "nearest"
    detector.fit(blobs.train)
    scores = [checked_score(detector, bank) for bank in (blobs.test, blobs.ood)]
    truth = np.repeat([0, 1], [len(part) for part in scores])
    assert roc_auc_score(truth, torch.cat(scores)) > 0.85

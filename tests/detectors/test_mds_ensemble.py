"""MDS-Ensemble: its layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from network_toys import extract, labelled, noise

from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.gram import Gram
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.mds_ensemble import MDSEnsemble


def test_mds_ensemble_is_the_mean_of_mds_on_the_pooled_maps(tiny):
    labels = torch.arange(60) % 4
    detector, one = MDSEnsemble(layers=["early", "late"]), MDSEnsemble(layers=["late"])
    fit = labelled(extract(tiny, noise(60), detector, one), labels)
    test = extract(tiny, noise(20, seed=2), detector, one)  # without labels
    last = MDS().fit(fit).score(test)  # the features are the pooled maps of the last layer
    torch.testing.assert_close(one.fit(fit).score(test), last)
    maps = {}
    hook = tiny.early.register_forward_hook(lambda m, i, out: maps.update(early=out))
    pooled = []
    for images in (noise(60), noise(20, seed=2)):
        tiny(images)
        pooled.append(maps["early"].mean(dim=(2, 3)))
    hook.remove()
    early = MDS().fit(replace(fit, features=pooled[0])).score(replace(test, features=pooled[1]))
    # The maps of the two passes differ in the last digits.
    torch.testing.assert_close(
        detector.fit(fit).score(test), (early + last) / 2, rtol=1e-3, atol=1e-3
    )
    with pytest.raises(DetectorRefusal, match="labels"):
        MDSEnsemble(layers=["early", "late"]).fit(test)


def test_mds_ensemble_names_what_it_cannot_read(tiny):
    with pytest.raises(DetectorRefusal, match="earli"):
        MDSEnsemble(layers=["earli"]).extraction_hook.layers(tiny)
    assert MDSEnsemble().extraction_hook.layers(tiny) == Gram().extraction_hook.layers(tiny)

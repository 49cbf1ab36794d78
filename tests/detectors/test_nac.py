"""NAC-UE: counted states of the last layer, and of layers of maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from detector_toys import arrays, close
from network_toys import extract, labelled, noise
from scipy.special import softmax
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.detectors import (
    NAC,
    ODIN,
    CalibratedDetector,
    DetectorRefusal,
    load_detector,
    save_detector,
)
from ood_lab.detectors.nac import bin_edges
from ood_lab.features.bank import FeatureBank
from ood_lab.models.backbone import Backbone

OWN = {
    "features": {},
    "late": {"bins": 20, "full": 30, "steepness": 50.0},
    "early": {"bins": 10, "full": 40, "steepness": 0.5},
}


def states_in_loops(influence: np.ndarray, steepness: float, bins: int) -> np.ndarray:
    """Bin of every state, the plain way."""
    edges = bin_edges(bins).numpy()
    states = 1 / (1 + np.exp(-steepness * influence))
    return np.array([[np.flatnonzero(edges <= a)[-1] for a in row] for row in states])


def score_in_loops(fit: np.ndarray, new: np.ndarray, full: float) -> list[float]:
    """Negative mean coverage of bins ``new`` by bins ``fit``."""
    return [
        -np.mean([min((fit[:, d] == place).sum() / full, 1) for d, place in enumerate(row)])
        for row in new
    ]


def test_nac_counts_states_in_loops(blobs):
    train, bank = blobs.train.rows(torch.arange(100)), blobs.ood.rows(torch.arange(10))
    edges = bin_edges(50).numpy()
    assert len(edges) == 50
    assert (np.diff(edges) > 0).all()
    assert edges[0] == 0
    assert edges[-1] == 1.2

    def bins(b):
        x, z, w, _ = arrays(b)
        return states_in_loops(x * ((softmax(z, axis=1) - 1 / 5) @ w), 100, 50)

    expected = score_in_loops(bins(train), bins(bank), 7)
    close(NAC(full=7, fit_images=None).fit(train).score(bank), expected, 1e-9)


def test_nac_counts_as_many_images_of_each_class(blobs):
    uneven = blobs.train.rows(blobs.train.labels.ne(3) | (torch.arange(600) < 100))  # 20 of class 3
    counted = NAC()._balanced(uneven.labels)
    assert uneven.labels[counted].bincount().tolist() == [20] * 5
    assert (
        uneven.labels[NAC(fit_images=50)._balanced(uneven.labels)].bincount().tolist() == [10] * 5
    )


def influence_reference(backbone: Backbone, images: Tensor, layer: str) -> Tensor:
    """Image by image, with the divergence as it is written and autograd."""
    found = []
    for one in images.split(1):
        maps: dict[str, Tensor] = {}
        module = backbone.get_submodule(layer)
        hook = module.register_forward_hook(lambda m, i, out, maps=maps: maps.update(a=out))
        p = backbone(one.clone().requires_grad_()).logits.softmax(1)
        hook.remove()
        maps["a"].retain_grad()
        (-p.log().mean()).backward()
        found.append(maps["a"].sum((2, 3)) * maps["a"].grad.sum((2, 3)))
    return torch.cat(found).detach()


@pytest.fixture
def banks(tiny) -> tuple[FeatureBank, FeatureBank]:
    detector = NAC(layers=OWN)
    fit = labelled(extract(tiny, noise(60), detector), torch.arange(60) % 4)
    return fit, extract(tiny, 1.5 * noise(15, seed=2), detector)


def test_influences_equal_a_loop_with_autograd(tiny, banks):
    images, column = 1.5 * noise(15, seed=2), NAC(layers=OWN).extraction_hook
    expected = [influence_reference(tiny, images, layer) for layer in ("late", "early")]
    found = banks[1].columns[column.key][:, : 9 + 6]
    torch.testing.assert_close(found, torch.cat(expected, dim=1), rtol=1e-4, atol=1e-6)


def test_the_score_is_the_mean_over_layers(banks):
    fit, new = banks
    detector = NAC(full=7, fit_images=None, layers=OWN).fit(fit)
    column = detector.extraction_hook.key
    values = [b.columns[column][:, :15].double().numpy() for b in (fit, new)]
    parts = [NAC(full=7, fit_images=None).fit(fit).score(new).numpy()]
    for channels, layer in ((slice(0, 9), "late"), (slice(9, 15), "early")):
        bins, full, steepness = OWN[layer].values()
        seen, own = (states_in_loops(v[:, channels], steepness, bins) for v in values)
        parts.append(np.array(score_in_loops(seen, own, full)))
    close(detector.score(new), np.mean(parts, axis=0), 1e-9)
    assert len(set(np.round(parts[1], 6))) > 3  # the states are not all in one bin


def test_the_last_layer_by_name_is_the_closed_form(blobs):
    for layers in (["features"], {"features": {"bins": 50}}):
        named, plain = NAC(layers=layers), NAC()
        assert named.extraction_hook is None
        assert named.describe() | {"layers": None} == plain.describe()
        fitted = [detector.fit(blobs.train).score(blobs.ood) for detector in (named, plain)]
        assert torch.equal(*fitted)


def test_the_closed_form_is_the_influence_of_pooled_maps(tiny):
    """Where the features are the mean of the maps, the sums are P and 1/P times theirs."""
    detector = NAC(layers=["late"])
    bank = extract(tiny, noise(15), detector)
    z, w = bank.logits.double(), bank.head_weight.double()
    closed = bank.features.double() * ((z.softmax(1) - 1 / 4) @ w)
    maps = bank.columns[detector.extraction_hook.key][:, :9].double()
    # The sum over positions of x_p is P x, and that of its gradient g/P is g.
    close(maps / 16, closed, 1e-5)


def test_layers_by_rule_chunks_and_the_shared_pass(tiny):
    detector = NAC(layers="stages", fit_images=None)
    assert (detector.input_type, NAC().input_type) == ("network", "head")
    images = noise(23)
    whole = labelled(extract(tiny, images, detector, ODIN()), torch.arange(23) % 4)
    alone = extract(tiny, images, detector, batch_size=5)
    key = detector.extraction_hook.key
    torch.testing.assert_close(alone.columns[key], whole.columns[key], rtol=1e-5, atol=1e-6)
    score = detector.fit(whole).score(whole)
    assert ((score <= 0) & (score >= -1)).all()
    assert detector.describe()["layers"] == ["early", "late"]
    with torch.autocast("cpu", torch.bfloat16):
        assert extract(tiny, images, detector).columns[key].isfinite().all()
    assert all(parameter.grad is None for parameter in tiny.parameters())


def test_layers_come_back_from_a_file(banks, tmp_path):
    fit, new = banks
    detector = NAC(layers=OWN, fit_images=None).fit(fit)
    made_from = {"classes": [], "weights_sha256": "a" * 64, "transform": "Resize(8)"}
    calibrated = CalibratedDetector.of(detector, detector.score(fit), 0.05, **made_from)
    save_detector(tmp_path / "nac.safetensors", calibrated)
    again = load_detector(tmp_path / "nac.safetensors").detector
    assert torch.equal(again.score(new), detector.score(new))
    assert again.describe() == detector.describe()
    assert again.extraction_hook.key == detector.extraction_hook.key


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "nac.layers is empty"),
        ({"early": {"bin": 4}}, "nac.layers.early.bin: did you mean 'bins'"),
        ({"early": {"bins": 5}}, "nac.layers.early.bins=5: give a multiple of 2"),
        ({"early": {"full": 0}}, "nac.layers.early.full=0: give a number above 0"),
    ],
)
def test_nac_refuses_settings_by_key(layers, message):
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        NAC(layers=layers)


def test_nac_refuses_layers_by_name(tiny, banks):
    with pytest.raises(DetectorRefusal, match=r"'head' is no sub-module.*called 'features'"):
        NAC(layers=["head"]).extraction_hook.layers(tiny)
    with pytest.raises(DetectorRefusal, match="nac: the features were extracted without"):
        NAC(layers=["early"]).fit(banks[0])

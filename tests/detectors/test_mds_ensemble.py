"""MDS-Ensemble: its layers, and the step that needs a second pass."""

from __future__ import annotations

from dataclasses import replace

import lightning
import pytest
import torch
from network_toys import STD, TimmNet, extract, extract_columns, labelled, noise
from sklearn.covariance import ledoit_wolf
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.gram import Gram
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.mds_ensemble import MDSEnsemble
from ood_lab.detectors.odin import ODIN
from ood_lab.evaluation import detector_fitting
from ood_lab.evaluation.detector_fitting import fit_within_memory
from ood_lab.features.bank import FeatureBank
from ood_lab.models.backbone import Backbone

LAYERS = ["stem", "early", "late"]


@pytest.fixture
def fit_bank(tiny) -> FeatureBank:
    labels = torch.arange(60) % 4
    return labelled(extract(tiny, noise(60), MDSEnsemble(layers=LAYERS)), labels)


def second_pass(backbone: Backbone, images: Tensor, *fitted, batch_size: int = 64) -> FeatureBank:
    return extract_columns(backbone, images, [d.second_pass_hook for d in fitted], batch_size)


def pooled(backbone: Backbone, images: Tensor, layer: str) -> Tensor:
    """Spatial means of a layer's maps, with their graph."""
    maps = {}
    module = dict(backbone.named_modules())[layer]
    hook = module.register_forward_hook(lambda m, i, out: maps.update(found=out))
    backbone(images)
    hook.remove()
    return maps["found"].mean(dim=(2, 3))


def step_reference(
    backbone: Backbone, fit: Tensor, labels: Tensor, images: Tensor, epsilon: float
) -> Tensor:
    """Image by image and layer by layer, with the inverse of the covariance and autograd."""
    scores = torch.zeros(len(images), dtype=torch.float64)
    for layer in LAYERS:
        features = pooled(backbone, fit, layer).double()
        means = torch.stack([features[labels == c].mean(0) for c in labels.unique()])
        centered = features - means[labels]
        covariance = centered.T @ centered / len(features)
        if len(features) < 10 * len(covariance):  # few images
            covariance = torch.from_numpy(ledoit_wolf(centered, assume_centered=True)[0])
        inverse = covariance.inverse()

        def distance(image, layer=layer, means=means, inverse=inverse):
            offsets = pooled(backbone, image, layer).double() - means
            return torch.stack([o @ inverse @ o for o in offsets]).min()

        for row, one in enumerate(images.split(1)):
            x = one.clone().requires_grad_()
            distance(x).backward()
            sigma = torch.tensor(STD).view(3, 1, 1)
            moved = one - epsilon / sigma * torch.where(x.grad >= 0, 1.0, -1.0)
            scores[row] += distance(moved) / len(LAYERS)
    return scores


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


@pytest.mark.parametrize("epsilon", [0.0014, 0.02])
def test_the_step_equals_a_loop_with_autograd(tiny, fit_bank, epsilon):
    images = noise(12, seed=2)
    detector = MDSEnsemble(layers=LAYERS, noise=epsilon).fit(fit_bank)
    scores = detector.score(second_pass(tiny, images, detector))
    expected = step_reference(tiny, noise(60), fit_bank.labels, images, epsilon)
    torch.testing.assert_close(scores, expected, rtol=2e-4, atol=1e-4)
    still = MDSEnsemble(layers=LAYERS).fit(fit_bank)
    # Towards the means, by more than what the two differ by.
    assert (still.score(extract(tiny, images, still)) - scores).mean() > 1e-2 * scores.mean()


def test_a_vanishing_step_gives_the_one_pass_value(tiny, fit_bank):
    images = noise(12, seed=2)
    still = MDSEnsemble(layers=LAYERS).fit(fit_bank)
    assert still.second_pass_hook is None
    stepped = MDSEnsemble(layers=LAYERS, noise=1e-12).fit(fit_bank)
    torch.testing.assert_close(
        stepped.score(second_pass(tiny, images, stepped)),
        still.score(extract(tiny, images, still)),
        rtol=1e-6,
        atol=1e-6,
    )


def test_the_second_pass_does_not_depend_on_chunks(tiny, fit_bank):
    images, detector = noise(23, seed=2), MDSEnsemble(layers=LAYERS, noise=0.0014).fit(fit_bank)
    whole, parts, ones = (
        detector.score(second_pass(tiny, images, detector, batch_size=b)) for b in (23, 5, 1)
    )
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ones, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 4, "embed_dim": 24}),
        (
            "swin_tiny_patch4_window7_224",
            64,
            {"img_size": 64, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2)},
        ),
    ],
)
def test_the_step_takes_tokens_and_channels_last_maps(name, size, options):
    torch.manual_seed(0)
    backbone = TimmNet(name, size, **options).eval()
    still, stepped = MDSEnsemble(), MDSEnsemble(noise=2e-5)
    fit = labelled(extract(backbone, noise(30, size), still), torch.arange(30) % 5)
    images = noise(6, size, seed=3)
    before = still.fit(fit).score(extract(backbone, images, still))
    stepped.fit(fit).second_pass_hook.layers(backbone)
    assert (stepped.score(second_pass(backbone, images, stepped)) < before).all()


def test_several_second_columns_share_a_pass_and_half_precision(tiny, fit_bank):
    images = noise(12, seed=2)
    detectors = [MDSEnsemble(LAYERS, noise=e).fit(fit_bank) for e in (0.0014, 0.02)]
    together = second_pass(tiny, images, *detectors)
    for detector in detectors:
        alone = detector.score(second_pass(tiny, images, detector))
        torch.testing.assert_close(detector.score(together), alone, rtol=1e-6, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        half = second_pass(tiny, images, *detectors)
    assert all(detector.score(half).isfinite().all() for detector in detectors)
    assert all(parameter.grad is None for parameter in tiny.parameters())


def test_the_key_holds_what_was_learned_and_the_step(tiny, fit_bank):
    def key(bank=fit_bank, **settings):
        return (
            MDSEnsemble(**{"layers": LAYERS, "noise": 0.01} | settings)
            .fit(bank)
            .second_pass_hook.key
        )

    different = [
        key(),
        key(noise=0.02),
        key(noise=0.01 + 1e-9),
        key(std=[1.0, 1.0, 1.0]),
        key(bank=fit_bank.rows(torch.arange(59))),
        key(bank=labelled(fit_bank, fit_bank.labels.roll(1))),
    ]
    assert len(set(different)) == len(different)
    assert key() == key()


def test_who_cannot_be_fitted_gets_no_second_pass(fit_bank):
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, **settings)
    banks, sources = {"far": fit_bank}, {"far": lambda columns: pytest.fail("a pass was made")}
    unlabelled = labelled(fit_bank, torch.full((60,), -1))
    for detector in (MDSEnsemble(LAYERS, noise=0.01), MDSEnsemble(LAYERS)):
        of = {"it": detector}
        detector_fitting.second_pass(trainer, of, lambda _: unlabelled, banks, sources)
        assert banks["far"] is fit_bank
        with pytest.raises(DetectorRefusal, match="needs class labels"):
            fit_within_memory(detector, unlabelled)


def test_what_the_second_pass_was_made_with_is_not_fitted_again(fit_bank):
    detector = MDSEnsemble(LAYERS, noise=0.01).fit(fit_bank)
    key = detector.second_pass_hook.key
    assert fit_within_memory(detector, fit_bank.rows(torch.arange(50))).second_pass_hook.key == key


def test_a_step_without_a_second_pass_is_refused(tiny, fit_bank):
    detector = MDSEnsemble(layers=LAYERS, noise=0.01).fit(fit_bank)
    with pytest.raises(DetectorRefusal, match="mds_ensemble needs a second pass"):
        detector.score(fit_bank)
    with pytest.raises(UserError, match=r"mds_ensemble\.noise=-1: give a number from 0 on"):
        MDSEnsemble(noise=-1)
    del tiny.data_config["std"]
    for unknown in (MDSEnsemble(noise=0.01).second_pass_hook, ODIN().extraction_hook):
        with pytest.raises(DetectorRefusal, match=r"std=\[r,g,b\]"):
            unknown.layers(tiny)
    assert MDSEnsemble(noise=0.01, std=STD).second_pass_hook.layers(tiny)

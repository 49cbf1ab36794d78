"""PatchKNN: places, the distance to them, and scores without an image's own group."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cross_fitted import cross_fitted
from network_toys import TimmNet, extract, noise
from torch.nn import functional as F

from ood_lab.common.errors import UserError
from ood_lab.detectors import PatchKNN, load_detector, patch_knn, save_detector
from ood_lab.detectors.deployment.calibration import (
    cross_fitted_scores,
    cross_fitting_of,
)
from ood_lab.models.output import Output

LAYERS = ["early", "late"]


def places(tiny, images):
    """By hand: both maps averaged over 3 x 3, the coarser one resampled, side by side."""
    stem = tiny.stem(images)
    early = tiny.early(stem)
    fine, coarse = (F.avg_pool2d(each, 3, 1, 1) for each in (early, tiny.late(early)))
    coarse = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear")
    return torch.cat([fine, coarse], dim=1).flatten(2).mT.detach().half().float()


@pytest.mark.parametrize("choice", ["random", "coreset"])
def test_score_and_map_are_distances_to_the_kept_places(tiny, choice):
    tiny.eval()
    detector = PatchKNN(LAYERS, places=50, choice=choice)
    detector.fit(extract(tiny, noise(20), detector))
    kept = detector.fitted["bank"]
    every = places(tiny, noise(20)).flatten(0, 1)
    assert kept.shape == (50, 15)
    assert torch.cdist(kept, every).amin(dim=1).max() < 1e-3
    new = noise(7, seed=5)
    expected = torch.cdist(places(tiny, new), kept).amin(dim=2)
    bank = extract(tiny, new, detector)
    torch.testing.assert_close(detector.maps(bank).flatten(1), expected, rtol=1e-3, atol=1e-3)
    wanted = expected.amax(dim=1).double()
    torch.testing.assert_close(detector.score(bank), wanted, rtol=1e-3, atol=1e-3)


def test_fit_images_are_scored_without_their_group(tiny):
    detector = PatchKNN(LAYERS, places=None)
    bank = replace(extract(tiny.eval(), noise(12), detector), groups=torch.arange(12) // 3)
    detector.fit(bank)
    scores = cross_fitted_scores(detector, bank)
    assert cross_fitting_of(detector, bank) == "leave-one-out"
    for group in range(4):
        inside = bank.groups == group
        alone = PatchKNN(LAYERS, places=None).fit(bank.rows(~inside))
        new = alone.score(bank.rows(inside))
        torch.testing.assert_close(scores[inside], new, atol=1e-6, rtol=0)


@pytest.mark.parametrize("sizes", [(4,), (3, 20), (2, 9, 50)])
def test_places_that_cannot_be_the_farthest_are_left_out(tiny, sizes, monkeypatch):
    """Few kept places at a time give the score of a search among all of them."""
    monkeypatch.setattr(patch_knn, "SIZES", sizes)
    monkeypatch.setattr(patch_knn, "PLACES", 3)
    monkeypatch.setattr(patch_knn, "SEARCHED", 5)
    detector = PatchKNN(LAYERS, places=None)
    bank = extract(tiny.eval(), noise(12), detector)
    detector.fit(bank)
    for images in (noise(7, seed=5), 5 * noise(7, seed=6)):
        new = extract(tiny, images, detector)
        wanted = detector.maps(new).flatten(1).amax(dim=1).double()
        torch.testing.assert_close(detector.score(new), wanted, atol=1e-5, rtol=1e-6)
    detector.fitted["bank"][:] = torch.nan
    assert detector.score(new).isnan().all()


def test_reweighting_is_the_paper_formula(tiny):
    detector = PatchKNN(LAYERS, places=60, reweight=True)
    detector.fit(extract(tiny.eval(), noise(20), detector))
    kept = detector.fitted["bank"]
    bank = extract(tiny, noise(5, seed=3), detector)
    for image, score in zip(places(tiny, noise(5, seed=3)), detector.score(bank), strict=True):
        distances = torch.cdist(image, kept)
        place = distances.amin(dim=1).argmax()
        nearest = distances[place].argmin()
        around = torch.cdist(kept[nearest][None], kept)[0].topk(9, largest=False).indices
        share = distances[place, around].softmax(0)[around == nearest]
        wanted = (distances[place].min() * (1 - share)).double()[0]
        torch.testing.assert_close(score, wanted, rtol=1e-2, atol=1e-3)


def test_a_changed_corner_is_seen_where_it_is(tiny):
    detector = PatchKNN(LAYERS)
    images = noise(1).repeat(10, 1, 1, 1) + 0.01 * noise(10, seed=2)
    detector.fit(extract(tiny.eval(), images, detector))
    broken = images[:1].clone()
    broken[..., :2, :2] = 9.0
    bank = extract(tiny, torch.cat([images[1:2], broken]), detector)
    calm, loud = detector.score(bank)
    assert loud > 3 * calm
    assert detector.maps(bank)[1].argmax() in (0, 1, 8, 9)


def test_a_file_of_the_detector_scores_alike(tiny, tmp_path):
    detector = PatchKNN(LAYERS, places=40)
    bank = extract(tiny.eval(), noise(10), detector)
    made = cross_fitted(detector.fit(bank), bank)
    save_detector(tmp_path / "a.safetensors", made)
    again = load_detector(tmp_path / "a.safetensors")
    assert torch.equal(again.score(bank), made.score(bank))


def test_layers_follow_the_network():
    image = noise(2, 64)
    for name, size, names, grid in (
        ("resnet18", 64, ["net.layer2", "net.layer3"], (8, 8)),
        ("vit_tiny_patch16_224", 64, ["net.blocks.4", "net.blocks.8"], (4, 4)),
        ("swin_tiny_patch4_window7_224", 64, ["net.layers.1", "net.layers.2"], (8, 8)),
    ):
        options = {} if name == "resnet18" else {"img_size": size}
        net = TimmNet(name, size, **options).eval()
        detector = PatchKNN(dims=64)
        column = extract(net, image, detector).columns[detector.extraction_hook.key]
        assert detector.describe()["layers"] == names
        assert tuple(column.shape) == (2, *grid, 64)


def test_a_network_without_maps_is_refused_with_its_reason(tiny):
    class Pooled(type(tiny)):
        def forward(self, image):
            features = image.mean(dim=(2, 3)).repeat(1, 3)
            return Output(self.head(features), features)

    with pytest.raises(UserError, match="'auto' chooses 0 of 1 layers"):
        PatchKNN().extraction_hook.layers(Pooled())
    with pytest.raises(UserError, match="'x' is no sub-module"):
        PatchKNN(["x"]).extraction_hook.layers(tiny)

"""Tiles of large images: what they cover, and that scores and maps are those of the tiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from cross_fitted import cross_fitted
from PIL import Image
from tiny_net import TinyNet
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Resize, ToTensor

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import PatchKNN, save_onnx
from ood_lab.models import module_backbone

TRANSFORM = Compose([Resize((8, 8)), ToTensor()])


def picture(seed, size=(40, 30)):
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
    return Image.fromarray(pixels)


class Pictures(Dataset):
    def __init__(self, n, transform, start=0):
        self.n, self.transform, self.start = n, transform, start

    def __len__(self):
        return self.n

    def __getitem__(self, row):
        return self.transform(picture(self.start + row))


def features(n, transform, start=0, **options):
    return ood_lab.extract_features(
        TinyNet().eval(), DataLoader(Pictures(n, transform, start), batch_size=5), **options
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 3), (4, 1)])
@pytest.mark.parametrize("size", [(1, 1), (40, 30), (333, 128)])
def test_tiles_cover_an_image_and_overlap(rows, columns, size):
    seen, boxes = np.zeros(size[::-1], int), []

    def note(tile):
        boxes.append(tile.size)
        return torch.from_numpy(np.asarray(tile).astype(int))

    index = Image.fromarray(np.arange(np.prod(size), dtype=np.int32).reshape(size[::-1]))
    tiles = ood_lab.Tiles(rows, columns, lambda tile: TRANSFORM(tile.convert("RGB")))
    assert tiles(index).shape == (rows * columns, 3, 8, 8)
    tiles.transform = lambda tile: (np.add.at(seen.ravel(), note(tile).ravel(), 1), torch.zeros(1))[
        1
    ]
    tiles(index)
    assert (seen[: size[1], : size[0]] >= 1).all()
    if min(size) > 1:
        assert len({abs(w - boxes[0][0]) > 1 or abs(h - boxes[0][1]) > 1 for w, h in boxes}) == 1
        assert (seen > 1).any()


def test_a_map_has_the_largest_value_of_its_tiles_at_their_place():
    tiles, maps = ood_lab.Tiles(2, 3, TRANSFORM), torch.rand(2 * 6, 8, 8)
    joined = tiles.joined(maps)
    assert joined.shape == (2, 15, 22)
    torch.testing.assert_close(joined.amax((1, 2)), maps.view(2, -1).amax(1))
    torch.testing.assert_close(joined[1, -1, -1], maps[-1, -1, -1])


@pytest.mark.parametrize("name", ["knn", "residual", "msp", "patch_knn"])
def test_a_score_is_the_largest_of_the_tiles(name):
    """By hand: every tile is an image of its own."""
    tiles = ood_lab.Tiles(2, 2, TRANSFORM)
    detector = {"patch_knn": PatchKNN(["net.conv"], places=None)}.get(name)
    chosen = {"patch_knn": detector} if detector else [name]
    train, new = features(30, tiles, detectors=chosen), features(6, tiles, 100, detectors=chosen)
    assert new.features.shape == (6, new.features.shape[1])
    result = ood_lab.evaluate(train, new, {"x": new}, val=train, detectors=chosen, n_bootstrap=100)
    fitted = result.detectors[name]
    scores = result.scores[result.scores["dataset"] == "x"][name]
    single = ood_lab.extract_features(
        TinyNet().eval(), torch.cat([tiles(picture(100 + i)) for i in range(6)]), detectors=chosen
    )
    wanted = fitted.score(single).view(6, 4).amax(dim=1)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(new.features, single.features.view(6, 4, -1).mean(1))
    if fitted.fit_split:
        assert fitted.describe()["tiles"] == 4
        calibrated = cross_fitted(fitted, train)
        backbone = module_backbone(TinyNet().eval(), data_config={"input_size": (3, 8, 8)})
        with pytest.raises(UserError, match="scores tiles of images, and such a graph takes whole"):
            save_onnx("unwritten.onnx", backbone, calibrated, torch.rand(2, 3, 8, 8))


def run(outputs, *arguments):
    """Pictures of 90 x 64 pixels through a network for 32 x 32."""
    images = [f"data.id.train={outputs}/train", f"data.id.test={outputs}/test"]
    net = ["model=module", "model.net._target_=tiny_net.TinyNet", f"model.weights={outputs}/net.pt"]
    net += ["model.backbone.input_size=32", "model.head=none"]
    where = [f"paths.outputs={outputs}/out", "logger=none", "data.num_workers=0"]
    detectors = ["detector=[knn,patch_knn]", "detector.patch_knn.layers=[net.conv]"]
    return call("eval.py", "data=folder", *images, *net, *where, *detectors, *arguments)


def test_runs_score_tiles_and_join_their_maps(tmp_path, capsys):
    for name, start in {"train": 0, "test": 50, "new": 80}.items():
        (tmp_path / name).mkdir()
        for i in range(24 if name == "train" else 8):
            picture(start + i, (90, 64)).save(tmp_path / name / f"{i}.png")
    torch.save(TinyNet().state_dict(), tmp_path / "net.pt")
    new = f"{tmp_path}/new"
    score = ["task=score", f"data.ood.new={new}", "task.report=false", "metrics.n_bootstrap=20"]
    assert run(tmp_path, *score, "model.tiles=auto") == 0
    assert "3 x 4 tiles of 32 x 32 pixels, 12 forward passes per image" in capsys.readouterr().out
    assert run(tmp_path, *score, "model.tiles=auto", "trainer.devices=2", "force=true") == 0
    first, second = (pd.read_parquet(f / "scores.parquet") for f in run_folders(tmp_path / "out"))
    pd.testing.assert_frame_equal(first, second)
    predict = ["task=predict", f"task.images={new}", "task.maps=true"]
    assert run(tmp_path, *predict, "model.tiles=3x4") == 0
    folder = run_folders(tmp_path / "out")[-1]
    scores = pd.read_csv(folder / "predictions.csv")["patch_knn_score"]
    maps = np.load(folder / "maps.npz")["patch_knn/images"]
    assert maps.shape[1:] == (round(15 * 2.75), round(15 * 3.625))
    np.testing.assert_allclose(maps.max((1, 2)), scores, rtol=2e-3)
    for settings, reason in {
        ("model.tiles=2y2",): "give auto, or rows x columns such as 2x3",
        ("model.tiles=1x1",): "give two or more tiles",
        ("model.tiles=2x2", "task.onnx=true"): "an ONNX file scores whole images",
    }.items():
        assert run(tmp_path, *predict, *settings) == 1
        assert reason in " ".join(capsys.readouterr().err.split())
    assert run(tmp_path, *score, "model.tiles=2x2", "task.keep_features=false") == 1
    assert "read features of whole images" in " ".join(capsys.readouterr().err.split())

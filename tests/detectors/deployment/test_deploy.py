"""An exported file scores pictures as the run does, without torch."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest
import torch
from cross_fitted import cross_fitted
from PIL import Image
from tiny_net import TinyNet
from torch import nn
from torchvision.transforms import CenterCrop, Compose, Normalize, RandomCrop, Resize, ToTensor

import ood_lab
from ood_lab import deploy
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.detectors import KNN, PatchKNN
from ood_lab.detectors.deployment.onnx_export import Preprocessing
from ood_lab.models.image_transforms import evaluation_transform

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
TRANSFORM = Compose([Resize(20), CenterCrop(16), ToTensor(), Normalize((0.5,) * 3, (0.25,) * 3)])


def pictures(n, seed=0):
    """Smooth noise in a colour, of several sizes."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (n, 5, 7, 3)) * random.uniform(size=(n, 1, 1, 3))
    sizes = [(40 + int(a), 30 + int(b)) for a, b in random.integers(0, 60, (n, 2))]
    return [
        Image.fromarray(a.astype(np.uint8)).resize(s) for a, s in zip(small, sizes, strict=True)
    ]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["center", "squash"])
def test_the_graph_resizes_as_pillow(interpolation, mode):
    config = {"input_size": (3, 32, 32), "interpolation": interpolation, "crop_pct": 0.875}
    config |= {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.3), "crop_mode": mode}
    transform = evaluation_transform(config)
    before = Preprocessing(transform)
    for picture in pictures(12):
        pixels = torch.from_numpy(np.array(picture))[None]
        levels = (before(pixels)[0] - transform(picture)).abs() * before.std * 255
        # Pillow 13 changes the order of its passes where the proportions change.
        assert levels.max() < (1e-3 if mode == "center" else 2.5)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    net = TinyNet()
    net.conv = nn.Sequential(net.conv, nn.BatchNorm2d(8))  # in training it reads the whole batch
    return net.eval()


@pytest.fixture(scope="module", params=["knn", "patch_knn"])
def exported(request, net, tmp_path_factory):
    folder, images = tmp_path_factory.mktemp("export"), pictures(60)
    batch = torch.stack([TRANSFORM(picture) for picture in images])
    detector = KNN() if request.param == "knn" else PatchKNN(["net.conv"])
    bank = ood_lab.extract_features(net, batch, detectors=detector)
    held = cross_fitted(detector.fit(bank), bank, 0.1)
    file = folder / "it.onnx"
    deviation = ood_lab.export_onnx(file, held, net, pictures(32, 1), transform=TRANSFORM)
    return file, held, detector, deviation


def test_p_values_and_decisions_are_those_of_the_run(exported, net):
    file, held, detector, deviation = exported
    new = pictures(30, seed=2)
    batch = torch.stack([TRANSFORM(picture) for picture in new])
    scores = held.score(ood_lab.extract_features(net, batch, detectors=detector))
    session = onnxruntime.InferenceSession(file)
    assert deviation <= 0.02
    for picture, p, is_ood in zip(new, held.p_values(scores), held.is_ood(scores), strict=True):
        feed = {"image": np.asarray(picture)[None]}
        p_value, decision = session.run(["p_value", "is_ood"], feed)
        assert abs(float(p_value[0]) - float(p)) <= 0.02
        assert bool(decision[0]) == bool(is_ood) or abs(float(p) - 0.1) <= 0.02
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["preprocessing"] == "true"
    assert float(facts["deviation"]) == deviation


def test_the_command_needs_no_torch(exported, tmp_path):
    for number, picture in enumerate(pictures(3)):
        picture.save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['pandas'] = None\n"
        "from ood_lab.deploy import main; main()"
    )
    table = tmp_path / "table.csv"
    line = [sys.executable, "-c", code, str(exported[0]), str(tmp_path), "--csv", str(table)]
    made = subprocess.run(line, capture_output=True, text=True, check=False)
    assert made.returncode == 1, made.stderr
    assert "broken.png  cannot identify" in made.stdout
    rows = list(csv.DictReader(table.open()))
    assert [row["path"][-5:] for row in rows] == ["0.png", "1.png", "2.png", "n.png"]
    assert all(0 < float(row["p_value"]) <= 1 for row in rows[:3])


def test_pictures_are_read_as_in_training(tmp_path):
    random = np.random.default_rng(3)
    colours = random.integers(0, 256, (6, 9, 4), dtype=np.uint8)
    deep = random.integers(0, 65536, (6, 9)).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(colours[..., :3]).save(tmp_path / "turned.png", exif=exif)
    Image.fromarray(colours).save(tmp_path / "clear.png")
    Image.fromarray(colours[..., 0]).save(tmp_path / "grey.png")
    Image.fromarray(colours[..., 0]).convert("LA").save(tmp_path / "grey_clear.png")
    Image.fromarray(colours[..., :3]).quantize(5).save(tmp_path / "palette.png", transparency=1)
    Image.fromarray(colours[..., :3]).convert("CMYK").save(tmp_path / "print.tif")
    Image.fromarray(deep).save(tmp_path / "deep.png")
    for pixel_range in (None, (1000.0, 40000.0)):
        for file in sorted(tmp_path.iterdir()):
            wanted = np.asarray(load_rgb(file, decoding=Decoding(pixel_range)))
            assert np.array_equal(deploy.read_rgb(file, pixel_range), wanted), file.name


def test_a_step_that_no_graph_holds_is_named(net, tmp_path, caplog):
    bank = ood_lab.extract_features(net, torch.stack([TRANSFORM(p) for p in pictures(20)]))
    held = cross_fitted(KNN().fit(bank), bank, 0.1)
    steps = Compose([Resize(20), RandomCrop(16), ToTensor()])
    file = tmp_path / "it.onnx"
    assert ood_lab.export_onnx(file, held, net, pictures(4), transform=steps) is None
    assert "the transform has RandomCrop" in caplog.text
    names = [output.name for output in onnxruntime.InferenceSession(file).get_outputs()]
    assert names == ["logits", "score"]
    with pytest.raises(ValueError, match="is without preprocessing"):
        deploy.Scorer(file)

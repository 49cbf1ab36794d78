"""Maps of places over images: where they are drawn, and that an ID image stays calm."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image
from tiny_net import TinyNet
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor

from ood_lab.evaluation.place_maps import seen_box
from ood_lab.report.rendering.thumbnails import with_map


def test_the_box_is_what_the_transform_keeps():
    crop = Compose([Resize(256), CenterCrop(224), ToTensor()])
    assert seen_box(crop, (512, 512)) == (32, 32, 480, 480)
    assert seen_box(crop, (1024, 512)) == (288, 32, 736, 480)
    assert seen_box(Compose([Resize((224, 224)), ToTensor()]), (640, 480)) == (0, 0, 640, 480)


def test_only_places_above_the_threshold_are_coloured():
    image = Image.fromarray(np.full((80, 80, 3), 120, np.uint8))
    values = np.full((4, 4), 1.0)
    calm = np.asarray(with_map(image, values, 2.0, 5.0, (0, 0, 80, 80)))
    assert (calm == 120).all()
    values[0, 3] = 5.0
    drawn = np.asarray(with_map(image, values, 2.0, 5.0, (0, 0, 80, 80))).astype(int)
    coloured = (drawn.max(axis=2) - drawn.min(axis=2)) > 20
    assert coloured[:10, 70:].all()
    assert not coloured[40:].any()
    assert not coloured[:, :40].any()


#: Of the sentence for ID images that are much alike.
PROPOSAL = "detector=[knn,patch_knn] also detects"


def run(folder, *line):
    """The run of images in ``folder`` with a random network."""
    torch.save(TinyNet().state_dict(), folder / "net.pt")
    net = ["model=module", "model.net._target_=tiny_net.TinyNet", f"model.weights={folder}/net.pt"]
    line = ["data=folder", "data.num_workers=0", *net, "model.backbone.input_size=64", *line]
    line += ["model.head=none", "logger=none", f"paths.outputs={folder}/out"]
    assert call("eval.py", *line) == 0
    return run_folders(folder / "out")[-1]


@pytest.mark.parametrize("task", ["score", "predict"])
def test_places_are_proposed_where_all_images_are_alike(tmp_path, task):
    rng = np.random.default_rng(0)
    draws = {
        "alike": lambda: rng.integers(120, 136, (64, 64, 3), np.uint8),
        "unlike": lambda: np.tile(rng.integers(0, 256, 3, np.uint8), (64, 64, 1)),
    }
    for name, draw in draws.items():
        (tmp_path / name).mkdir()
        for i in range(40):
            Image.fromarray(draw()).save(tmp_path / name / f"{i}.png")
    for name, other in (("alike", "unlike"), ("unlike", "alike")):
        new = (
            f"data.ood.x={tmp_path}/{other}"
            if task == "score"
            else f"task.images={tmp_path}/{other}"
        )
        folder = run(
            tmp_path, f"task={task}", f"data.id.train={tmp_path}/{name}", new, "detector=[knn]"
        )
        (page,) = folder.glob("*.html")
        assert (PROPOSAL in page.read_text()) == (name == "alike")


@pytest.mark.parametrize("tiles", [(), ("model.tiles=2x2",)])
def test_masks_of_a_table_give_pixel_scores(tmp_path, tiles):
    """Dark squares in noise, whose masks a map over a random network shows."""
    rng, rows = np.random.default_rng(0), []
    for name, n in {"train": 24, "test": 10, "holes": 10}.items():
        (tmp_path / name).mkdir()
        for i in range(n):
            pixels, mask = (
                rng.integers(120, 136, (64, 64, 3), np.uint8),
                np.zeros((64, 64), np.uint8),
            )
            if name == "holes":
                y, x = rng.integers(4, 44, 2)
                mask[y : y + 16, x : x + 16] = 255
                pixels[mask > 0] = 0
                Image.fromarray(mask).save(tmp_path / f"{i}-mask.png")
                rows.append({"path": f"holes/{i}.png", "mask": f"{i}-mask.png"})
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    rows[-1]["mask"] = None  # an image whose mask is not known
    pd.DataFrame(rows).to_csv(tmp_path / "holes.csv", index=False)
    images = [f"data.id.{name}={tmp_path / name}" for name in ("train", "test")]
    line = [*images, f"data.ood.holes={tmp_path}/holes.csv", "detector=[patch_knn]", *tiles]
    folder = run(tmp_path, *line, "detector.patch_knn.layers=[net.conv]")
    assert PROPOSAL not in (folder / "manifest.json").read_text()  # it is there already
    results = pd.read_parquet(folder / "results.parquet").query("kind == 'pixels'")
    values = results.set_index("metric")["value"]
    assert list(values.index) == ["pixel_auroc", "aupro"]
    assert values.min() > 0.8
    assert results["n_ood"].tolist() == [9, 9]
    assert "Maps compared with masks" in (folder / "report.html").read_text()

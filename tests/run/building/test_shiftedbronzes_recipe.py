"""`experiment=shifted_bronzes` on rendered vessels in the layout of its YAML file."""

import pandas as pd
import pytest
from cli import call

from ood_lab.builtin.vessels import ShiftedVessels, VesselsDataset

pytestmark = pytest.mark.slow
GENERAL = ("species", "imagenet_o", "inaturalist", "texture", "openimage_o")
SHIFTED = ("transferred_bronze", "transferred_container", "sketch_rubbing", "container")
OOD = (*SHIFTED, *GENERAL)


@pytest.fixture
def root(tmp_path):
    root, rows, boxes = tmp_path / "bronzes", [], []
    data = VesselsDataset("train", 330, seed=0)
    for i, row in data.table.iterrows():
        path = f"colour/{row.noun}/{i}.png"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        data.load_image(i).save(root / path)
        era, shape = data.names["level_0"][row.level_0], data.names["shape"][row["shape"]]
        known = {"era": era, "period": data.classes[row.label], "shape": shape}
        rows.append({"path": path, "category": ("Ding", "Gui")[row.category], **known})
        there = [c for c in data.table if c.startswith("attribute_") and row[c] == 1]
        boxes += [(path, name.removeprefix("attribute_"), 0, 0, 9, 9) for name in there]
    for seed, name in enumerate(OOD):
        kind = "general" if name in GENERAL else name
        shifted = ShiftedVessels(kind, 20, seed=seed)
        for i in range(len(shifted)):
            folder = f"general/{name}" if name in GENERAL else name
            place = root / (("sketch", "rubbing")[i % 2] if name == "sketch_rubbing" else folder)
            place.mkdir(exist_ok=True, parents=True)
            shifted.load_image(i).save(place / f"{i}.png")
    pd.DataFrame(rows).to_csv(root / "annotations.csv", index=False)
    columns = ["path", "characteristic", "x", "y", "width", "height"]
    pd.DataFrame(boxes, columns=columns).to_csv(root / "boxes.csv", index=False)
    return root


def test_the_whole_benchmark(root, tmp_path):
    short = '["preset=builtin","trainer.max_epochs=1"]'
    small = ("study.preset=builtin", "study.trunk=[]", "study.clip=tiny", "data.num_workers=0")
    small += (f"study.classifier={short}", f"study.prompt={short}", "study.shots=2")
    places = (f"data.root={root}", f"paths.outputs={tmp_path}/outputs", "logger=none")
    left_out = "skip=[clipn,nts,p2p,sps,idlike]"
    assert call("train.py", "experiment=shifted_bronzes", *places, *small, left_out) == 0
    (file,) = (tmp_path / "outputs" / "shifted_bronzes").glob("*/*/leaderboard.csv")
    board = pd.read_csv(file)
    scored = board[board.dataset.isin(OOD) & (board.metric == "auroc")]
    assert set(scored.model) >= {"clip-tiny", "gl_mcm-tiny", "coop-tiny", "locoop-tiny"}
    best = scored[scored.model.isin(["akg", "hrn", "yourfl"])]
    assert best.model.nunique() == 1
    assert best.detector.nunique() == 13
    assert scored.groupby(["model", "detector"]).dataset.nunique().eq(len(OOD)).all()
    (file,) = (tmp_path / "outputs" / "shifted_bronzes_dating").glob(
        "*/*/leaderboard_hierarchy.csv"
    )
    assert set(pd.read_csv(file).model) == {"akg", "hrn", "yourfl"}

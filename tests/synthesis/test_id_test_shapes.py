"""Materials from outside the ID data on the shapes of ID test: the plan, without any model."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.schema.run_record import RunRecord
from ood_lab.tasks.transfer import Transfer

CONF = Path(__file__).parents[2] / "conf" / "task" / "transfer.yaml"


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    folders = [f"{split}/{name}" for split in ("train", "val", "test") for name in ("ding", "gui")]
    for folder in (*folders, "ood"):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 256, (16, 20, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
    return tmp_path


def test_materials_from_outside_go_on_the_shapes_of_id_test(photos, tmp_path):
    data = FolderDataModule(
        {split: f"{photos}/{split}" for split in ("train", "val", "test")}, {"x": f"{photos}/ood"}
    )
    task = OmegaConf.load(CONF)["task"]
    given = {key: None if key in ("out", "content") else task[key] for key in task if key[0] != "_"}
    given |= {
        "content": "id_test",
        "plan_only": True,
        "exemplars": f"{photos}/ood",
        "out": tmp_path / "a",
    }
    ws = SimpleNamespace(data=data, seed=0, record=RunRecord(), is_main=True)
    options = given | {"per_content": 2, "device": "cpu"}
    Transfer(**options).run(ws)
    plan = pd.read_csv(tmp_path / "a" / "plan.csv")
    shapes = sorted(map(str, (photos / "test").rglob("*.png")))
    assert sorted(plan["content"].unique()) == shapes
    assert [Path(path).parent.name for path in plan["content"]] == list(plan["label"])
    assert plan.groupby("content")["exemplar"].nunique().tolist() == [2] * 6
    assert {Path(path).parent.name for path in plan["exemplar"]} == {"ood"}
    for wrong, said in (
        ({"exemplars": None}, "name them with task.exemplars"),
        ({"exemplars": f"{photos}/test/gui"}, "is also a test image.*outside the ID data"),
    ):
        with pytest.raises(UserError, match=said):
            Transfer(**options | wrong).run(ws)

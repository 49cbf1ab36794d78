"""Outliers to train with, from each kind of source and by several processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cli import ROOT, run_folders
from source_kinds import HUGGING_FACE, MOSAIC, kinds, write_kinds
from tiny_net import TinyNet
from torchvision.transforms.functional import pil_to_tensor

from ood_lab.data.datamodules.folder import FolderDataModule


@pytest.fixture(scope="module")
def root(tmp_path_factory, huggingface_cache):
    return write_kinds(tmp_path_factory.mktemp("sources"), train=8, far=5)


@pytest.fixture(scope="module")
def batch_of(root):
    def batch_of(kind):
        outliers = kinds(root, "far")[kind]
        data = FolderDataModule({"train": str(root / "train")}, {}, outliers=outliers, batch_size=8)
        data.use_transform(eval=pil_to_tensor)
        data.use_outliers(2)
        assert data.ood_names == []
        torch.manual_seed(0)
        return next(iter(data.train_dataloader()))

    return batch_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pil", "named", "pattern", *HUGGING_FACE, *MOSAIC])
def test_every_kind_gives_the_outliers_of_the_folder(batch_of, kind):
    expected, found = batch_of("folder"), batch_of(kind)
    assert found["outliers"].shape == (8, 2, 3, 16, 16)
    for key, values in expected.items():
        assert torch.equal(found[key], values), key


@pytest.mark.parametrize(("identify", "changes"), [("content", False), ("stat", True)])
def test_outliers_are_known_again_as_other_sets_are(root, tmp_path, identify, changes):
    for name in ("train", "far"):
        shutil.copytree(root / name, tmp_path / name)

    def identities():
        sources = {"train": str(tmp_path / "train")}, {}
        data = FolderDataModule(*sources, outliers=str(tmp_path / "far"), identify=identify)
        data.setup()
        return {name: data.splits[name].identity for name in ("train", "outliers")}

    before = identities()
    for file in tmp_path.rglob("*.png"):
        os.utime(file, (1, 1))
    after = identities()
    assert [after[name] != before[name] for name in after] == [changes, changes]


@pytest.mark.slow
def test_two_processes_train_with_outliers_to_the_weights_of_one(root, tmp_path):
    """Half of each batch on each, where no layer looks at the whole batch."""
    net = ("model=module", "model.net._target_=tiny_net.TinyNet", "model.head=fc")
    sizes = ("trainer.max_epochs=2", "trainer=ddp_cpu", "data.num_workers=0", "detector=[msp]")
    line = (f"data.id.train={root}/train", f"data.ood.mine={root}/test", *net, *sizes)
    quiet = ("logger=none", "task.report=false", "metrics.n_bootstrap=20", "task=score")
    places = f"{ROOT}:{ROOT}/tests:{Path(__file__).parents[1]}"
    sources = {
        "one": (1, f"{root}/far"),
        "shards": (2, f"{root}/shards/far/part-{{000..002}}.tar"),
        "class": (2, f"{{_target_:pictures.Pictures,root:{root}/far}}"),
    }
    weights = {}
    for name, (processes, outliers) in sources.items():
        rest = (f"trainer.devices={processes}", "data.batch_size=8")  # of all processes
        arguments = ("loss=outlier_exposure", f"data.outliers={outliers}", *rest, *quiet)
        command = [sys.executable, str(ROOT / "train.py"), "data=folder", *line, *arguments]
        environment = os.environ | {"PYTHONPATH": places}
        command.append(f"paths.outputs={tmp_path}/{name}")
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=500)
        (folder,) = run_folders(tmp_path / name)
        saved = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
        weights[name] = saved["state_dict"]
    assert not torch.allclose(weights["one"]["backbone.net.fc.weight"], TinyNet().fc.weight)
    for name in ("shards", "class"):
        torch.testing.assert_close(weights[name], weights["one"], rtol=1e-4, atol=1e-5)

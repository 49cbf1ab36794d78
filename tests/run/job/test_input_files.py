"""A finished run is shown again only if data, weights and settings are those it was made with."""

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from PIL import Image


def save(path, seed):
    rng = np.random.default_rng(seed)
    Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path):
    for number, name in enumerate(("id/pear", "id/plum", "noise")):
        (tmp_path / name).mkdir(parents=True)
        for i in range(20):
            save(tmp_path / name / f"{i}.png", 100 * number + i)
    return tmp_path


@pytest.fixture
def run(photos, capsys):
    """Runs a script on the photos; returns its status and what it said, without line breaks."""

    def call_it(script, *arguments):
        data = ("data=folder", f"data.id.train={photos}/id", f"data.ood.noise={photos}/noise")
        small = (
            "data.num_workers=0",
            "detector=[msp]",
            "metrics.n_bootstrap=5",
            "task.report=false",
        )
        outputs = (f"paths.outputs={photos}/outputs", "logger=none", "trainer.accelerator=cpu")
        status = call(script, *data, *small, *outputs, *arguments)
        out, error = capsys.readouterr()
        return status, "".join((out + error).split())

    return call_it


def evaluated(photos):
    """The folder of the only finished run, and its results."""
    (folder,) = run_folders(photos / "outputs")
    return folder, pd.read_parquet(folder / "results.parquet")


def replaced(photos):
    return sorted((photos / "outputs").rglob("REPLACED"))


@pytest.mark.slow
def test_the_same_photos_are_shown_whatever_their_times(run, photos):
    assert run("eval.py", "model=clip")[0] == 0
    folder, _ = evaluated(photos)
    made = (folder / "results.parquet").stat().st_mtime_ns
    assert "alreadydone" in run("eval.py", "model=clip")[1]
    for file in photos.rglob("*.png"):
        os.utime(file, (1, 1))
    (photos / "id" / "notes.txt").write_text("no image")
    assert "alreadydone" in run("eval.py", "model=clip")[1]
    assert (folder / "results.parquet").stat().st_mtime_ns == made
    assert not replaced(photos)


@pytest.mark.slow
def test_a_run_is_repeated_when_the_code_of_its_network_has_changed(run, photos, monkeypatch):
    code = photos / "my_network.py"
    (photos / "my_layers.py").write_text("from torch import nn\nLinear = nn.Linear\n")
    text = (
        "import my_layers, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        torch.manual_seed(0)\n"
        "        self.fc = my_layers.Linear(3, 2)\n"
        "    def forward(self, image):\n"
        "        return self.fc(image.mean((2, 3)))\n"
    )
    code.write_text(text)
    monkeypatch.syspath_prepend(photos)
    network = ("model=module", "model.net._target_=my_network.Net", "model.pretrained=true")
    assert run("eval.py", *network)[0] == 0
    _, before = evaluated(photos)
    assert "alreadydone" in run("eval.py", *network)[1]
    code.write_text(text.replace("image.mean", "-image.mean"))
    monkeypatch.delitem(sys.modules, "my_network")
    assert "model.net._target_(my_network)" in run("eval.py", *network)[1]
    assert not evaluated(photos)[1].equals(before)
    with (photos / "my_layers.py").open("a") as layers:
        layers.write("# edited\n")
    assert "model.net._target_(my_layers)" in run("eval.py", *network)[1]


def repaint_and_add(photos):
    save(photos / "noise" / "3.png", 999)
    save(photos / "noise" / "new.png", 998)
    return "noise/3.png"


def relabel(photos):
    os.rename(photos / "id" / "pear" / "4.png", photos / "id" / "plum" / "a.png")
    return "id/pear/4.png"


@pytest.mark.slow
@pytest.mark.parametrize("change", [repaint_and_add, relabel])
def test_changed_photos_start_anew_and_nothing_is_lost(run, photos, change):
    assert run("eval.py", "model=clip")[0] == 0
    folder, before = evaluated(photos)
    named = change(photos)
    status, said = run("eval.py", "model=clip")
    assert status == 0
    assert "alreadydone" not in said
    assert "startingfromscratch" in said
    assert named in said
    again, after = evaluated(photos)
    assert again == folder
    assert set(after.n_ood) != set(before.n_ood) or not after.equals(before)
    (kept,) = replaced(photos)
    assert str(kept.parent) in said
    assert named in kept.read_text()
    pd.testing.assert_frame_equal(pd.read_parquet(kept.parent / "results.parquet"), before)
    assert "alreadydone" in run("eval.py", "model=clip")[1]


def test_photos_that_are_gone_leave_the_results(run, photos):
    assert run("eval.py", "model=clip")[0] == 0
    shutil.move(photos / "noise", photos / "elsewhere")
    status, said = run("eval.py", "model=clip")
    assert status == 0
    assert "alreadydone" in said
    assert f"cannotbecompared:{photos}/noise" in said


@pytest.mark.slow
def test_an_interrupted_training_does_not_go_on_with_other_photos(run, photos):
    train = ("train.py", "task=score", "trainer.max_epochs=1", "data.batch_size=8")
    assert run(*train)[0] == 0
    folder, _ = evaluated(photos)
    (folder / "DONE").unlink()
    relabel(photos)
    status, said = run(*train)
    assert status == 0
    assert "startingfromscratch" in said
    (kept,) = replaced(photos)
    old, new = (p / "checkpoints" / "last.ckpt" for p in (kept.parent, folder))
    assert old.stat().st_mtime_ns < new.stat().st_mtime_ns


@pytest.mark.slow
def test_other_weights_in_the_same_file_start_anew(run, photos):
    import timm

    def net(seed):
        torch.manual_seed(seed)
        shape = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}
        torch.save(timm.create_model("resnet18", num_classes=2, **shape).state_dict(), file)

    file = photos / "net.pt"
    net(0)
    model = ("model=timm", "model.name=resnet18", f"model.weights={file}")
    kwargs = ("model.kwargs.layers=[1,1,1,1]", "model.kwargs.channels=[8,8,16,16]")
    shape = ("model.backbone.num_classes=2", "model.backbone.input_size=32")
    line = ("eval.py", *model, *kwargs, *shape, "model.backbone.allow_transform_mismatch=true")
    assert run(*line)[0] == 0
    os.utime(file, (1, 1))
    assert "alreadydone" in run(*line)[1]
    net(1)
    status, said = run(*line)
    assert status == 0
    assert f"model.weights={file}" in said
    assert "startingfromscratch" in said
    assert len(replaced(photos)) == 1


@pytest.mark.slow
def test_what_chooses_the_weights_is_another_run(run, photos):
    train = ("train.py", "task=score", "trainer.max_epochs=1", "data.batch_size=8", "callbacks=ema")
    for decay in (0.9, 0.1):
        status, said = run(*train, f"callbacks.ema.decay={decay}")
        assert status == 0
        assert "alreadydone" not in said
    assert len(run_folders(photos / "outputs")) == 2

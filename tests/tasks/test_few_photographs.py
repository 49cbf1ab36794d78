"""Few photographs: a linear head on frozen features first, and the fine-tuning held against it."""

import json
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from cli import call, run_folders
from photos import write_photos
from PIL import Image

from ood_lab.detectors import load_detector
from ood_lab.models import load_weights
from ood_lab.run.building import linear_probe
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.preparation import prepare

SHARED = Path(__file__).parents[3] / "shared" / "data"
QUIET = ("task=score", "task.report=false", "detector=[msp]", "metrics.n_bootstrap=20")
QUIET += ("logger=none",)
SHAPE = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}


@pytest.fixture
def line(tmp_path):
    """36 photographs, and a network whose file has the head of ImageNet."""
    data = write_photos(tmp_path, (32, 32), "png")
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=1000, **SHAPE)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    model = ("model=timm", "model.name=resnet18", f"model.weights={tmp_path}/net.pt")
    kwargs = [f"model.kwargs.{key}={list(value)}".replace(" ", "") for key, value in SHAPE.items()]
    size = ("model.backbone.input_size=32", "model.backbone.allow_transform_mismatch=true")
    return *data, *model, *kwargs, *size, *QUIET, f"paths.outputs={tmp_path}/o"


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.slow
def test_few_photographs_get_a_linear_head(line, tmp_path, capsys):
    assert call("train.py", *line) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "its head 'fc' is for 1000 classes, the data has 3: a new head is trained" in out
    assert "12 images per class are few: a linear head is fitted" in out
    assert re.search(r"this fine-tunes it too: python train\.py .+ trainer\.max_epochs=10 ", out)
    (run,) = run_folders(tmp_path / "o")
    assert manifest(run)["training"] == {"epochs": 0, "steps": 0}
    assert manifest(run)["val_accuracy"] == manifest(run)["fitted_head"]["val_accuracy"]
    # The trunk is that of the file, and the head that of eval.py, where the file's is dropped.
    assert call("eval.py", *line, "model.head=linear") == 0
    assert "its head 'fc' (1000 classes) is dropped" in " ".join(capsys.readouterr().out.split())
    assert call("eval.py", f"ckpt={run}", *QUIET, f"paths.outputs={tmp_path}/o") == 0
    first, *others = (
        pd.read_parquet(folder / "scores.parquet").msp for folder in run_folders(tmp_path / "o")
    )
    assert len(others) == 2
    for other in others:
        torch.testing.assert_close(torch.tensor(first), torch.tensor(other), atol=1e-5, rtol=0)


def test_labels_are_no_classes_of_a_head_of_others(line, tmp_path, capsys):
    """The head has 1,000 classes, the data 3: each detector reads what means something."""
    of_features, of_head = ("mds", "rmds", "knn", "gmm"), ("msp", "klm", "she")
    own = ("temp_scaling", "openmax", "grood")
    chosen = (f"detector=[{','.join((*of_features, *of_head, *own))}]", "detector.knn.k=2")
    assert call("eval.py", *line, *chosen) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the head has 1,000 classes, the data 3, and no label is one of the head's" in out
    assert "have no train image" not in out
    (run,) = run_folders(tmp_path / "o")
    facts = manifest(run)
    assert (facts["head"], facts["id_accuracy"]) == ("other classes", None)
    assert set(facts["detectors"]) == {*of_features, *of_head}
    assert facts["refused"] == {
        name: f"{name} needs a head of your classes, which resnet18 does not give" for name in own
    }
    # The labels make the groups: a head of these classes changes no score of theirs.
    (command,) = re.findall(r"A head for your classes: python (.+? model\.head=linear)", out)
    assert call(*shlex.split(command)) == 0
    other = next(folder for folder in run_folders(tmp_path / "o") if folder != run)
    assert set(manifest(other)["detectors"]) == {*of_features, *of_head, *own}
    tables = [pd.read_parquet(folder / "scores.parquet") for folder in (run, other)]
    for name in of_features:
        torch.testing.assert_close(*(torch.tensor(table[name]) for table in tables))


def test_a_long_training_on_a_cpu_is_not_begun_unasked(line, tmp_path, capsys, monkeypatch):
    """A step is timed; the command that is printed fine-tunes."""
    monkeypatch.setattr(linear_probe, "FEW", 1)
    monkeypatch.setattr(linear_probe, "EPOCHS", 1)
    fresh = (*line, "model.backbone.new_head=true")
    monkeypatch.setattr(linear_probe, "LONGEST", 0.0)
    assert call("train.py", *fresh) == 0
    out = " ".join(capsys.readouterr().out.split())
    # 36 images are one batch.
    assert "300 epochs on this CPU would take about" in out
    (command,) = re.findall(r"fine-tunes it too: python (.+? trainer\.max_epochs=1) ", out)
    assert call(*shlex.split(command)) == 0
    trained = [manifest(run)["training"]["steps"] for run in run_folders(tmp_path / "o")]
    assert sorted(trained) == [0, 1]


@pytest.mark.slow
def test_seeds_of_a_probe_are_one_network(line, tmp_path, capsys):
    ours = [word for word in line if not word.startswith("data")]
    data = ("experiment=smoke", "data.train=60", "data.val=30", "data.test=40")
    data += ("data.per_shift_set=10", "data.per_cell=0")
    probe = (*data, *ours, "model.backbone.new_head=true")
    assert call("train.py", "-m", *probe, "seed=0,1") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ": one network and one result, which counts once" in out


@pytest.mark.slow
def test_fine_tuning_begins_there_and_is_held_against_it(line, tmp_path, capsys):
    fresh = ("model.backbone.new_head=true", "trainer.max_epochs=1")
    ruin = "model.classifier.optimizer.lr=1"
    assert call("train.py", *line, *fresh, ruin) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "val accuracy: linear probe 83.3%, fine-tuned" in out
    assert "does not beat the linear probe" in out
    (run,) = run_folders(tmp_path / "o")
    facts = manifest(run)
    assert facts["probe"]["fine_tuned_val_accuracy"] <= facts["val_accuracy"] < 0.84
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    whole = timm.create_model("resnet18", num_classes=3, **SHAPE)
    load_weights(whole, run / "checkpoints" / "best.ckpt")
    of_file = torch.load(tmp_path / "net.pt")
    assert all(v.equal(of_file[k]) for k, v in whole.state_dict().items() if k[:3] != "fc.")
    # From a random head, as before, and with another identity.
    assert call("train.py", *line, *fresh, "probe_first=false") == 0
    assert "linear probe" not in capsys.readouterr().out
    assert len(run_folders(tmp_path / "o")) == 2


def test_a_name_reaches_the_networks_that_are_chosen_by_it(line):
    register_resolvers()
    sweep = ["model=resnet10s,timm", "model.name=resnet18", *line[:2]]
    jobs = [prepare(composed("train", job), job) for job in jobs_of(sweep)]
    assert [job.folder.parents[1].name for job in jobs] == ["folder-resnet10s", "folder-resnet18"]
    models = [job.settings["model"] for job in jobs]
    assert [model["name"] for model in models] == ["resnet10s", "resnet18"]
    assert [model["backbone"]["name"] for model in models] == ["resnet18", "resnet18"]
    assert ["layers" in model["backbone"]["kwargs"] for model in models] == [True, False]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="no ../shared/data beside the checkout")
@pytest.mark.parametrize("rate", ["1e-3", "1e-5"])
def test_the_recipe_reaches_the_probe_on_photographs(tmp_path, rate):
    with tarfile.open(SHARED / "cifar10_imagenet32.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for folder in (tmp_path / "id" / "train").iterdir():
        (tmp_path / "few" / folder.name).mkdir(parents=True)
        for file in sorted(folder.iterdir())[:20]:
            shutil.copy(file, tmp_path / "few" / folder.name)
    sets = [f"data.id.{name}={tmp_path}/id/{name}" for name in ("val", "test")]
    data = ["data=folder", f"data.id.train={tmp_path}/few", *sets, "data.num_workers=0"]
    model = ["model=module", "model.net._target_=cifar_resnet.ResNet20", "model.head=linear"]
    model += [f"model.weights={SHARED}/resnet20_cifar10.pt", "model.backbone.new_head=true"]
    rest = [*QUIET, "synthetic_ood=none", f"model.classifier.optimizer.lr={rate}"]
    outputs = [f"paths.outputs={tmp_path}/o", "model.backbone.input_size=32"]
    assert call("train.py", *data, *model, *rest, *outputs, "trainer.max_epochs=2") == 0
    (run,) = run_folders(tmp_path / "o")
    facts = manifest(run)
    assert facts["val_accuracy"] >= facts["probe"]["val_accuracy"] > 0.85
    assert facts["id_accuracy"] > 0.84


@pytest.fixture
def frames(tmp_path):
    """20 scenes of three equal frames each, and new scenes."""
    rng = np.random.default_rng(0)
    for kind, scenes in (("train", 20), ("new", 8)):
        (tmp_path / kind).mkdir()
        for scene in range(scenes):
            colours = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
            image = colours.resize((32, 32), Image.Resampling.BICUBIC)
            for frame in range(3):
                # Files of other content, with the same pixels.
                place = tmp_path / kind / f"{scene:02}_{frame}.png"
                image.save(place, compress_level=frame)
    return tmp_path


@pytest.mark.parametrize("group", ["null", pytest.param("none", marks=pytest.mark.slow)])
def test_frames_of_scenes_count_once(line, frames, group):
    arguments = ("task=predict", "data=folder", f"data.id.train={frames}/train")
    arguments += (f"task.images={frames}/new", "model.head=none", f"data.group={group}")
    model = [part for part in line if part.startswith(("model", "paths"))]
    assert call("eval.py", *arguments, *model, "detector=[knn]", "logger=none") == 0
    (run,) = run_folders(frames / "o")
    knn, page = manifest(run)["detectors"]["knn"], (run / "predictions.html").read_text()
    assert knn["held_out"] == 60
    sentence = "60 images look like 20 scenes; each scene counts once."
    assert (sentence in page) == (group == "null")
    assert knn["groups"] == (20 if group == "null" else 60)
    saved = load_detector(run / "detectors" / "knn.safetensors")
    assert saved.groups == knn["groups"]
    if group == "null":
        names = [f"{scene:02}_{frame}" for scene in range(20) for frame in range(3)]
        examples = manifest(run)["near_copies"]
        assert len(examples) == 3
        for example in examples:
            shown = {name for _, _, name in example["images"]}
            (scene,) = {name.partition("_")[0] for name in shown}
            assert shown == {f"{name}.png" for name in names if name.startswith(scene)}
            assert all(f"{name} (train)" in page for name in shown)

"""A LightningModule of one's own is trained by its own steps, then scored like any network."""

import json

import pandas as pd
import pytest
import torch
from cli import call, run_folders
from foreign_lightning import Own
from photos import write_photos

from ood_lab.common.errors import UserError
from ood_lab.models import OwnTraining, WrappedBackbone, own_steps

MODEL = ("model=module", "model.head=fc", "detector=[msp,mds]", "metrics.n_bootstrap=20")
MODEL += ("logger=none", "task.report=false", "data.num_workers=0", "data.batch_size=16")


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """Arguments for three classes that differ in colour, and noise."""
    data = write_photos(tmp_path_factory.mktemp("photos"), (32, 32), "png")
    return (*data, *MODEL, "model.net._target_=foreign_lightning.Own")


def test_its_own_steps_train_it_and_detectors_score_it(line, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    ignored = "model.classifier.optimizer.lr=7"
    train = (*line, "trainer.max_epochs=3", ignored, f"paths.outputs={tmp_path}")
    assert call("train.py", "task=score", *train) == 0
    out = capsys.readouterr().out
    assert "Own trains itself: its training_step and configure_optimizers are used" in out
    assert "model.classifier.optimizer.lr changes nothing: Own trains itself" in out
    (folder,) = run_folders(tmp_path)
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    (group,) = checkpoint["optimizer_states"][0]["param_groups"]
    assert (group["lr"], group["momentum"]) == (0.03, 0.9)
    assert checkpoint["hyper_parameters"] == {"classes": 3, "rate": 0.03, "loss": None}
    assert checkpoint["data_config"]["input_size"] == (3, 32, 32)
    again = Own.load_from_checkpoint(folder / "checkpoints/last.ckpt")
    assert torch.equal(again.fc.weight, checkpoint["state_dict"]["fc.weight"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert 0 <= manifest["val_accuracy"] <= 1
    results = pd.read_parquet(folder / "results.parquet")
    assert set(results.detector.dropna()) == {"msp", "mds"}
    # The run is evaluated like any other, with the same numbers.
    assert call("eval.py", f"ckpt={folder}", *MODEL[2:6], f"paths.outputs={tmp_path}/again") == 0
    (evaluated,) = run_folders(tmp_path / "again")
    theirs = pd.read_parquet(evaluated / "results.parquet")
    columns = ["detector", "dataset", "metric", "value"]
    pd.testing.assert_frame_equal(results[columns], theirs[columns])


def test_half_of_a_training_is_ours(line, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    half = (*line, "model.net._target_=foreign_lightning.Half", "trainer.max_epochs=1")
    assert call("train.py", "task=score", *half, f"paths.outputs={tmp_path}") == 0
    expected = "Half has a training_step but no configure_optimizers, so model.classifier trains it"
    assert expected in capsys.readouterr().out


def test_a_batch_can_be_the_whole_dict_and_must_hold_image_and_label(line, tmp_path, capsys):
    backbone = WrappedBackbone(Own(), "fc")
    assert own_steps(backbone.net) == ["training_step", "configure_optimizers"]
    assert own_steps(torch.nn.Linear(1, 1)) == []
    assert OwnTraining(backbone, None).batch is None
    with pytest.raises(UserError, match="image and label must be among them"):
        OwnTraining(backbone, ["image"])
    wrong = (*line, "model.batch=[image,label,lable]", f"paths.outputs={tmp_path}")
    assert call("train.py", "task=score", *wrong) == 1
    assert "model.batch names 'lable'" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "more", "named"),
    [
        ("train.py", ("model.net.classes=7",), "model.net.KEY=3 builds one for them"),
        (
            "eval.py",
            ("model.weights={file}",),
            "model.net.KEY=7 for a network that does not come with as many",
        ),
        ("eval.py", ("model.net.classes=7", "ckpt={file}"), "model.weights=FILE"),
        ("eval.py", ("model.net.classes=7", "model.weights={file}"), None),
    ],
)
def test_other_classes_than_the_data(line, tmp_path, capsys, script, more, named):
    """A head with other classes is scored as it is, or the line that works is said."""
    file = tmp_path / "seven.pt"
    torch.save(Own(7).state_dict(), file)
    more = (part.format(file=file) for part in more)
    status = call(script, *line, *more, f"paths.outputs={tmp_path}")
    error = capsys.readouterr().err
    assert status == (1 if named else 0)
    assert (named or "") in error
    assert len(error.strip().splitlines()) == (1 if named else 0)

"""What trains the weights has a folder of its own; runs that differ in evaluation take them."""

import fcntl
import json
import os
import subprocess
import sys
import threading

import lightning as L
import pandas as pd
import pytest
import torch
from cli import ROOT, call, run_folders

SMALL = ("data.train=60", "data.val=20", "data.test=20", "data.per_shift_set=10")
LINE = ("experiment=smoke", *SMALL, "task=score", "task.report=false", "logger=none")
LINE += ("trainer.accelerator=cpu", "data.batch_size=20", "metrics.n_bootstrap=20")


@pytest.fixture
def trained(monkeypatch):
    """The folder of the checkpoints of each training."""
    fit, found = L.Trainer.fit, []

    def counted(trainer, *args, **kwargs):
        found.append(trainer.checkpoint_callback.dirpath)
        return fit(trainer, *args, **kwargs)

    monkeypatch.setattr(L.Trainer, "fit", counted)
    return found


def results(folder):
    return pd.read_parquet(folder / "results.parquet")


@pytest.mark.slow
def test_runs_that_differ_in_evaluation_train_once(tmp_path, trained, capsys):
    sweep = ("-m", "detector=[msp],[knn]", "seed=0,1")
    assert call("train.py", *LINE, *sweep, f"paths.outputs={tmp_path}/sweep") == 0
    folders = run_folders(tmp_path / "sweep")
    assert len(folders) == 4
    assert len(trained) == len(set(trained)) == 2  # one a seed
    taken = folders[-1]  # knn, seed 1
    manifest, first = (json.loads((f / "manifest.json").read_text()) for f in (taken, folders[1]))
    assert manifest["weights_of"] == "/".join(folders[1].parts[-3:])
    for key in ("training", "val_accuracy", "warnings"):
        assert manifest[key] == first[key]
    log = " ".join((taken / "log.txt").read_text().split())
    assert f"which {manifest['weights_of']} trained" in log
    # Other metrics and another report of the same weights, then another recipe.
    one = (*LINE, "detector=[knn]", "seed=1", f"paths.outputs={tmp_path}/sweep")
    assert call("train.py", *one, "metrics.min_count=3", "report_by=semantic") == 0
    assert len(trained) == 2
    assert call("train.py", *one, "model.classifier.optimizer.lr=0.002") == 0
    assert len(trained) == 3
    assert call("train.py", *one, "force=true") == 0
    assert len(trained) == 4
    # The numbers are those of a run that trains for itself, in a folder that can be moved alone.
    alone = (*LINE, "detector=[knn]", "seed=1", f"paths.outputs={tmp_path}/alone")
    assert call("train.py", *alone) == 0
    assert len(trained) == 5
    (own,) = run_folders(tmp_path / "alone")
    pd.testing.assert_frame_equal(results(own), results(taken))
    assert not (taken / "checkpoints").is_symlink()
    os.rename(tmp_path / "sweep/weights", tmp_path / "gone")
    ours, theirs = (
        torch.load(f / "checkpoints/best.ckpt", weights_only=True) for f in (taken, own)
    )
    assert all(torch.equal(ours["state_dict"][k], v) for k, v in theirs["state_dict"].items())


@pytest.mark.slow
def test_a_second_process_waits_and_takes_the_weights(tmp_path, trained, capsys):
    assert call("train.py", *LINE, "detector=[msp]", f"paths.outputs={tmp_path}") == 0
    (place,) = (tmp_path / "weights").glob("*/seed=0")
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(3, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        release.start()
        assert call("train.py", *LINE, "detector=[knn]", f"paths.outputs={tmp_path}") == 0
        release.join()
    said = " ".join(capsys.readouterr().out.split())
    assert "another process trains the same weights" in said
    assert len(trained) == 1


@pytest.mark.slow
def test_an_interrupted_training_goes_on_in_a_run_with_other_detectors(
    tmp_path, trained, monkeypatch
):
    def stops(*_):
        raise RuntimeError("no power")

    line = (*LINE, "trainer.max_epochs=2", f"paths.outputs={tmp_path}")
    with monkeypatch.context() as patches:
        patches.setattr("ood_lab.run.building.checkpoints.val_accuracy", stops)
        with pytest.raises(RuntimeError, match="no power"):
            call("train.py", *line, "detector=[msp]")
    assert call("train.py", *line, "detector=[knn]") == 0
    (folder,) = run_folders(tmp_path)
    assert "trained before: 2 epochs, in" in (folder / "log.txt").read_text()


@pytest.mark.slow
def test_two_processes_at_once_train_once(tmp_path):
    command = [sys.executable, str(ROOT / "train.py"), *LINE, "trainer.max_epochs=20"]
    command.append(f"paths.outputs={tmp_path}")
    both = [
        subprocess.Popen([*command, f"detector=[{name}]"], cwd=ROOT, stdout=subprocess.PIPE)
        for name in ("msp", "knn")
    ]
    said = [process.communicate()[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("training resnet10s" in text for text in said) == [False, True]

"""Settings that no training or evaluation can use end in one line, before any work."""

import pytest
from cli import ROOT, call

from ood_lab.run.job.workspace import Workspace

SMALL = ("data.train=44", "data.val=22", "data.test=22", "data.per_shift_set=4", "data.per_cell=0")

#: Arguments of train.py, and what its line has to name. Nothing is rendered before the first group.
AT_ONCE = {
    "no number of images": (["data.train=abc"], "data.train=abc: give a whole number"),
    "own images": (["data.train=photos"], "data=folder data.id.train=DIR"),
    "more images than can be": (["data.train=100000000000"], "data.train=100000000000"),
    "not a number": (["model.classifier.optimizer.lr=nan"], "model.classifier.optimizer.lr=nan"),
    "a word for a number": (["detector.knn.k=many"], "detector.knn.k=many: give a whole number"),
    "half an epoch": (["trainer.max_epochs=2.5"], "trainer.max_epochs=2.5: give a whole number"),
    "no epoch": (["trainer.max_epochs=0"], "trainer.max_epochs=0 trains nothing: give at least 1"),
    "no step": (["+trainer.max_steps=0"], "eval.py scores weights unchanged"),
    "smoothing of everything": (["model.classifier.label_smoothing=1"], "label_smoothing=1"),
    "no device": (["detector_device=gpu"], "detector_device=gpu: choose auto, cpu, cuda"),
    "a task's setting": (["task.levels=0"], "task.levels=0"),
}
#: Arguments of eval.py that are answered before torch is loaded; FILE is the page of a run.
WITHOUT_TORCH = {
    "nothing": ([], "this backbone has no weights: give ckpt=<run folder or file>"),
    "a page": (["ckpt=FILE"], "report.html is not a PyTorch checkpoint: give ckpt="),
    "another page": (["ckpt=README.md"], "is not a PyTorch checkpoint: name a run folder, or"),
    "no run": (["ckpt=nowhere"], "ckpt='nowhere' does not exist"),
    "no ID": (["model.pretrained=true", "data=folder", "data.id.train=no"], "no' does not exist"),
    "no OOD": (
        ["model.pretrained=true", "data=folder", "data.id.train=conf", "data.ood.x={path: no}"],
        "'no' does not exist",
    ),
    "no images": (["task=predict", "task.images=no"], "'no' does not exist"),
    "settings for a choice": (
        ["detector={knn:{k:20},msp:{}}"],
        "detector={'knn': {'k': 20}, 'msp': {}} is unknown. Valid: adascale_a, ",
    ),
    "a choice in capitals": (["detector=KNN"], "detector=KNN is unknown. Did you mean knn"),
    "a long list": (["detector=zzz"], "temp_scaling, vim, vra."),
}
BEFORE_TRAINING = {
    "draws": (
        ["metrics.n_bootstrap=1e12"],
        "metrics.n_bootstrap=1000000000000.0: give a whole number",
    ),
    "size": (
        ["model.backbone.input_size=-3"],
        "model.backbone.input_size=-3: give a number from 1 on",
    ),
    "share": (["model.backbone.crop_pct=abc"], "model.backbone.crop_pct=abc: give a number"),
    "no spread": (["model.backbone.std=0"], "model.backbone.std=0: give a number above 0"),
    "rate": (["model.classifier.optimizer.lr=-1"], "model.classifier.optimizer: Invalid learning"),
    "schedule": (
        ["+model.classifier.scheduler.pct_start=7"],
        "model.classifier.scheduler: Expected float between 0 and 1 pct_start",
    ),
    "neighbour": (["detector=[knn]", "detector.knn.k=1000"], "k=1,000 exceeds the 44 cached"),
    "order": (
        ["data.shift_order=[sketch]"],
        "data.shift_order names 'sketch', which is not an",
    ),
}


def few_detectors(arguments):
    """With one detector where the line names none: to compose all is half of the time."""
    named = any(argument.startswith("detector") for argument in arguments)
    return [*arguments, *([] if named else ["detector=[msp]"])]


def one_line(capsys, tmp_path, *arguments):
    assert call("train.py", *arguments, f"paths.outputs={tmp_path}", "logger=none") == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error:")
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.slow
@pytest.mark.parametrize("case", AT_ONCE)
def test_before_anything_is_made(case, tmp_path, capsys):
    arguments, named = AT_ONCE[case]
    assert named in one_line(capsys, tmp_path, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", WITHOUT_TORCH)
def test_before_torch_is_loaded(case, tmp_path, capsys, monkeypatch):
    arguments, named = WITHOUT_TORCH[case]
    monkeypatch.chdir(ROOT)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    (page := tmp_path / "run" / "report.html").write_text("<!DOCTYPE html>")
    line = [argument.replace("FILE", str(page)) for argument in few_detectors(arguments)]
    # Values are checked as the classes have them, for which torch is loaded.
    monkeypatch.setattr(Workspace, "check_settings", lambda self: pytest.fail("too late"))
    assert call("eval.py", *line, f"paths.outputs={tmp_path}/out", "logger=none") == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert named in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", BEFORE_TRAINING)
def test_before_training(case, tmp_path, capsys):
    arguments, named = BEFORE_TRAINING[case]
    assert named in one_line(capsys, tmp_path, *SMALL, *few_detectors(arguments))
    assert not list(tmp_path.rglob("*.ckpt"))
    assert not (tmp_path / "features").exists()


@pytest.mark.slow
def test_the_shift_order_of_builtin_data_can_be_chosen(tmp_path, capsys):
    chosen = ("data.shift_order=[container,general]", "trainer.max_epochs=1", "detector=[msp]")
    arguments = (*SMALL, *chosen, "metrics.n_bootstrap=10", "task.report=false", "logger=none")
    assert call("train.py", "task=score", *arguments, f"paths.outputs={tmp_path}") == 0
    assert "of 1" in capsys.readouterr().out  # pairs of sets


@pytest.mark.slow
def test_a_checkpoint_cut_short_is_no_training_to_resume(tmp_path, capsys):
    arguments = (*SMALL, "trainer.max_epochs=1", "detector=[msp]", "task.report=false")
    arguments += ("metrics.n_bootstrap=10", f"paths.outputs={tmp_path}", "logger=none")
    assert call("train.py", "task=score", *arguments) == 0
    (done,) = tmp_path.rglob("DONE")
    done.unlink()
    (record,) = tmp_path.glob("weights/*/seed=0/manifest.json")
    record.unlink()  # as if it had been killed during the training
    for file in (done.parent / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:65536])
    capsys.readouterr()
    assert call("train.py", "task=score", *arguments) == 1
    error = capsys.readouterr().err.strip()
    assert "last.ckpt is cut short" in error
    assert len(error.splitlines()) == 1

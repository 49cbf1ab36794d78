"""Settings that no training or evaluation can use end in one line, before any work."""

import pytest
from cli import call

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
    "no step": (["+trainer.max_steps=0"], "eval.py scores weights as they are"),
    "smoothing of everything": (["model.classifier.label_smoothing=1"], "label_smoothing=1"),
    "no device": (["detector_device=gpu"], "detector_device=gpu: choose auto, cpu, cuda"),
    "a task's setting": (["task.memory_limit_gb=-1"], "task.memory_limit_gb=-1"),
}
BEFORE_TRAINING = {
    "draws": (["metrics.draws=1e12"], "metrics.draws=1000000000000.0: give a number up to 100000"),
    "size": (["model.backbone.input_size=-3"], "input_size=-3: give whole numbers of pixels"),
    "no spread": (["model.backbone.std=0"], "std=[0.0, 0.0, 0.0]: give numbers above 0"),
    "rate": (["model.classifier.optimizer.lr=-1"], "model.classifier.optimizer: Invalid learning"),
    "schedule": (
        ["+model.classifier.scheduler.pct_start=7"],
        "model.classifier.scheduler: Expected float between 0 and 1 pct_start",
    ),
    "neighbour": (["detector=[knn]", "detector.knn.k=1000"], "k=1,000 exceeds the bank of 44"),
    "order": (
        ["data.shift_order=[sketch]"],
        "data.shift_order names 'sketch', which is not an",
    ),
}


def one_line(capsys, tmp_path, *arguments):
    assert call("train.py", *arguments, f"paths.outputs={tmp_path}", "logger=none") == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error:")
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize("case", AT_ONCE)
def test_before_anything_is_made(case, tmp_path, capsys):
    arguments, named = AT_ONCE[case]
    assert named in one_line(capsys, tmp_path, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", BEFORE_TRAINING)
def test_before_training(case, tmp_path, capsys):
    arguments, named = BEFORE_TRAINING[case]
    assert named in one_line(capsys, tmp_path, *SMALL, *arguments)
    assert not list(tmp_path.rglob("*.ckpt"))
    assert not (tmp_path / "features").exists()


def test_the_shift_order_of_builtin_data_can_be_chosen(tmp_path, capsys):
    chosen = ("data.shift_order=[container,general]", "trainer.max_epochs=1", "detector=[msp]")
    arguments = (*SMALL, *chosen, "metrics.draws=10", "task.report=false", "logger=none")
    assert call("train.py", *arguments, f"paths.outputs={tmp_path}") == 0
    assert "of 1" in capsys.readouterr().out  # pairs of sets


def test_a_checkpoint_cut_short_is_no_training_to_resume(tmp_path, capsys):
    arguments = (*SMALL, "trainer.max_epochs=1", "detector=[msp]", "task.report=false")
    arguments += ("metrics.draws=10", f"paths.outputs={tmp_path}", "logger=none")
    assert call("train.py", *arguments) == 0
    (done,) = tmp_path.rglob("DONE")
    done.unlink()
    last = done.parent / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:65536])
    capsys.readouterr()
    assert call("train.py", *arguments) == 1
    error = capsys.readouterr().err.strip()
    assert "last.ckpt is cut short" in error
    assert len(error.splitlines()) == 1

"""The command that a verdict recommends next: it composes and runs as it is printed."""

import html
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from cli import call, run_folders
from photos import write_photos
from PIL import Image, ImageOps

from ood_lab.common.files import read_json
from ood_lab.run.commandline import printed_commands as module
from ood_lab.run.commandline.composition import composed, plain
from ood_lab.run.commandline.line_checks import check_line
from ood_lab.run.commandline.printed_commands import later, next_command
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.launch import read_line

SMALL = ("trainer.max_epochs=2", "metrics.n_bootstrap=20", "logger=none", "trainer.accelerator=cpu")
KNN = ("detector=[msp,knn]", "detector.knn.k=5", "task=score", "data.num_workers=0")
QUICK = ("task.report=false", "metrics.n_bootstrap=20")


def words_of(command):
    """Script and arguments, as a shell reads them."""
    python, script, *words = shlex.split(command)
    assert python == "python"
    return script, words


def composes(command):
    """The configuration of the job, as the script itself would make it."""
    script, words = words_of(command)
    register_resolvers()
    return check_line(script.removesuffix(".py"), read_line(words)[1].overrides)


def next_of(run):
    return read_json(run / "manifest.json")["verdict"]["next"][1]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """In a folder whose name needs quotes, for a shell as well as for Hydra."""
    folder = tmp_path_factory.mktemp("outer") / "it's = my, photos"
    write_photos(folder, (48, 48), "jpg")
    return folder


@pytest.fixture(scope="module")
def line(photos):
    data = ("data=folder", f"data.id.train={photos}/id", f"paths.outputs={photos}/outputs")
    return (*data, f"data.ood.my_noise={photos}/ood", *SMALL, *KNN)


@pytest.fixture(scope="module")
def trained(line, photos):
    assert call("train.py", *line) == 0
    return run_folders(photos / "outputs")[-1]


@pytest.mark.slow
def test_after_training_it_takes_the_weights(trained, photos, line, capsys, monkeypatch):
    command = next_of(trained)
    cfg = composes(command)
    assert cfg.ckpt == str(trained)
    assert set(cfg.detector) <= {"msp", "knn"}
    assert len(cfg.detector) == 1
    assert cfg.task.images == f"{photos}/ood"
    assert cfg.task.alpha == 0.15  # of 6 validation images, where 1/7 is the least p-value
    assert cfg.paths.outputs == f"{photos}/outputs"
    # However narrow the terminal: no line of it is broken or cut.
    monkeypatch.setenv("COLUMNS", "80")
    assert call("train.py", *line) == 0
    assert command in capsys.readouterr().out.splitlines()
    assert command in html.unescape((trained / "report.html").read_text())
    # The table of all detectors is made of the files of the finished run.
    assert call("train.py", *line, "detector_table=all") == 0
    out = capsys.readouterr().out
    assert "already done" in out
    assert re.search(r"^knn +\d", out, re.M)
    assert re.search(r"^msp +\d", out, re.M)


@pytest.mark.slow
def test_of_an_evaluation_on_corruptions_it_runs(trained, photos, capsys):
    synthetic_ood = ("synthetic_ood=corruptions", "synthetic_ood.severities=[3,5]")
    own = ("logger=none", f"paths.outputs={photos}/outputs", *QUICK)
    assert call("eval.py", f"ckpt={trained}", *own, *synthetic_ood, *KNN) == 0
    run = run_folders(photos / "outputs")[-1]
    assert {"corrupted", "my_noise"} <= set(pd.read_parquet(run / "scores.parquet")["dataset"])
    script, words = words_of(next_of(run))
    assert not [word for word in words if "synthetic_ood" in word]
    composes(next_of(run))
    assert call(script, *words) == 0
    predicted = run_folders(photos / "outputs")[-1]
    assert len(pd.read_csv(predicted / "predictions.csv")) == 12
    page = html.unescape((predicted / "predictions.html").read_text())
    (again,) = set(re.findall(r"python eval\.py [^<]*", page))
    assert composes(again).task.images == composes(next_of(run)).task.images


@pytest.mark.slow
def test_of_held_out_classes_it_trains_on_all(line, photos):
    without_ood = [each for each in line if not each.startswith("data.ood")]
    held = ("synthetic_ood=held_out_classes", "synthetic_ood.held_out=[plum]", "task.report=false")
    assert call("train.py", *without_ood, *held) == 0
    run = run_folders(photos / "outputs")[-1]
    assert len(read_json(run / "manifest.json")["classes"]) == 2
    assert words_of(next_of(run))[0] == "train.py"
    cfg = composes(next_of(run))
    assert not cfg.get("synthetic_ood")
    assert cfg.data.id.train == f"{photos}/id"
    # An evaluation of it cannot train, and new images of plums would be flagged.
    own = ("logger=none", f"paths.outputs={photos}/outputs", *QUICK)
    assert call("eval.py", f"ckpt={run}", *own, *KNN) == 0
    assert (
        read_json(run_folders(photos / "outputs")[-1] / "manifest.json")["verdict"]["next"] is None
    )


@pytest.mark.slow
def test_words_about_a_missing_ood_dataset_have_a_command_that_composes(trained):
    (command,) = re.findall(r"python .* data\.ood\.NAME=DIR", later(trained))
    assert composes(command).data.ood.NAME == "DIR"
    assert "python" not in later(None)


@pytest.mark.slow
def test_of_a_tuned_detector_it_runs_with_the_chosen_settings(trained, photos, capsys):
    (photos / "more").mkdir()
    for file in (photos / "ood").iterdir():
        ImageOps.invert(Image.open(file)).save(photos / "more" / file.name)
    own = ("logger=none", f"paths.outputs={photos}/outputs", *QUICK)
    tuning = ("tuning=val_ood", f"data.ood_val.more={photos}/more")
    nci = ("detector=[nci]", "detector.nci.alpha=0.0001", "tuning.grids.nci.alpha=[0.1]")
    assert call("eval.py", f"ckpt={trained}", *own, *tuning, *nci) == 0
    command = next_of(run_folders(photos / "outputs")[-1])
    assert command in capsys.readouterr().out.splitlines()
    script, words = words_of(command)
    keys = [word.partition("=")[0] for word in words]
    assert len(keys) == len(set(keys))
    cfg = composes(command)
    assert list(cfg.detector) == ["nci"]
    assert cfg.detector.nci.alpha == 0.1
    assert call(script, *words) == 0
    assert len(pd.read_csv(run_folders(photos / "outputs")[-1] / "predictions.csv")) == 12


@pytest.mark.slow
def test_of_an_evaluation_without_a_run_it_takes_the_same_network(trained, photos):
    """Its own folder stands for data and network, however they were chosen."""
    network = (f"model.weights={trained}/checkpoints/best.ckpt", "data=folder")
    data = (f"data.id.train={photos}/id", f"data.ood.my_noise={photos}/ood", *QUICK)
    assert call("eval.py", *network, *data, f"paths.outputs={photos}/outputs", *SMALL, *KNN) == 0
    run = run_folders(photos / "outputs")[-1]
    script, words = words_of(next_of(run))
    assert words[0] == f"ckpt={run}"
    assert call(script, *words) == 0
    predicted = run_folders(photos / "outputs")[-1]
    facts = [read_json(folder / "manifest.json")["backbone"] for folder in (run, predicted)]
    assert facts[0]["weights_sha256"] == facts[1]["weights_sha256"]


@pytest.fixture
def typed(monkeypatch):
    """The next command of an evaluation that was typed like this."""

    def command(*overrides, detector="knn", held_out=50, tuned=(), **settings):
        monkeypatch.setattr(module, "running_overrides", lambda: list(overrides))
        typed = [word for word in overrides if word.startswith(("detector", "experiment"))]
        register_resolvers()
        cfg = composed("eval", typed)
        settings |= {"detector": plain(cfg.detector), "detector_preset": cfg.detector_preset}
        found = next_command(settings, Path("RUN"), detector, False, held_out, dict(tuned))
        return found and found[1]

    return command


def test_settings_of_the_detector_stay(typed):
    line = ("detector=[knn,vim]", "detector.knn.k=7", "detector.vim.dim=3", "paths.outputs=OUT")
    cfg = composes(typed(*line, "detector_preset=paper", "model=timm", "trainer.max_epochs=3"))
    assert list(cfg.detector) == ["knn"]
    assert (cfg.detector.knn.k, cfg.detector_preset) == (7, "paper")
    assert (cfg.paths.outputs, cfg.task.images) == ("OUT", "DIR")


def test_settings_of_an_experiment_and_of_a_tuning_stay(typed, monkeypatch, tmp_path):
    own = tmp_path / "experiment/own.yaml"
    own.parent.mkdir()
    own.write_text(
        "# @package _global_\ndefaults: [{override /detector: [knn]}]\n"
        "detector_preset: paper\ndetector: {knn: {max_bank: 90, k: 3}}\n"
    )
    monkeypatch.setenv("OOD_LAB_CONFIG_DIR", str(tmp_path))
    cfg = composes(typed("experiment=own", tuned={"k": 9, "seed": None}))
    assert (cfg.detector.knn.k, cfg.detector.knn.max_bank, cfg.detector.knn.seed) == (9, 90, None)
    assert cfg.detector_preset == "paper"


def test_a_detector_without_a_file_of_its_name_comes_with_its_line(typed):
    own = ("detector=[msp]", "+detector.mine._target_=ood_lab.detectors.KNN", "+detector.mine.k=5")
    cfg = composes(typed(*own, detector="mine"))
    assert cfg.detector.mine.k == 5


def test_nothing_is_recommended_without_a_detector_or_images_for_its_threshold(typed):
    assert typed("ckpt=RUN", detector=None) is None
    assert typed("ckpt=RUN", held_out=0) is None
    assert "task.alpha" not in typed("ckpt=RUN", held_out=19)
    assert "task.alpha=0.06" in typed("ckpt=RUN", held_out=18)


def test_own_yaml_files_are_named(typed, monkeypatch, tmp_path):
    monkeypatch.setenv("OOD_LAB_CONFIG_DIR", str(tmp_path))
    assert shlex.split(typed("ckpt=RUN"))[2:4] == ["--config-dir", str(tmp_path)]

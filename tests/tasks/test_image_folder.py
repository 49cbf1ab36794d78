"""One's own photos, from the command line alone."""

import json
import shutil

import pandas as pd
import pytest
from cli import call, run_folders
from photos import write_photos
from PIL import Image

SMALL = ("trainer.max_epochs=1", "metrics.n_bootstrap=20", "logger=none", "detector=[msp,knn,mds]")
FOLDER = ("data=folder", "data.num_workers=0")
NO_PAGE = "task.report=false"


@pytest.fixture
def photos(tmp_path):
    """A folder of them."""
    write_photos(tmp_path, (56, 48), "jpg")
    return tmp_path


def train(photos, *more):
    data = (*FOLDER, f"data.id.train={photos}/id", f"data.ood.noise={photos}/ood")
    return call("train.py", "task=score", *data, *SMALL, f"paths.outputs={photos}/outputs", *more)


@pytest.mark.slow
def test_id_alone_is_trained_and_scored_later(photos, capsys):
    data = (*FOLDER, f"data.id.train={photos}/id", f"paths.outputs={photos}/outputs")
    # So many epochs teach it the classes.
    data += ("synthetic_ood=none", "trainer.max_epochs=3", *SMALL[1:])
    for _ in range(2):  # the second time it is shown again
        assert call("train.py", *data) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "ID accuracy" in out
        assert "data.ood.NAME=DIR" in out
    (folder,) = run_folders(photos / "outputs")
    assert set(pd.read_csv(folder / "results.csv").metric) == {"id_accuracy"}
    page = (folder / "report.html").read_text()
    assert "data.ood.NAME=DIR" in page
    assert "FPR95" not in page
    knn = "detector.knn.k=5"
    later = (f"ckpt={folder}", f"data.ood.noise={photos}/ood", knn, *SMALL[1:])
    shutil.copy(photos / "id" / "pear" / "0.jpg", photos / "ood" / "a pear.jpg")
    assert call("eval.py", *later, f"paths.outputs={photos}/outputs") == 0
    shown = capsys.readouterr().out
    scored = run_folders(photos / "outputs")[-1]
    results = pd.read_csv(scored / "results.csv")
    assert set(results.dataset.dropna()) == {"noise"}
    assert set(results.detector.dropna()) == {"msp", "knn", "mds"}
    # The network keeps its classes where the images have no labels.
    unlabelled = (f"ckpt={folder}", f"data.id.train={photos}/ood", f"data.id.test={photos}/id/pear")
    more = (f"data.ood.noise={photos}/id/plum", "detector=[msp,mds]", *SMALL[1:3], NO_PAGE)
    assert call("eval.py", *unlabelled, *more, f"paths.outputs={photos}/outputs") == 0
    assert "skipped mds: " in " ".join(capsys.readouterr().out.split())
    # What the check found is kept where the numbers are, and said whenever they are shown.
    (finding,) = json.loads((scored / "manifest.json").read_text())["findings"]
    assert finding["sets"] == ["noise"]
    assert finding["text"].startswith("1 image of noise also in ID: ")
    assert finding["text"] in (scored / "log.txt").read_text()
    page = (scored / "report.html").read_text()
    assert page.index('class="warning">† data: 1 image of noise') < page.index("<table")
    assert "noise†" in page
    assert call("eval.py", *later, f"paths.outputs={photos}/outputs") == 0
    again = capsys.readouterr().out
    for out in (shown, again):
        assert "noise†" in out
        assert "† data: 1 image of noise also in ID" in " ".join(out.split())


@pytest.mark.slow
def test_without_an_ood_dataset_id_test_is_corrupted(photos, capsys):
    """As if it had been typed; OOD datasets that are given later take the place of these."""
    said = "No OOD dataset was given: synthetic ones are made by corrupting your ID test images"
    outputs = (*SMALL, f"paths.outputs={photos}/outputs", NO_PAGE)
    data = (*FOLDER, f"data.id.train={photos}/id", *outputs)
    assert call("train.py", *data) == 0
    assert said in capsys.readouterr().out
    (run,) = run_folders(photos / "outputs")
    results = pd.read_parquet(run / "results.parquet")
    assert set(results.dataset.dropna()) - {"test"} == {"corrupted"}
    assert "shift" in set(results.kind)
    assert json.loads((run / "manifest.json").read_text())["split_off"] == {"val": 6, "test": 18}
    assert call("train.py", *data, "synthetic_ood=corruptions") == 0
    assert f"already done on {(run / 'DONE').read_text().strip()}" in capsys.readouterr().out
    assert call("eval.py", "experiment=shift_report", f"ckpt={run}", *outputs) == 0
    assert said in capsys.readouterr().out
    again = run_folders(photos / "outputs")[-1]
    pd.testing.assert_frame_equal(
        *(pd.read_parquet(folder / "scores.parquet") for folder in (run, again))
    )
    assert call("eval.py", f"ckpt={run}", f"data.ood.noise={photos}/ood", *outputs) == 0
    assert said not in capsys.readouterr().out
    own = pd.read_parquet(run_folders(photos / "outputs")[-1] / "scores.parquet")
    assert set(own.dataset) == {"test", "noise"}


@pytest.mark.slow
def test_levels_of_shift_need_an_ood_set_before_training(photos, capsys):
    data = (*FOLDER, f"data.id.train={photos}/id", "report_by=semantic", *SMALL)
    data += (f"paths.outputs={photos}/outputs",)
    assert call("train.py", *data, "synthetic_ood=none") == 1
    assert "add one with data.ood.NAME=DIR" in capsys.readouterr().err
    assert call("train.py", *data) == 1  # corruptions have covariate levels
    assert "no OOD set has a column semantic_level" in capsys.readouterr().err
    assert not list(photos.rglob("*.ckpt"))


@pytest.mark.slow
def test_a_debug_run_is_two_batches_and_leaves_nothing_to_be_found(photos, capsys):
    few = ("data.batch_size=4", "data.eval_batch_size=3", "detector=[msp]")
    assert train(photos, "debug=true", "trainer.max_epochs=7", *few) == 0
    assert "the numbers mean nothing" in " ".join(capsys.readouterr().out.split())
    assert not run_folders(photos)
    assert {p.name for p in (photos / "outputs").iterdir()} == {"debug"}
    (table,) = photos.rglob("scores.parquet")
    folder = table.parent
    assert pd.read_parquet(table).dataset.value_counts().to_dict() == {"test": 6, "noise": 6}
    trained = pd.read_csv(folder / "splits/train.csv")
    assert len(trained) == 8
    assert trained.label.nunique() == 3
    assert "2 batches of folder" in (folder / "report.html").read_text()
    assert list((folder / "features").rglob("*.safetensors"))  # no other run looks here
    score = (f"ckpt={folder}", *few, "logger=none", f"paths.outputs={photos}/outputs")
    assert call("eval.py", *score) == 1
    assert "is a debug run" in capsys.readouterr().err
    assert call("eval.py", *score, "debug=true", NO_PAGE) == 0
    assert {p.name for p in (photos / "outputs").iterdir()} == {"debug"}


def test_one_command(photos, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    assert train(photos, NO_PAGE) == 0
    (folder,) = run_folders(photos / "outputs")
    results = pd.read_parquet(folder / "results.parquet")
    assert set(results.dataset.dropna()) == {"noise"}
    assert json.loads((folder / "manifest.json").read_text())["classes"] == [
        "apple",
        "pear",
        "plum",
    ]
    assert {p.stem for p in (folder / "splits").iterdir()} == {"train", "val", "test", "noise"}
    out = capsys.readouterr().out
    assert "noise" in out
    # From random weights on 36 photographs: fine-tuning is the advice, in one line.
    (advice,) = [line for line in out.splitlines() if "advice: " in line]
    assert "resnet10s learns from nothing but 36 photographs" in advice
    assert "model=timm model.name=resnet18 model.pretrained=true" in advice


@pytest.mark.slow
def test_nothing_to_learn_from_is_said_before_training(photos, capsys):
    """One class, or a table without labels: train.py stops, eval.py needs no classes."""
    shutil.rmtree(photos / "id" / "pear")
    shutil.rmtree(photos / "id" / "plum")
    assert train(photos) == 1
    assert "has one class, 'apple'" in capsys.readouterr().err
    images = sorted((photos / "id" / "apple").iterdir())
    pd.DataFrame({"path": images, "animal": "cat"}).to_csv(photos / "list.csv", index=False)
    assert train(photos, f"data.id.train={photos}/list.csv") == 1
    error = capsys.readouterr().err
    assert f"data.id.train={photos}/list.csv: " in error
    assert "have no label" in error
    assert len(error.strip().splitlines()) == 1
    assert not list(photos.rglob("*.ckpt"))


@pytest.mark.slow
def test_a_network_at_chance_is_told_and_marks_nothing(photos, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    rate = "model.classifier.optimizer.lr=1e-12"
    assert train(photos, rate) == 0
    (folder,) = run_folders(photos / "outputs")
    out = capsys.readouterr().out
    assert "the network recognises your own images no better" in out
    assert "no better than chance (33.3% of 3 classes)" in out
    assert "the training (epochs: 1, steps: 1) has not taught it the classes" in out
    assert "wrong checkpoint" not in out
    assert "check the sign" not in out
    assert not pd.read_parquet(folder / "significance_best.parquet")["best"].any()
    page = (folder / "report.html").read_text()
    assert 'class="best"' not in page
    assert any("no better than chance" in part for part in page.split('class="warning">')[1:])
    # The same weights loaded: nothing is known of their training.
    assert (
        call("eval.py", f"ckpt={folder}", *SMALL, f"paths.outputs={photos}/outputs", NO_PAGE) == 0
    )
    assert "wrong checkpoint" in capsys.readouterr().out


@pytest.mark.slow
def test_another_models_head_keeps_its_classes(photos, capsys):
    """A network with 7 classes of its own on 3 classes of ours: no ID accuracy, but scores."""
    import timm
    import torch

    net = timm.create_model("resnet18", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16), num_classes=7)
    torch.save(net.state_dict(), photos / "net.pt")
    model = ("model=timm", "model.name=resnet18", f"model.weights={photos}/net.pt")
    kwargs = ("model.kwargs.layers=[1,1,1,1]", "model.kwargs.channels=[8,8,16,16]")
    data = (*FOLDER, f"data.id.train={photos}/id", f"data.ood.noise={photos}/ood")
    shape = ("model.backbone.input_size=32", "model.backbone.allow_transform_mismatch=true")
    status = call(
        "eval.py", *data, *model, *kwargs, *shape, *SMALL, NO_PAGE, f"paths.outputs={photos}/o"
    )
    assert status == 0
    assert "ID accuracy is not defined" in " ".join(capsys.readouterr().out.split())
    results = pd.read_parquet(run_folders(photos / "o")[-1] / "results.parquet")
    assert "id_accuracy" not in set(results.metric)


MODULE = ("model=module", "model.net._target_=cifar_resnet.ResNet20", "model.head=linear")


@pytest.mark.slow
def test_a_network_that_says_no_size_takes_that_of_the_images(photos, capsys, monkeypatch):
    """Which it keeps: evaluated on larger images, it sees them as it was trained."""
    monkeypatch.setenv("COLUMNS", "500")
    assert train(photos, *MODULE, "model.net.num_classes=3", NO_PAGE) == 0
    assert "input_size=56 × 48 (that of all images)" in capsys.readouterr().out
    (folder,) = run_folders(photos / "outputs")
    for file in photos.glob("[io]*d/**/*.jpg"):
        Image.open(file).resize((90, 90)).save(file)
    assert call("eval.py", f"ckpt={folder}", *SMALL, f"paths.outputs={photos}/new", NO_PAGE) == 0
    (again,) = run_folders(photos / "new")
    ours, theirs = (json.loads((f / "manifest.json").read_text()) for f in (folder, again))
    assert ours["data"] != theirs["data"]
    assert ours["backbone"]["transform"] == theirs["backbone"]["transform"]
    assert "does not say what images it expects" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_network_that_enlarges_the_images_is_told_with_its_cost(photos, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    small = ("model.kwargs.layers=[1,1,1,1]", "model.kwargs.channels=[16,16,32,32]")
    assert train(photos, "model=timm", "model.name=resnet18", *small, NO_PAGE) == 0
    out = capsys.readouterr().out
    assert "resnet18 takes 224 × 224 pixels, all ID images have 56 × 48" in out
    assert "about 19 times as long" in out
    assert "model.backbone.input_size=[3,48,56]" in out


def truncate(photos):
    file = photos / "id" / "pear" / "3.jpg"
    file.write_bytes(file.read_bytes()[:400])
    return "3.jpg"


def no_ood(photos):
    shutil.rmtree(photos / "ood")
    return "ood"


@pytest.mark.parametrize("damage", [truncate, no_ood])
def test_damage_is_named_in_one_line(photos, capsys, damage):
    named = damage(photos)
    assert train(photos) == 1
    error = capsys.readouterr().err.strip()
    assert named in error
    assert len(error.splitlines()) == 1
    assert not list((photos / "outputs").rglob("*.ckpt"))


def test_an_empty_class_folder_is_left_out_and_said_and_broken_images_can_be(photos, capsys):
    (photos / "id" / "quince").mkdir()
    truncate(photos)
    assert train(photos, "data.on_broken=skip", "debug=true", NO_PAGE) == 0
    assert "quince" in capsys.readouterr().out

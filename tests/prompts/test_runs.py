"""Prompt methods through the entry points, on the shipped CLIP."""

import json

import pandas as pd
import pytest
import torch
from cli import call, run_folders

SHOTS = ("data.shots=2", "data.train=110", "detector=[msp,knn]", "logger=none")
SHOTS += ("detector.knn.k=5",)  # of 22 images
ALL = ("experiment=smoke", *SHOTS, "task.report=false", "data.per_shift_set=20")


def run(script, outputs, *arguments):
    status = call(script, *ALL, f"paths.outputs={outputs}", *arguments)
    assert status == 0
    folder = run_folders(outputs)[-1]
    return folder, pd.read_csv(folder / "results.csv")


@pytest.fixture(scope="module")
def coop(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("coop")
    return run(
        "train.py", outputs, "task=score", "prompt=coop", "name=coop", "trainer.max_epochs=4"
    )


def test_coop_and_post_hoc_detectors_share_a_table(coop):
    folder, results = coop
    assert {"mcm", "gl_mcm", "msp", "knn"} == set(results.detector.dropna())
    assert (results.metric == "dad").sum() == 4
    assert results[results.metric == "id_accuracy"].value.item() > 0.2
    manifest = json.loads((folder / "manifest.json").read_text())
    assert not manifest["refused"]
    assert manifest["recipe"] == "conf/recipe/prompt/coop_builtin.yaml (preset=builtin)"
    train = pd.read_csv(folder / "splits" / "train.csv")
    assert set(train.label.value_counts()) == {2}
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"last.ckpt"}
    content = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert set(content["state_dict"]) == {"backbone.prompts.ctx"}


@pytest.mark.slow
def test_learned_prompts_are_evaluated_from_their_run(coop, capsys):
    folder, results = coop
    _, again = run("eval.py", folder.parents[2], f"ckpt={folder}", "prompt=coop", "name=again")
    assert "images passed" not in capsys.readouterr().out
    pd.testing.assert_frame_equal(again, results)


def test_learned_prompts_of_other_classes_are_refused(coop, capsys):
    folder, _ = coop
    file = folder / "checkpoints" / "last.ckpt"
    other = ("prompt=coop", f"ckpt={file}", "model.backbone.n_ctx=8", "logger=none")
    assert call("eval.py", *other, f"paths.outputs={folder.parents[2]}") != 0
    assert "n_ctx" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_on_other_training_images_share_a_leaderboard(coop, tmp_path):
    folder, _ = coop
    outputs = folder.parents[2]
    run("eval.py", outputs, "prompt=gl_mcm", "name=zero", "data.shots=-1")
    compare = ("task=compare", f"runs={outputs}", f"paths.outputs={tmp_path}")
    assert call("eval.py", *compare) == 0
    board = pd.read_csv(next(tmp_path.rglob("leaderboard.csv")))
    assert {"coop-tiny", "gl_mcm-tiny"} <= set(board.model)
    assert {"mcm", "gl_mcm", "l_mcm", "knn"} <= set(board.detector.dropna())


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["locoop", "idlike"])
def test_the_other_learners(prompt, tmp_path):
    options = ("trainer.max_epochs=2", f"prompt={prompt}")
    folder, results = run("train.py", tmp_path, "task=score", *options)
    own = {"locoop": {"mcm", "gl_mcm"}, "idlike": {"mcm", "idlike"}}[prompt]
    assert own <= set(results.detector.dropna())
    assert results[results.metric == "id_accuracy"].value.item() > 0.15
    assert not json.loads((folder / "manifest.json").read_text())["refused"]


@pytest.mark.slow
def test_scores_of_other_methods_are_refused_by_name(tmp_path):
    options = ("prompt=mcm", "+detector.idlike._target_=ood_lab.prompts.IDLikeScore")
    folder, results = run("eval.py", tmp_path, *options)
    assert "mcm" in set(results.detector.dropna())
    refused = json.loads((folder / "manifest.json").read_text())["refused"]
    assert "prompt=idlike" in refused["idlike"]

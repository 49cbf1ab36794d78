"""Measuring, dividing, separability and zero-shot validation through the real entry point."""

import json

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from cli import call, run_folders

from ood_lab.schema.results import read_results
from ood_lab.shift import load_edges
from ood_lab.tasks.separability import names_of

pytestmark = pytest.mark.slow

SMALL = ("experiment=smoke", "trainer.accelerator=cpu", "logger=none")
FIGURES = ("cells", "shift_scatter", "shift_order", "shift_decompositions")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


def run(root, *arguments, script="eval.py", figures=()):
    """Runs a job and returns its folder."""
    before = set(run_folders(root / "outputs"))
    paths = (f"paths.outputs={root / 'outputs'}", f"paths.features={root / 'features'}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        assert call(script, *arguments, *SMALL, *paths, figures=figures) == 0
    (folder,) = set(run_folders(root / "outputs")) - before
    return folder


@pytest.fixture(scope="module")
def laid(root):
    """The folder of a LAID matrix for the tiny CLIP."""
    return run(root, "model=laid", "model.laid.steps_per_epoch=50", script="train.py")


@pytest.fixture(scope="module")
def division(root, laid):
    return run(root, "task=shift_levels", f"task.laid={laid}", "name=first", figures=FIGURES)


def test_the_division_partitions_the_pool(division):
    pool = pd.read_parquet(division / "levels.parquet")
    degrees = pd.read_parquet(division / "shift_scores.parquet")
    assert set(pool["dataset"]) == set(degrees["dataset"]) - {"test"}
    assert len(pool) == (degrees["dataset"] != "test").sum()
    assert set(pool["sha256"]) == {""}  # drawn images are not files
    counts = pd.read_csv(division / "level_counts.csv").set_index("covariate_level").to_numpy()
    assert counts.shape == (8, 8)
    assert counts.sum() == len(pool)
    listed = []
    for (covariate, semantic), n in np.ndenumerate(counts):
        file = division / "cells" / f"cov_{covariate}_sem_{semantic}.txt"
        text = file.read_text() if file.exists() else ""
        lines = [line.rpartition(" ")[0] for line in text.splitlines()]
        assert len(lines) == n
        inside = (pool.covariate_level == covariate) & (pool.semantic_level == semantic)
        assert sorted(lines) == sorted(pool.loc[inside, "path"].astype(str))
        listed += lines
    assert sorted(listed) == sorted(pool["path"].astype(str))
    edges = load_edges(division / "level_edges.json")
    for axis in ("semantic", "covariate"):
        expected = np.digitize(pool[axis], getattr(edges, axis))
        np.testing.assert_array_equal(pool[f"{axis}_level"], expected)


def test_the_files_of_a_division(division):
    page = (division / "shift.html").read_text()
    degrees = pd.read_parquet(division / "shift_scores.parquet")
    for axis in ("semantic", "covariate"):
        for mean in degrees.groupby("dataset")[axis].mean():
            assert f">{mean:.3f}<" in page
    figures = {path.name for path in (division / "figures").iterdir()}
    for name in FIGURES:
        assert {f"{name}.png", f"{name}.svg"} <= figures
    summary = read_results(division)
    rows = summary.groupby("dataset").size()
    assert set(rows.index) == set(degrees["dataset"])
    assert set(rows.drop("test")) == {
        2 * 5
    }  # mean, median, frac_above_id_q95, distance_auroc, in units of ID
    assert rows["test"] == 2 * 2  # there is nothing that it lies beyond
    manifest = json.loads((division / "manifest.json").read_text())
    assert manifest["pool"] == (degrees["dataset"] != "test").sum()
    assert manifest["k"] == 10


def test_the_edges_of_one_division_give_the_same_levels_again(root, laid, division, capsys):
    given = f"task.edges={division / 'level_edges.json'}"
    capsys.readouterr()
    again = run(
        root, "task=shift_levels", f"task.laid={laid}", given, "name=again", "task.report=false"
    )
    out = capsys.readouterr().out
    columns = ["dataset", "index", "semantic_level", "covariate_level"]
    first, second = (pd.read_parquet(f / "levels.parquet")[columns] for f in (division, again))
    pd.testing.assert_frame_equal(first, second)
    assert not (again / "shift.html").exists()
    assert "ID test (no shift)" in out
    few = (pd.read_csv(again / "level_counts.csv").drop(columns="covariate_level") < 2).sum().sum()
    assert f"(n) = N/A, fewer than 2 images: {few} of 64 cells" in out


def test_measuring_alone_gives_the_same_degrees(root, laid, division):
    folder = run(
        root, "task=shift_scores", f"task.laid={laid}", "task.report=false", "name=measured"
    )
    one, other = (pd.read_parquet(f / "shift_scores.parquet") for f in (division, folder))
    pd.testing.assert_frame_equal(one, other)
    # The undecomposed CLIP has the same distance on both axes, LAID has not.
    np.testing.assert_array_equal(one["semantic_clip"], one["covariate_clip"])
    assert (one["semantic"] != one["covariate"]).mean() > 0.9


def test_zero_shot_accuracies_of_the_parts(root, laid):
    folder = run(root, "task=laid_zero_shot", f"task.laid={laid}", "name=parts")
    results = pd.read_csv(folder / "results.csv")
    parts = {f"{way}_{part}" for way in ("laid", "pca") for part in ("semantic", "covariate")}
    assert set(results["part"]) == {*parts, "clip_whole"}
    accuracy = results[results.metric == "acc1"].set_index("part")["value"]
    assert accuracy["laid_semantic"] > accuracy["laid_covariate"]


def test_separability_of_a_run_and_the_clip_on_the_data_of_the_run(root, capsys):
    trained = run(root, "detector=[msp]", "task.report=false", "data.train=132", script="train.py")
    capsys.readouterr()
    paths = (f"paths.outputs={root / 'outputs'}", f"paths.features={root / 'features'}")
    common = ("task=separability", "trainer.accelerator=cpu", *paths)
    both = (f"task.runs=['{trained}']", "task.clip=true", "task.most_images=30", "task.axes=all")
    net, file = timm.create_model("test_resnet", num_classes=3), root / "net.pt"
    torch.save(net.state_dict(), file)
    both += ("+model@networks.small=timm", "networks.small.name=test_resnet")
    both += (f"networks.small.weights={file}", "networks.small.backbone.num_classes=3")
    assert call("eval.py", *common, *both, figures=["separability"]) == 0
    out = capsys.readouterr().out
    (folder,) = (root / "outputs" / "separability").glob("*/seed=0")
    table = pd.read_csv(folder / "separability.csv")
    assert set(table["backbone"]) == {trained.parts[-3], "CLIP tiny", "small"}
    assert (table["n"] == 30).all()
    for value in table["bhattacharyya"]:
        assert f"{value:.3f}" in out
    np.testing.assert_allclose(
        table["bhattacharyya"], table["mean_term"] + table["covariance_term"]
    )
    assert {"separability.png", "separability.svg"} <= {
        path.name for path in (folder / "figures").iterdir()
    }
    # The run's own sizes, not the default ones of the data.
    assert len(pd.read_csv(folder / "splits" / "train.csv")) == 132
    assert call("eval.py", *common, f"task.runs=['{trained}','{trained}']") == 1
    assert "names a run twice" in capsys.readouterr().err
    assert call("eval.py", *common) == 1
    assert "no backbone" in capsys.readouterr().err
    nowhere = f"task.runs=['{trained}','{root}']"
    assert call("eval.py", *common, nowhere) == 1
    assert f"{root} has no config.yaml" in capsys.readouterr().err


def test_runs_are_named_by_what_tells_them_apart():
    assert names_of(["o/a/1/seed=0", "o/b/1/seed=0"]) == ["a", "b"]
    assert names_of(["o/a/1/seed=0", "o/a/2/seed=0"]) == ["a/1", "a/2"]
    assert names_of(["o/a/1/seed=0", "o/a/1/seed=1"]) == ["a/1/seed=0", "a/1/seed=1"]
    assert names_of([]) == []

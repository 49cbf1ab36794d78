"""`task=how_far`: distances, levels, detectors and the answer on one page."""

import json

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from photos import write_photos

from ood_lab.metrics import auroc
from ood_lab.results import of_kind, read_results

FAST = ("trainer.max_epochs=1", "metrics.draws=30", "logger=none", "detector=[msp,knn,mds]")
VESSELS = (
    *("data.train=440", "data.val=55", "data.test=110", "data.per_shift_set=80", "data.per_cell=4"),
    *("task.levels=3", "detector.knn.k=5"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("how_far")
    line = ("experiment=how_far", *VESSELS, *FAST[1:], "trainer.max_epochs=6")
    assert call("train.py", *line, f"paths.outputs={outputs}") == 0
    return run_folders(outputs)[-1]


def test_one_command_leaves_distances_levels_and_scores(run):
    results = read_results(run)
    assert {"shift", "detection"} <= set(results["kind"])
    levels = pd.read_parquet(run / "levels.parquet")
    assert len(levels) == 5 * 80 + 35 * 4
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["distance"]["by"] == "tiny"
    page = (run / "report.html").read_text()
    assert page.index("far in meaning") < page.index("What was compared") < page.index("<table")
    for title in ("Where the sets lie", "What to do with it", "task=predict"):
        assert title in page


def test_the_numbers_of_a_level_are_those_of_its_images(run):
    """From scores and levels by hand; the known levels of the grid stay beside them."""
    results = of_kind(read_results(run), "detection")
    scores = pd.read_parquet(run / "scores.parquet")
    keys = ["dataset", "index"]
    levels = pd.read_parquet(run / "levels.parquet")[
        [*keys, "semantic_level", "covariate_level"]
    ].rename(columns={"semantic_level": "s", "covariate_level": "c"})
    pool = scores.merge(levels, on=keys)
    test = scores[scores["dataset"] == "test"]
    cells = results[(results["ood"] == "all_ood") & (results["metric"] == "auroc")]
    cells = cells.dropna(subset=["semantic_level", "covariate_level", "value"])
    assert len(cells) > 3
    for row in cells.to_dict("records"):
        part = pool[(pool["s"] == row["semantic_level"]) & (pool["c"] == row["covariate_level"])]
        assert len(part) == row["n_ood"]
        expected = auroc(test[row["detector"]], part[row["detector"]])
        assert row["value"] == pytest.approx(expected, abs=1e-12)
    assert "grid" in set(results.dropna(subset=["semantic_level"])["ood"])


def test_the_misses_are_those_of_the_scores(run):
    """Pairs of a missed and a noticed image, counted one by one."""
    rows = of_kind(read_results(run), "misses")
    scores = pd.read_parquet(run / "scores.parquet")
    ood = pd.read_parquet(run / "degrees.parquet").query("dataset != 'test'")
    ood = ood.merge(scores[["dataset", "index", "mds"]], on=["dataset", "index"])
    missed = ood["mds"] <= np.quantile(scores.loc[scores["dataset"] == "test", "mds"], 0.95)
    for axis in ("semantic", "covariate"):
        near, far = ood[axis][missed].to_numpy()[:, None], ood[axis][~missed].to_numpy()
        known = (rows["detector"] == "mds") & (rows["axis"] == axis)
        (row,) = rows[known & (rows["metric"] == "nearer_missed")].to_dict("records")
        share = np.mean((near < far) + 0.5 * (near == far))
        assert row["value"] == pytest.approx(share, abs=1e-12)
        assert row["ci_low"] <= share <= row["ci_high"]


def test_the_shares_of_the_answer_are_those_of_the_degrees(run):
    degrees = pd.read_parquet(run / "degrees.parquet")
    edge = np.quantile(degrees.loc[degrees["dataset"] == "test", "semantic"], 0.95)
    others = degrees[degrees["dataset"] != "test"]
    shares = 100 * (others["semantic"] > edge).groupby(others["dataset"]).mean()
    (first, *_) = json.loads((run / "manifest.json").read_text())["answer"]
    assert f"{shares.min():.0f} to {shares.max():.0f}%" in first or "are" in first


def test_own_photos_are_measured_in_the_features_of_the_network(tmp_path, capsys):
    write_photos(tmp_path, (56, 48), "jpg")
    line = (
        *("experiment=how_far", "data=folder", f"data.id.train={tmp_path}/id"),
        *(f"data.ood.noise={tmp_path}/ood", *FAST, f"paths.outputs={tmp_path}/outputs"),
        "task.k=3",
    )
    assert call("train.py", *line, "task.distance=clip") == 1
    error = capsys.readouterr().err
    assert "task.distance=clip" in error
    assert "clip=" in error
    assert call("train.py", *line, "detector.knn.k=3") == 0
    run = run_folders(tmp_path / "outputs")[-1]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["distance"]["unsplit"]
    assert "in the features of the network" in manifest["answer"][0]
    degrees = pd.read_parquet(run / "degrees.parquet")
    # KNN is the Euclidean distance of unit vectors: twice the cosine distance is its square.
    scores = pd.read_parquet(run / "scores.parquet")
    both = degrees.merge(scores[["dataset", "index", "knn"]], on=["dataset", "index"])
    np.testing.assert_allclose(2 * both["distance"], both["knn"] ** 2, atol=1e-5)
    page = (run / "report.html").read_text()
    assert "do not tell meaning from looks" in page

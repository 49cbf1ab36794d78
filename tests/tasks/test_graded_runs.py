"""OOD sets made of ID test, by the command line."""

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.io import read_config, read_json

SMALL = (
    *("experiment=smoke", "data.per_shift_set=0", "data.per_cell=0", "data.train=330"),
    *("data.test=110", "trainer.max_epochs=2", "detector=[knn]", "task.report=false"),
    *("logger=none", "trainer.accelerator=cpu"),
)
EVAL = ("eval.py", "trainer.accelerator=cpu", "logger=none", "detector=[knn]", "task.report=false")
NOISY = ("graded=corruptions", "graded.corruptions=[gaussian_noise,impulse_noise,contrast]")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("graded")


@pytest.fixture(scope="module")
def noisy(outputs):
    return trained(outputs, *NOISY)


def trained(outputs, *arguments):
    assert call("train.py", "task=score", *SMALL, *arguments, f"paths.outputs={outputs}") == 0
    return run_folders(outputs)[-1]


def evaluated(outputs, run, *arguments):
    small = ("logger=none", "detector=[knn]", "task.report=false", f"paths.outputs={outputs}")
    assert call("eval.py", f"ckpt={run}", "trainer.accelerator=cpu", *small, *arguments) == 0
    return run_folders(outputs)[-1]


def test_stronger_corruption_is_easier_to_notice(noisy):
    results = pd.read_parquet(noisy / "results.parquet")
    by_level = results[results["covariate_level"].notna() & (results["metric"] == "auroc")]
    auroc = by_level.set_index("covariate_level")["value"]
    assert auroc.index.tolist() == [1, 2, 3, 4, 5]
    assert (by_level["n_ood"] == 110).all()
    assert auroc[5] > auroc[1] + 0.1
    trend = results.loc[results["metric"] == "correlation_covariate_auroc", "value"].item()
    assert trend > 0.7


def test_an_evaluation_takes_them_over_or_makes_others(noisy, outputs):
    again = evaluated(outputs, noisy)
    assert read_config(again)["graded"] == read_config(noisy)["graded"]
    old, new = (pd.read_parquet(run / "scores.parquet") for run in (noisy, again))
    pd.testing.assert_frame_equal(old, new)
    chosen = ("graded=corruptions", "graded.by_set=true", "graded.severities=[1,5]")
    other = evaluated(outputs, noisy, *chosen)
    assert other.parent.name != again.parent.name
    results = pd.read_parquet(other / "results.parquet")
    placed = results.dropna(subset=["shift_level", "ood"]).groupby("ood")["shift_level"].first()
    assert placed.to_dict() == {"corrupted_1": 1, "corrupted_5": 2}
    assert (results["metric"] == "dad").any()


def test_held_out_classes_are_taken_over_with_the_network(outputs):
    run = trained(outputs, "graded=classes", "graded.held_out=[early Shang,late Western Zhou]")
    assert len(read_json(run / "manifest.json")["classes"]) == 9
    again = evaluated(outputs, run)
    scores = pd.read_parquet(again / "scores.parquet")
    assert scores["dataset"].value_counts().to_dict() == {"test": 90, "held_out": 20}


WRONG = {
    "graded.corruptions=[fogg]": "did you mean 'fog'",
    "graded.severities=[6]": "graded.severities",
    "graded.held_out=[cat]": "graded=both and graded=classes",
}


@pytest.mark.parametrize("override", WRONG)
def test_mistakes_are_one_line(override, tmp_path, capsys):
    arguments = (*SMALL, "graded=corruptions", override, f"paths.outputs={tmp_path}")
    assert call("train.py", *arguments) != 0
    assert WRONG[override] in capsys.readouterr().err.splitlines()[-1]


def test_a_run_is_evaluated_without_the_sets_that_it_made(noisy, outputs, capsys):
    assert call(*EVAL, f"ckpt={noisy}", "graded=none", f"paths.outputs={outputs}") == 0
    assert "there is no OOD set" in capsys.readouterr().out
    assert not read_config(run_folders(outputs)[-1])["graded"]


def test_lists_of_a_division_leave_out_what_is_made_and_the_table_says_of_what(tmp_path):
    small = ("data.train=55", "data.test=33", "data.per_shift_set=10", "data.per_cell=0")
    made = ("task=divide", "task.levels=3", *NOISY, "graded.severities=[5]", "task.report=false")
    rest = ("logger=none", "trainer.accelerator=cpu", "metrics.draws=10")
    assert call("eval.py", *small, *made, *rest, f"paths.outputs={tmp_path}") == 0
    folder = run_folders(tmp_path)[-1]
    listed = [
        line.rsplit(" ", 1)[0]
        for file in (folder / "cells").iterdir()
        for line in file.read_text().splitlines()
    ]
    levels = pd.read_parquet(folder / "levels.parquet")
    corrupted = levels["dataset"] == "corrupted"
    assert sorted(listed) == sorted(levels.loc[~corrupted, "path"])
    assert len(listed) == 50
    assert (levels.loc[~corrupted, "severity"] == 0).all()
    assert (levels.loc[corrupted, "severity"] == 5).sum() == 33
    for row in levels[corrupted].itertuples():
        assert row.path == f"{row.source}#{row.corruption}-5"

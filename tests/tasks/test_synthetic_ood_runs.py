"""OOD sets made of ID test, by the command line."""

import pandas as pd
import pytest
import torch
from cifar_resnet import ResNet20
from cli import call, run_folders

from ood_lab.common.files import read_config, read_json

SMALL = (
    *("experiment=smoke", "data.per_shift_set=0", "data.per_cell=0", "data.train=220"),
    *("data.test=66", "trainer.max_epochs=2", "detector=[knn]", "task.report=false"),
    *("logger=none", "trainer.accelerator=cpu"),
)
EVAL = ("eval.py", "trainer.accelerator=cpu", "logger=none", "detector=[knn]", "task.report=false")
NOISY = (
    "synthetic_ood=corruptions",
    "synthetic_ood.corruptions=[gaussian_noise,impulse_noise,contrast]",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("synthetic_ood")


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


@pytest.mark.slow
def test_stronger_corruption_is_easier_to_notice(noisy):
    results = pd.read_parquet(noisy / "results.parquet")
    by_level = results[results["covariate_level"].notna() & (results["metric"] == "auroc")]
    auroc = by_level.set_index("covariate_level")["value"]
    assert auroc.index.tolist() == [1, 2, 3, 4, 5]
    assert (by_level["n_ood"] == 66).all()
    assert auroc[5] > auroc[1] + 0.1
    trend = results.loc[results["metric"] == "correlation_covariate_auroc", "value"].item()
    assert trend > 0.7


@pytest.mark.slow
def test_an_evaluation_takes_them_over_or_makes_others(noisy, outputs):
    again = evaluated(outputs, noisy)
    assert read_config(again)["synthetic_ood"] == read_config(noisy)["synthetic_ood"]
    old, new = (pd.read_parquet(run / "scores.parquet") for run in (noisy, again))
    pd.testing.assert_frame_equal(old, new)
    chosen = (
        "synthetic_ood=corruptions",
        "synthetic_ood.by_set=true",
        "synthetic_ood.severities=[1,5]",
    )
    other = evaluated(outputs, noisy, *chosen)
    assert other.parent.name != again.parent.name
    results = pd.read_parquet(other / "results.parquet")
    placed = (
        results.dropna(subset=["shift_level", "dataset"]).groupby("dataset")["shift_level"].first()
    )
    assert placed.to_dict() == {"corrupted_1": 1, "corrupted_5": 2}
    assert (results["metric"] == "dad").any()


@pytest.mark.slow
def test_held_out_classes_are_taken_over_with_the_network(outputs):
    few = ("data.train=110", "trainer.max_epochs=1")  # how well it learns does not matter here
    held = (
        "synthetic_ood=held_out_classes",
        "synthetic_ood.held_out=[early Shang,late Western Zhou]",
    )
    run = trained(outputs, *held, *few)
    assert len(read_json(run / "manifest.json")["classes"]) == 9
    again = evaluated(outputs, run)
    scores = pd.read_parquet(again / "scores.parquet")
    assert scores["dataset"].value_counts().to_dict() == {"test": 54, "held_out": 12}


@pytest.mark.slow
def test_classes_that_a_run_has_learnt_are_not_ood(noisy, tmp_path, capsys):
    """Neither by the names of its classes, nor by the size of a head that has no names."""
    held = (
        "synthetic_ood=held_out_classes",
        "synthetic_ood.held_out=[early Shang]",
        f"paths.outputs={tmp_path}",
    )
    assert call(*EVAL, f"ckpt={noisy}", *held) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "was trained with early Shang" in line
    assert "synthetic_ood=corruptions makes an OOD set that holds out no class" in line
    data = ("data.train=55", "data.test=33", "data.per_shift_set=0", "data.per_cell=0")
    net = ("model=module", "model.net._target_=cifar_resnet.ResNet20", "model.head=linear")
    for classes in (11, 12):
        torch.save(ResNet20(classes).state_dict(), tmp_path / f"{classes}.pt")
        own = (f"+model.net.num_classes={classes}", f"model.weights={tmp_path}/{classes}.pt")
        size = "model.backbone.input_size=32"
        status = call(*EVAL, "metrics.n_bootstrap=10", *data, *net, *own, size, *held)
        printed = capsys.readouterr()
        assert status == (classes == 11)
        if status:
            assert "has 11 classes, as many as with the held-out early Shang" in printed.err
            assert "features of" not in printed.out
    warnings = read_json(run_folders(tmp_path)[-1] / "manifest.json")["warnings"]
    known = "the head of ResNet20 has 12 classes, ID 10 without the held-out early Shang"
    assert any(warning.startswith(known) for warning in warnings)
    assert "they are not OOD for it" in " ".join(printed.out.split())


WRONG = {
    "synthetic_ood.corruptions=[fogg]": "did you mean 'fog'",
    "synthetic_ood.severities=[6]": "synthetic_ood.severities",
    "synthetic_ood.held_out=[cat]": "synthetic_ood=both and synthetic_ood=held_out_classes",
}


@pytest.mark.parametrize("override", WRONG)
def test_mistakes_are_one_line(override, tmp_path, capsys):
    arguments = (*SMALL, "synthetic_ood=corruptions", override, f"paths.outputs={tmp_path}")
    assert call("train.py", *arguments) != 0
    assert WRONG[override] in capsys.readouterr().err.splitlines()[-1]


def test_a_run_is_evaluated_without_the_sets_that_it_made(noisy, outputs, capsys):
    assert call(*EVAL, f"ckpt={noisy}", "synthetic_ood=none", f"paths.outputs={outputs}") == 0
    assert "there is no OOD set" in capsys.readouterr().out
    assert not read_config(run_folders(outputs)[-1])["synthetic_ood"]


@pytest.mark.slow
def test_lists_of_a_division_leave_out_what_is_made_and_the_table_says_of_what(tmp_path):
    small = ("data.train=55", "data.test=33", "data.per_shift_set=10", "data.per_cell=0")
    made = (
        "task=shift_levels",
        "task.levels=3",
        *NOISY,
        "synthetic_ood.severities=[5]",
        "task.report=false",
    )
    rest = ("logger=none", "trainer.accelerator=cpu", "metrics.n_bootstrap=10")
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

"""The two scripts, as a user calls them."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cli import ROOT, call, run_folders
from wandb_offline import read_run

from ood_lab.common.errors import UserError
from ood_lab.metrics.results_rows import KIND
from ood_lab.schema.results import CORE

SMOKE = ("experiment=smoke",)
QUICK = ("task.report=false", "metrics.n_bootstrap=20")


def read(folder):
    return pd.read_parquet(folder / "results.parquet")


def assert_same_numbers(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a.drop(columns="model"), b.drop(columns="model"))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def trained(outputs):
    assert call("train.py", "task=score", *SMOKE, f"paths.outputs={outputs}") == 0
    (folder,) = run_folders(outputs)
    return folder


@pytest.mark.slow
def test_the_run_folder_holds_everything(trained):
    for name in ("config.yaml", "manifest.json", "scores.parquet", "results.csv", "DONE"):
        assert (trained / name).stat().st_size > 0, name
    assert {p.name for p in (trained / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert trained.name == "seed=0"
    results = read(trained)
    assert set(results["kind"]) == {"detection", "hierarchy"}
    assert list(results.columns)[: len(CORE)] == list(CORE)
    assert set(KIND.keys) <= set(results.columns)
    manifest = json.loads((trained / "manifest.json").read_text())
    assert results.detector.nunique() == 28 - len(manifest["refused"])
    assert set(manifest["refused"]) <= {"she"}  # no image of some class is classified correctly
    assert manifest["backbone"]["weights_sha256"]
    assert manifest["threads"] == torch.get_num_threads()
    assert manifest["detector_device"] in ("cpu", "cuda:0")
    assert manifest["detectors"]["vim"]["dim"] == 119  # half the rank of 240 images, 239


def test_scores_rebuild_the_results(trained):
    from sklearn.metrics import roc_auc_score

    scores, results = pd.read_parquet(trained / "scores.parquet"), read(trained)
    pair = scores[scores.dataset.isin(["test", "container"])]
    row = results.query("detector == 'knn' and dataset == 'container' and metric == 'auroc'")
    truth = roc_auc_score(pair.dataset == "container", pair.knn)
    np.testing.assert_allclose(row.value.item(), truth)


def test_every_pair_of_detectors_is_tested(trained):
    results, pairs = (pd.read_csv(trained / f"{n}.csv") for n in ("results", "significance"))
    names = results.detector.dropna().unique()
    found = pairs[(pairs.dataset == "container") & (pairs.metric == "auroc")]
    assert len(found) == len(names) * (len(names) - 1) / 2
    assert (found.p_holm >= found.p_value).all()
    values = results[(results.dataset == "container") & (results.metric == "auroc")]
    values = values[values.semantic_level.isna() & values.covariate_level.isna()]
    values = values.set_index("detector").value
    np.testing.assert_allclose(found.value_a, values[found.detector_a])


def test_wandb_holds_the_numbers_of_the_csv(trained):
    run = read_run(trained)
    assert run["exit_code"] == 0
    assert run["run"].run_group == "smoke"
    assert run["run"].display_name == "/".join(trained.parts[-3:])
    assert run["run"].job_type == "train"
    results = pd.read_csv(trained / "results.csv")
    assert len(run["table"]["data"]) == len(results)
    levels = results[results.semantic_level.notna() & results.covariate_level.isna()]
    levels = levels[levels.metric.isin(["auroc", "fpr95"])]
    assert len(levels) >= 15 * 6 * 2
    for row in levels.itertuples():
        key = f"level/semantic/{row.semantic_level:g}/{row.detector}/{row.metric}"
        assert run["summary"][key] == pytest.approx(row.value)
    for row in results[results.metric == "mean_auroc"].itertuples():
        assert run["summary"][f"mean/{row.detector}/auroc"] == pytest.approx(row.value)
        assert f"{row.detector}/mean_auroc" not in run["summary"]
        own = [key for key in run["summary"] if row.detector in key.split("/")]
        assert len(own) <= 30
    manifest = json.loads((trained / "manifest.json").read_text())
    assert run["summary"]["val/accuracy"] == pytest.approx(manifest["val_accuracy"])
    for row in results[results.metric == "dad"].itertuples():
        assert run["summary"][f"{row.detector}/dad"] == pytest.approx(row.value)


def test_a_finished_run_is_shown_and_not_repeated(trained, outputs, capsys):
    before = (trained / "results.csv").stat().st_mtime_ns
    assert call("train.py", "task=score", *SMOKE, f"paths.outputs={outputs}") == 0
    assert (trained / "results.csv").stat().st_mtime_ns == before
    assert "already done" in " ".join(capsys.readouterr().out.split())


READ_BACK = ("results.parquet", "results.csv", "scores.parquet", "config.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("file", [*READ_BACK, "summary.json", "manifest.json"])
def test_a_damaged_file_of_a_finished_run_is_named(trained, tmp_path, capsys, file):
    folder = tmp_path / trained.relative_to(trained.parents[2])
    shutil.copytree(trained, folder)
    os.truncate(folder / file, (folder / file).stat().st_size // 2)
    assert call("train.py", "task=score", *SMOKE, f"paths.outputs={tmp_path}") == 1
    printed = capsys.readouterr()
    error = printed.err.strip()
    assert f"{folder / file} is damaged" in error
    assert "force=true" in error
    assert len(error.splitlines()) == 1
    assert "already done" not in printed.out


def test_a_sweep_counts_a_damaged_run_as_failed(trained, tmp_path, capsys):
    folder = tmp_path / trained.relative_to(trained.parents[2])
    shutil.copytree(trained, folder)
    os.truncate(folder / "results.csv", 0)
    line = ("-m", "task=score", *SMOKE, "seed=0", f"paths.outputs={tmp_path}")
    assert call("train.py", *line) == 1
    assert "finished" not in capsys.readouterr().out.split("job 1")[0].split("1 job")[-1]


def test_a_finished_run_in_a_folder_that_cannot_be_written_is_shown(
    trained, outputs, capsys, monkeypatch
):
    opened = Path.open

    def read_only(path, mode="r", *args, **kwargs):
        if mode[0] in "wax" and trained in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", read_only)
    assert call("train.py", "task=score", *SMOKE, f"paths.outputs={outputs}") == 0
    assert "already done" in " ".join(capsys.readouterr().out.split())
    assert call("train.py", "task=score", *SMOKE, f"paths.outputs={outputs}", "force=true") == 1
    assert "cannot write the run folder" in capsys.readouterr().err


@pytest.mark.slow
def test_eval_of_the_run_repeats_it_from_the_bank(trained, outputs, capsys):
    line = (f"ckpt={trained}", f"paths.outputs={outputs}", "task.report=false", *SMOKE)
    line += ("logger=none",)
    assert call("eval.py", *line) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "read from the cache" in out
    assert "images passed" not in out
    again = run_folders(outputs)[-1]
    assert again != trained
    assert_same_numbers(read(again), read(trained))


@pytest.mark.slow
def test_sweep_reads_one_bank(trained, outputs, capsys):
    banks = sorted(p.name for p in (outputs / "features").iterdir())
    sweep = ("-m", "detector=msp,knn", "seed=0,1", "logger=none", "name=sweep")
    sweep += ("task.report=false",)
    assert call("eval.py", f"ckpt={trained}", f"paths.outputs={outputs}", *sweep) == 0
    assert sorted(p.name for p in (outputs / "features").iterdir()) == banks
    folders = run_folders(outputs / "sweep")
    assert len(folders) == 4
    assert {read(f).detector.dropna().unique().item() for f in folders} == {"msp", "knn"}
    assert {f.name for f in folders} == {"seed=0", "seed=1"}
    assert "images passed" not in capsys.readouterr().out
    for folder in folders:  # the same weights, whatever seed the draws have
        assert set(read(folder).seed) == {0}
        assert json.loads((folder / "manifest.json").read_text())["title"].endswith("seed 0")


@pytest.mark.slow
def test_a_page_that_fails_is_one_warning(trained, outputs, capsys, monkeypatch):
    def fails(path, *_, **__):
        tables = {p.stem for p in path.parent.glob("*.parquet")}
        assert {"scores", "results", "significance_best"} <= tables
        assert {"results", "significance"} <= {p.stem for p in path.parent.glob("*.csv")}
        raise UserError("cannot read image 'moved.png'")

    monkeypatch.setattr("ood_lab.evaluation.run_page.write_report", fails)
    arguments = (f"ckpt={trained}", f"paths.outputs={outputs}", "detector=[msp]", "logger=none")
    arguments += ("metrics.n_bootstrap=20",)
    assert call("eval.py", *arguments, "name=no_page") == 0
    (folder,) = run_folders(outputs / "no_page")
    assert len(read(folder))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("is skipped (UserError: cannot read image 'moved.png')") == 1


@pytest.mark.slow
def test_a_file_inside_a_run_takes_its_data_over(trained, outputs):
    file = trained / "checkpoints" / "best.ckpt"
    arguments = (f"ckpt={file}", f"paths.outputs={outputs}", "detector=[msp]", "logger=none")
    assert call("eval.py", *arguments, "name=of_a_file", *QUICK) == 0
    (folder,) = run_folders(outputs / "of_a_file")
    assert set(read(folder).n_id.dropna()) == {80}  # of experiment=smoke


def remove(file):
    file.unlink()


def cut_between_lines(file):
    file.write_text(file.read_text().split("paths:")[0])


@pytest.mark.parametrize("damage", [remove, cut_between_lines])
def test_a_run_folder_without_its_configuration(trained, tmp_path, capsys, damage):
    run = tmp_path / "copy"
    shutil.copytree(trained, run)
    damage(run / "config.yaml")
    assert call("eval.py", f"ckpt={run}", f"paths.outputs={tmp_path}/outputs", "logger=none") == 1
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert str(run) in error
    assert "config.yaml" in error
    assert not run_folders(tmp_path / "outputs")


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["semantic", pytest.param("covariate", marks=pytest.mark.slow)])
def test_one_axis_of_shift(trained, outputs, axis):
    arguments = (f"report_by={axis}", "detector=[msp]", "logger=none", f"name={axis}")
    arguments += QUICK
    assert call("eval.py", f"ckpt={trained}", f"paths.outputs={outputs}", *arguments) == 0
    results = read(run_folders(outputs / axis)[-1])
    other = {"semantic": "covariate", "covariate": "semantic"}[axis]
    assert results[f"{axis}_level"].nunique() == 6
    assert results[f"{other}_level"].isna().all()
    assert "dad" not in set(results.metric)


WRONG = {
    "unknown key": (["data.batchsize=3"], "data.batch_size"),
    "unknown group choice": (["detector=[mpsp]"], "msp"),
    "unknown experiment": (["experiment=smok"], "smoke"),
    "missing checkpoint": (["ckpt=nowhere/run"], "nowhere/run"),
    "no weights": ([], "ckpt="),
    "missing folder": (["data=folder", "data.id.train=nowhere", "data.ood.x=nowhere"], "nowhere"),
    "model not named": (["model=timm"], "model.name"),
    "no detector": (["detector=[]", "model.pretrained=true"], "no detector"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line(case, tmp_path, capsys):
    arguments, named = WRONG[case]
    assert call("eval.py", f"paths.outputs={tmp_path}", "logger=none", *arguments) != 0
    error = capsys.readouterr().err.strip()
    assert error.startswith("error:")
    assert named in error
    assert len(error.splitlines()) == 1
    assert not run_folders(tmp_path)


@pytest.mark.slow
def test_the_detector_that_the_docs_add(trained, tmp_path, monkeypatch):
    """Both files as they are shown, byte for byte."""
    page = (ROOT / "docs" / "how-to/extend.md").read_text()
    python, yaml = (re.search(rf"```{k}\n(.*?)```", page, re.S)[1] for k in ("python", "yaml"))
    (tmp_path / "my_detectors.py").write_text(python)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "conf" / "detector").mkdir(parents=True)
    (tmp_path / "conf" / "detector" / "nearest.yaml").write_text(yaml)
    places = (f"paths.outputs={tmp_path}/out", f"paths.features={trained.parents[2]}/features")
    line = (
        f"ckpt={trained}",
        "detector=[nearest,knn]",
        *places,
        "logger=none",
        *QUICK,
    )
    assert call("eval.py", *line, "--config-dir", str(tmp_path / "conf")) == 0
    (folder,) = run_folders(tmp_path)
    assert set(read(folder).detector.dropna()) == {"nearest", "knn"}


@pytest.mark.slow
def test_a_checkpoint_of_another_architecture(trained, tmp_path, capsys):
    channels = "model.backbone.kwargs.channels=[16,32,64,128]"
    arguments = (f"ckpt={trained}", channels, f"paths.outputs={tmp_path}", "logger=none")
    assert call("eval.py", *arguments) != 0
    assert "another architecture" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failing_job_is_a_failed_wandb_run(trained, tmp_path, outputs, capsys):
    arguments = (f"ckpt={trained}", "detector=[knn]", "detector.knn.k=99999")
    places = (f"paths.outputs={tmp_path}", f"paths.features={outputs}/features")
    assert call("eval.py", *arguments, *places) != 0
    assert "k=99,999 exceeds" in capsys.readouterr().err
    (config,) = tmp_path.rglob("config.yaml")
    assert read_run(config.parent)["exit_code"] == 1

"""What W&B is shown, live and from run folders."""

import hashlib
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from cli import ROOT, call
from finished_runs import add_grid, add_verdict, write_run
from hydra import compose, initialize_config_dir
from wandb_offline import read_run

from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.long_table import make_leaderboard
from ood_lab.report.results_lookup import RunView
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.sweeps import headline
from ood_lab.run.tracking.experiment_loggers import (
    check_sweep,
    summary_values,
    validation_values,
)
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import write_results
from ood_lab.schema.run_record import RunRecord
from ood_lab.shift.dataset_shift import KIND


def test_push_makes_one_run_of_every_folder(tmp_path, capsys):
    for seed in (0, 1):
        run = write_run(
            tmp_path / "one" / "aaaa", {"knn": (0.7, 0.9), "vim": (0.8, 0.8)}, seed=seed
        )
        (run / "report.html").write_text("<p>report")
    measured = write_run(tmp_path / "one" / "bbbb", {"knn": (0.7, 0.9)})
    (measured / "results.parquet").unlink()
    shift = {"dataset": "near", "axis": "semantic", "metric": "mean", "value": 0.25}
    write_results(KIND.table([shift], model="clip", seed=0), measured)
    arguments = ("task=wandb_push", f"runs={tmp_path}/one", f"paths.outputs={tmp_path}/made")
    assert call("eval.py", *arguments, "push.wandb.offline=true") == 0, capsys.readouterr().err
    made = sorted((tmp_path / "made").rglob("offline-run-*"))
    pushed = {}
    for number, folder in enumerate(made):
        parent = tmp_path / f"read{number}" / "wandb"
        parent.mkdir(parents=True)
        (parent / folder.name).symlink_to(folder)
        run = read_run(parent.parent)
        pushed[run["run"].display_name] = (run, folder)
    names = [f"one/aaaa/seed={seed}" for seed in (0, 1)]
    assert set(pushed) == {*names, "one/bbbb/seed=0"}
    for name in names:
        run, folder = pushed[name]
        assert run["run"].run_id == hashlib.sha256(name.encode()).hexdigest()[:16]
        assert run["run"].run_group == "one"
        assert run["summary"]["knn/near/auroc"] == pytest.approx(0.7)
        assert run["summary"]["mean/knn/auroc"] == pytest.approx(0.8)
        results = pd.read_parquet(tmp_path / name / "results.parquet")
        assert len(run["table"]["data"]) == len(results)
        assert list(folder.glob("files/media/html/report*.html"))
    shift = pushed["one/bbbb/seed=0"][0]["summary"]
    assert shift["shift/semantic/near"] == pytest.approx(0.25)


def test_there_is_one_mean_wherever_it_is_shown(tmp_path):
    """Console, W&B, the table of a sweep and the leaderboard: without the set of a grid."""
    aurocs = {"knn": (0.7, 0.9, 0.2), "vim": (0.6, 0.8, 0.9)}
    run = write_run(tmp_path / "a" / "b", aurocs, sets=("near", "far", "grid"))
    add_grid(run)
    results = pd.read_parquet(run / "results.parquet")
    assert RunView(results).mean("auroc", "knn").value == pytest.approx(0.8)
    values = summary_values(results)
    assert values["mean/knn/auroc"] == pytest.approx(0.8)
    assert values["mean/vim/fpr95"] == pytest.approx(0.3)
    add_verdict(run, {"knn": 0.8, "vim": 0.7}, recommended="knn", fpr95=0.2)
    shown = {"recommended": "knn", "AUROC": "80.0", "FPR95": "20.0"}
    assert shown.items() <= headline(FinishedRun(run)).items()
    rows = make_leaderboard([DetectorRun(run)]).rows
    mean = rows[(rows.dataset == "mean") & (rows.metric == "auroc")].set_index("detector").value
    assert mean.to_dict() == pytest.approx({"knn": 0.8, "vim": 0.7})


def test_levels_have_keys_and_no_number_has_two(tmp_path):
    run = write_run(tmp_path, {"knn": (0.7, 0.9), "vim": (0.8, 0.9)})
    table = pd.read_parquet(run / "results.parquet")
    point = table[(table.dataset == "near") & table.metric.isin(["auroc", "fpr95"])]
    aupr = point[point.metric == "auroc"].assign(metric="aupr_out")
    point = pd.concat([point, aupr.assign(value=aupr.value / 2)])
    parts = [table]
    for level in range(4):
        for axis in ("semantic_level", "covariate_level"):
            cell = point.assign(dataset="grid", shift_level=None, value=point.value + level / 100)
            parts.append(cell.assign(**{axis: float(level)}))
    twins = point.assign(metric="fpr95_id_positive")[point.metric == "fpr95"]
    twins = pd.concat([twins, table[(table.dataset == "far") & (table.metric == "fpr95")]])
    parts.append(twins.assign(metric="fpr95_id_positive"))
    mean = table[(table.dataset == "near") & (table.metric == "auroc")]
    parts.append(mean.assign(dataset=None, metric="mean_auroc", value=0.8))
    others = ("aupr_in", "aupr_out")
    parts += [table[table.metric == "auroc"].assign(metric=name) for name in others]
    values = summary_values(pd.concat(parts, ignore_index=True))
    assert values["level/semantic/3/knn/auroc"] == pytest.approx(0.73)
    assert values["level/covariate/3/vim/fpr95"] == pytest.approx(0.23)
    assert not {"knn/mean_auroc", "knn/near/fpr95_id_positive"} & values.keys()
    own = [key for key in values if "knn" in key.split("/")]
    assert len(own) <= 30
    assert {key.rpartition("/")[2] for key in own} == {"auroc", "fpr95", "dad"}
    assert {"mean/knn/auroc", "mean/knn/fpr95", "knn/dad", "knn/near/auroc"} <= set(own)
    assert values["id_accuracy"] == pytest.approx(0.9)


def test_the_wandb_sweep_holds_overrides_that_compose():
    sweep = yaml.safe_load((ROOT / "conf/wandb_sweep.yaml").read_text())
    assert (ROOT / sweep["program"]).exists()
    overrides = []
    for key, choice in sweep["parameters"].items():
        value = choice["values"][-1] if "values" in choice else choice["min"]
        overrides.append(f"{key}={value}")
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        compose("train", overrides)
    check_sweep(sweep)
    assert sweep["metric"]["name"] in validation_values(RunRecord(val_accuracy=0.5))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"metric": {"name": "mean/knn/auroc"}}, "mean/knn/auroc, which is measured on evaluated"),
        ({"metric": {"name": "val/accuracy"}, "parameters": {"seed": {}}}, "a lucky seed"),
    ],
)
def test_a_sweep_on_evaluated_datasets_or_over_seeds_is_refused(
    tmp_path, monkeypatch, capsys, config, reason
):
    """The agent names the sweep; what W&B has of it comes from a server, which is replaced here."""
    asked = []

    class Api:
        def sweep(self, path):
            asked.append(path)
            return SimpleNamespace(config=config)

    monkeypatch.setattr("wandb.Api", Api)
    for name, value in (("SWEEP_ID", "abc"), ("ENTITY", "me"), ("PROJECT", "p")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert call("train.py", "experiment=smoke", f"paths.outputs={tmp_path}") == 1
    assert asked == ["me/p/abc"]
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert reason in line
    assert not list(tmp_path.rglob("config.yaml"))

"""OpenOOD's tree, lists and checkpoints are read as they are, by one command."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from cli import call, run_folders
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from openood_tree import FAR, checkpoints, cifar10_tree

from ood_lab.evaluation.published.verification import read_runs
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.scripts import CONF
from ood_lab.tasks.verify import Verify

#: What OpenOOD v1.5 (3c35632, evaluation_api/datasets.py) reads of each benchmark.
CLASSIC, LARGE = "images_classic", "images_largescale"
BENCHMARKS = {
    "cifar10": (CLASSIC, ["cifar100", "tin"], list(FAR), "val_tin", {"cifar10c": "test_cifar10c"}),
    "cifar100": (CLASSIC, ["cifar10", "tin"], list(FAR), "val_tin", {}),
    "imagenet200": (
        LARGE,
        ["ssb_hard", "ninco"],
        ["inaturalist", "textures", "openimage_o"],
        "val_openimage_o",
        {f"imagenet_{x}": f"test_imagenet200_{x}" for x in ("v2", "c", "r")},
    ),
    "imagenet": (
        LARGE,
        ["ssb_hard", "ninco"],
        ["inaturalist", "textures", "openimage_o"],
        "val_openimage_o",
        {f"imagenet_{x}": f"test_imagenet_{x}" for x in ("v2", "c", "r", "es")},
    ),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_reads_the_lists_of_openood(name):
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        cfg = compose("eval", [f"data=openood_{name}", "openood=D", "detector=[msp]"])
    data = OmegaConf.to_container(cfg.data, resolve=True)
    images, near, far, val, csid = BENCHMARKS[name]
    assert data["root"] == f"D/{images}"
    lists = f"D/benchmark_imglist/{name}"
    assert data["id"] == {s: f"{lists}/{s}_{name}.txt" for s in ("train", "val", "test")}
    expected = {s: f"{lists}/test_{s}.txt" for s in (*near, *far)}
    if "textures" in expected:  # the one set of the large benchmarks that lies with the small ones
        expected["textures"] = {"path": expected["textures"], "root": f"D/{CLASSIC}"}
    assert data["ood"] == expected
    assert data["ood_groups"] == {"near": near, "far": far}
    assert data["ood_val"] == {val: f"{lists}/{val}.txt"}
    assert data["unresized"] == ["imagenet_c"] * ("imagenet_c" in csid)
    assert data["csid"] == {s: f"{lists}/{file}.txt" for s, file in csid.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("openood")
    cifar10_tree(root / "data")
    checkpoints(root / "ckpt")
    return root


def line(place, *more):
    return (
        f"openood={place}/data",
        f"ckpt_openood={place}/ckpt",
        f"paths.outputs={place}/outputs",
        "logger=none",
        "data.num_workers=0",
        *more,
    )


@pytest.fixture(scope="module")
def runs(place):
    """The run folders of two seeds, and that of the leaderboard."""
    few = ("seed=0,1", "detector=[msp,gen]", "metrics.n_bootstrap=20", "task.report=false")
    grid = ("tuning=val_ood", "tuning.grids.msp.temperature=[1,10]", "tuning.grids.gen.m=[10]")
    spectrum = "data.full_spectrum=true"
    arguments = line(place, "experiment=openood_cifar10", spectrum, *few, *grid)
    assert call("eval.py", *arguments) == 0
    return run_folders(place / "outputs")


@pytest.mark.slow
def test_seeds_share_a_folder_and_have_a_mean(runs):
    *seeds, board = runs
    assert [p.name for p in seeds] == ["seed=0", "seed=1"]
    assert len({p.parent for p in seeds}) == 1
    weights = {
        json.loads((p / "manifest.json").read_text())["backbone"]["weights_sha256"] for p in seeds
    }
    assert len(weights) == 2
    table = pd.read_csv(board / "leaderboard.csv")
    near = table[(table.dataset == "mean near") & (table.metric == "auroc")].set_index("detector")
    assert set(near.n_seeds) == {2}
    own = [pd.read_parquet(p / "results.parquet") for p in seeds]
    own = [t[(t.metric == "mean_near_auroc") & (t.detector == "msp")].value.item() for t in own]
    assert near.value["msp"] == pytest.approx(sum(own) / 2)


@pytest.mark.slow
def test_groups_csid_and_validation_sets(runs):
    scores = pd.read_parquet(runs[0] / "scores.parquet")
    assert list(scores.dataset.unique()) == ["test", "cifar10c", "cifar100", "tin", *FAR]
    assert "gen_tuned" in scores  # chosen on val_tin, which is not evaluated
    results = pd.read_parquet(runs[0] / "results.parquet")
    msp = results[results.detector == "msp"].set_index(["dataset", "metric"])
    means = results[results.detector == "msp"].set_index("metric")["value"]
    for group, names in (("near", ["cifar100", "tin"]), ("far", FAR)):
        sets = [msp.value[name, "fpr95"] for name in names]
        assert means[f"mean_{group}_fpr95"] == pytest.approx(sum(sets) / len(sets))
    assert set(msp.n_id) == {30}  # the 10 of csID are ID
    pairs = [(n, f) for n in ("cifar100", "tin") for f in FAR]
    falls = sum(msp.value[n, "fpr95"] > msp.value[f, "fpr95"] for n, f in pairs)
    assert means["dad"] == falls
    accuracies = results[results.detector.isna()].set_index("metric")
    labelled = scores[scores.label >= 0]
    right = labelled.label == labelled.pred
    assert accuracies.value["id_accuracy"] == right[labelled.dataset == "test"].mean()
    assert accuracies.value["id_accuracy_cifar10c"] == right[labelled.dataset == "cifar10c"].mean()
    assert accuracies.value["id_accuracy_full_spectrum"] == pytest.approx(right.mean())
    assert list(accuracies.n_id) == [20, 10, 30]


@pytest.mark.slow
def test_verify_takes_the_mean_of_the_seeds(runs, tmp_path):
    results, _ = read_runs(runs[0].parent)
    tables = [pd.read_parquet(p / "results.parquet") for p in runs[:2]]
    own = [t[(t.metric == "mean_far_auroc") & (t.detector == "msp")].value.item() for t in tables]
    found = results[(results.metric == "mean_far_auroc") & (results.detector == "msp")]
    assert found.value.item() == pytest.approx(sum(own) / 2)
    verify = Verify(run_folder=str(runs[0].parent), row="openood_v15_cifar10/msp", references=None)
    verify.run(SimpleNamespace(folder=tmp_path))
    table = pd.read_csv(tmp_path / "verify.csv").set_index("row")
    ours = table.run["openood_v15_cifar10/msp/far/auroc"]
    assert ours == pytest.approx(100 * sum(own) / 2)
    assert set(table.differs) == {"n.test"}  # noise: not judged


@pytest.mark.slow
def test_data_check_names_what_is_missing(place, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "300")
    data = cifar10_tree(tmp_path / "data")
    (data / "benchmark_imglist" / "cifar10" / "test_svhn.txt").unlink()
    (data / "images_classic" / "tin" / "test" / "3.png").unlink()
    arguments = ("task=data_check", "data=openood_cifar10", f"openood={data}")
    assert call("eval.py", *arguments, f"paths.outputs={tmp_path}/outputs", "logger=none") == 1
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "2 of 10 sources: tin is incomplete: 1 of 12 images are missing" in error
    assert f"{data}/images_classic/tin/test/3.png" in error
    assert "svhn is missing" in error


def test_a_mistyped_path_is_one_line(place, capsys):
    arguments = line(place, "experiment=openood_cifar10_seed", "detector=[msp]")
    assert call("eval.py", *arguments, f"openood={place}/dta") == 1
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert f"{place}/data" in error

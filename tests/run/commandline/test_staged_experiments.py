"""Staged experiments: which command lines they are, and what becomes of them."""

import json

import pandas as pd
import pytest
from cli import call, only, run_folders
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.run.building.checkpoints import best_runs
from ood_lab.run.commandline.composition import jobs_of
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.launch import run_stages
from ood_lab.run.job.stages import StageLine, stages_of
from ood_lab.scripts import OWN_CONF

EXPERIMENT = """# @package _global_
study: {data: folder, both: ["data=${study.data}", "seed=7"], file: "???"}
skip: []
stages:
  a: [train, model=nts, "${study.both}", "detector=[]"]
  best: [eval, "detector=[knn]", "ckpt=${best:a}"]
  file: [eval, "model.weights=${study.file}", "detector=[]"]
  table: [eval, task=compare, "detector=[]", "runs=${runs:a,best}"]
  once: [eval, task=verify, "detector=[]", "task.run_folder=${run:table}/x=1"]
"""
LINE = ["experiment=mine", "study.file=x"]
#: Of a mistake that the first stage shows.
FIRST = ["skip=[best,file,table,once]"]


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Writes an experiment into a folder of the user's own."""
    register_resolvers()
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(EXPERIMENT)
    monkeypatch.setenv(OWN_CONF, str(tmp_path / "conf"))
    return lambda old, new: file.write_text(EXPERIMENT.replace(old, new))


def lines(*overrides, results=None):
    stages = stages_of("train", [*LINE, *overrides])
    return {stage.name: stage.line(results or {})[:2] for stage in stages}


def test_a_stage_takes_what_it_reads_and_the_overrides_of_the_user_win(write):
    users = ["seed=0,1", "data.shots=4", "metrics.n_bootstrap=9"]
    results = {("best", "a"): "'r/seed=0'", ("runs", "a", "best"): "['r']", ("run", "table"): "t"}
    written = lines(*users, "skip=[once]", results=results)
    assert written["a"] == ("train", ["model=nts", "data=folder", "detector=[]", *users])
    # The best has a run of every seed, each evaluated under its own.
    assert written["best"] == ("eval", ["detector=[knn]", "ckpt='r/seed=0'", *users[1:]])
    assert written["table"] == ("eval", ["task=compare", "detector=[]", "runs=['r']"])
    assert list(written) == ["a", "best", "file", "table"]


def test_a_stage_that_is_left_out_needs_no_value_and_is_no_run_of_a_table():
    stages = stages_of("train", ["experiment=mine", "skip=[file,best]"])
    assert stages[1].line({})[2] == [("runs", "a")]
    assert stages[2].line({("run", "table"): "t"})[1][-1] == r"task.run_folder=t/x\=1"


@pytest.mark.parametrize(
    ("old", "new", "overrides", "message"),
    [
        ("", "", ["skip=[c]"], "skip=c is not a stage"),
        ("", "", ["skip=[a,best]"], "runs: names no earlier stage"),
        ("", "", ["study.file=???"], "give a value to study.file=..."),
        ("best:a", "best:table", [], "stage best (or skip=[best]): best:table names no earlier"),
        ("", "", [*FIRST, "sed=0"], "no stage of this experiment takes 'sed'. Did you mean seed"),
        (
            "[eval, task=compare",
            "[eval, task=compare, 'seed=1,2'",
            ["skip=[file]"],
            "the only run of table",
        ),
        ("model=nts", "model=ntt", [], "stage a (or skip=[a]): model=ntt is unknown"),
        ("eval, task=compare", "eval, task=compare, name", ["skip=[best,file]"], "stage table"),
    ],
)
def test_wrong_stages_are_named_before_the_first_begins(write, old, new, overrides, message):
    write(old, new)
    with pytest.raises(UserError) as error:
        stages_of("train", [*LINE, *overrides])
    assert message in str(error.value)


def test_a_mistake_of_the_user_is_one_line(tmp_path, capsys):
    arguments = ("experiment=vessels_lvlm", "study.modl=DIR", f"paths.outputs={tmp_path}/out")
    assert call("train.py", *arguments) == 1
    assert "unknown key 'study.modl'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_an_ordinary_experiment_has_none():
    assert stages_of("train", ["experiment=smoke"]) == []


def finished(folder, accuracy):
    folder.mkdir(parents=True)
    manifest = {"id_accuracy": 1 - accuracy} | ({} if accuracy == 2 else {"val_accuracy": accuracy})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_the_best_is_chosen_by_validation_over_all_seeds(tmp_path):
    runs = {
        name: [finished(tmp_path / name / "h" / f"seed={s}", v) for s, v in enumerate(values)]
        for name, values in {"a": (0.9, 0.25), "b": (0.5, 0.75), "c": (0.625, 0.625)}.items()
    }
    every = [run for found in runs.values() for run in found]
    assert best_runs(every) == runs["b"]  # the mean of c, but first; a has the best single seed
    with pytest.raises(UserError, match="no val_accuracy"):
        best_runs([*every, finished(tmp_path / "f" / "h" / "seed=0", 2)])


STAGES = """# @package _global_
folder: [data=folder, data.num_workers=0, "data.ood.x=HERE/near"]
base: [eval, task=data_check, "detector=[]", "${folder}"]
stages:
  bad: ["${base}", "data.id.train=HERE/idd", name=bad]
  sweep: ["${base}", "data.id.train=HERE/id", "seed=0,1", name=sweep]
  needs: [eval, task=compare, "detector=[]", "runs=${runs:bad}"]
"""


def test_a_failing_stage_is_noted_and_others_go_on(tmp_path, write, capsys):
    for name in ("id/a", "id/b", "near"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(12):
            colour = (i * 20, len(name) * 20, 99)
            Image.new("RGB", (24, 24), colour).save(tmp_path / name / f"{i}.png")
    write(EXPERIMENT, STAGES.replace("HERE", str(tmp_path)))
    stages = stages_of("eval", ["experiment=mine", f"paths.outputs={tmp_path}/outputs"])
    with only():
        assert run_stages(stages) == 1
    done = {f.relative_to(tmp_path / "outputs").parts[::2] for f in run_folders(tmp_path)}
    assert done == {("sweep", "seed=0"), ("sweep", "seed=1")}
    out = " ".join(capsys.readouterr().out.split())
    assert "python eval.py -m task=data_check" in out
    assert "needs left out: bad is not finished" in out
    assert "bad failed" in out
    assert "sweep finished" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vessels_bronzes", "background_study", "shots_study"])
def test_every_stage_of_the_experiments_composes(name):
    stages = stages_of("train", [f"experiment={name}", "trainer.max_epochs=1"])
    assert isinstance(stages[-1], StageLine)
    assert all(jobs_of(stage.line({})[1]) for stage in stages)


@pytest.mark.slow
def test_validation_lists_what_shifted_bronzes_lacks(tmp_path, capsys):
    arguments = ("experiment=shifted_bronzes", "study.clipn=nowhere.pt", f"data.root={tmp_path}/no")
    arguments += (f"paths.outputs={tmp_path}/outputs", "logger=none")
    assert call("train.py", *arguments, "task=preflight") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "data annotations:" in out
    assert out.count("0 of 1 jobs can run") == 9
    assert out.count("0 of 6 jobs can run") == 3  # prompts, with 1 to all shots
    assert "it waits for nts, sps, p2p, yourfl, hrn, akg" in out
    assert not (tmp_path / "outputs").exists()


TINY = ("data.train=264", "data.val=44", "data.test=66", "data.per_shift_set=22")
TINY += (
    "data.min_per_class=2",
    "data.per_cell=0",
    "trainer.max_epochs=1",
    "metrics.n_bootstrap=20",
)
TINY += ("logger=none", "task.report=false", "study.shots=2", "study.detectors=[msp,knn]")


@pytest.mark.slow
def test_the_benchmark_from_end_to_end(tmp_path, capsys):
    arguments = ("experiment=vessels_bronzes", f"paths.outputs={tmp_path}", *TINY)
    arguments += ("skip=[nts,p2p,hrn,akg,idlike,locoop,clip_post_hoc]",)
    assert call("train.py", *arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "best by validation accuracy" in out
    accuracies = {}
    for name in ("sps", "yourfl"):
        (folder,) = (tmp_path / f"vessels_longtail-{name}").glob("*/seed=0/checkpoints")
        manifest = json.loads((folder.parent / "manifest.json").read_text())
        accuracies[name] = manifest["val_accuracy"]
    best = max(accuracies, key=lambda name: accuracies[name])
    (table,) = tmp_path.glob("vessels_bronzes/*/seed=0/leaderboard.csv")
    rows = pd.read_csv(table)
    assert set(rows.model) == {best, "gl_mcm-tiny", "coop-tiny"}
    assert set(rows[rows.model == best].detector.dropna()) == {"msp", "knn"}
    assert {"mcm", "gl_mcm"} <= set(rows.detector.dropna())
    trained = set(rows.set_index("model").training.items())
    assert ("coop-tiny", "background=origin; shots=2") in trained
    (dating,) = tmp_path.glob("vessels_bronzes_dating/*/seed=0/leaderboard_hierarchy.csv")
    assert set(pd.read_csv(dating).model) == {"sps", "yourfl"}

    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.ckpt")}
    assert call("train.py", *arguments) == 0
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.ckpt")} == before
    assert out.count("already done") == 0
    assert " ".join(capsys.readouterr().out.split()).count("already done") == 5

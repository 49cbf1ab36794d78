"""Staged experiments: which command lines they are, and what becomes of them."""

import json

import pandas as pd
import pytest
from cli import call, only, run_folders
from omegaconf import OmegaConf
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.launch import run_line
from ood_lab.run.job.stages import (
    Stage,
    best_runs,
    own_overrides,
    read_stages,
    results_for,
    run_stages,
)

EXPERIMENT = """
study: {data: folder, both: ["data=${study.data}", "seed=7"], file: "???"}
skip: []
stages:
  - {name: a, script: train, overrides: [model=nts, "${study.both}"]}
  - {name: b, script: train, overrides: [model=sps, data.shots=16]}
  - {name: best, script: eval, overrides: ["detector=[knn]"], best_of: [a, b]}
  - {name: file, script: eval, overrides: ["model.weights=${study.file}"]}
  - {name: table, script: eval, overrides: [task=compare], takes: [paths], runs_of: [a, best]}
"""
ALL = ["study.file=x", "seed=0,1", "paths.outputs=o", "data.shots=4"]


def stages_of(*overrides, text=EXPERIMENT):
    cfg = OmegaConf.create(text)
    for override in own_overrides(overrides):
        OmegaConf.update(cfg, *override.split("=", 1))
    return {stage.name: stage for stage in read_stages(cfg, ["experiment=x", *overrides])}


def test_the_overrides_of_the_user_come_last_and_replace():
    stages = stages_of(*ALL)
    users = ["seed=0,1", "paths.outputs=o", "data.shots=4"]
    assert stages["a"].line() == ["-m", "model=nts", "data=folder", *users]
    assert stages["b"].line() == ["-m", "model=sps", *users]
    assert stages["table"].line("runs=['r']") == ["task=compare", "paths.outputs=o", "runs=['r']"]
    # The best has a run of every seed, each evaluated under its own.
    assert stages["best"].line("ckpt='r/seed=0'") == [
        *("detector=[knn]", "paths.outputs=o", "data.shots=4", "ckpt='r/seed=0'")
    ]
    assert stages["table"].runs_of == ("a", "best")


def test_stages_can_be_left_out():
    cfg = OmegaConf.create(EXPERIMENT)
    cfg.skip = ["a", "file"]  # without it, no value for study.file is needed
    stages = {stage.name: stage for stage in read_stages(cfg, [])}
    assert list(stages) == ["b", "best", "table"]
    assert stages["best"].best_of == ("b",)
    assert stages["table"].runs_of == ("best",)


FILES = """
study: {}
stages:
  - {name: a, script: train, overrides: [model=nts], takes: [seed, paths]}
  - name: b
    script: eval
    overrides: [task=compare]
    takes: [paths]
    files_of: [runs=a, task.x=a/f/b.csv]
"""


def test_files_of_an_earlier_stage_become_settings_of_a_later_one(tmp_path):
    stage = stages_of("seed=3", text=FILES)["b"]
    assert stage.files_of == ("runs=a", "task.x=a/f/b.csv")
    run = finished(tmp_path / "h" / "seed=3", 0.5, done=False)
    with pytest.raises(UserError, match="a is not finished"):
        results_for(stage, {"a": [run]})
    (run / "DONE").touch()
    with pytest.raises(UserError, match=r"a has not written .*f/b.csv"):
        results_for(stage, {"a": [run]})
    (run / "f").mkdir()
    (run / "f" / "b.csv").touch()
    given = results_for(stage, {"a": [run]})
    assert given == [f"runs='{run}'", f"task.x='{run}/f/b.csv'"]
    assert stage.line(*given) == ["task=compare", *given]


@pytest.mark.parametrize(
    ("overrides", "old", "new", "message"),
    [
        (["seed=0,1"], "", "", "stage b needs the only run of a"),
        (["sed=0"], "", "", "no stage of this experiment takes sed: did you mean 'seed'?"),
        ([], "a/f/b.csv", "c/f/b.csv", "task.x names 'c', which is not an earlier stage"),
        ([], "study: {}", "skip: [a]", "skip leaves nothing for stage b"),
    ],
)
def test_a_file_that_no_stage_can_give_is_one_error(overrides, old, new, message):
    with pytest.raises(UserError) as error:
        stages_of(*overrides, text=FILES.replace(old, new))
    assert message in str(error.value)


def changed(old, new):
    assert old in EXPERIMENT
    return EXPERIMENT.replace(old, new)


WRONG = {
    "missing value": (EXPERIMENT, "give a value to study.file=..., or leave this stage out"),
    "skip": (changed("skip: []", "skip: [c]"), "skip=c is not a stage"),
    "skip too much": (changed("skip: []", "skip: [file, a, b]"), "leaves nothing for stage best"),
    "later": (
        changed("best_of: [a, b]", "best_of: [table]"),
        "'table', which is not an earlier stage",
    ),
    "key": (changed("takes: [paths]", "take: [paths]"), "unknown key 'take'"),
    "script": (changed("script: eval, overrides: [task", "script: evil, overrides: [task"), "evil"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_stages_are_named(case):
    text, named = WRONG[case]
    overrides = [] if case == "missing value" else ["study.file=x"]
    with pytest.raises(UserError) as error:
        stages_of(*overrides, text=text)
    assert named in str(error.value)


def test_debug_is_for_one_command_line():
    with pytest.raises(UserError, match="debug=true is for one command line"):
        stages_of("study.file=x", "debug=true")


def test_an_ordinary_experiment_has_none():
    assert read_stages(OmegaConf.create({"name": "x"}), []) == []


def finished(folder, accuracy, done=True):
    folder.mkdir(parents=True)
    manifest = {"id_accuracy": 1 - accuracy} | ({} if accuracy == 2 else {"val_accuracy": accuracy})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if done:
        (folder / "DONE").touch()
    return folder


def test_the_best_is_chosen_by_validation_over_all_seeds(tmp_path):
    runs = {
        name: [finished(tmp_path / name / "h" / f"seed={s}", v) for s, v in enumerate(values)]
        for name, values in {"a": (0.9, 0.25), "b": (0.5, 0.75), "c": (0.625, 0.625)}.items()
    }
    assert best_runs(runs) == runs["b"]  # the mean of c, but first; a has the best single seed
    with pytest.raises(UserError, match="before d is finished"):
        best_runs({**runs, "d": []})
    late = finished(tmp_path / "e" / "h" / "seed=0", 0.99, done=False)
    with pytest.raises(UserError, match="before e is finished"):
        best_runs({**runs, "e": [late]})
    with pytest.raises(UserError, match="no val_accuracy"):
        best_runs({**runs, "f": [finished(tmp_path / "f" / "h" / "seed=0", 2)]})


@pytest.fixture
def sources(tmp_path):
    for name in ("id/a", "id/b", "near"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(12):
            colour = (i * 20, len(name) * 20, 99)
            Image.new("RGB", (24, 24), colour).save(tmp_path / name / f"{i}.png")
    return tmp_path


def test_a_failing_stage_is_noted_and_others_go_on(sources, capsys):
    base = ("task=data_check", "data=folder", "data.num_workers=0", f"++data.ood.x={sources}/near")
    base += (f"paths.outputs={sources}/outputs",)
    good, bad = f"data.id.train={sources}/id", f"data.id.train={sources}/idd"
    stages = [
        Stage("good", "eval", (*base, good)),
        Stage("bad", "eval", (*base, bad, "name=bad")),
        Stage("sweep", "eval", (*base, good, "seed=0,1", "name=sweep")),
        Stage("needs", "eval", base, best_of=("good", "bad")),
    ]
    with only():
        assert run_stages(stages, run_line) == 1
    done = {f.relative_to(sources / "outputs").parts[::2] for f in run_folders(sources)}
    assert done == {("data_check", "seed=0"), ("sweep", "seed=0"), ("sweep", "seed=1")}
    out = " ".join(capsys.readouterr().out.split())
    assert "python eval.py -m task=data_check" in out
    assert "before bad is finished" in out
    assert "needs left out" in out
    assert "bad failed" in out
    assert "sweep finished" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("vessels_bronzes", marks=pytest.mark.slow),
        *("background_study", "shots_study", "ode_tuning"),
    ],
)
def test_every_stage_of_the_experiments_composes(name):
    register_resolvers()
    stages = read_stages(composed("train", [f"experiment={name}"]), ["trainer.max_epochs=1"])
    for stage in stages:
        jobs = jobs_of(stage.overrides)
        for job in {tuple(jobs[0]), tuple(jobs[-1])}:
            composed(stage.script, list(job))
    assert stages[-1].runs_of == tuple(s.name for s in stages if s.name in stages[-1].runs_of)


@pytest.mark.slow
def test_validation_lists_what_shifted_bronzes_lacks(tmp_path, capsys):
    arguments = ("experiment=shifted_bronzes", "study.clipn=nowhere.pt", f"data.root={tmp_path}/no")
    arguments += (f"paths.outputs={tmp_path}/outputs", "logger=none")
    assert call("train.py", *arguments, "task=preflight") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "stage 15 of 15: tables" in out
    assert "data annotations:" in out
    assert out.count("0 of 1 jobs can run") == 9
    assert out.count("0 of 6 jobs can run") == 3  # prompts, with 1 to all shots
    assert "it waits for nts, sps, p2p, yourfl, hrn, akg" in out
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("experiment", "mistake", "message"),
    [
        ("shots_study", "trainer.max_epoch=1", "stage coop: unknown key 'trainer.max_epoch'"),
        ("ode_tuning", "trainer.max_epoch=1", "stage tune_standard: unknown key"),
        ("ode_tuning", "metrcs.n_bootstrap=9", "takes metrcs.n_bootstrap"),
        ("ode_tuning", "study.modl=DIR", "unknown key 'study.modl'. Did you mean study.model"),
        ("ode_tuning", "seed=0,1", "needs the only run of first_round"),
    ],
)
def test_a_mistake_of_the_user_stops_before_the_first_stage(
    tmp_path, capsys, experiment, mistake, message
):
    arguments = (f"experiment={experiment}", mistake, f"paths.outputs={tmp_path}")
    assert call("train.py", *arguments) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


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

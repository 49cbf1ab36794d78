"""Sweeps: a failing job is noted and the others go on, one folder a job, also side by side."""

import fcntl
import io

import pandas as pd
import pytest
from cli import call, run_folders
from finished_runs import add_verdict, write_run
from rich.console import Console

from ood_lab.report.rendering.terminal import Printed
from ood_lab.run.commandline.terminal_output import JobRow, job_table
from ood_lab.run.job.sweeps import headline
from ood_lab.schema.finished_run import FinishedRun


@pytest.fixture
def sources(tmp_path):
    from PIL import Image

    for name in ("id/a", "id/b", "near"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(12):
            color = (i * 20, len(name) * 20, 99)
            Image.new("RGB", (24, 24), color).save(tmp_path / name / f"{i}.png")
    return tmp_path


def checks(sources, *arguments):
    base = ("task=data_check", "data=folder", "data.num_workers=0", f"data.ood.x={sources}/near")
    return ("-m", *base, "detector=[]", f"paths.outputs={sources}/outputs", *arguments)


def failures(sources):
    return pd.read_csv(sources / "outputs/data_check/failures.csv")


def test_a_failing_job_is_noted_and_the_others_go_on(sources, capsys):
    trains = f"data.id.train={sources}/idd,{sources}/id"
    assert call("eval.py", *checks(sources, trains)) == 1
    assert len(run_folders(sources / "outputs")) == 1
    (row,) = failures(sources).to_dict("records")
    assert f"data.id.train={sources}/idd" in row["overrides"]
    assert "does not exist" in row["error"]
    assert "Traceback" in row["traceback"]
    assert row["folder"].endswith("seed=0")
    printed = capsys.readouterr()
    assert "the others continue" in printed.out
    _, table = printed.out.split("2 jobs: ")
    lines = [line.split() for line in table.splitlines()]
    assert ["1", f"data.id.train={sources}/idd", "failed"] in lines
    assert ["2", f"data.id.train={sources}/id", "finished"] in lines
    assert "job 1: 1 of 2 sources: train is missing" in table
    last = printed.err.splitlines()[-1]
    assert last.startswith("error: 1 of 2 jobs failed; tracebacks are in /")
    assert last.endswith("/data_check/failures.csv")


@pytest.mark.slow
def test_each_job_without_a_folder_has_its_own_reason(sources, capsys):
    trains = f"data.id.train={sources}/idd,{sources}/ide"
    line = ("-m", "data=folder", "data.num_workers=0", f"data.ood.x={sources}/near", "model=clip")
    line += ("logger=none",)
    assert call("eval.py", *line, trains, "name=lost", f"paths.outputs={sources}/outputs") == 1
    _, table = capsys.readouterr().out.split("2 jobs: ")
    text = "".join(table.split())  # without line breaks
    first, second = text.split("job1:")[1].split("job2:")
    assert f"'{sources}/idd'doesnotexist" in first
    assert f"'{sources}/ide'doesnotexist" in second


def test_jobs_that_slurm_refuses_are_one_error(sources, capsys, monkeypatch):
    """What a cluster says of its partitions is in it; tests/slurm asks a real one."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    (sources / "bin").mkdir()
    refuses = "echo 'sbatch: error: invalid partition: x' >&2; exit 1"
    offers = 'echo "$2" | sed "s/.*%R/gpu/; s/%D/2/; s/%c/64/; s/%m/515000+/; s/%G/gpu:a100:4/"'
    for name, does in {"sbatch": refuses, "srun": refuses, "sinfo": offers}.items():
        command = sources / "bin" / name
        command.write_text(f"#!/bin/sh\n{does}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(sources / "bin"), prepend=":")
    line = checks(sources, f"data.id.train={sources}/id", "seed=0,1", "hydra=slurm")
    assert call("eval.py", *line) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith(
        "error: SLURM rejected the jobs (invalid partition: x). Its partitions: gpu (nodes: 2, of "
        "each: 64 CPUs, 515000+ MB, gpu:a100:4). Ask for what one of them has: "
        "hydra.launcher.partition, "
    )


@pytest.mark.slow
def test_a_folder_that_another_process_works_in_is_a_failure_of_that_job(sources):
    sweep = checks(sources, f"data.id.train={sources}/id", "seed=0,1")
    assert call("eval.py", *sweep) == 0
    first, second = sorted(run_folders(sources / "outputs"))
    for folder in (first, second):
        (folder / "DONE").unlink()
    with (first / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert call("eval.py", *sweep) == 1
    assert run_folders(sources / "outputs") == [second]
    (row,) = failures(sources).to_dict("records")
    assert "another process is running this configuration" in row["error"]
    assert "seed=0" in row["overrides"]


def test_the_table_has_the_headline_numbers_of_the_jobs(tmp_path):
    runs = [
        write_run(tmp_path / "a", {"msp": (0.7, 0.8), "knn": (0.9, 0.8)}),
        write_run(tmp_path / "b", {"msp": (0.7, 0.6)}),
    ]
    add_verdict(runs[0], {"msp": 0.75, "knn": 0.85}, recommended="knn")
    add_verdict(runs[1], {"msp": 0.5})
    jobs = [JobRow({"state": "finished", **headline(FinishedRun(run))}) for run in runs]
    own = ["detector=[msp,knn]", "detector=[msp]", "seed=x"]
    table = job_table(own, [*jobs, JobRow({"state": "failed"}, ["no"])])
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(Printed([table]))
    lines = [line.split() for line in console.export_text().splitlines() if line.strip(" ─")]
    assert lines == [
        ["job", "differs", "by", "state", "ID", "acc.", "recommended", "AUROC", "FPR95"],
        ["1", "detector=[msp,knn]", "finished", "90.0%", "knn", "85.0", "15.0"],
        ["2", "detector=[msp]", "finished", "90.0%", "none", "50.0", "50.0"],
        ["3", "seed=x", "failed"],
    ]


@pytest.mark.slow
def test_jobs_side_by_side(sources):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    trains = f"data.id.train={sources}/id,{sources}/idd"
    parallel = ("hydra=joblib", "hydra.launcher.n_jobs=2", "seed=0,1")
    assert call("eval.py", *checks(sources, trains, *parallel)) == 1
    folders = run_folders(sources / "outputs")
    assert {folder.name for folder in folders} == {"seed=0", "seed=1"}
    assert len({folder.parent for folder in folders}) == 1
    assert len(failures(sources)) == 2


@pytest.mark.slow
def test_two_processes_a_job_inside_a_sweep(tmp_path):
    sweep = ("-m", "experiment=smoke", "trainer=ddp_cpu", "seed=0,1", "logger=none")
    assert (
        call("train.py", "task=score", *sweep, "detector=[msp]", f"paths.outputs={tmp_path}") == 0
    )
    folders = run_folders(tmp_path)
    assert sorted(folder.name for folder in folders) == ["seed=0", "seed=1"]
    assert len({folder.parent for folder in folders}) == 1


@pytest.mark.slow
def test_an_experiment_may_ask_for_a_multirun(tmp_path):
    """In its file, as Hydra's users have it; composing once for a job must not miss that."""
    file = tmp_path / "conf" / "experiment" / "two_seeds.yaml"
    file.parent.mkdir(parents=True)
    swept = "hydra: {mode: MULTIRUN, sweeper: {params: {seed: '0,1'}}}"
    file.write_text(f"# @package _global_\n{swept}\n")
    line = ("experiment=two_seeds", "task=data_check", "data.train=110", "logger=none")
    outputs = ("--config-dir", str(tmp_path / "conf"), f"paths.outputs={tmp_path / 'out'}")
    assert call("eval.py", *line, *outputs) == 0
    assert {folder.name for folder in run_folders(tmp_path / "out")} == {"seed=0", "seed=1"}

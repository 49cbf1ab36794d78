"""Sweeps on a real SLURM: array jobs, several tasks and nodes, interruptions, refusals."""

import re
import signal

import pandas as pd
import pytest
from cli import call, run_folders
from slurm_cluster import until

pytestmark = pytest.mark.slurm
SMOKE = ("experiment=smoke", "detector=[msp,knn]", "logger=none", "task.report=false")
#: Long enough to be interrupted.
LONG = (*SMOKE, "data.train=600", "trainer.max_epochs=12", "metrics.n_bootstrap=20000")
BANKS = "outputs/features/*/manifest.json"


def results(outputs):
    (run,) = run_folders(outputs)
    return pd.read_parquet(run / "results.parquet")


def uninterrupted(folder, *line):
    assert call("train.py", *line, f"paths.root={folder}") == 0
    return results(folder / "outputs")


def test_jobs_of_a_sweep_are_one_array(slurm, tmp_path):
    printed, errors = slurm.sweep("train.py", *SMOKE, "seed=0,1", f"paths.root={tmp_path}").ended()
    runs = sorted(run_folders(tmp_path / "outputs"))
    assert [run.name for run in runs] == ["seed=0", "seed=1"]
    assert "2 jobs: " in printed
    assert printed.count("finished") == 2
    # Accounting is off, of which nobody needs to hear.
    assert "sacct" not in printed + errors
    assert "WARNING" not in printed + errors
    jobs = {path.name for path in (tmp_path / "outputs/slurm").glob("*_*") if path.is_dir()}
    assert {job.split("_")[1] for job in jobs} == {"0", "1"}
    assert len({job.split("_")[0] for job in jobs}) == 1


def test_two_tasks_or_two_nodes_give_the_numbers_of_two_local_processes(slurm, tmp_path):
    two = (*SMOKE, "trainer=ddp_cpu")
    local = uninterrupted(tmp_path / "local", *two)
    for name, shape in {
        "tasks": ("trainer.devices=2",),
        "nodes": ("trainer.devices=1", "trainer.num_nodes=2"),
    }.items():
        slurm.sweep("train.py", *two, *shape, f"paths.root={tmp_path / name}").ended()
        pd.testing.assert_frame_equal(results(tmp_path / name / "outputs"), local)


def test_a_preempted_and_a_requeued_job_go_on(slurm, tmp_path):
    alone = uninterrupted(tmp_path / "alone", *LONG)
    tmp_path = tmp_path / "slurm"
    # The processes that load images are told to end as well, and die first.
    sweep = slurm.sweep("train.py", *LONG, "data.num_workers=1", f"paths.root={tmp_path}")
    until(lambda: list(tmp_path.rglob("last.ckpt")))
    urgent = ("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null")
    slurm.run("sbatch", *urgent, "--wrap=sleep 1")
    job = running(slurm, restarts=1)
    until(lambda: list(tmp_path.glob(BANKS)))
    (bank, *_) = tmp_path.glob(BANKS)
    written = bank.stat().st_mtime_ns
    slurm.run("scontrol", "requeue", job)
    running(slurm, restarts=2)
    sweep.ended()
    (run,) = run_folders(tmp_path / "outputs")
    log = (run / "log.txt").read_text()
    assert re.search("resum", log), log
    assert "read from the cache" in log
    assert bank.stat().st_mtime_ns == written
    pd.testing.assert_frame_equal(results(tmp_path / "outputs"), alone)


def running(slurm, restarts):
    """The job, once it runs again."""

    def found():
        shown = slurm.run("scontrol", "show", "job", "--oneliner")
        again = r"JobId=(\d+) .*Partition=cpu.*"
        lines = [line for line in shown.splitlines() if re.search(again, line)]
        return [
            line.split()[0].removeprefix("JobId=")
            for line in lines
            if f" Restarts={restarts} " in line and "JobState=RUNNING" in line
        ]

    until(found)
    return found()[0]


def test_a_job_at_its_time_limit_is_requeued_once_and_goes_on(slurm, tmp_path):
    """SLURM's signal also reaches the processes that load images; they must leave it alone."""
    line = (*SMOKE, "data.train=600", "trainer.max_epochs=40", "data.num_workers=1")
    limit = ("hydra.launcher.timeout_min=10", "hydra.launcher.signal_delay_s=90")
    sweep = slurm.sweep("train.py", *line, *limit, f"paths.root={tmp_path}")
    until(lambda: list(tmp_path.rglob("last.ckpt")))
    job = running(slurm, restarts=0)
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=2")
    until(lambda: "this job is timed-out" in job_log(tmp_path))
    running(slurm, restarts=1)
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=10")
    sweep.ended()
    assert job_log(tmp_path).count("this job is timed-out") == 1
    (run,) = run_folders(tmp_path / "outputs")
    assert "resum" in (run / "log.txt").read_text()


def job_log(folder):
    (log,) = (folder / "outputs/slurm").glob("*/*_0_log.err")
    return log.read_text()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("hydra.launcher.partition=gpus", "invalid partition specified: gpus"),
        ("hydra.launcher.mem_gb=900", "Memory specification can not be satisfied"),
    ],
)
def test_refused_jobs_are_one_error_that_says_what_there_is(slurm, tmp_path, asked, said):
    line = (*SMOKE, "seed=0,1", asked, f"paths.root={tmp_path}")
    printed, errors = slurm.sweep("train.py", *line).ended(status=1)
    assert printed == ""
    (error,) = errors.splitlines()
    assert error.startswith(f"error: SLURM rejected the jobs ({said}; ")
    assert "cpu (nodes: 2, of each: 4 CPUs, " in error
    assert "hydra.launcher.partition" in error


def test_a_job_that_dies_is_told_and_the_others_are_waited_for(slurm, tmp_path):
    """Without accounting, only the controller knows that it has ended."""
    dies = "hydra.launcher.setup=['test $SLURM_ARRAY_TASK_ID != 0 || exit 3']"
    one = "hydra.launcher.array_parallelism=1"
    line = ("task=data_check", "data.train=110", "logger=none", "seed=0,1", dies, one)
    printed, errors = slurm.sweep("eval.py", *line, f"paths.root={tmp_path}").ended(status=1)
    assert re.search(r"job 1: it did not begin: SLURM job \d+_0 ended \(FAILED\)", printed)
    assert errors.splitlines()[-1] == "error: 1 of 2 jobs failed"
    assert [run.name for run in run_folders(tmp_path / "outputs")] == ["seed=1"]


def test_ctrl_c_ends_the_waiting_and_not_the_jobs(slurm, tmp_path):
    sweep = slurm.sweep("train.py", *SMOKE, "seed=0,1", f"paths.root={tmp_path}")
    until(lambda: run_folders(tmp_path / "outputs"))  # a job has begun
    sweep.process.send_signal(signal.SIGINT)
    printed, errors = sweep.ended(status=130)
    assert printed == ""
    (said,) = errors.splitlines()
    job = re.match(r"interrupted: 2 SLURM jobs still to end: `scancel (\d+)` ends all\.", said)
    assert job, said
    until(lambda: job[1] not in slurm.run("squeue", "--noheader", "--format=%F"))
    assert len(list((tmp_path / "outputs").rglob("results.parquet"))) == 2

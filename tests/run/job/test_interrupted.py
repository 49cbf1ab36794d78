"""`kill`, `kill -9`, Ctrl-C at any point: the same command then ends as an undisturbed run does."""

import glob
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from cli import ROOT, run_folders

from ood_lab.run.commandline.terminal_output import ENDED

pytestmark = pytest.mark.slow
# Epochs of several batches with dropout and outliers, so that order, augmentation and draws matter.
OUTLIERS = "{_target_:torchvision.datasets.FakeData,size:40,image_size:[3,64,64]}"
TRAIN = (
    "experiment=smoke",
    "logger=none",
    "trainer.max_epochs=3",
    "data.batch_size=32",
    "+model.backbone.kwargs.drop_rate=0.2",
    "loss=outlier_exposure",
    f"data.outliers={OUTLIERS}",
)
# What exists when the blow falls, and what does not yet; from the run folder.
MOMENTS = {
    "training": ("checkpoints/last.ckpt", "scores.parquet"),
    "extraction": ("../../../features/*/manifest.json", "scores.parquet"),
    "scoring": ("scores.parquet", "results.parquet"),
}


def command(outputs):
    return [sys.executable, str(ROOT / "train.py"), *TRAIN, f"paths.outputs={outputs}"]


def run(outputs):
    subprocess.run(command(outputs), check=True, capture_output=True, cwd=ROOT)
    (folder,) = run_folders(outputs)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("undisturbed"))


def stop_at(outputs, folder, sign, blow):
    """Sends the signal when the sign is there; returns the exit status and what was printed."""
    process = subprocess.Popen(
        command(outputs),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As on a terminal: a shell's background jobs, and their children, are deaf to the key.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not glob.glob(str(folder / sign)):
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.02)
    os.kill(process.pid, blow)
    out, error = process.communicate()
    return process.returncode, out, error


STOPS = {
    signal.SIGINT: (130, "interrupted: the same command resumes this run\n", "interrupted"),
    signal.SIGTERM: (143, f"{ENDED}\n", ENDED),
}


@pytest.mark.parametrize("blow", [signal.SIGKILL, *STOPS], ids=["killed", "Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_stopped_and_repeated(moment, blow, undisturbed, tmp_path):
    there, not_yet = MOMENTS[moment]
    folder = tmp_path / "smoke" / undisturbed.parent.name / "seed=0"
    status, _, error = stop_at(tmp_path, folder, there, blow)
    if blow in STOPS:
        *told, noted = STOPS[blow]
        assert [status, error] == told
        assert (folder / "log.txt").read_text().endswith(f"error: {noted}\n")
    assert not (folder / "DONE").exists()
    assert not (folder / not_yet).exists()
    for table in folder.glob("[!.]*.parquet"):
        pd.read_parquet(table)  # whole, or it would not be there
    assert run(tmp_path) == folder
    resumed = "resuming at epoch" in (folder / "log.txt").read_text()
    assert resumed == (moment == "training")
    ours = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    theirs = torch.load(undisturbed / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    for name in ("results.parquet", "scores.parquet"):
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / name), pd.read_parquet(undisturbed / name)
        )


def rank_one(parent):
    """The process that Lightning has started for the second device."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if b"LOCAL_RANK=1" in variables:
            return int(child)
    return None


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (1, "the process of rank 1 was ended by SIGKILL"),
        pytest.param(0, "the process of rank 0, which had started", marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_is_one_line(tmp_path, rank, said):
    line = [*command(tmp_path), "trainer=ddp_cpu", "trainer.max_epochs=200", "data.num_workers=0"]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not glob.glob(str(tmp_path / "smoke/*/seed=0/checkpoints/last.ckpt")):
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.02)
    os.kill(rank_one(process.pid) if rank else process.pid, signal.SIGKILL)
    _, error = process.communicate()
    lines = error.decode().strip().splitlines()
    assert process.returncode == (1 if rank else -signal.SIGKILL)
    assert said in lines[-1]
    assert lines[-1].endswith("the same command resumes this run")
    assert not any("Traceback" in text for text in lines)

"""`kill -9` at any point: the same command then ends with the numbers of an undisturbed run."""

import glob
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch
from cli import ROOT, run_folders

pytestmark = pytest.mark.slow
# Epochs of several batches with dropout, so that order, augmentation and draws all matter.
TRAIN = (
    "experiment=smoke",
    "logger=none",
    "trainer.max_epochs=3",
    "data.batch_size=32",
    "+model.backbone.kwargs.drop_rate=0.2",
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


def kill_at(outputs, folder, sign):
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(outputs), cwd=ROOT, **silent)
    while not glob.glob(str(folder / sign)):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_repeated(moment, undisturbed, tmp_path):
    there, not_yet = MOMENTS[moment]
    folder = tmp_path / "smoke" / undisturbed.parent.name / "seed=0"
    kill_at(tmp_path, folder, there)
    assert not (folder / "DONE").exists()
    assert not (folder / not_yet).exists()
    for table in folder.glob("*.parquet"):
        pd.read_parquet(table)  # whole, or it would not be there
    assert run(tmp_path) == folder
    ours = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    theirs = torch.load(undisturbed / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    for name in ("results.parquet", "scores.parquet"):
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / name), pd.read_parquet(undisturbed / name)
        )

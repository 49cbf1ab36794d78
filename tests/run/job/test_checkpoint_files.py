"""A kill or a full disk while a checkpoint is written leaves the one before, and it is resumed."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli import ROOT, call, run_folders

SHM = Path("/dev/shm")
SMALL = ("data.train=60", "data.val=20", "data.test=20", "data.per_shift_set=10")
LINE = ("experiment=smoke", *SMALL, "task=score", "detector=[msp]", "task.report=false")
LINE += ("logger=none", "trainer.max_epochs=3", "trainer.accelerator=cpu", "data.batch_size=20")
LINE += ("metrics.n_bootstrap=20",)
#: Ends the process while the checkpoint of the second epoch is copied or flushed to disk.
KILLER = """
import os, runpy, shutil, signal, sys

def of_second(path):
    return "last.ckpt" in str(path) and os.path.exists(LAST)

def copyfile(source, target, *args, **kwargs):
    if of_second(target):
        content = open(source, "rb").read()
        with open(target, "wb") as file:
            file.write(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return copy(source, target, *args, **kwargs)

def sync(descriptor):
    if of_second(os.readlink(f"/proc/self/fd/{descriptor}")):
        os.ftruncate(descriptor, 1000)
        os.kill(os.getpid(), signal.SIGKILL)
    return fsync(descriptor)

LAST, *sys.argv = sys.argv[1:]
copy, shutil.copyfile = shutil.copyfile, copyfile
fsync, os.fsync = os.fsync, sync
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def checkpoint(outputs):
    (file,) = outputs.glob("smoke/*/seed=0/checkpoints/last.ckpt")
    return file


def assert_resumes(outputs):
    assert call("train.py", *LINE, f"paths.outputs={outputs}") == 0
    (folder,) = run_folders(outputs)
    assert "resuming at epoch 2 of 3" in (folder / "log.txt").read_text()
    kept = {path.name for path in (folder / "checkpoints").iterdir()}
    assert kept == {"best.ckpt", "last.ckpt"}


@pytest.mark.slow
@pytest.mark.skipif(
    not SHM.is_dir() or os.stat(SHM).st_dev == os.stat("/tmp").st_dev,
    reason="there is no second file system",
)
def test_killed_at_the_copy_from_another_file_system(tmp_path):
    probe = tmp_path / "probe"
    assert call("train.py", *LINE, f"paths.outputs={probe}", "force=true") == 0
    last = tmp_path / "killed" / checkpoint(probe).relative_to(probe)
    temporary = SHM / tmp_path.name
    temporary.mkdir()
    try:
        driver = [sys.executable, "-c", KILLER, str(last), str(ROOT / "train.py")]
        done = subprocess.run(
            [*driver, *LINE, f"paths.outputs={tmp_path / 'killed'}"],
            env=os.environ | {"TMPDIR": str(temporary)},
            capture_output=True,
            cwd=ROOT,
        )
    finally:
        shutil.rmtree(temporary)
    assert done.returncode == -signal.SIGKILL
    assert zipfile.is_zipfile(last)
    assert_resumes(tmp_path / "killed")


@pytest.mark.slow
def test_a_full_disk_leaves_the_one_before_and_a_damaged_one_the_best(
    tmp_path, monkeypatch, capsys
):
    fsync = os.fsync

    def full(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if "last.ckpt" in name and list(tmp_path.glob("smoke/*/seed=0/checkpoints/last.ckpt")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        fsync(descriptor)

    with monkeypatch.context() as patches:
        patches.setattr(os, "fsync", full)
        assert call("train.py", *LINE, f"paths.outputs={tmp_path}") == 1
    error = capsys.readouterr().err.strip()
    assert "the disk is full" in error.splitlines()[-1]
    assert zipfile.is_zipfile(checkpoint(tmp_path))
    assert_resumes(tmp_path)

    (folder,) = run_folders(tmp_path)  # a last checkpoint that something else has damaged
    (folder / "DONE").unlink()
    os.truncate(folder / "checkpoints/last.ckpt", 0)
    assert call("train.py", *LINE, f"paths.outputs={tmp_path}") == 0
    assert "the weights are trained again from the start" in (folder / "log.txt").read_text()
    assert zipfile.is_zipfile(folder / "checkpoints/last.ckpt")

"""The batch size of a recipe is that of all devices: one and two processes take the same steps."""

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders

SMALL = ("data.train=61", "data.val=20", "data.test=20", "data.per_shift_set=10")
LINE = ("experiment=smoke", *SMALL, "task=score", "detector=[msp]", "task.report=false")
LINE += ("logger=csv", "trainer.max_epochs=2", "data.batch_size=20", "metrics.n_bootstrap=20")
LINE += ("trainer.log_every_n_steps=1", "data.num_workers=0")
#: Layer norm alone.
VIT = ("model=timm", "model.name=vit_tiny_patch16_224", "model.backbone.input_size=32")
VIT += ("+model.kwargs={img_size:32,patch_size:8,depth:1,embed_dim:24,num_heads:2}",)


def trained(outputs, *arguments):
    """The logged losses, and the log, of a training."""
    assert call("train.py", *LINE, *arguments, f"paths.outputs={outputs}") == 0
    (folder,) = run_folders(outputs)
    (metrics,) = folder.rglob("metrics.csv")
    losses = pd.read_csv(metrics)["train/loss"].dropna().to_numpy()
    return losses, " ".join((folder / "log.txt").read_text().split())


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    one, _ = trained(tmp_path / "one", *VIT, "trainer=cpu")
    two, log = trained(tmp_path / "two", *VIT, "trainer=ddp_cpu")
    assert len(one) == len(two) >= 2
    np.testing.assert_allclose(two, one, atol=1e-3)
    assert "in batches of 20 (10 on each of 2 devices), 3 steps per epoch" in log
    assert "batch normalisation" not in log


@pytest.mark.slow
def test_batch_statistics_are_of_each_device_and_the_log_says_so(tmp_path):
    _, log = trained(tmp_path, "trainer=ddp_cpu")
    assert "3 steps per epoch, 2 epochs, 6 steps in all" in log
    assert "batch normalisation takes its statistics from the images of each device" in log


def test_a_batch_size_that_devices_do_not_divide_is_refused(tmp_path, capsys):
    line = (*LINE, "trainer=ddp_cpu", "data.batch_size=21", f"paths.outputs={tmp_path}")
    assert call("train.py", *line) == 1
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "data.batch_size=21 is the total of 2 devices" in error
    assert not list(tmp_path.rglob("*.ckpt"))

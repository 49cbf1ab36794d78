"""The default spares a CPU more than one forward pass over large images."""

import json

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.evaluation import split_features

SIZES = {"train": 150, "val": 40, "test": 50, "per_shift_set": 10, "per_cell": 0}
LINE = [f"data.{key}={value}" for key, value in SIZES.items()]
LINE += ["logger=none", "report_by=sets", "trainer=cpu", "task=score", "task.report=false"]


@pytest.mark.slow
def test_the_default_leaves_out_what_is_slow(tmp_path, capsys, monkeypatch):
    line = ("experiment=smoke", *LINE, f"paths.outputs={tmp_path}")
    assert call("train.py", *line) == 0
    (folder,) = run_folders(tmp_path)
    assert {"odin", "rankfeat"} <= set(pd.read_parquet(folder / "scores.parquet"))

    # The images of this data are too many pixels now.
    monkeypatch.setattr(split_features, "MOST_PIXELS", 31**2)
    assert call("train.py", *line, "force=true", f"paths.features={tmp_path}/new") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the default is detector=forward here, without odin and rankfeat" in told
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["left_out_to_save_time"] == ["odin", "rankfeat"]
    assert "pixels is slow on a CPU" in manifest["refused"]["odin"]
    assert "rankfeat" not in pd.read_parquet(folder / "scores.parquet")
    # Shown as it is, with what it left out, whatever the machine.
    assert call("train.py", *line) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "already done" in told
    assert "detector=default scores it" in told
    assert call("train.py", *line, "detector=default") == 0
    assert {"odin", "rankfeat"} <= set(pd.read_parquet(folder / "scores.parquet"))
    assert json.loads((folder / "manifest.json").read_text())["left_out_to_save_time"] == []

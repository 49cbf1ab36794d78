"""The time of the passes is told before them, and the default spares a CPU long ones."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.evaluation import pass_cost
from ood_lab.features.lightning_extractor import Extractor

SIZES = {"train": 150, "val": 40, "test": 50, "per_shift_set": 10, "per_cell": 0}
LINE = [f"data.{key}={value}" for key, value in SIZES.items()]
LINE += ["logger=none", "report_by=sets", "trainer=cpu", "task=score", "task.report=false"]


@pytest.fixture
def slow(monkeypatch):
    """A forward pass takes a second an image, and ten where a column needs more than it."""

    def seconds(self, image):
        again = any(c.needs_input_grad or "fusion=True" in c.key for c in self._columns)
        return len(image) * (10.0 if again else 1.0)

    monkeypatch.setattr(Extractor, "seconds", seconds)
    # Images are read in no time, however busy the machine is.
    monkeypatch.setattr(pass_cost, "time", SimpleNamespace(perf_counter=lambda: 0.0))


@pytest.mark.slow
def test_the_default_leaves_out_what_is_slow(slow, tmp_path, capsys, monkeypatch):
    line = ("experiment=smoke", *LINE, f"paths.outputs={tmp_path}")
    assert call("train.py", *line) == 0
    (folder,) = run_folders(tmp_path)
    told = " ".join(capsys.readouterr().out.split())
    # train, val, test, and five OOD sets, of which all but train and val are scored
    assert "passes over 290 images: about 19 min 50 s for detector=default" in told
    assert "4 min 50 s for those of detector=forward, without odin and rankfeat" in told
    assert {"odin", "rankfeat"} <= set(pd.read_parquet(folder / "scores.parquet"))

    # The images of this data are too many pixels now, and the machine is as fast as it was.
    monkeypatch.setattr(pass_cost, "MOST_PIXELS", 31**2)
    assert call("train.py", *line, "force=true", f"paths.features={tmp_path}/new") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "about 4 min 50 s for detector=forward" in told
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["left_out_to_save_time"] == ["odin", "rankfeat"]
    assert "pixels is slow on a CPU" in manifest["refused"]["odin"]
    assert "rankfeat" not in pd.read_parquet(folder / "scores.parquet")
    # Shown as it is, with what it left out, whatever the machine.
    capsys.readouterr()
    assert call("train.py", *line) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "already done" in told
    assert "detector=default scores it" in told
    assert call("train.py", *line, "detector=default") == 0
    assert {"odin", "rankfeat"} <= set(pd.read_parquet(folder / "scores.parquet"))
    assert json.loads((folder / "manifest.json").read_text())["left_out_to_save_time"] == []


@pytest.mark.slow
def test_a_second_look_takes_no_time(slow, tmp_path, capsys):
    line = ("experiment=smoke", *LINE, f"paths.outputs={tmp_path}")
    assert call("train.py", *line, "detector=[msp]") == 0
    assert "about 1 min 40 s for the chosen detectors" in " ".join(capsys.readouterr().out.split())
    assert call("train.py", *line, "detector=[mls]") == 0
    assert "passes over" not in capsys.readouterr().out

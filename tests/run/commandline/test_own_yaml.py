"""A new task, network or detector is one file and one YAML; no list elsewhere knows of it."""

import own_yaml
import pandas as pd
import pytest
import yaml
from cli import call, run_folders

from ood_lab.scripts import OWN_CONF

SMALL = [
    *("experiment=smoke", "logger=none", "data.train=44", "data.val=22", "data.test=22"),
    *("data.per_shift_set=11", "data.per_cell=2", "metrics.n_bootstrap=10"),
]


@pytest.fixture(autouse=True)
def yaml_files(tmp_path, monkeypatch):
    """The three YAMLs and one more, in a folder of the user's own."""
    undeclared = yaml.safe_load(own_yaml.TASK) | {"uses": ["clip"]}
    files = {
        "task/count_images": own_yaml.TASK,
        "task/undeclared": yaml.safe_dump(undeclared),
        "model/two_layers": own_yaml.MODEL,
        "detector/largest": own_yaml.DETECTOR,
    }
    for name, text in files.items():
        file = tmp_path / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv(OWN_CONF, str(tmp_path / "conf"))


def test_a_task_is_a_class_and_a_yaml(tmp_path):
    outputs = f"paths.outputs={tmp_path}"
    assert call("eval.py", "task=count_images", "task.least=22", *SMALL, outputs) == 0
    (run,) = run_folders(tmp_path)
    counts = pd.read_csv(run / "counts.csv").set_index("set")["n"]
    assert counts["train"] == 44
    assert counts["test"] == 22
    assert counts.min() >= 22
    written = yaml.safe_load((run / "config.yaml").read_text())
    assert "detector" not in written
    assert "model" not in written


def test_a_task_gets_what_its_yaml_says_and_no_more(tmp_path, capsys):
    assert call("eval.py", "task=undeclared", *SMALL, f"paths.outputs={tmp_path}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "own_yaml.CountImages asks for the data of the workspace: add data to uses" in line


@pytest.mark.slow
def test_a_network_and_a_detector_are_a_class_and_a_yaml_each(tmp_path):
    line = ["model=two_layers", "detector=[largest]", *SMALL, f"paths.outputs={tmp_path}"]
    assert call("train.py", "task=score", *line) == 0
    (run,) = run_folders(tmp_path)
    results = pd.read_csv(run / "results.csv")
    assert set(results["model"]) == {"two_layers"}
    assert set(results["detector"].dropna()) == {"largest"}

"""A new task, network or detector is one file and one YAML; no list elsewhere knows of it."""

import own_yaml
import pandas as pd
import pytest
import yaml
from cli import call, run_folders
from hydra.core.config_store import ConfigStore

from ood_lab.run.commandline.resolvers import register_resolvers

SMALL = [
    *("experiment=smoke", "logger=none", "data.train=44", "data.val=22", "data.test=22"),
    *("data.per_shift_set=11", "data.per_cell=2", "metrics.n_bootstrap=10"),
]


@pytest.fixture(autouse=True)
def yaml_files(monkeypatch):
    """The three YAMLs, as if they lay in ``conf/``."""
    register_resolvers()  # what this stores stays
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", {**store.repo})
    store.store("count_images", yaml.safe_load(own_yaml.TASK), group="task")
    store.store("two_layers", yaml.safe_load(own_yaml.MODEL), group="model")
    store.store("largest", yaml.safe_load(own_yaml.DETECTOR), group="detector", package="_global_")


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
    node = yaml.safe_load(own_yaml.TASK) | {"_uses_": ["clip"]}
    ConfigStore.instance().store("undeclared", node, group="task")
    assert call("eval.py", "task=undeclared", *SMALL, f"paths.outputs={tmp_path}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "own_yaml.CountImages asks for the data of the workspace: add data to _uses_" in line


@pytest.mark.slow
def test_a_network_and_a_detector_are_a_class_and_a_yaml_each(tmp_path):
    line = ["model=two_layers", "detector=[largest]", *SMALL, f"paths.outputs={tmp_path}"]
    assert call("train.py", "task=score", *line) == 0
    (run,) = run_folders(tmp_path)
    results = pd.read_csv(run / "results.csv")
    assert set(results["model"]) == {"two_layers"}
    assert set(results["detector"].dropna()) == {"largest"}

"""YAML files and classes of one's own, which lie outside the package."""

import sys

import pytest
import yaml
from cli import call

NET = """
from torch import nn

def Net():
    layers = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(16, 11))
"""
MSP = "detector: {mine: {_target_: ood_lab.detectors.MSP}}"
FILES = {
    "experiment/mine.yaml": "# @package _global_\nname: mine\nmetrics: {n_bootstrap: 20}\n",
    "detector/mine.yaml": f"# @package _global_\n{MSP}\n",
    "model/mine.yaml": 'defaults: [module]\nnet: {_target_: own_network.Net}\nhead: "4"\n',
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    for name, text in FILES.items():
        file = tmp_path / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "own_network.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "conf"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "behind"),
    [
        (["--config-dir", "conf"], True),
        (["--config-dir=conf"], False),
        pytest.param(["-cd", "conf"], True, marks=pytest.mark.slow),
        pytest.param(["-cd", "conf"], False, marks=pytest.mark.slow),
    ],
)
def test_every_group_takes_files_of_ones_own(own, flag, behind, capsys):
    choices = ["experiment=mine", "detector=[mine,knn]", "model=mine"]
    line = [*choices, *flag] if behind else [*flag, *choices]
    assert call("eval.py", *line, "--cfg", "job") == 0
    cfg = yaml.safe_load(capsys.readouterr().out)
    assert (cfg["name"], cfg["metrics"]["n_bootstrap"]) == ("mine", 20)
    assert list(cfg["detector"]) == ["mine", "knn"]
    assert cfg["model"]["net"]["_target_"] == "own_network.Net"
    assert call("eval.py", *flag, "detector=[logits,mine]", "--cfg", "job") == 0
    assert {"mine", "msp"} < {*yaml.safe_load(capsys.readouterr().out)["detector"]}


def test_a_network_from_the_current_folder(own, capsys):
    few = (
        "data.train=44",
        "data.val=22",
        "data.test=22",
        "data.per_shift_set=4",
        "data.per_cell=0",
    )
    line = ("--config-dir", "conf", "model=mine", *few, "logger=none", "task=preflight")
    status = call("train.py", *line, "detector=[mine,msp]")
    assert "1 of 1 jobs can run" in capsys.readouterr().out
    assert status == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["--config-dir", "conf", "detector=[mnie]"],
            "detector=mnie is unknown. Did you mean mine",
        ),
        (["--config-dir", "cnf"], "'cnf' does not exist; nearest: "),
        (["--config-dir", "conf", "detector=mine", "seeed=1"], "'seeed'. Did you mean seed?"),
    ],
)
def test_mistakes_are_one_line(own, line, message, capsys):
    assert call("eval.py", *line, "logger=none") == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error

"""``ood-lab``: what there is to choose from, and the machine."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
import torch
from cli import ROOT
from hydra.utils import get_object

from ood_lab import __version__
from ood_lab.scripts import conf_files


@pytest.fixture
def console(monkeypatch, capsys):
    """Calls the entry point that pyproject.toml names."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    main = get_object(scripts["ood-lab"].replace(":", "."))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ood-lab", *arguments])
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(("command", "group"), [("tasks", "task"), ("detectors", "detector")])
def test_everything_there_is_has_a_line(console, command, group):
    status, out, _ = console(command)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert status == 0
    for file in conf_files(group):
        assert len(lines[file.stem]) >= 3


def test_doctor_says_what_is_installed(console):
    status, out, _ = console("doctor")
    found = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines())
    assert status == 0
    assert found["ood_lab"].startswith(__version__)
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert "free disk here" in out
    assert "WANDB_API_KEY" not in out


def test_a_wrong_command_gets_a_suggestion(console):
    for wrong, hint in {"evl": "did you mean 'eval'?", "tsaks": "did you mean 'tasks'?"}.items():
        status, _, error = console(wrong)
        assert status == 2
        assert error == f"error: there is no command '{wrong}': {hint}\n"
    assert console("tasks", "knn")[0] == 2
    assert all(f"\n  {name} " in console()[1] for name in ("train", "eval", "tasks", "doctor"))


def test_eval_and_its_completion_are_those_of_the_script():
    code = "from ood_lab.run.console import main; main()"
    line = [sys.executable, "-c", code, "train", "-sc", "query=bash"]
    typed = "ood-lab-train loss="
    environment = os.environ | {"COMP_LINE": typed, "COMP_POINT": str(len(typed))}
    found = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["loss=logit_norm", "loss=outlier_exposure"]

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
    sets = {"all", "default", "logits", "features", "forward"}
    for name in {file.stem for file in conf_files(group)} - sets:
        assert len(lines[name]) >= 3


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


#: What bash does at a tab: the words so far, and the number of the one that is begun.
ASK = """
eval "$(ood-lab --shell-completion install=bash)"
complete -p ood-lab ood-lab-train ood-lab-eval
ask() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_CWORD=$2 COMPREPLY=()
    hydra_bash_completion
    echo "${COMPREPLY[@]}"
}
ask "ood-lab tr" 1
ask "ood-lab train loss=" 2
"""


@pytest.mark.slow
def test_bash_completes_as_hydra_does(tmp_path):
    command = tmp_path / "ood-lab"
    start = "from ood_lab.run.commandline.ood_lab_command import main"
    code = f"import sys; {start}; sys.argv[0] = 'ood-lab'; main()"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = ["bash", "-c", ASK]
    found = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    *rules, commands, losses = found.stdout.splitlines()
    words = ("ood-lab", "ood-lab-train", "ood-lab-eval")
    for rule, word in zip(rules, words, strict=True):
        assert rule.endswith(f"-F hydra_bash_completion {word}")
    assert commands == "train"
    assert losses == "loss=logit_norm loss=outlier_exposure"

"""Whatever is typed ends in a result or in one line that names the mistake."""

import os
import shlex
import sys
from unittest import mock

import pytest
from mutations import mutations

from ood_lab.run import commandline
from ood_lab.run.compose import composed
from ood_lab.run.line import read_arguments
from ood_lab.run.prepare import prepare
from ood_lab.run.validate import jobs_of

COUNT = 300


def dry_run(script: str) -> None:
    """All of a job that happens before its data is read."""
    for line in jobs_of(read_arguments(sys.argv[1:]).overrides):
        prepare(composed(script, line), line).check_settings()


def status_of(script: str, arguments: list[str]) -> int:
    environment = dict(os.environ)
    with (
        mock.patch.object(sys, "argv", [f"{script}.py", *arguments]),
        mock.patch.object(commandline, "run_stages", return_value=0),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        try:
            commandline.launch(lambda: dry_run(script), script)
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("part", range(3))
def test_a_mutated_line_is_understood_or_refused_in_one_line(part, capsys):
    wrong = []
    for script, arguments in mutations(seed=part, count=COUNT // 3):
        shown = f"{script}.py {shlex.join(arguments)}"
        try:
            status = status_of(script, arguments)
        except BaseException as error:  # all of them are told, not the first alone
            wrong.append(f"{shown}\n    {type(error).__name__}: {error}")
            continue
        errors = capsys.readouterr().err.splitlines()
        told = status == 1 and len(errors) == 1 and errors[0].startswith("error: ")
        if not (told or (status == 0 and not errors)):
            wrong.append(f"{shown}\n    exit {status}: {errors[:3]}")
    assert not wrong, "\n".join(wrong)

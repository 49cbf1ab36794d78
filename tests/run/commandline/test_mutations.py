"""Whatever is typed ends in a result or in one line that names the mistake."""

import os
import resource
import shlex
import signal
import subprocess
import sys
from functools import partial
from unittest import mock

import pytest
from cli import ROOT
from mutations import mutations

from ood_lab.common.errors import UserError
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.terminal_output import fail
from ood_lab.run.job import launch
from ood_lab.run.job.preparation import prepare

COUNT = 300
#: A run of seconds; what the mutated lines say comes after it and wins.
TINY = [
    *("paths.outputs=outputs", "logger=none", "trainer=cpu", "trainer.max_epochs=1"),
    *("data.train=66", "data.val=22", "data.test=22", "data.per_shift_set=6", "data.per_cell=0"),
    *("data.min_per_class=2", "metrics.n_bootstrap=10", "task.report=false"),
]
#: Seconds until a run counts as one that works: some mutations ask for a long one.
PATIENCE = 60


def dry_run(script: str, one_job: bool) -> None:
    """All of a job that happens before its data is read; one job tells its own mistake."""
    try:
        for line in jobs_of(launch.read_line(sys.argv[1:])[1].overrides):
            prepare(composed(script, line), line).check_settings()
    except UserError as error:
        if not one_job:
            raise
        fail(error)


def dry_sweep(script: str, *hydra: object) -> None:
    """All jobs, where Hydra would run them."""
    dry_run(script, one_job=False)


def status_of(script: str, arguments: list[str]) -> int:
    environment = dict(os.environ)
    with (
        mock.patch.object(sys, "argv", [f"{script}.py", *arguments]),
        mock.patch.object(launch, "run_stages", return_value=0),
        mock.patch.object(launch, "_call", partial(dry_sweep, script)),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        try:
            launch.launch(lambda cfg: dry_run(script, one_job=True), script)
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 9))]
)
def test_a_mutated_line_is_understood_or_refused_in_one_line(part, capsys):
    wrong = []
    for script, arguments in mutations(seed=part, count=COUNT // 9):
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


def _modest() -> None:
    """Memory for a small run, and an ear for Ctrl-C, in the process about to start."""
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def really(script: str, arguments: list[str]) -> tuple[int, str, str]:
    """Exit status and output of the real script; stopped by Ctrl-C when patience ends."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / f"{script}.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_modest,
    )
    try:
        out, error = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    return process.returncode, out, error


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_a_mutated_line_really_ends_in_a_result_or_one_line(part):
    wrong = []
    for script, arguments in mutations(seed=part, count=COUNT // 3):
        arguments = [a for a in TINY if a.split("=")[0] not in shlex.join(arguments)] + arguments
        status, out, error = really(script, arguments)
        told = status == 1 and any(line.startswith("error: ") for line in error.splitlines()[-1:])
        if "Traceback" in out + error or not (told or status in (0, 130)):
            shown = f"{script}.py {shlex.join(arguments)}"
            wrong.append(f"{shown}\n    exit {status}: {error.splitlines()[-3:]}")
    assert not wrong, "\n".join(wrong)

"""What long work says where nobody sees a bar, in ``log.txt``, and when it is stopped."""

import contextlib
import io
import re
import signal
import sys
import warnings

import lightning as L
import pandas as pd
import pytest
import torch
from cli import call, run_folders
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.loggers import CSVLogger
from rich.console import Console
from torch.utils.data import DataLoader, TensorDataset

from ood_lab.common.progress import duration, print_anywhere, print_line
from ood_lab.evaluation import pipeline
from ood_lab.features.bank_store import FeatureWriter
from ood_lab.models import TrainingLog, TrainingProgressBar, epochs_for
from ood_lab.models.training import lightning_extensions
from ood_lab.run.commandline.terminal_output import ENDED, configure_logging

SMALL = (
    "experiment=smoke",
    "task=score",
    "data.per_cell=0",
    "data.per_shift_set=10",
    "detector=[msp]",
)
FEW = ("data.train=66", "data.test=20")
SMALL += ("logger=none", "task.report=false", "data.batch_size=32", "trainer.max_epochs=3")


def train(outputs, *more):
    return call("train.py", *SMALL, f"paths.outputs={outputs}", *more)


def lines_of(text):
    """The lines of a log without their times."""
    return [re.sub(r"^[\d: -]+ (?=\D)", "", line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """A training with a long path, as it is piped to a file: its folder, its lines, its log."""
    out = io.StringIO()
    outputs = tmp_path_factory.mktemp("a folder whose name is longer than a terminal is wide " * 2)
    with contextlib.redirect_stdout(out):
        assert train(outputs) == 0
    (folder,) = run_folders(outputs)
    return folder, out.getvalue(), (folder / "log.txt").read_text()


@pytest.mark.slow
def test_before_the_training(talk):
    _, out, _ = talk
    assert re.search(r"training resnet10s: [\d,]+ parameters, random weights, input 64 x 64", out)
    assert "recipe: conf/model/resnet10s.yaml unchanged (preset=builtin)\n" in out
    assert "240 training images in batches of 32, 7 steps per epoch, 3 epochs, 21 steps" in out
    assert re.search(r"about [\d.e-]+ s per step: \d+ s left", out)


@pytest.mark.slow
def test_a_line_for_every_epoch_and_every_set(talk):
    _, out, _ = talk
    epochs = re.findall(
        r"epoch (\d) of 3: step (\d+) of 21, loss \d\.\d+, val accuracy [\d.]+%(, \d+ s left)?", out
    )
    assert [(n, step) for n, step, _ in epochs] == [("1", "7"), ("2", "14"), ("3", "21")]
    assert [bool(left) for *_, left in epochs] == [True, True, False]
    sets = re.findall(r"'(\w+)': \d+ images passed", out)
    assert sets[:2] == ["test", "transferred_bronze"]
    assert len(sets) == 6


@pytest.mark.slow
def test_a_network_is_called_what_the_user_has_chosen(tmp_path, capsys):
    """And not ``resnet18``, which timm builds it from; nor where a later run scores it."""
    large = "model.backbone.input_size=128"
    assert train(tmp_path, "trainer.max_epochs=1", large, *FEW) == 0
    (folder,) = run_folders(tmp_path)
    line = ("detector=[mls]", "logger=none", "task.report=false", "metrics.n_bootstrap=20")
    assert call("eval.py", f"ckpt={folder}", *line, f"paths.outputs={tmp_path}") == 0
    assert capsys.readouterr().out.count("resnet10s takes 128 × 128 pixels") == 2


def test_of_very_many_epochs_not_every_one_has_a_line(tmp_path, caplog):
    data = DataLoader(TensorDataset(torch.ones(2, 1)), batch_size=2)
    options = {"enable_progress_bar": False, "enable_checkpointing": False, "logger": False}
    with caplog.at_level("INFO", logger="ood_lab"):
        L.Trainer(
            accelerator="cpu",
            max_epochs=120,
            default_root_dir=tmp_path,
            callbacks=[TrainingLog("one number", "random weights")],
            **options,
        ).fit(OneNumber(), data)
    told = [int(n) for n in re.findall(r"epoch (\d+) of 120", caplog.text)]
    assert told == [1, *range(3, 121, 3)]


class OneNumber(L.LightningModule):
    """The least that can be trained."""

    def __init__(self):
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, _):
        return ((self.number - batch[0]) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.slow
def test_a_short_training_is_called_short_when_it_ends_and_with_the_results(talk):
    _, out, _ = talk
    warning = "warning: the network has seen few images: 21 optimiser steps in all"
    training, _, results = out.partition("features of")
    assert warning in training
    assert warning in results


@pytest.mark.slow
def test_the_log_has_the_same_lines(talk):
    _, out, log = talk
    said = [line for line in lines_of(out) if line in lines_of(log)]
    assert said == lines_of(log)
    assert len(said) > 12


@pytest.mark.slow
@pytest.mark.slow
def test_paths_are_not_broken(talk):
    folder, out, _ = talk
    assert f"run folder: {folder}\n" in out
    assert f"Results: {folder}\n" in out


@pytest.mark.slow
def test_a_terminal_has_bars_instead(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    assert train(tmp_path, "trainer.max_epochs=1", "data.test=20") == 0
    (folder,) = run_folders(tmp_path)
    assert "epoch 1 of 1: step 7 of 7" in (folder / "log.txt").read_text()
    assert "epoch 1 of 1: step 7 of 7" not in capsys.readouterr().out


@pytest.fixture(autouse=True)
def heard():
    """SIGINT is ignored in what a shell starts in the background, these tests included."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(*_, **__):
    signal.raise_signal(signal.SIGINT)


MOMENTS = {
    "training": (TrainingLog, "on_train_epoch_end"),
    "extraction": (FeatureWriter, "__init__"),
    "scoring": (pipeline, "each_that_works"),
}
STOPS = {
    "SIGINT": (130, "interrupted: the same command resumes this run\n", "interrupted"),
    "SIGTERM": (143, f"{ENDED}\n", ENDED),
}


@pytest.mark.slow
@pytest.mark.parametrize("sign", STOPS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_stopped_by_a_signal(moment, sign, tmp_path, monkeypatch, capsys):
    number, (status, said, noted) = signal.Signals[sign], STOPS[sign]
    before = signal.getsignal(number)
    monkeypatch.setattr(*MOMENTS[moment], lambda *_, **__: signal.raise_signal(number))
    assert train(tmp_path, *FEW, "trainer.max_epochs=1") == status
    assert capsys.readouterr().err == said
    (log,) = tmp_path.glob("smoke/*/*/log.txt")
    assert log.read_text().endswith(f"error: {noted}\n")
    assert not run_folders(tmp_path)
    assert signal.getsignal(number) is before


def loaders_die(*_, **__):
    """What ends a job is told to the processes that load its images as well."""
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        raise RuntimeError("DataLoader worker exited unexpectedly")


def test_what_sigterm_breaks_is_no_error_of_the_job(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "each_that_works", loaders_die)
    assert train(tmp_path, *FEW, "trainer.max_epochs=1", "-m", "seed=0,1") == 143
    assert capsys.readouterr().err == f"{ENDED}\n"
    (log,) = tmp_path.glob("smoke/*/*/log.txt")
    assert "Traceback" not in log.read_text()
    assert not list(tmp_path.rglob("failures.csv"))


def test_a_launcher_that_answers_sigterm_itself_hears_of_it(tmp_path, monkeypatch, restored):
    """As submitit's does: SLURM may run the job again."""
    heard = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    monkeypatch.setattr(pipeline, "each_that_works", loaders_die)
    assert train(tmp_path, *FEW, "trainer.max_epochs=1", "-m", "seed=0") == 1
    assert heard == [signal.SIGTERM]
    (failed,) = pd.read_csv(tmp_path / "smoke" / "failures.csv").itertuples()
    assert failed.error == ENDED
    assert "RuntimeError" not in failed.traceback
    (log,) = tmp_path.glob("smoke/*/*/log.txt")
    assert log.read_text().count(f"error: {ENDED}\n") == 1
    assert "Traceback" not in log.read_text()


@pytest.fixture
def restored():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_a_training_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        epoch_end = TrainingLog.on_train_epoch_end

        def second(log, trainer, module):
            epoch_end(log, trainer, module)
            if trainer.current_epoch == 1:
                press()

        patch.setattr(TrainingLog, "on_train_epoch_end", second)
        assert train(tmp_path) == 130
    capsys.readouterr()
    assert train(tmp_path) == 0
    out = capsys.readouterr().out
    assert re.search(r"resuming at epoch 2 of 3 from \S+/seed=0/checkpoints/last\.ckpt\n", out)
    assert out.count(" of 3: step ") == 2


@pytest.mark.parametrize(
    ("batches", "epochs"), [(68, 5), (7, 43), (300, 5), (60, 5), (59, 6), (0, 300)]
)
def test_epochs_follow_from_the_size_of_the_data(batches, epochs):
    assert epochs_for(batches) == epochs


@pytest.mark.slow
def test_own_data_trains_for_steps_that_suit_its_size(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lightning_extensions, "MIN_EPOCHS", 2)
    monkeypatch.setattr(lightning_extensions, "MIN_STEPS", 25)
    assert train(tmp_path, "trainer.max_epochs=null") == 0
    out = capsys.readouterr().out
    assert "7 steps per epoch, 4 epochs, 28 steps in all" in out
    assert "few images" not in out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (7230, "2 h"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("job", [None, "7"])
def test_srun_is_named_only_within_a_slurm_job(monkeypatch, job):
    """A machine may have the command without anybody using it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        configure_logging()
        warnings.warn("The `srun` command is available on your system but", stacklevel=1)
    assert len(seen) == (1 if job else 0)


def test_a_terminal_breaks_lines_between_words_and_a_file_not_at_all():
    words = "'train': 320 images passed through the network in 2.0 s, 256 at a time, channels_last"
    path = "/a/folder/whose/path/is/longer/than/the/terminal" * 2
    for terminal in (True, False):
        console = Console(width=40, force_terminal=terminal, color_system=None, file=io.StringIO())
        print_line(f"{words} {path}", console)
        lines = console.file.getvalue().splitlines()
        assert len(lines) == (4 if terminal else 1)
        assert " ".join(line.rstrip() for line in lines) == f"{words} {path}"


@pytest.mark.slow
def test_one_of_anything_is_singular(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    limit = "+trainer.limit_train_batches=1"
    one = ("trainer.max_epochs=1", limit, "data.per_shift_set=1", "data.test=20")
    assert train(tmp_path, *one) == 0
    out = capsys.readouterr().out
    assert ", 1 step per epoch, 1 epoch, 1 step in all" in out
    assert "few images: 1 optimiser step in all" in out
    assert ": 1 image passed in" in out
    assert not re.search(r"\b1 (?:epochs|steps|images|optimiser steps)\b", out)


def test_the_bar_shows_no_version():
    bar, module = TrainingProgressBar(), L.LightningModule()
    trainer = L.Trainer(
        accelerator="cpu", logger=CSVLogger("unused"), callbacks=[bar], enable_checkpointing=False
    )
    module.trainer = trainer
    assert "v_num" in RichProgressBar().get_metrics(trainer, module)
    assert "v_num" not in bar.get_metrics(trainer, module)


@pytest.mark.parametrize("code", ["ascii", "latin-1"])
def test_characters_that_a_terminal_lacks_are_replaced(monkeypatch, code):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", io.TextIOWrapper(io.BytesIO(), encoding=code))
    print_anywhere()
    print_line("早商: 95% ± 2%", Console())
    sys.stdout.flush()
    written = sys.stdout.buffer.getvalue().decode(code)
    assert written.strip() == ("??: 95% ± 2%" if code == "latin-1" else "??: 95% ? 2%")

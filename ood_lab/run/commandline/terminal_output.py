"""Output of a command: lines on the terminal and in ``log.txt``, with errors on one line."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rich import get_console
from rich.console import Console
from rich.text import Text as RichText

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, one_line
from ood_lab.common.grouping import distinct, grouped
from ood_lab.common.progress import print_anywhere, print_line
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.table import Head, Table, name_cell
from ood_lab.report.rendering.terminal import print_whole

#: Logger of progress lines for long work. On a terminal, bars replace them.
PROGRESS = "ood_lab.common.progress"
#: Exit status of a command that the user has stopped (128 + SIGINT), as in shells.
INTERRUPTED = 130
#: The same for SIGTERM.
TERMINATED = 143
INTERRUPTION = "interrupted: the same command resumes this run"
ENDED = "ended by SIGTERM: the same command resumes this run"
#: Warnings of Lightning.
_IGNORED = (
    ".*LeafSpec.*",  # its own use of a deprecated name
    "Checkpoint directory .*",  # resumed on purpose
    ".*does not have many workers.*",
    ".*is smaller than the logging interval.*",  # metrics are logged once an epoch
    "Found .* in eval mode.*",  # frozen towers stay in eval mode on purpose
)

_logger = logging.getLogger("ood_lab")


class Terminated(SystemExit):
    """Ends a job wherever SIGTERM meets it, as ``KeyboardInterrupt`` does on Ctrl-C."""


@dataclass(frozen=True)
class JobRow:
    """A table's row for one job of a sweep.

    Attributes:
        cells: by heading.
        problems: what ended it, or would stop it.
        folder: its run folder; None if it could not start.
        noted: the file with the traceback of what ended it; None if there is none.
        network: identity of the network that it evaluated; None if there is none.
    """

    cells: dict[str, str]
    problems: Sequence[str] = ()
    folder: Path | None = None
    noted: Path | None = None
    network: str | None = None


class LineFormatter(logging.Formatter):
    """``<time> <message>``, with the level before a message that is a warning or an error."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        return f"{record.asctime} {_level(record)}{record.message}"


class TerminalHandler(logging.Handler):
    """Prints one line per record; a terminal breaks it between words."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drops progress lines if there are progress bars."""
        return not (record.name == PROGRESS and get_console().is_terminal)

    def emit(self, record: logging.LogRecord) -> None:
        """Prints the time of day and the message, in colour if the terminal supports it."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        line = RichText.assemble((clock, "dim"), " ", (_level(record), style), record.getMessage())
        # Rich's own console: a progress bar being drawn moves out of the way.
        print_line(line, get_console())


class LogFile(logging.FileHandler):
    """A log that never ends a run: a full disk is reported where results are written."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignores write errors."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _level(record: logging.LogRecord) -> str:
    if record.levelno < logging.WARNING:
        return ""
    return "error: " if record.levelno >= logging.ERROR else "warning: "


def configure_logging() -> None:
    """Sends ``ood_lab``'s messages to the terminal and keeps Lightning's chatter out of it."""
    print_anywhere()
    _logger.handlers = [TerminalHandler()]
    _logger.setLevel(logging.INFO)
    _logger.propagate = False
    # Lightning is loaded later and then sets the levels of its packages, but not of their modules.
    for package in ("lightning.pytorch", "lightning.fabric"):
        for name in (package, f"{package}.utilities.rank_zero", f"{package}.accelerators.cuda"):
            logging.getLogger(name).setLevel(logging.WARNING)
    # Said by this package, in words of its own.
    signals = logging.getLogger("lightning.pytorch.trainer.connectors.signal_connector")
    signals.addFilter(lambda record: "Received SIGTERM" not in record.getMessage())
    # Its errors are raised as well.
    logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)
    for message in _IGNORED:
        warnings.filterwarnings("ignore", message=message)
    if "SLURM_JOB_ID" not in os.environ:  # the command exists, but was not requested
        warnings.filterwarnings("ignore", message="The `srun` command is available")
    os.environ.setdefault("WANDB_SILENT", "true")


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Appends all messages to a run folder's ``log.txt``, and any error that ended the run.

    Lines about progress are among them, whatever the terminal shows.
    """
    handler = LogFile(folder / "log.txt", encoding="utf-8")
    handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    _logger.addHandler(handler)
    try:
        yield
    except BaseException as error:
        handler.handle(_record_of(error))
        raise
    finally:
        _logger.removeHandler(handler)
        handler.close()


def _record_of(error: BaseException) -> logging.LogRecord:
    """A record of the error; the traceback belongs to unforeseen errors."""
    text = one_line(error)
    trace = None
    if isinstance(error, KeyboardInterrupt):
        text = "interrupted"
    elif isinstance(error, Terminated):
        text = ENDED
    elif not isinstance(error, UserError):
        trace = (type(error), error, error.__traceback__)
    return logging.LogRecord("ood_lab", logging.ERROR, __file__, 0, "%s", (text,), trace)


def fail(error: UserError) -> NoReturn:
    """Prints the error as one line and exits with status 1."""
    line = RichText.assemble(("error:", "bold red"), " ", one_line(error))
    print_line(line, Console(stderr=True))
    raise SystemExit(1)


def stop(message: str, status: int) -> NoReturn:
    """Says what becomes of a command that was stopped, and exits with a status."""
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:  # what stops a job stops all its processes
        print_line(message, Console(stderr=True))
    raise SystemExit(status)


def print_jobs(lines: Sequence[Sequence[str]], jobs: Sequence[JobRow]) -> None:
    """Prints what the jobs of a sweep share, a row for each, and every problem once."""
    shared = set.intersection(*map(set, lines))
    common = [override for override in lines[0] if override in shared]
    differences = [" ".join(o for o in line if o not in shared) for line in lines]
    title = " ".join([f"{counted(len(lines), 'job')}:", *common])
    print_whole([Text(title), job_table(differences, jobs)])
    for problem in dict.fromkeys(text for job in jobs for text in job.problems):
        hit = [str(number) for number, job in enumerate(jobs, 1) if problem in job.problems]
        which = "all jobs" if len(hit) == len(jobs) > 1 else f"job {', '.join(hit)}"
        line = RichText.assemble((f"{which}:", "bold red"), " ", problem)
        print_line(line, Console())
    networks = grouped(
        ((job.network, *job.cells.values()), str(number))
        for number, job in enumerate(jobs, 1)
        if job.network
    )
    for numbers in networks.values():
        if len(numbers) > 1:
            print_line(
                f"jobs {', '.join(numbers)}: one network and one result, which counts once (a head "
                "that is fitted on frozen features depends on no seed)",
                Console(),
            )


def job_table(differences: Sequence[str], jobs: Sequence[JobRow]) -> Table:
    """One row per job: the overrides only it has, and its cells; red if it has problems."""
    rows = [
        {"job": str(number), "differs by": line, **job.cells}
        for number, (line, job) in enumerate(zip(differences, jobs, strict=True), 1)
    ]
    heads = distinct(heading for row in rows for heading in row)
    cells = [
        [name_cell(row.get(head, ""), tone="bad" if job.problems else "") for head in heads]
        for row, job in zip(rows, jobs, strict=True)
    ]
    return Table("", list(map(Head, heads)), cells)

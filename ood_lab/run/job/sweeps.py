"""Sweeps: Hydra runs the jobs, a table shows their outcomes, and failures are recorded."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, one_line
from ood_lab.common.line_files import append_lines, create_with
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.verdict import Verdict
from ood_lab.run.commandline.composition import composed, jobs_of
from ood_lab.run.commandline.terminal_output import (
    INTERRUPTED,
    JobRow,
    fail,
    print_jobs,
    stop,
)
from ood_lab.run.job.preparation import prepare
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import RESULTS, of_kind, whole

log = logging.getLogger(__name__)
#: The jobs that failed and how to repeat them, beside the run folders of one name.
FAILURES = "failures.csv"
_TIME = "%Y-%m-%dT%H:%M:%S%z"
_COLUMNS = ["time", "overrides", "folder", "error", "traceback"]


def run_sweep(main: Callable[[], Any], script: str, overrides: Sequence[str]) -> int:
    """Has Hydra's ``main`` run all jobs, and shows their results; returns the exit status.

    Raises:
        UserError: SLURM rejected the jobs.
        Exception: whatever ended the sweep, if it was not a job.
    """
    stopped: Exception | None = None
    began = time.strftime(_TIME)
    lines = jobs_of(overrides)
    reasons = ["it has no results"] * len(lines)
    try:
        main()
    except Exception as error:  # from the first job that failed; the others continued
        stopped = error
        reasons = _reasons(error, len(lines))
    except KeyboardInterrupt:
        # Jobs on a cluster, which a Ctrl-C here does not end.
        slurm = sys.modules.get("ood_lab.run.commandline.slurm_jobs")
        if slurm and (going := slurm.going_on()):
            stop(f"interrupted: {going}", INTERRUPTED)
        raise
    jobs = [swept_job(script, o, reason, began) for o, reason in zip(lines, reasons, strict=True)]
    failed = [job for job in jobs if job.problems]
    if stopped is not None and not failed:
        raise stopped
    print_jobs(lines, jobs)
    if failed:
        files = sorted({str(job.noted) for job in failed if job.noted})
        kept = f"; tracebacks are in {', '.join(files)}" if files else ""
        fail(UserError(f"{len(failed)} of {counted(len(jobs), 'job')} failed{kept}"))
    return 0


def _reasons(error: Exception, jobs: int) -> list[str]:
    """Why each of the jobs has no results, if it has none."""
    if type(error).__module__.startswith("submitit."):
        from ood_lab.run.commandline import slurm_jobs as slurm

        if len(told := slurm.reasons(error)) == jobs:
            return told
    return [one_line(error)] * jobs


def record_failure(
    file: Path, overrides: Sequence[str], folder: Path | None, error: Exception
) -> None:
    """Prints that a job failed and appends it to ``failures.csv``; parallel jobs take turns.

    Its run folder is None if the job did not get that far.
    """
    line = " ".join(overrides)
    log.error("this job failed, the others continue: %s", one_line(error))
    log.error("its overrides: %s", line)
    trace = "".join(traceback.format_exception(error))
    now = time.strftime(_TIME)
    row = pd.DataFrame([(now, line, str(folder or ""), one_line(error), trace)], columns=_COLUMNS)
    create_with(file, row[:0].to_csv(index=False))
    append_lines(file, [row.to_csv(index=False, header=False).removesuffix("\n")])


def swept_job(script: str, line: Sequence[str], reason: str, began: str) -> JobRow:
    """Reads what a job left in its run folder, or next to it since the sweep ``began``.

    A job that left neither did not get that far, for a ``reason`` that others know, such as its
    launcher.
    """
    try:
        job = prepare(composed(script, line), line)
        run = FinishedRun(job.folder)
        if run.done:
            run.check()
    except UserError as error:
        return JobRow({"state": "failed"}, [one_line(error)])
    if run.done:
        cells = {"state": "finished", **headline(run)}
        network = run.record.backbone.weights_sha256
        return JobRow(cells, folder=job.folder, network=network)
    file = job.folder.parents[1] / FAILURES
    if noted := _last_error(file, job.folder, line, began):
        return JobRow({"state": "failed"}, [noted], job.folder, file)
    if not (job.folder / "config.yaml").exists():
        reason = f"it did not begin: {reason}"
    return JobRow({"state": "failed"}, [reason], job.folder)


def headline(run: FinishedRun) -> dict[str, str]:
    """ID accuracy, the recommended detector, and its mean AUROC and FPR95, in %.

    Where none is recommended, those of the detector with the highest mean AUROC.

    For a vision-language model: its accuracy on every split.
    """
    if not run.has(RESULTS):
        return {}
    results = run.results
    sets = whole(results)
    if "split" in results:
        right = sets[sets["metric"] == "accuracy"].drop_duplicates("split")
        values = zip(right["split"], right["value"], strict=True)
        return {f"{split} acc.": f"{value:.1%}" for split, value in values}
    shown = {}
    accuracy = sets.loc[sets["metric"] == "id_accuracy", "value"]
    if len(accuracy):
        shown["ID acc."] = f"{accuracy.iloc[0]:.1%}"
    verdict = Verdict(results)
    if of_kind(results, "detection").reindex(columns=["detector"])["detector"].notna().any():
        shown["recommended"] = verdict.recommended or "none"
    if verdict.named:
        means = {m: verdict.mean(m) for m in ("auroc", "fpr95")}
        shown |= {m.upper(): percent(mean["value"]) for m, mean in means.items() if mean}
    return shown


def _last_error(file: Path, folder: Path, line: Sequence[str], since: str) -> str | None:
    """The last error recorded for a job; None if there is none since then.

    A job that failed before it had a run folder is known by its command line.
    """
    if not file.exists():
        return None
    rows = pd.read_csv(file, dtype=str)
    new = pd.to_datetime(rows["time"], utc=True) >= pd.to_datetime(since, utc=True)
    own = (rows["folder"] == str(folder)) | (
        rows["folder"].isna() & (rows["overrides"] == " ".join(line))
    )
    errors = rows.loc[new & own, "error"]
    return str(errors.iloc[-1]) if len(errors) else None

"""A sweep: Hydra runs its jobs, and a table says what became of each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from ood_lab.errors import UserError
from ood_lab.printing import print_whole
from ood_lab.run.compose import composed, differences, jobs_of
from ood_lab.run.prepare import prepare
from ood_lab.run.terminal import fail, one_line, print_problems

_FAILURES = "failures.csv"


@dataclass(frozen=True)
class SweptJob:
    """What became of one job.

    Attributes:
        folder: its run folder; None where the job could not begin.
        error: what ended it; None for a finished job.
        headline: ID accuracy, best detector and its means over the OOD sets, as shown; what the
            results do not hold is left out.
    """

    folder: Path | None
    error: str | None = None
    headline: dict[str, str] = field(default_factory=dict)


def run_sweep(main: Callable[[], Any], script: str, overrides: Sequence[str]) -> int:
    """Runs all jobs of a command line and shows their results; returns the exit status.

    Args:
        main: hands the command line over to Hydra.
        script: ``train`` or ``eval``.
        overrides: of the command line.

    Raises:
        Exception: what ended the sweep where it was no job.
    """
    stopped: Exception | None = None
    try:
        main()
    except Exception as error:  # of the first job that failed; the others went on
        stopped = error
    lines = jobs_of(overrides)
    jobs = [swept_job(script, line) for line in lines]
    failed = [job for job in jobs if job.error]
    if stopped is not None and not failed:
        raise stopped
    common, own = differences(lines)
    print_whole(sweep_table(own, jobs), " ".join([f"{len(jobs)} jobs:", *common]))
    print_problems([[job.error] if job.error else [] for job in jobs])
    if failed:
        files = sorted({str(job.folder.parents[1] / _FAILURES) for job in failed if job.folder})
        kept = f"; tracebacks lie in {', '.join(files)}" if files else ""
        fail(UserError(f"{len(failed)} of {len(jobs)} jobs failed{kept}"))
    return 0


def swept_job(script: str, line: Sequence[str]) -> SweptJob:
    """Reads what a job has left in its run folder."""
    try:
        job = prepare(composed(script, line), line)
    except UserError as error:
        return SweptJob(None, one_line(error))
    if job.run_folder.done:
        return SweptJob(job.folder, headline=headline(job.folder))
    return SweptJob(job.folder, _last_error(job.folder) or "it has no results")


def headline(folder: Path) -> dict[str, str]:
    """ID accuracy, the detector with the highest mean AUROC, and its mean AUROC and FPR95, in %.

    Of a chat model: its accuracy on every split.
    """
    file = folder / "results.parquet"
    if not file.exists():
        return {}
    results = pd.read_parquet(file)
    whole = results[results[["semantic_level", "covariate_level"]].isna().all(axis=1)]
    if "split" in results:
        right = whole[whole["metric"] == "accuracy"].drop_duplicates("split")
        values = zip(right["split"], right["value"], strict=True)
        return {f"{split} acc.": f"{value:.1%}" for split, value in values}
    shown = {}
    accuracy = whole.loc[whole["metric"] == "id_accuracy", "value"]
    if len(accuracy):
        shown["ID acc."] = f"{accuracy.iloc[0]:.1%}"
    sets = whole[whole["ood"].notna() & whole["metric"].isin(["auroc", "fpr95"])]
    means = sets.pivot_table(index="detector", columns="metric", values="value")
    if "auroc" in means:
        means = means.sort_values("auroc", ascending=False)
        shown |= {"best detector": str(means.index[0])}
        for metric in means.columns.intersection(["auroc", "fpr95"]):
            shown[metric.upper()] = f"{100 * means[metric].iloc[0]:.1f}"
    return shown


def _last_error(folder: Path) -> str | None:
    file = folder.parents[1] / _FAILURES
    if not file.exists():
        return None
    rows = pd.read_csv(file, dtype=str)
    errors = rows.loc[rows["folder"] == str(folder), "error"]
    return str(errors.iloc[-1]) if len(errors) else None


def sweep_table(own: Sequence[str], jobs: Sequence[SweptJob]) -> Table:
    """One row per job: what it differs by, its state, its headline numbers."""
    table = Table(box=None, padding=(0, 1))
    headings = list(dict.fromkeys(key for job in jobs for key in job.headline))
    table.add_column("job", justify="right")
    for heading in ("differs by", "state", *headings):
        right = heading in headings and heading != "best detector"
        table.add_column(heading, no_wrap=True, justify="right" if right else "left")
    for number, (line, job) in enumerate(zip(own, jobs, strict=True), 1):
        state = "failed" if job.error else "finished"
        cells = (str(number), line, state, *(job.headline.get(key, "") for key in headings))
        table.add_row(*map(Text, cells), style="red" if job.error else None)
    return table

"""One table over finished OODBench runs that differ in their settings, and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.english import counted, listed
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.grouping import distinct
from ood_lab.lvlm.benchmarks.oodbench.model_statistics import answered_runs
from ood_lab.lvlm.benchmarks.oodbench.page import METRICS, SPLITS, WORDS
from ood_lab.lvlm.benchmarks.oodbench.scoring import setting_differences
from ood_lab.lvlm.pages.benchmark_page import difference_table, metric_table
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import add_legend, panels, wrapped
from ood_lab.report.figures.lines import draw_lines, lines_of
from ood_lab.report.rendering.blocks import Folded, PlannedFigure, Section, Text
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.prose import compared, noted, values_of
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Table
from ood_lab.run.commandline.composition import leaves
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import whole

#: Metrics of the figures.
_DRAWN = ("accuracy", "f1")


@dataclass(frozen=True, kw_only=True)
class OODBenchAblation(Task):
    """Writes ``ablation.csv``, ``ablation.html`` and a figure: metrics of every split and run.

    A row names what differs between the runs: ``T``, the image-text models, the VLM, ...
    The number of pairs of each split before any cut is there too. ``differences.csv`` has the first
    run minus each other one, see
    :func:`~ood_lab.lvlm.benchmarks.oodbench.scoring.setting_differences`.

    Args:
        runs: run folders of ``task=oodbench``.

    Raises:
        UserError: no run, or one that is not finished or of another task.
    """

    runs: Sequence[str]

    def run(self, ws: Workspace) -> None:
        """See the class."""
        if not self.runs:
            raise UserError("no run: give run folders of task=oodbench as runs=[RUN_A,RUN_B]")
        runs = answered_runs(self.runs)
        labels = differences_of([_settings(run) for run in runs])
        table = pd.concat([_rows(r, n) for r, n in zip(runs, labels, strict=True)])
        write_csv(table, ws.folder / "ablation.csv")
        ws.record.runs = dict(zip(labels, map(str, runs), strict=True))
        blocks: list[Text | Table | Folded] = [_table(table)]
        differences = pd.DataFrame()
        if len(runs) > 1:
            differences = setting_differences(
                {label: _answers(run) for label, run in zip(labels, runs, strict=True)},
                table["unparsed"].iloc[0],
                resampling=ws.resampling,
            )
            write_csv(differences, ws.folder / "differences.csv")
            blocks += _differences(differences, labels)
        sentences = _said(table, differences, labels, int(ws.metrics["n_bootstrap"]))
        blocks[:0] = [Text(sentence, "answer") for sentence in sentences]
        show_blocks(blocks, ws.folder, "oodbench_ablation")
        caption = "Answers to yes/no questions by setting, with 95% intervals."
        figures = [PlannedFigure("ablation", "Ablation", caption, partial(_figure, table))]
        if table["detectors"].nunique() > 1:
            caption = "A line per VLM, with 95% intervals; a panel per metric and split."
            draw = partial(lines_over_number, table)
            figures.append(PlannedFigure("number", "Number of image-text models", caption, draw))
        with optional("ablation.html"):
            page = Page(
                title=f"OODBench: {counted(len(runs), 'setting')}",
                sentence="Positive class: yes",
                blocks=[Section("Results", blocks), Section("Figures", figures)],
                record=ws.record,
            )
            page.write(ws.folder / "ablation.html")


def _figure(table: pd.DataFrame) -> Figure:
    """A panel per metric, a row per run and a bar per split."""
    metrics = {metric: metric for metric in _DRAWN}
    runs = {str(name): wrapped(str(name), 20) for name in table["setting"].unique()}
    series = ("split", SPLITS)
    return bar_panels(table, metrics, runs, "95% intervals.", row="setting", series=series)


def differences_of(settings: Sequence[Settings]) -> list[str]:
    """What of the settings differs, as a label for each of them: ``threshold=0.05``.

    Settings that one of them lacks count as different; equal ones are numbered.
    """
    keys = sorted({key for each in settings for key in each})
    differing = [k for k in keys if len({str(each.get(k)) for each in settings}) > 1]
    labels = [
        " ".join(f"{k.rpartition('.')[2]}={each[k]}" for k in differing if k in each) or "run"
        for each in settings
    ]
    return [
        label if labels.count(label) == 1 else f"{label} ({place + 1})"
        for place, label in enumerate(labels)
    ]


def _settings(run: FinishedRun) -> Fields:
    """What may differ between ablations: task, VLM, and the image-text models of the division."""
    groups = {key: run.config.get(key) or {} for key in ("task", "lvlm", "annotations")}
    settings = {k: value for k, value in leaves(groups) if not str(k).startswith("task.report")}
    models = "+".join(run.config.get("image_text") or {})
    return settings | {"image_text": models, "seed": run.config["seed"]}


def _table(table: pd.DataFrame) -> Table:
    """Pairs and metrics of every setting and split; the settings are numbered, and named below."""
    numbers = {name: number for number, name in enumerate(distinct(table["setting"]), 1)}
    rows = table.assign(place=table["setting"].map(numbers).astype(str) + "/" + table["split"])
    names = {f"{n}/{s}": f"{n}, {words}" for n in numbers.values() for s, words in SPLITS.items()}
    notes = [f"{number} {name}" for name, number in numbers.items()]
    counts = {"initial_pairs": "uncut pairs"}
    return metric_table(
        "Ablation, %", "setting", rows, names, METRICS, key="place", counts=counts, notes=notes
    )


def _said(
    table: pd.DataFrame, differences: pd.DataFrame, labels: Sequence[str], draws: int
) -> Iterator[str]:
    """The accuracy with the first setting, and what changes it most."""
    first, *others = (f"setting {number} ({name})" for number, name in enumerate(labels, 1))
    rows = table[(table["metric"] == "accuracy") & (table["setting"] == labels[0])]
    rows = rows.assign(on=rows["split"].map(WORDS.told_as))
    values = values_of(rows[rows["on"] != ""], lower=False)
    yield f"With {first}, accuracy is {noted(values)}."
    if len(differences):
        rows = differences[differences["metric"] == "accuracy"]
        rows = rows.assign(on=rows["b"].map(dict(zip(labels[1:], others, strict=True))))
        most = rows.loc[[rows["difference"].abs().idxmax()]]
        same, few = compared(most, False, draws, "than with", "from that with")
        words = listed(same or [f"not tested against {few[0]}: too few answers or resamples"])
        yield f"It differs most on {SPLITS[most['split'].iloc[0]]}: there it is {words}."


def _differences(table: pd.DataFrame, labels: Sequence[str]) -> Iterator[Table | Folded]:
    """The first setting minus each other one; only the page has those of all but the last split."""
    numbers = {label: str(number) for number, label in enumerate(labels, 1)}
    tables = [
        difference_table(
            f"Setting 1 minus the others, {SPLITS[str(split)]}, points", part, numbers, METRICS
        )
        for split, part in table.groupby("split", sort=False)
    ]
    if tables:
        yield tables[-1]
    if tables[:-1]:
        yield Folded("The same of the other splits", tables[:-1], page_only=True)


def _answers(run: FinishedRun) -> pd.DataFrame:
    """The judged answers; images of other annotations are other images, whatever their ids."""
    source = str(run.record.annotations.get("identity", ""))
    return run.judged.assign(image=f"{source}/" + run.judged["image"].astype(str))


def _rows(run: FinishedRun, label: str) -> pd.DataFrame:
    rows = whole(run.results)
    rows = rows[rows["unparsed"] == rows["unparsed"].iloc[0]]  # the way that comes first
    before = run.record.division.get("pairs") or {}
    initial = rows["split"].map(before).where(rows["split"] != "id").astype(float)
    number = len(run.config.get("image_text") or {})
    return rows.assign(setting=label, initial_pairs=initial, detectors=number)


def lines_over_number(table: pd.DataFrame) -> Figure:
    """A line per VLM over the number of image-text models, a panel per metric and OOD split.

    Args:
        table: ``model, detectors, split, metric, value, ci_low, ci_high``; of several runs of a
            model with the same number, the first.
    """
    rows = table.drop_duplicates(["model", "detectors", "split", "metric"])
    splits = [s for s in SPLITS if WORDS.told_as[s] and (rows["split"] == s).any()]
    places = [(metric, split) for metric in _DRAWN for split in splits]
    titles = [f"{METRICS[metric]} on {SPLITS[split]} (%)" for metric, split in places]
    labels = ("image-text models", "")
    figure, grid = panels(
        titles, "95% intervals.", height=1.6, columns=len(splits), extra=0.7, labels=labels
    )
    names = {str(model): wrapped(str(model), 24) for model in dict.fromkeys(rows["model"])}
    for axes, (metric, split) in zip(grid, places, strict=True):
        part = rows[(rows["metric"] == metric) & (rows["split"] == split)]
        draw_lines(axes, lines_of(part, "detectors", "model", names))
        axes.set_xticks(sorted(rows["detectors"].unique()))
    add_legend(figure, grid)
    return figure

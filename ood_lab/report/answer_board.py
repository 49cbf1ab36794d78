"""One table over the vision-language benchmarks of several chat models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from ood_lab.axes import LEVELS
from ood_lab.errors import UserError
from ood_lab.io import read_json, read_table
from ood_lab.report.columns import Column, build, numbers, pack
from ood_lab.report.html import page_template, save_page
from ood_lab.report.html_tables import Cell, Head, HtmlTable, flatten
from ood_lab.report.leaderboard import MEAN
from ood_lab.report.protocol import MISSING, percent


class Headline(NamedTuple):
    """One column: a metric of a split of a benchmark."""

    split: str
    metric: str
    words: str


#: By benchmark, as the manifest of a run tells it: what stands in the table.
HEADLINES: Mapping[str, Sequence[Headline]] = {
    "OODBench": (
        Headline("id", "accuracy", "ID Acc"),
        Headline("ood_s", "accuracy", "OOD-S Acc"),
        Headline("ood_h", "accuracy", "OOD-H Acc"),
    ),
    "ORIC": (
        Headline("oric", "macro_f1", "ORIC F1"),
        Headline("pope_random", "macro_f1", "POPE random F1"),
        Headline("pope_popular", "macro_f1", "POPE popular F1"),
        Headline("pope_adversarial", "macro_f1", "POPE adversarial F1"),
    ),
    "ODE": (
        Headline("pooled", "chair", "CHAIR"),
        Headline("pooled", "cover", "Cover"),
        Headline("pooled", "hal", "Hal"),
        Headline("pooled", "existence_f1", "existence F1"),
        Headline("fictional", "chair", "fictional CHAIR"),
    ),
}


_KEPT = ("split", "metric", "value", "ci_low", "ci_high")


@dataclass(frozen=True)
class BenchmarkRun:
    """A finished run of a benchmark.

    Attributes:
        path: its folder.
        benchmark: key of :data:`HEADLINES`.
        title: of the run.
        results: its results table.
    """

    path: Path
    benchmark: str
    title: str
    results: pd.DataFrame


@dataclass(frozen=True)
class AnswerBoard:
    """A rich renderable: ``console.print`` it. Made by :func:`answer_board`."""

    rows: pd.DataFrame

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """A table for every benchmark, a row per model."""
        for benchmark, part in self.rows.groupby("benchmark", sort=False):
            models = list(dict.fromkeys(part["model"]))
            columns = [Column(("model",), [Text(str(model), "bold") for model in models])]
            for words in dict.fromkeys(part["column"]):
                found = part[part["column"] == words].set_index("model")
                texts = [_text(found, model) for model in models]
                columns.append(Column((str(words),), numbers(texts)))
            for piece in pack(columns, options.max_width):
                yield Text()
                yield build(piece, f"{benchmark}, %")
        yield Text("95% intervals; POPE and ORIC: F1 is the mean of yes and no.", "dim")


def read_benchmarks(folders: Sequence[Path]) -> list[BenchmarkRun]:
    """The runs among these folders that asked a chat model.

    Raises:
        UserError: there is none.
    """
    found = []
    for folder in folders:
        manifest = read_json(folder / "manifest.json")
        if "questions" not in manifest or not (folder / "results.parquet").exists():
            continue
        benchmark = "ODE" if "ode" in manifest else "ORIC" if "oric" in manifest else "OODBench"
        title, results = str(manifest["title"]), read_table(folder / "results.parquet")
        found.append(BenchmarkRun(folder, benchmark, title, results))
    if not found:
        raise UserError(f"no chat model was asked in {', '.join(map(str, folders))}")
    return found


def answer_board(runs: Sequence[BenchmarkRun]) -> pd.DataFrame:
    """The headline metrics of all runs.

    Of two runs of one benchmark and model the later one counts.

    Returns:
        ``benchmark, model, column, split, metric, value, ci_low, ci_high, run``; shares.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for run in runs:
        whole = _whole(run.results)
        for headline in HEADLINES[run.benchmark]:
            part = whole[(whole["split"] == headline.split) & (whole["metric"] == headline.metric)]
            for row in part.head(1).to_dict("records"):
                model = str(row["model"])
                about = {"benchmark": run.benchmark, "model": model, "column": headline.words}
                values = {key: row[key] for key in _KEPT}
                rows[run.benchmark, model, headline.words] = about | values | {"run": str(run.path)}
    order = {name: place for place, name in enumerate(HEADLINES)}
    table = pd.DataFrame(list(rows.values()))
    return table.sort_values("benchmark", key=lambda names: names.map(order), kind="stable")


def detector_table(leaderboard: pd.DataFrame) -> pd.DataFrame:
    """AUROC and FPR95 of every detector on every OOD set, in percent, best mean AUROC first.

    Args:
        leaderboard: ``leaderboard.csv`` of ``task=compare``.
    """
    names = {"auroc": "AUROC", "fpr95": "FPR95"}
    rows = leaderboard[leaderboard["metric"].isin(names) & leaderboard["detector"].notna()]
    columns = rows["ood"].astype(str) + " " + rows["metric"].map(names)
    table = (
        rows.assign(column=columns, value=(100 * rows["value"]).round(1))
        .pivot_table("value", ["model", "detector"], "column", "mean", sort=False)
        .sort_values("mean AUROC", ascending=False, kind="stable")
    )
    means = [name for name in table if str(name).startswith(f"{MEAN} ")]
    return table[[*means, *(name for name in table if name not in means)]].reset_index()


def write_answer_board(
    board: pd.DataFrame,
    detectors: Mapping[Path, pd.DataFrame],
    runs: Sequence[BenchmarkRun],
    folder: Path,
    manifest: Mapping[str, Any],
) -> Path:
    """Writes ``benchmarks.html``: chat models first, detectors beside them.

    Args:
        board: see :func:`answer_board`.
        detectors: tables of detectors by the folder of their leaderboard, which is linked.
        runs: are linked.
        folder: to write to.
        manifest: ``title`` is read; all of it is shown.
    """
    tables = [_html(str(name), part) for name, part in board.groupby("benchmark", sort=False)]
    tables += [_plain(f"{_detectors(path)}, %", table) for path, table in detectors.items()]
    page = page_template("benchmarks.html.j2").render(
        title=manifest["title"],
        sentence="Chat models, and the detectors beside them",
        facts=[],
        warnings=[],
        tables=tables,
        pages=[
            *((run.title, page) for run in runs for page in _pages(run.path)),
            *((_detectors(path), page) for path in detectors for page in _pages(path)),
        ],
        thumbnails=[],
        manifest=flatten(dict(manifest)),
        downloads=["benchmarks.csv"],
    )
    return save_page(folder / "benchmarks.html", page)


def _whole(results: pd.DataFrame) -> pd.DataFrame:
    """Rows that are of no level, cell or distance, and of no single prompt."""
    fine = results[[c for c in (*LEVELS, "distance") if c in results]].notna().any(axis=1)
    if "prompt" in results:
        fine |= results["prompt"].astype(str) != "mean"
    return results[~fine]


def _text(found: pd.DataFrame, model: str) -> str:
    if model not in found.index:
        return MISSING
    value, low, high = _values(found, model)
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def _values(found: pd.DataFrame, row: str) -> tuple[float, ...]:
    """Value and interval of the row of that name."""
    return tuple(found.loc[[row], ["value", "ci_low", "ci_high"]].to_numpy(float)[0].tolist())


def _html(benchmark: str, part: pd.DataFrame) -> HtmlTable:
    columns = list(dict.fromkeys(part["column"]))
    cells = []
    for model, rows in part.groupby("model", sort=False):
        found = rows.set_index("column")
        cells.append([Cell(str(model)), *(_cell(found, column) for column in columns)])
    return HtmlTable(f"{benchmark}, %", [Head("model"), *map(Head, columns)], cells)


def _cell(found: pd.DataFrame, column: str) -> Cell:
    if column not in found.index:
        return Cell(MISSING)
    value, low, high = _values(found, column)
    return Cell(percent(value), value, f"{percent(low)} to {percent(high)}")


def _plain(caption: str, table: pd.DataFrame) -> HtmlTable:
    rows = [
        [Cell(f"{v:.1f}", v) if isinstance(v, float) else Cell(str(v)) for v in row]
        for row in table.itertuples(index=False)
    ]
    return HtmlTable(caption, [Head(str(name)) for name in table], rows)


def _detectors(leaderboard: Path) -> str:
    return f"Detectors: {leaderboard.parent.parent.name}"


def _pages(folder: Path) -> list[str]:
    names = ("oodbench.html", "oric.html", "ode.html", "leaderboard.html")
    return [(folder / name).absolute().as_uri() for name in names if (folder / name).exists()]

"""One table over the vision-language benchmarks of several chat models."""

from __future__ import annotations

import math
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
from ood_lab.report.answers_page import estimate_cell
from ood_lab.report.answers_table import why_missing
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
#: What the runs of one table have in common: they were asked the very same questions.
_ALIKE = ["benchmark", "data", "asked"]


@dataclass(frozen=True)
class BenchmarkRun:
    """A finished run of a benchmark.

    Attributes:
        path: its folder.
        benchmark: key of :data:`HEADLINES`.
        title: of the run.
        results: its results table.
        data: name of what was asked about.
        asked: first letters of the sha256 of its questions.
        questions: how many there are.
        images: how many images they are about; None where the run does not say.
    """

    path: Path
    benchmark: str
    title: str
    results: pd.DataFrame
    data: str
    asked: str
    questions: int
    images: int | None


@dataclass(frozen=True)
class AnswerBoard:
    """A rich renderable: ``console.print`` it. Made by :func:`answer_board`."""

    rows: pd.DataFrame

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """A table for every set of questions, a row per run."""
        for title, part in _tables(self.rows):
            runs = dict(part.groupby("run", sort=False)["label"].first())
            columns = [
                Column(("model",), [Text(label, "bold") for label in runs.values()]),
                Column(("data",), [Text(str(part["data"].iloc[0]))] * len(runs)),
                Column(("questions",), numbers([f"{part['questions'].iloc[0]:,}"] * len(runs))),
            ]
            for words in dict.fromkeys(part["column"]):
                found = part[part["column"] == words].set_index("run")
                texts = [_text(found, run) for run in runs]
                columns.append(Column((str(words),), numbers(texts)))
            for piece in pack(columns, options.max_width):
                yield Text()
                yield build(piece, title)
        for reason, rows in self.rows[self.rows["reason"] != ""].groupby("reason", sort=False):
            places = ", ".join(dict.fromkeys(rows["label"] + " " + rows["column"]))
            yield Text(f"{MISSING} of {places}: {reason}.", "yellow")
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
        asked = manifest["questions"]
        found.append(
            BenchmarkRun(
                folder,
                benchmark,
                str(manifest["title"]),
                read_table(folder / "results.parquet"),
                data=_data_of(manifest),
                asked=str(asked.get("sha256", ""))[:10],
                questions=int(asked["n"]),
                images=asked.get("images"),
            )
        )
    if not found:
        raise UserError(f"no chat model was asked in {', '.join(map(str, folders))}")
    return found


def answer_board(runs: Sequence[BenchmarkRun]) -> pd.DataFrame:
    """The headline metrics of all runs, those of one set of questions together.

    Returns:
        ``benchmark, data, asked, questions, images, model, label, column, split, metric, value,
        ci_low, ci_high, n, reason, run``; shares. ``n`` is the number of questions that a value
        rests on, ``reason`` why a value is missing, and ``label`` the model, with the folder of
        the run where a table has several of its runs.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        whole = _whole(run.results)
        about = {
            "benchmark": run.benchmark,
            "data": run.data,
            "asked": run.asked,
            "questions": run.questions,
            "images": run.images,
        }
        for headline in HEADLINES[run.benchmark]:
            part = whole[(whole["split"] == headline.split) & (whole["metric"] == headline.metric)]
            for row in part.head(1).to_dict("records"):
                rows.append(
                    {
                        **about,
                        "model": str(row["model"]),
                        "column": headline.words,
                        **{key: row[key] for key in _KEPT},
                        "n": row["n_asked"],
                        "reason": why_missing(row) if math.isnan(row["value"]) else "",
                        "run": str(run.path),
                    }
                )
    table = pd.DataFrame(rows)
    several = table.groupby([*_ALIKE, "model"])["run"].transform("nunique") > 1
    folders = table["run"].map(lambda run: "/".join(Path(run).parts[-2:]))
    table.insert(6, "label", table["model"].where(~several, table["model"] + " (" + folders + ")"))
    order = {name: place for place, name in enumerate(HEADLINES)}
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
    tables = [_html(title, part) for title, part in _tables(board)]
    tables += [_plain(f"{_detectors(path)}, %", table) for path, table in detectors.items()]
    page = page_template("benchmarks.html.j2").render(
        title=manifest["title"],
        sentence="Chat models, and the detectors beside them",
        facts=[],
        warnings=[],
        tables=tables,
        intervals=any(table.has_intervals for table in tables),
        pages=[
            *((run.title, page) for run in runs for page in _pages(run.path)),
            *((_detectors(path), page) for path in detectors for page in _pages(path)),
        ],
        thumbnails=[],
        manifest=flatten(dict(manifest)),
        downloads=["benchmarks.csv"],
    )
    return save_page(folder / "benchmarks.html", page)


def _data_of(manifest: Mapping[str, Any]) -> str:
    """What the questions of a run are about, in a word."""
    ode = (manifest.get("ode") or {}).get("concepts") or {}
    oric = manifest.get("oric") or {}
    name = (manifest.get("annotations") or {}).get("name") or ode.get("name") or oric.get("bench")
    return str(name or manifest["questions"].get("file", MISSING))


def _tables(board: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each set of questions, with the title of their table."""
    parts = [part for _, part in board.groupby(_ALIKE, sort=False)]
    titles = []
    for part in parts:
        first = part.iloc[0]
        images = "" if pd.isna(first["images"]) else f" about {first['images']:,.0f} images"
        about = f"{first['questions']:,} questions{images}"
        titles.append(f"{first['benchmark']} on {first['data']}, {about}, %")
    named = [
        title if titles.count(title) == 1 else f"{title} (questions {part['asked'].iloc[0]})"
        for title, part in zip(titles, parts, strict=True)
    ]
    return list(zip(named, parts, strict=True))


def _whole(results: pd.DataFrame) -> pd.DataFrame:
    """Rows that are of no level, cell or distance, and of no single prompt."""
    fine = results[[c for c in (*LEVELS, "distance") if c in results]].notna().any(axis=1)
    if "prompt" in results:
        fine |= results["prompt"].astype(str) != "mean"
    return results[~fine]


def _text(found: pd.DataFrame, run: str) -> str:
    if run not in found.index:
        return MISSING
    value, low, high = _values(found, run)
    if math.isnan(value) or math.isnan(low):
        return MISSING if math.isnan(value) else percent(value)
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def _values(found: pd.DataFrame, row: str) -> tuple[float, ...]:
    """Value and interval of the row of that name."""
    return tuple(found.loc[[row], ["value", "ci_low", "ci_high"]].to_numpy(float)[0].tolist())


def _html(title: str, part: pd.DataFrame) -> HtmlTable:
    columns = list(dict.fromkeys(part["column"]))
    cells = []
    for _, rows in part.groupby("run", sort=False):
        found, first = rows.set_index("column"), rows.iloc[0]
        start = [Cell(first["label"], first["label"]), Cell(first["data"], first["data"])]
        start.append(Cell(f"{first['questions']:,}", int(first["questions"])))
        cells.append([*start, *(_cell(found, column) for column in columns)])
    heads = [Head("model"), Head("data"), Head("questions"), *map(Head, columns)]
    return HtmlTable(title, heads, cells)


def _cell(found: pd.DataFrame, column: str) -> Cell:
    if column not in found.index:
        return Cell(MISSING)
    reason = str(found.loc[column, "reason"])
    return Cell(f"{MISSING}: {reason}") if reason else estimate_cell(found.loc[column].to_dict())


def _plain(caption: str, table: pd.DataFrame) -> HtmlTable:
    rows = [[_plain_cell(value) for value in row] for row in table.itertuples(index=False)]
    return HtmlTable(caption, [Head(str(name)) for name in table], rows)


def _plain_cell(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell(MISSING) if math.isnan(value) else Cell(f"{value:.1f}", value)
    return Cell(str(value), str(value))


def _detectors(leaderboard: Path) -> str:
    return f"Detectors: {leaderboard.parent.parent.name}"


def _pages(folder: Path) -> list[str]:
    names = ("oodbench.html", "oric.html", "ode.html", "leaderboard.html")
    return [(folder / name).absolute().as_uri() for name in names if (folder / name).exists()]

"""What the splits are made of: categories, fields, places and data sets of their pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS, TOGETHER, UNCUT
from ood_lab.lvlm.pages.benchmark_page import captioned
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.layout import COLOURS, SOFT, panels, wrapped
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.schema.results import Names
from ood_lab.schema.run_record import RunRecord

#: Column of the answers, and what it is called.
BY = {"dataset": "data set"} | {item: item for item in ("domain", "place", "field", "category")}
COLUMNS = ["dataset", "split", "by", "value", "field", "pairs", "share"]
#: Rows of a figure of categories or places.
_ROWS = 40


def with_uncut(
    judgements: pd.DataFrame, table_of: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """A table over splits with the uncut splits, where there are answers about their rest.

    All other rows are those of the cut benchmark. The rows of an uncut split are those of its split
    in the table of the uncut benchmark, so that no row counts a question twice.

    Args:
        judgements: answers with ``split``.
        table_of: from such answers to a table with ``split``.
    """
    cut = table_of(without_rest(judgements))
    split = judgements["split"]
    parts = {name: parts for name, parts in UNCUT.items() if (split == parts[1]).any()}
    if not parts:
        return cut
    joined = judgements.assign(split=split.replace({rest: of for of, rest in parts.values()}))
    every = table_of(joined)
    uncut = [every[every["split"] == of].assign(split=name) for name, (of, _) in parts.items()]
    last = cut["split"] == TOGETHER
    return pd.concat([cut[~last], *uncut, cut[last]], ignore_index=True)


def without_rest(judgements: pd.DataFrame) -> pd.DataFrame:
    """The answers about the cut splits."""
    return judgements[~judgements["split"].isin([rest for _, rest in UNCUT.values()])]


def distribution_of(judgements: pd.DataFrame) -> pd.DataFrame:
    """How many pairs of every split are of which category, field, place, domain and data set.

    Args:
        judgements: answers with ``image`` and ``category``; see :func:`with_fields`.

    Returns:
        ``dataset`` ("" where there is but one, and of rows by data set), ``split``, ``by`` (a key
        of :data:`BY`), ``value``, ``field`` of a category, if known, ``pairs``, and
        ``share`` of the pairs of that split and data set; most frequent first.
    """
    keys = [name for name in ("dataset", "split", "image", "category") if name in judgements]
    pairs = judgements[judgements["task"] == YES_NO].drop_duplicates(keys)
    results = list(_counts(pairs, ""))
    if "dataset" in pairs:
        parts = pairs.groupby("dataset", sort=False)
        results = [f for f in results if f["by"].isin(["dataset", "domain"]).all()]
        own = pairs.columns.difference(["dataset", "domain"])
        results += [f for name, part in parts for f in _counts(part[own], str(name))]
    table = pd.concat(results, ignore_index=True) if results else pd.DataFrame()
    return table.reindex(columns=COLUMNS)


def _counts(pairs: pd.DataFrame, dataset: str) -> Iterator[pd.DataFrame]:
    for by in BY:
        if by not in pairs or pairs[by].isna().all():
            continue
        for split in SPLITS:
            values = pairs.loc[pairs["split"] == split, by].dropna().astype(str)
            table = values.value_counts().rename_axis("value").reset_index(name="pairs")
            if by == "category" and "field" in pairs:
                fields = pairs.drop_duplicates("category").set_index("category")["field"]
                table["field"] = table["value"].map(fields)
            yield table.assign(
                dataset=dataset, split=split, by=by, share=table["pairs"] / max(len(values), 1)
            )


def distribution_figures(table: pd.DataFrame, splits: Names, title: str) -> Iterator[PlannedFigure]:
    """Of every data set its categories, fields and places, and the data sets.

    The uncut splits have figures of their own.

    Args:
        table: see :func:`distribution_of`.
        splits: split and what it is called.
        title: of the run.
    """
    kinds = table["split"].map(dict.fromkeys(UNCUT, "uncut")).fillna("")
    for (dataset, by, kind), rows in table.groupby(["dataset", "by", kinds], sort=False):
        if rows["value"].nunique() < 2:
            continue
        words = BY[str(by)]
        plural = {"category": "categories"}.get(str(by), f"{words}s")
        shown = {split: name for split, name in splits.items() if (rows["split"] == split).any()}
        name = "_".join(filter(None, ("of", plural.replace(" ", "_"), str(dataset), str(kind))))
        of = f"{plural.capitalize()} of the {f'{kind} splits'.strip()}"
        of = f"{of}, {dataset}" if dataset else of
        draw = partial(pair_counts, rows, shown, f"{title}.", plural)
        yield captioned(name, draw, "distribution", of=of, by=words)


def pair_counts(rows: pd.DataFrame, splits: Names, footer: str, plural: str) -> Figure:
    """Pairs of each value, a panel per split; the most frequent of all splits first.

    Categories with a known field are grouped by field.

    Args:
        rows: ``split, value, field, pairs``.
        splits: split and what it is called.
        footer: text below.
        plural: what the values are.
    """
    order = rows.groupby("value", sort=False)["pairs"].sum().sort_values(ascending=False)
    names = list(order.index[:_ROWS])
    fields = rows.drop_duplicates("value").set_index("value")["field"].fillna("")
    sums = order.groupby(fields).sum()
    names.sort(key=lambda name: (-sums[fields[name]], fields[name]))
    firsts = {fields[name]: row for row, name in reversed([*enumerate(names)]) if fields[name]}
    labels = [wrapped(name, 24) for name in names]
    for field, row in firsts.items():
        labels[row] = f"{field}:  {labels[row]}"
    counts = rows.pivot_table(index="value", columns="split", values="pairs", fill_value=0)
    if left := len(order) - len(names):
        footer += f" {left:,} further {plural} have {int(order.iloc[_ROWS:].sum()):,} pairs."
    titles = [f"{words}, {int(counts[split].sum()):,} pairs" for split, words in splits.items()]
    figure, grid = panels(
        titles, footer, columns=len(titles), height=0.145 * len(names) + 0.5, extra=0.3, sharey=True
    )
    most = float(counts.loc[names].to_numpy().max())
    for place, (axes, split) in enumerate(zip(grid, splits, strict=True)):
        values = [int(counts.loc[name, split]) for name in names]
        # The numbers stand behind all bars: what bars leave free depends on their length.
        colour = COLOURS[place % len(COLOURS)]
        bars = [Bar(value, text=f"{value:,}", colour=colour) for value in values]
        draw_bars(axes, bars, text_at=1.03 * most)
        name_rows(axes, labels)
        for row in firsts.values():
            axes.axhline(row - 0.5, color=SOFT, lw=0.4)
        axes.set_xlim(0, 1.2 * most)
    return figure


def with_fields(judgements: pd.DataFrame, record: RunRecord) -> pd.DataFrame:
    """Answers with the ``field`` of their category and the ``domain`` of their images, if known.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        record: of the run, whose ``annotations`` or ``datasets`` name them.
    """
    noted = {name: about.get("annotations", {}) for name, about in record.datasets.items()}
    noted = noted or {"": record.annotations}
    fields = {(name, of[0]): of[1] for name in noted for of in noted[name].get("fields", ())}
    names = judgements.get("dataset", pd.Series("", judgements.index))
    pairs = zip(names, judgements.get("category", names), strict=True)
    field = pd.Series([fields.get(pair) for pair in pairs], judgements.index, dtype=object)
    domain = names.map({name: about.get("domain") or None for name, about in noted.items()})
    return judgements.assign(field=field, domain=domain)

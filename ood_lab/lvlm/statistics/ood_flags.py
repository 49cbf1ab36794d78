"""Each vision-language model as a detector of OOD samples.

OODBench's figure 6 (arXiv 2602.18094). A sample is an image with a category. A model flags it where
its own division does, as an image-text model
(:class:`~ood_lab.lvlm.image_text.chat_model.ChatScores`), or where it answers any of the two
questions wrongly. The paper does not say how its own numbers are counted, and those of its tables
do not give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.common.english import listed
from ood_lab.common.grouping import distinct
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.pages.benchmark_page import captioned
from ood_lab.lvlm.scoring.scored_results import columns_of, exact_at_ends
from ood_lab.lvlm.scoring.yes_no_scores import COUNTS
from ood_lab.metrics.resampling.clustered_bootstrap import clustered_mean
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import add_legend, panels, short_names
from ood_lab.report.figures.lines import draw_lines, lines_of
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.prose import spread_of
from ood_lab.schema.arrays import Bools, Ints
from ood_lab.schema.results import PART, Kind, Tables

#: Column that says what flags a sample: a wrong answer, or the model's own division.
BY = "flagged_by"
ANSWERS, DIVISION = "wrong answers", "own division"
KIND = Kind("ood_flags", "image", ("split", PART, BY, "n_models"))
_WORDS = {ANSWERS: "what it gets wrong", DIVISION: "its own division"}
#: OOD samples of all splits together.
OOD = "ood"
#: Orders in which models are added: as they were named; each next one adds the most.
GIVEN, BEST = "given order", "best order"


def flags_of_models(
    counts: Mapping[str, Ints],
    divided: Mapping[str, Bools],
    pairs: pd.DataFrame,
    resampling: Resampling,
) -> pd.DataFrame | None:
    """What each model flags by wrong answers, and by its own division: see :func:`flag_results`.

    Args:
        counts: model → ``[P, 6]`` of its answers to the questions of a pair.
        divided: model → ``[P]``, which pairs its own division flags, if there is one.
        pairs: see :func:`ood_lab.lvlm.scoring.answer_differences.common_pairs`.
        resampling: of the bootstrap.

    Returns:
        None of a single model without a division.
    """
    if len(counts) < 2 and not divided:
        return None
    missed = [place for place, name in enumerate(COUNTS) if name not in ("tp", "tn")]
    flags = {name: item[:, missed].sum(axis=-1) > 0 for name, item in counts.items()}
    methods = {ANSWERS: flags} | ({DIVISION: divided} if divided else {})
    results = [flag_results(f, pairs, by=by, resampling=resampling) for by, f in methods.items()]
    return pd.concat(results, ignore_index=True)


def flag_results(
    flags: Mapping[str, Bools],
    pairs: pd.DataFrame,
    *,
    by: str,
    resampling: Resampling,
) -> pd.DataFrame:
    """What each model flags, and what the first 1, 2, ... of M models flag together.

    ``flagged = |S ∩ E_m| / |S|`` of the samples ``S`` of a split and of what model ``m`` flags,
    ``E_m``; of ID it is the share of false alarms. ``flagged_union`` is that of
    ``E_1 ∪ ... ∪ E_k`` on all OOD samples: in the given order, and in the best one, in which each
    next model adds the most. Intervals resample images.

    Args:
        flags: model → ``[P]``, which samples it flags.
        pairs: the P samples: ``split`` (``id``, and the OOD ones) and ``image``.
        by: what flags, :data:`ANSWERS` or :data:`DIVISION`.
        resampling: of the bootstrap.

    Returns:
        A table of :data:`KIND`; ``part`` is the order, ``n_models`` k, ``model`` the one that was
        added last.
    """
    every, names = np.stack([*flags.values()], axis=1), [*flags]
    clusters, splits = pairs["image"].to_numpy(), pairs["split"].to_numpy()
    outside = splits != "id"
    sets = {name: splits == name for name in dict.fromkeys(splits)}
    rows = []

    def add(model: str, values: NDArray[Any], inside: Bools, metric: str, **keys: Any) -> None:
        results = clustered_mean(values.astype(float), clusters[inside], resampling=resampling)
        item = exact_at_ends(metric, results.estimates()["mean"], results.n)
        known = {"metric": metric, **columns_of(item), "n": results.n, BY: by, **keys}
        rows.append({"model": model, **known})

    for split, inside in {OOD: outside, **sets}.items():
        for m, name in enumerate(names):
            add(name, every[inside, m], inside, "flagged", split=split, n_models=1)
    flagged = every[outside]
    for order, chosen in ((GIVEN, [*range(len(names))]), (BEST, _best_order(flagged))):
        unions = np.logical_or.accumulate(flagged[:, chosen], axis=1)
        for k, m in enumerate(chosen):
            keys = {"split": OOD, PART: order, "n_models": k + 1}
            add(names[m], unions[:, k], outside, "flagged_union", **keys)
    table = KIND.table(rows, model=None, seed=resampling.seed)
    return table.assign(model=[row["model"] for row in rows])


def _best_order(flagged: Bools) -> list[int]:
    """Positions of the models; each next one flags the most of what is left."""
    left, order = np.ones(len(flagged), bool), list[int]()
    while len(order) < flagged.shape[1]:
        gains = (flagged & left[:, None]).sum(axis=0)
        gains[order] = -1
        order.append(int(gains.argmax()))
        left &= ~flagged[:, order[-1]]
    return order


def flag_tables(results: pd.DataFrame) -> Tables:
    """``flags``: model × split; ``flags_union``: what k models flag together, by order."""
    single = results[results["metric"] == "flagged"]
    flags = single.pivot(index=[BY, "model"], columns="split", values="value")
    order = pd.MultiIndex.from_frame(single[[BY, "model"]].drop_duplicates())
    flags = flags.loc[order, distinct(single["split"])]
    union = results[results["metric"] == "flagged_union"]
    columns = {BY: BY, PART: "order", "n_models": "models", "model": "added", "value": "union"}
    table = union.rename(columns=columns)[[*columns.values(), "ci_low", "ci_high"]]
    gain = table.groupby([BY, "order"], sort=False)["union"].diff().fillna(table["union"])
    return {
        "flags": flags.rename_axis(columns=None).reset_index(),
        "flags_union": table.assign(gain=gain).reset_index(drop=True),
    }


def flag_sentences(results: pd.DataFrame) -> Iterator[str]:
    """What each model flags, and what models flag together in the best order."""
    for by, rows in results.groupby(BY, sort=False):
        single = rows[rows["metric"] == "flagged"]
        ood, inside = (single.loc[single["split"] == split, "value"] for split in (OOD, "id"))
        union = rows[(rows["metric"] == "flagged_union") & (rows[PART] == BEST)]
        added = zip(union["model"], union["value"], strict=True)
        together = listed([f"{percent(v)}% with {name}" for name, v in added])
        said = f"; together, in the best order, {together}" if len(union) > 1 else ""
        yield (
            f"Taken as a detector, by {_WORDS[str(by)]}, a model flags {spread_of(ood, 1)}% of the "
            f"OOD samples and {spread_of(inside, 1)}% of ID{said}."
        )


def flag_figures(results: pd.DataFrame) -> Iterator[PlannedFigure]:
    """What each model flags of OOD and of ID, and what models flag together."""
    single = results[(results["metric"] == "flagged") & results["split"].isin([OOD, "id"])]
    models = distinct(single["model"])
    labels = {OOD: "all OOD", "id": "ID (false alarms)"}
    draw = partial(
        bar_panels,
        single,
        {by: f"flagged by {_WORDS[by]}" for by in single[BY].unique()},
        dict(zip(models, short_names(models), strict=True)),
        "",
        panel=BY,
        row="model",
        series=("split", labels),
    )
    yield captioned("flags", draw)
    union = results[results["metric"] == "flagged_union"]
    yield captioned("flags_union", partial(_union_lines, union))


def _union_lines(union: pd.DataFrame) -> Figure:
    orders = {item: item for item in (GIVEN, BEST)}
    axis = ("number of models", "flagged, % of OOD")
    groups = list(union.groupby(BY, sort=False))
    titles = [f"by {_WORDS[str(by)]}" for by, _ in groups]
    figure, grid = panels(titles, "", height=2.4, extra=0.5, width=4.6, labels=axis)
    for axes, (_, rows) in zip(grid, groups, strict=True):
        draw_lines(axes, lines_of(rows, "n_models", PART, orders))
        axes.set(xticks=range(1, int(rows["n_models"].max()) + 1), ylim=(0, 103))
    add_legend(figure, grid)
    return figure

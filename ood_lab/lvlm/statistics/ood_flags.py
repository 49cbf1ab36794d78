"""Each chat model as its own detector of OOD samples: it flags what it gets wrong.

OODBench's figure 6 (arXiv 2602.18094). A sample is an image with a category, of which two questions
are asked; a model flags it where it answers any of them wrongly, asked once. The paper does not say
how its own numbers are counted, and those of its tables do not give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.common.english import listed
from ood_lab.lvlm.scoring.scored_results import exact_at_ends
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, share
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.layout import add_legend, panels, short_names, wrapped
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.figures.style import COLOURS, style
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.sentences import spread_of
from ood_lab.schema.results import PART, Kind

Flags = NDArray[np.bool_]
KIND = Kind("ood_flags", "image", ("split", PART, "n_models"))
#: OOD samples of all splits together.
OOD = "ood"
#: Orders in which models are added: as they were named; each next one adds the most; any.
GIVEN, BEST, ANY = "given order", "best order", "mean of all orders"


def flag_results(
    flags: Mapping[str, Flags],
    splits: Sequence[str],
    images: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """What each model flags, and what the first 1, 2, ... of M models flag together.

    ``flagged = |S ∩ E_m| / |S|`` of the samples ``S`` of a split and of what model ``m`` gets
    wrong, ``E_m``; of ID it is the share of false alarms. ``flagged_union`` is that of
    ``E_1 ∪ ... ∪ E_k`` on all OOD samples: in the given order; in the best one, in which each next
    model adds the most; and the mean of all orders, ``1 - mean over samples of
    C(M - m, k) / C(M, k)``, where ``m`` models flag a sample. Intervals resample images.

    Args:
        flags: model → ``[P]``, which samples it flags.
        splits: ``[P]``; ``id``, and the OOD ones.
        images: ``[P]``.
        draws: bootstrap resamples.
        seed: of the draws.

    Returns:
        A table of :data:`KIND`; ``part`` is the order, ``n_models`` k, ``model`` the one that was
        added last.
    """
    table = pd.DataFrame({"split": list(splits), "image": list(images)})
    every, names, options = np.stack([*flags.values()], axis=1), [*flags], (draws, seed)
    outside = (table["split"] != "id").to_numpy()
    sets = {name: (table["split"] == name).to_numpy() for name in dict.fromkeys(table["split"])}
    rows = []
    for split, inside in {OOD: outside, **sets}.items():
        columns = {name: every[inside, m] for m, name in enumerate(names)}
        for name, row in _shares(columns, table["image"][inside], *options):
            rows.append((name, {"metric": "flagged", "split": split, "n_models": 1, **row}))
    flagged, of = every[outside], table["image"][outside]
    for order, chosen in ((GIVEN, [*range(len(names))]), (BEST, _best_order(flagged))):
        unions = np.logical_or.accumulate(flagged[:, chosen], axis=1)
        columns = {names[m]: unions[:, k] for k, m in enumerate(chosen)}
        for k, (name, row) in enumerate(_shares(columns, of, *options), 1):
            rows.append((name, {**_union(order, k), **row}))
    by, total = flagged.sum(axis=1), len(names)
    for k in range(1, total + 1):
        missed = np.array([comb(total - m, k) / comb(total, k) for m in range(total + 1)])[by]
        (row,) = (row for _, row in _shares({"": 1 - missed}, of, *options))
        rows.append(("", {**_union(ANY, k), **row}))
    parts = [KIND.table([row], model=name or "any", seed=seed) for name, row in rows]
    return pd.concat(parts, ignore_index=True)


def _union(order: str, k: int) -> dict[str, Any]:
    return {"metric": "flagged_union", "split": OOD, PART: order, "n_models": k}


def _shares(
    columns: Mapping[str, NDArray[Any]], images: pd.Series, draws: int, seed: int
) -> list[tuple[str, dict[str, Any]]]:
    """The mean of each column, with its interval."""
    counts = np.stack([*columns.values(), np.ones(len(images))], axis=1).astype(float)
    found = clustered(counts, partial(_means, [*columns]), images, draws=draws, seed=seed)
    exact = {m: exact_at_ends(m, each, found.n) for m, each in found.estimates().items()}
    return [
        (name, {"value": each.value, "ci_low": each.low, "ci_high": each.high, "n": found.n})
        for name, each in exact.items()
    ]


def _means(names: Sequence[str], counts: NDArray[Any]) -> dict[str, Floats]:
    return {name: share(counts[..., k], counts[..., -1], np.nan) for k, name in enumerate(names)}


def _best_order(flagged: Flags) -> list[int]:
    """Positions of the models; each next one flags the most of what is left."""
    left, order = np.ones(len(flagged), bool), list[int]()
    while len(order) < flagged.shape[1]:
        gains = (flagged & left[:, None]).sum(axis=0)
        gains[order] = -1
        order.append(int(gains.argmax()))
        left &= ~flagged[:, order[-1]]
    return order


def flag_tables(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``flags``: model × split; ``flags_union``: what k models flag together, by order."""
    alone = results[results["metric"] == "flagged"]
    flags = alone.pivot(index="model", columns="split", values="value")
    flags = flags.loc[list(dict.fromkeys(alone["model"])), list(dict.fromkeys(alone["split"]))]
    union = results[results["metric"] == "flagged_union"]
    columns = {PART: "order", "n_models": "models", "model": "added", "value": "union"}
    table = union.rename(columns=columns)[[*columns.values(), "ci_low", "ci_high"]]
    gain = table.groupby("order", sort=False)["union"].diff().fillna(table["union"])
    return {
        "flags": flags.rename_axis(columns=None).reset_index(),
        "flags_union": table.assign(gain=gain).reset_index(drop=True),
    }


def flag_sentence(results: pd.DataFrame) -> str:
    """What the models flag alone and together, with the best order."""
    alone = results[results["metric"] == "flagged"]
    ood, inside = (alone.loc[alone["split"] == split, "value"] for split in (OOD, "id"))
    union = results[(results["metric"] == "flagged_union") & (results[PART] == BEST)]
    shares = listed(
        [
            f"{percent(v)}% with {name}"
            for name, v in zip(union["model"], union["value"], strict=True)
        ]
    )
    return (
        f"Taken as detectors, by what it gets wrong, a model flags {spread_of(ood, 1)}% of the OOD "
        f"samples and {spread_of(inside, 1)}% of ID; together, in the best order, {shares}."
    )


def planned_flags(results: pd.DataFrame, names: Mapping[str, str]) -> PlannedFigure:
    """The figure; see :func:`flag_figure`."""
    return PlannedFigure(
        "flags",
        "Chat models as detectors of OOD samples",
        "What each model gets wrong of OOD and of ID samples, and what models get wrong together, "
        "with 95% intervals.",
        partial(flag_figure, results, names),
    )


def flag_figure(results: pd.DataFrame, names: Mapping[str, str]) -> Figure:
    """Bars of what each model flags of OOD and of ID, and lines over the number of models.

    Args:
        results: see :func:`flag_results`.
        names: split → what it is called.
    """
    alone = results[(results["metric"] == "flagged") & results["split"].isin([OOD, "id"])]
    models = list(dict.fromkeys(alone["model"]))
    n = alone["n"].iloc[0]
    figure, (first, second) = panels(
        ["flagged by each model, %", "flagged by so many models together, % of OOD"],
        f"A model flags the samples that it answers wrongly; {n:,} images with OOD samples.",
        columns=2,
        height=max(1.8, 0.4 * len(models) + 0.6),
        extra=0.6,
    )
    for place, split in enumerate((OOD, "id")):
        rows = alone[alone["split"] == split].set_index("model").loc[models]
        bars = [
            Bar(100 * v, 100 * low, 100 * high, text=f"{100 * v:.1f}", colour=COLOURS[place])
            for v, low, high in zip(rows["value"], rows["ci_low"], rows["ci_high"], strict=True)
        ]
        label = f"{names.get(split, 'all OOD')}" + " (false alarms)" * (split == "id")
        draw_bars(first, bars, label=label, place=place, of=2)
    name_rows(first, [wrapped(name, 18) for name in short_names(models)])
    first.set_xlim(0, 122)
    first.set_xticks([0, 50, 100])
    union = results[results["metric"] == "flagged_union"]
    lines = []
    for place, (order, rows) in enumerate(union.groupby(PART, sort=False)):
        y, low, high = (100 * rows[key].to_numpy(float) for key in ("value", "ci_low", "ci_high"))
        x = rows["n_models"].to_numpy(float)
        lines.append(Line(x, y, style(place + 2), str(order), low, high))
    draw_lines(second, lines)
    second.set_xticks(range(1, len(models) + 1))
    second.set_ylim(0, 103)
    add_legend(figure, [first, second])
    return figure

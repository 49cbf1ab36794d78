"""What is made up where: which hallucinations go with which concepts, and groups of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from annotated_types import Ge
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from ood_lab.report.figures.heatmap import draw_cells, shades
from ood_lab.report.figures.layout import COLOURS, panels

#: Concepts of a group that are named in tables, and rows and columns of a figure.
_TOP, _SHOWN = 5, 30


@dataclass(frozen=True)
class Tendencies:
    """Groups of true concepts by what is hallucinated with them.

    Attributes:
        matrix: ``N[f, h]``: captions of images that show f and name the hallucinated h.
        groups: one row per concept f: ``concept, group, hallucinated`` (row sum), ``captions``,
            ``rate`` (captions with a hallucination / captions).
        summary: one row per group: ``group, concepts, top_concepts, top_hallucinations,
            hallucinated, rate``.
        silhouette: of the groups, from -1 to 1; NaN where there is only one.
    """

    matrix: pd.DataFrame
    groups: pd.DataFrame
    summary: pd.DataFrame
    silhouette: float


@dataclass(frozen=True)
class Clustering:
    """How concepts are grouped: by k-means on rows that sum to 1.

    Args:
        groups: number of groups; fewer where there are fewer different rows.
    """

    groups: Annotated[int, Ge(2)] = 4

    def tendencies(self, captions: pd.DataFrame, seed: int = 0) -> Tendencies | None:
        """Matrix, groups and their summary; None where nothing is hallucinated.

        Args:
            captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
            seed: of k-means.
        """
        matrix = hallucination_matrix(captions)
        if not len(matrix):
            return None
        shares = matrix.div(matrix.sum(axis=1), axis=0).to_numpy()
        labels = self._labels(shares, seed)
        shown = _per_concept(captions).loc[matrix.index]
        groups = pd.DataFrame(
            {
                "concept": matrix.index,
                "group": labels,
                "hallucinated": matrix.sum(axis=1).to_numpy(),
                "captions": shown["size"].to_numpy(),
                "rate": shown["mean"].to_numpy(),
            }
        )
        count = len(set(labels))
        spread = 1 < count < len(labels)
        score = float(silhouette_score(shares, labels)) if spread else float("nan")
        return Tendencies(matrix, groups, _summary(matrix, groups), score)

    def _labels(self, shares: np.ndarray, seed: int) -> np.ndarray:
        count = min(self.groups, len(np.unique(shares.round(9), axis=0)))
        if count < 2:
            return np.zeros(len(shares), int)
        labels = KMeans(count, n_init=10, random_state=seed).fit_predict(shares)
        # Numbered by size, so that the same groups have the same numbers.
        order = np.argsort(-np.bincount(labels), kind="stable")
        return np.argsort(order)[labels]


def hallucination_matrix(captions: pd.DataFrame) -> pd.DataFrame:
    """``N[f, h]``: captions of images that show f and name the hallucinated h.

    Rows without any are skipped; names are in alphabetical order.
    """
    words = captions[["truth_words", "flagged_nouns"]].map(set).map(list)
    words = words.set_axis(["concept", "hallucination"], axis=1)
    pairs = words.explode("concept").explode("hallucination", ignore_index=True).dropna()
    return pd.crosstab(pairs["concept"], pairs["hallucination"])


def _per_concept(captions: pd.DataFrame) -> pd.DataFrame:
    """``size``: captions of images that show a concept; ``mean``: share with a hallucination."""
    shown = captions["truth_words"].map(set).map(list)
    wrong = captions["flagged_nouns"].map(len) > 0
    rows = pd.DataFrame({"concept": shown, "wrong": wrong}).explode("concept")
    return rows.groupby("concept")["wrong"].agg(["size", "mean"])


def _summary(matrix: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for number, part in groups.groupby("group"):
        named = matrix.loc[part["concept"]].sum().sort_values(ascending=False, kind="stable")
        top = part.sort_values("hallucinated", ascending=False, kind="stable")["concept"]
        rows.append(
            {
                "group": int(str(number)),
                "concepts": len(part),
                "top_concepts": ", ".join(top.head(_TOP)),
                "top_hallucinations": ", ".join(named[named > 0].index[:_TOP]),
                "hallucinated": int(part["hallucinated"].sum()),
                "rate": float((part["rate"] * part["captions"]).sum() / part["captions"].sum()),
            }
        )
    return pd.DataFrame(rows)


def tendency_matrix(matrix: pd.DataFrame, groups: pd.DataFrame, footer: str) -> Figure:
    """Concepts by rows, ordered by group, hallucinations by columns; shares of a row's sum.

    Args:
        matrix: ``N[f, h]``; the 30 rows and columns with most are shown.
        groups: ``concept, group, hallucinated``.
        footer: text below.
    """
    order = groups.nlargest(_SHOWN, "hallucinated", keep="first")
    order = order.sort_values(["group", "hallucinated"], ascending=[True, False], kind="stable")
    columns = matrix.sum().nlargest(_SHOWN).index
    rows = matrix.loc[order["concept"]]
    shares = 100 * rows[columns].div(rows.sum(axis=1), axis=0).to_numpy(float)
    height = 0.16 * len(rows) + 1.2
    labels = ("hallucinated", "shown (colour: group)")
    figure, (axes,) = panels([""], footer, height=height, extra=0.4, labels=labels)
    colours = shades(0, float(np.nanmax(shares)), "Blues")
    draw_cells(axes, colours.of(shares), ([*map(str, rows.index)], [*map(str, columns)]))
    axes.tick_params(axis="x", rotation=90, labelsize=6)
    axes.tick_params(axis="y", labelsize=6)
    for tick, group in zip(axes.get_yticklabels(), order["group"], strict=True):
        tick.set_color(COLOURS[int(group) % len(COLOURS)])
    colours.bar(figure, axes, "% of a row's hallucinations", fraction=0.03, pad=0.02)
    return figure

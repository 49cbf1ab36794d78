"""How criteria, levels of covariate shift, and models differ in hallucination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.differences import pairwise
from ood_lab.lvlm.judged import FAILED
from ood_lab.lvlm.ode.scoring import GROUPS
from ood_lab.metrics.hallucination import COUNTS, caption_metrics
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.yes_no import resampled_sums

#: Groups of yes/no questions whose accuracy is compared.
COMPARED = ("existence", "attribute", "all")

_Metrics = Callable[[NDArray[np.int64]], Mapping[str, Floats]]


def differences(
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    by: str,
    *,
    draws: int = 1000,
    seed: int = 0,
    first: Any = None,
) -> pd.DataFrame:
    """CHAIR, Cover, Hal, Cog and accuracies of groups, compared in pairs.

    Scenes are resampled with all that is said about them, in every style and by every model, so
    that styles and models are compared in pairs; criteria have scenes of their own. Failed requests
    are left out, and an unparsed answer is wrong.

    Args:
        captions: see :func:`ood_lab.lvlm.ode.scoring.caption_table`.
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        by: column that tells the groups apart, such as ``split``, ``covariate_level``, ``model``.
        draws: bootstrap resamples.
        seed: of the draws.
        first: compare this group with each other one only; None = all pairs.

    Returns:
        See :func:`ood_lab.lvlm.differences.pairwise`.
    """
    names = captions[by].drop_duplicates().tolist()
    tables = [_pairs(captions, list(COUNTS), caption_metrics, by, names, draws, seed, first)]
    for group in COMPARED:
        asked = judged[judged["task"].isin(GROUPS[group])]
        asked = asked.assign(right=asked["correct"].astype(bool).astype(int), asked=1)
        metrics = _accuracy(f"{group}_accuracy")
        tables.append(_pairs(asked, ["right", "asked"], metrics, by, names, draws, seed, first))
    return pd.concat(tables, ignore_index=True)


def _accuracy(name: str) -> _Metrics:
    def metrics(counts: NDArray[np.int64]) -> Mapping[str, Floats]:
        right, asked = counts[..., 0].astype(np.float64), counts[..., 1]
        return {name: np.divide(right, asked, out=np.full(right.shape, np.nan), where=asked > 0)}

    return metrics


def _pairs(
    rows: pd.DataFrame,
    columns: Sequence[str],
    metrics: _Metrics,
    by: str,
    names: Sequence[Any],
    draws: int,
    seed: int,
    first: Any,
) -> pd.DataFrame:
    rows = rows[rows["status"] != FAILED]
    codes, clusters = pd.factorize(rows["scene" if "scene" in rows else "file"])
    if not len(clusters):
        return pd.DataFrame()
    cube = np.zeros((len(clusters), len(names), len(columns)), np.int64)
    group = pd.Index(names).get_indexer(rows[by])
    np.add.at(cube, (codes, group), rows[list(columns)].to_numpy(np.int64))
    sums = resampled_sums(cube.reshape(len(cube), -1), draws, np.random.default_rng(seed))
    drawn = metrics(sums.reshape(draws, len(names), len(columns)))
    values = metrics(cube.sum(axis=0))
    return pairwise(names, values, {k: v.T for k, v in drawn.items()}, len(cube), first)

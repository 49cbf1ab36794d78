"""How much the choice of the image-text models, or any other setting, moves the numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS
from ood_lab.lvlm.scoring.yes_no_scores import COUNTS, Unparsed, pair_table
from ood_lab.metrics.resampling.clustered_bootstrap import cluster_sums, clustered, contrast
from ood_lab.metrics.yes_no import yes_no_metrics


def setting_differences(
    answers: Mapping[str, pd.DataFrame],
    unparsed: Unparsed = "wrong",
    *,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """``metric(I) - metric(g)`` of every split: the first setting minus each other one.

    Settings that divide the same images ask about pairs of which some are the same. Resampled are
    pairs of image and category, the same for all settings; one that a setting does not ask about
    counts nothing there. Table 9 of arXiv 2602.18094 has the differences of the kinds of
    image-text models.

    Args:
        answers: setting → its answers, see :func:`ood_lab.lvlm.answers.judgements.judge`; ``image``
            is the same in two of them only where it is the same image.
        unparsed: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.pair_table`.
        draws: bootstrap resamples.
        seed: of them.

    Returns:
        ``split`` and the columns of
        :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`; splits that all settings
        have.
    """
    tables = []
    for number, judged in enumerate(answers.values()):
        pairs = pair_table(judged, unparsed)
        tables.append(pairs[pairs["kept"]].assign(setting=number))
    every, names, found = pd.concat(tables, ignore_index=True), list(answers), []
    for split in SPLITS:
        rows = every[every["split"] == split]
        if rows["setting"].nunique() < len(names):
            continue
        keys = rows["image"].astype(str) + "/" + rows["category"].astype(str)
        counts = rows[COUNTS].to_numpy(np.int64)
        sums = cluster_sums(counts, keys, rows["setting"].to_numpy(), len(names))
        drawn = clustered(sums, yes_no_metrics, draws=draws, seed=seed)
        found.append(contrast(names, drawn, first=names[0]).assign(split=split))
    if not found:
        return pd.DataFrame(columns=["split"])
    table = pd.concat(found, ignore_index=True)
    return table[["split", *[name for name in table if name != "split"]]]

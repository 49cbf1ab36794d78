"""How much the choice of the image-text models, or any other setting, moves the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.lvlm.scoring.scored_results import paired_contrasts
from ood_lab.lvlm.scoring.yes_no_scores import COUNTS, Unparsed, pair_table
from ood_lab.metrics.yes_no import yes_no_metrics
from ood_lab.schema.results import Tables


def setting_differences(
    answers: Tables,
    splits: Sequence[str],
    unparsed: Unparsed = "wrong",
    **resampling: Any,
) -> pd.DataFrame:
    """``metric(I) - metric(g)`` of every split: the first setting minus each other one.

    Settings that divide the same images ask about pairs of which some are the same. Resampled are
    pairs of image and category, the same for all settings; one that a setting does not ask about
    counts nothing there. Table 9 of arXiv 2602.18094 has such differences.

    Args:
        answers: setting → its answers, see :func:`ood_lab.lvlm.answers.judgements.judge`; ``image``
            is the same in two of them only where it is the same image.
        splits: in order.
        unparsed: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.pair_table`.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        ``split`` and the columns of
        :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`; splits that all settings
        have.
    """
    tables = [
        pairs[pairs["kept"]].assign(setting=name)
        for name, judged in answers.items()
        for pairs in [pair_table(judged, unparsed)]
    ]
    every, names, found = pd.concat(tables, ignore_index=True), list(answers), []
    for split in splits:
        rows = every[every["split"] == split]
        if rows["setting"].nunique() == len(names):
            pairs = rows["image"].astype(str) + "/" + rows["category"].astype(str)
            of_settings = (pairs, rows["setting"], yes_no_metrics, names, names[0])
            counts = rows[COUNTS].to_numpy(np.int64)
            table = paired_contrasts(counts, *of_settings, **resampling)
            table.insert(0, "split", split)
            found.append(table)
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["split"])

"""Results of yes/no questions in several wordings: means over these, with both answers as classes.

See :mod:`ood_lab.metrics.answer_metrics` for the metrics. ``item`` of an answer is its question in
whatever words, ``prompt`` the number of the wording, ``pair_id`` its image.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from ood_lab.common.grouping import distinct
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import FAILED, PARSED
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.scoring.answer_differences import contrasts_by
from ood_lab.lvlm.scoring.scored_results import ResultPlace, any_read, estimate_rows, places
from ood_lab.metrics.answer_metrics import TWO_CLASS_METRICS, mean_over_prompts, outcome_counts
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Clustered,
    cluster_sums,
    clustered,
    contrast,
)
from ood_lab.schema.results import PART, Row

#: Metric, and what it is called in tables; in this order.
METRICS = {
    "macro_f1": "F1",
    "macro_precision": "P",
    "macro_recall": "R",
    "yes_rate": "yes-rate",
    "recall_yes": "R yes",
    "recall_no": "R no",
    "f1_yes": "F1 yes",
    "f1_no": "F1 no",
    "precision_yes": "P yes",
    "precision_no": "P no",
    "accuracy": "Acc",
}
#: ``part`` of the rows of one wording: this and its number. Rows without are the mean of all.
WORDING = "wording"


def wording_rows(
    judgements: pd.DataFrame, min_count: int = 10, *, resampling: Resampling
) -> list[Row]:
    """Rows of results of every set (``split``).

    Their mean over the wordings (``part`` is missing), those of each wording, and the mean at every
    known level of shift and every cell of the two. Intervals resample images. Answers that could
    not be matched are wrong, but neither yes nor no; failed requests are skipped, and counted.
    Values are missing where no answer could be read.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`; with ``split, item, prompt``.
        min_count: levels and cells with fewer images are missing.
        resampling: of the bootstrap.
    """
    rows: list[Row] = []
    splits = distinct(judgements["split"])
    sets = places(judgements, splits, "pair_id", min_count, every="")
    for place in [*sets, *_wordings(judgements)]:
        answers = place.rows if any_read(place.rows) else place.rows.iloc[:0]
        results = scored(answers, resampling=resampling).estimates()
        images, items = (int(place.rows[name].nunique()) for name in ("pair_id", "item"))
        rows += estimate_rows({**place.keys, "n_items": items}, results, images, place.rows)
    return rows


def _wordings(judgements: pd.DataFrame) -> Iterator[ResultPlace]:
    """Every wording of every set."""
    for (split, prompt), part in judgements.groupby(["split", "prompt"], sort=True):
        yield ResultPlace({"split": split, PART: f"{WORDING} {prompt}"}, part)


def scored(judgements: pd.DataFrame, by: str | None = None, *, resampling: Resampling) -> Clustered:
    """Means over the wordings, and their draws, which resample images.

    Args:
        judgements: answers; failed ones are skipped.
        by: column that tells groups apart, which share the draws, in their order of appearance;
            None = one group.
        resampling: of the bootstrap.
    """
    rows = judgements[judgements["status"] != FAILED]
    prompt, prompts = pd.factorize(rows["prompt"], sort=True)
    group, groups = (np.zeros(len(rows), int), [0]) if by is None else pd.factorize(rows[by])
    wordings = max(len(prompts), 1)
    number = group * wordings + prompt
    parsed = rows["parsed"].where(rows["status"] == PARSED)
    outcomes = outcome_counts(rows["truth"] == YES, parsed == YES, parsed == NO)
    sums = cluster_sums(outcomes, rows["pair_id"], number, len(groups) * wordings)
    shape = (len(groups), wordings) if by else (wordings,)
    cube = sums.reshape((len(sums), *shape, sums.shape[-1]))
    return clustered(cube, mean_over_prompts, resampling=resampling)


def form_contrasts(judgements: pd.DataFrame, resampling: Resampling) -> pd.DataFrame:
    """How two forms of the same questions differ: of every set the mean, and every wording.

    Args:
        judgements: the answers in both forms, which ``model`` tells apart; failed ones are skipped.
        resampling: of the bootstrap.
    """
    # A question that has no answer in one form is left out of both.
    lost = (judgements["status"] == FAILED).groupby(
        [judgements[k] for k in ("split", "item", "prompt")]
    )
    judgements = judgements[~lost.transform("any")]
    by_split = judgements.groupby("split", sort=False)
    sets = [ResultPlace({"split": split}, part) for split, part in by_split]
    test = partial(contrasts, by="model", resampling=resampling)
    return contrasts_by([*sets, *_wordings(judgements)], test)


def contrasts(
    judgements: pd.DataFrame, by: str, first: str | None = None, *, resampling: Resampling
) -> pd.DataFrame:
    """How groups of answers differ, with images resampled together.

    Sets of one model share images, models share questions: both are drawn together, so the test
    is paired as far as the data are. See
    :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`.

    Args:
        judgements: the answers of all groups.
        by: ``split`` or ``model``.
        first: compare this group with each other one only; None = all pairs.
        resampling: of the bootstrap.
    """
    names = distinct(judgements.loc[judgements["status"] != FAILED, by])
    results = scored(judgements, by, resampling=resampling)
    ordered = {metric: results.values[metric] for metric in TWO_CLASS_METRICS}
    return contrast(names, Clustered(ordered, results.draws, results.n), first)

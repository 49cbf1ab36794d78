"""AMBER's results: those of captions and answers, and the score made of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.answers.judgements import FAILED, PARSED
from ood_lab.lvlm.captions.caption_scoring import (
    Unparsed,
    amber_table,
    caption_kind,
)
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.questions.question_files import GROUPS
from ood_lab.lvlm.scoring.scored_results import POOLED, estimate_rows
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.answer_metrics import (
    COUNTS,
    EXISTENCE_EPSILON,
    caption_metrics,
    yes_no_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import clustered
from ood_lab.schema.arrays import Floats

KIND = caption_kind("amber")
#: ``AMBER Score = (1 - CHAIR + F1) / 2``, F1 of all yes/no questions with no as positive class.
SCORE = "amber_score"
_ALL = "all"
#: What AMBER's script adds to ``P + R`` in F1, by group of questions.
EPSILONS = dict.fromkeys(GROUPS, 0.0001) | {"existence": EXISTENCE_EPSILON}


def of_group(row: Mapping[str, Any]) -> dict[str, Any]:
    """``<group>_<metric>`` as the metric of a set.

    Groups of yes/no questions (:data:`~ood_lab.lvlm.questions.question_files.GROUPS`) are the sets,
    and may overlap; captions, the score, and all yes/no questions are of the set ``pooled``.
    """
    group, _, metric = str(row["metric"]).partition("_")
    if group not in GROUPS:
        return dict(row)
    return {**row, "split": POOLED if group == _ALL else group, "metric": metric}


def score_rows(
    captions: pd.DataFrame, judgements: pd.DataFrame, way: Unparsed, resampling: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The AMBER score; an image is resampled with its caption and all answers about it.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`, of the yes/no questions.
        way: of treating unparsed answers.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.
    """
    texts = captions[captions["status"] == PARSED]
    asked = judgements[judgements["status"] != FAILED]
    read = asked[asked["status"] == PARSED]
    asked = read if way == "drop" else asked
    if not len(texts) or not len(read):
        return []
    counts = np.zeros((len(texts) + len(asked), len(COUNTS) + 6), np.int64)
    counts[: len(texts), : len(COUNTS)] = texts[list(COUNTS)]
    counts[len(texts) :, len(COUNTS) :] = class_counts(asked, NO)
    files = pd.concat([texts["file"], asked["file"]])
    results = clustered(counts, _score, files, **resampling)
    keys = {"split": POOLED, "unparsed": way, "n_images": files.nunique()}
    both = pd.concat([captions, judgements])
    return estimate_rows(keys, results.estimates(), files.nunique(), both)


def _score(counts: NDArray[Any]) -> dict[str, Floats]:
    """Of counts of captions, then those of answers (no is positive)."""
    chair = caption_metrics(counts[..., : len(COUNTS)])["chair"]
    return {SCORE: (1 - chair + yes_no_metrics(counts[..., len(COUNTS) :])["f1"]) / 2}


def rounded(captions: pd.DataFrame, judgements: pd.DataFrame) -> pd.DataFrame:
    """One row: what AMBER's script prints, and the score of its rounded CHAIR and F1.

    ``(100 - CHAIR + F1) / 2``, which the paper defines and the script does not print, is rounded
    to one decimal like the others.
    """
    table = amber_table(captions, judgements, [], EPSILONS)
    if {"chair", f"{_ALL}_f1"} <= set(table):
        table[SCORE] = ((100 - table["chair"] + table[f"{_ALL}_f1"]) / 2).round(1)
    return table.drop(columns="split")

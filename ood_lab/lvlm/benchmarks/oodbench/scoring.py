"""The results of OODBench: metrics of every split, by data set, and over levels of shift.

Of several data sets a split is all of them together: their counts are added up, as in the paper's
Tables 1 and 3, and accuracies are never averaged.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import FAILED
from ood_lab.lvlm.benchmarks.oodbench.division import ID, SPLITS, TOGETHER
from ood_lab.lvlm.benchmarks.oodbench.question_building import (
    BAP_COUNTING,
    BAP_LOGIC,
    BAP_TASKS,
)
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.scoring.answer_differences import contrasts_by, together
from ood_lab.lvlm.scoring.scored_results import (
    any_read,
    estimate_rows,
    paired_contrasts,
    places,
    question_kind,
)
from ood_lab.lvlm.scoring.uncertainty import uncertainty_rows
from ood_lab.lvlm.scoring.yes_no_scores import (
    COUNTS,
    Unparsed,
    model_contrasts,
    pair_table,
    yes_no_rows,
)
from ood_lab.metrics.answer_metrics import yes_no_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, shares
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.schema.arrays import Ints
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Row, Tables

KIND = question_kind("oodbench", "question pair", "unparsed", "p_holm")
#: In ``meta``, the data set of a question that is asked together with those of others. Results of
#: one of them have it in their ``part``.
DATASET = "dataset"


def results_of(
    judgements: pd.DataFrame,
    *,
    min_count: int = 10,
    unparsed: Unparsed = "wrong",
    resampling: Resampling,
) -> pd.DataFrame:
    """Everything that is reported of a model, a table of :data:`KIND`.

    Yes/no questions: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.yes_no_rows`, and, where the
    model gives probabilities,
    :func:`~ood_lab.lvlm.scoring.uncertainty.uncertainty_rows`. BAP: see
    :func:`bap_table`; intervals resample images.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        min_count: levels and cells with fewer pairs are missing.
        unparsed: the way of treating unparsed answers that comes first.
        resampling: of the bootstrap.
    """
    every = _together(judgements)
    doubts = uncertainty_rows(judgements, SPLITS, every, ID, resampling=resampling)
    finer = [DATASET]
    rows = yes_no_rows(
        judgements,
        SPLITS,
        unparsed,
        finer=finer,
        every=every,
        min_count=min_count,
        resampling=resampling,
    )
    samples, bap = bap_table(judgements), list[Row]()
    asked = judgements[judgements["task"].isin(BAP_TASKS)].drop(columns=[*LEVELS], errors="ignore")
    for keys, part in places(asked, SPLITS, "file", min_count, finer, every):
        kept = samples[samples["kept"] & samples["sample"].isin(part["pair_id"])]
        if not len(kept):
            continue
        # Data sets share photographs: one of the same path is drawn once.
        metrics = partial(shares, BAP_TASKS)
        results = clustered(_bap_counts(kept), metrics, kept["file"], resampling=resampling)
        read = any_read(part[part["pair_id"].isin(kept["sample"])])
        values = results.estimates() if read else dict.fromkeys(BAP_TASKS, Estimate(float("nan")))
        bap += estimate_rows({**keys, "unit": "image"}, values, results.n, part)
    return KIND.table([*rows, *bap, *doubts], model=None, seed=resampling.seed)


def contrasts(judgements: pd.DataFrame, *, resampling: Resampling) -> pd.DataFrame:
    """How models, or forms, differ in every split and in all of them together.

    See :func:`~ood_lab.lvlm.scoring.yes_no_scores.model_contrasts`. BAP: the same images are
    resampled for all models; samples with a failed request are excluded for all.

    Args:
        judgements: the answers of all models, with ``model``.
        resampling: of the bootstrap.
    """
    answers = judgements.drop(columns=[*LEVELS], errors="ignore")
    results = []
    for tasks, contrast in (((YES_NO,), model_contrasts), (BAP_TASKS, _bap_contrasts)):
        rows = answers[answers["task"].isin(tasks)]
        sets = places(rows, SPLITS, "pair_id", 1, every=_together(rows))
        results.append(contrasts_by(sets, partial(contrast, resampling=resampling)))
    tables = [table.assign(unparsed="wrong") for table in results if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else results[0]


def _together(judgements: pd.DataFrame) -> str:
    """What all splits together are called; empty where there is but one."""
    return TOGETHER if judgements["split"].nunique() > 1 else ""


def _bap_contrasts(rows: pd.DataFrame, *, resampling: Resampling) -> pd.DataFrame:
    tables = {str(name): bap_table(part) for name, part in rows.groupby("model", sort=False)}
    samples = together(tables)
    samples = samples[samples.groupby("sample")["kept"].transform("all")]
    return paired_contrasts(
        _bap_counts(samples),
        samples["file"],
        samples["model"],
        partial(shares, BAP_TASKS),
        [*tables],
        resampling=resampling,
    )


def _bap_counts(samples: pd.DataFrame) -> Ints:
    return samples[list(BAP_TASKS)].assign(n=1).to_numpy(np.int64)


def bap_table(judgements: pd.DataFrame) -> pd.DataFrame:
    """What every BAP sample scores.

    ``E`` = the existence is right, ``C`` = the count is right, ``L`` = ``C`` and the comparison is
    right. ``C`` does not need ``E``, as in the paper's tables (its prose has it otherwise). Samples
    with a failed request are not kept; an unparsed answer is wrong.

    Returns:
        One row per sample: ``sample, split, image, file, bap_existence, bap_counting, bap_logic``
        (0 or 1) and ``kept``.
    """
    rows = judgements[judgements["task"].isin(BAP_TASKS)]
    if not len(rows):
        return pd.DataFrame(columns=["sample", "split", "image", "file", *BAP_TASKS, "kept"])
    right = rows.pivot(index="pair_id", columns="task", values="correct").astype(bool)
    table = rows.groupby("pair_id")[["split", "image", "file"]].first()
    right[BAP_LOGIC] &= right[BAP_COUNTING]
    table[list(BAP_TASKS)] = right[list(BAP_TASKS)].astype(int)
    table["kept"] = ~(rows["status"] == FAILED).groupby(rows["pair_id"]).any()
    return table.reset_index(names="sample")


def setting_differences(
    answers: Tables,
    unparsed: Unparsed = "wrong",
    *,
    resampling: Resampling,
) -> pd.DataFrame:
    """``metric(I) - metric(g)`` of every split: the first setting minus each other one.

    Settings that divide the same images ask about pairs of which some are the same. Resampled are
    pairs of image and category, the same for all settings; one that a setting does not ask about
    counts nothing there. Table 9 of arXiv 2602.18094 has such differences.

    Args:
        answers: setting → its answers, see :func:`ood_lab.lvlm.answers.judgements.judge`; ``image``
            is the same in two of them only where it is the same image.
        unparsed: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.pair_table`.
        resampling: of the bootstrap.

    Returns:
        ``split`` and the columns of
        :func:`~ood_lab.metrics.resampling.clustered_bootstrap.contrast`; splits that all settings
        have.
    """
    pairs_of = together({name: pair_table(table, unparsed) for name, table in answers.items()})
    names, results = list(answers), []
    for split in SPLITS:
        rows = pairs_of[pairs_of["kept"] & (pairs_of["split"] == split)]
        if rows["model"].nunique() == len(names):
            pairs = rows["image"].astype(str) + "/" + rows["category"].astype(str)
            counts = rows[COUNTS].to_numpy(np.int64)
            table = paired_contrasts(
                counts,
                pairs,
                rows["model"],
                yes_no_metrics,
                names,
                names[0],
                resampling=resampling,
            )
            table.insert(0, "split", split)
            results.append(table)
    return pd.concat(results, ignore_index=True) if results else pd.DataFrame(columns=["split"])

"""Tables over several models: degradations, errors that they share, OOD against hard."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats
from scipy.stats import binomtest

from ood_lab.lvlm.statistics.degradation import (
    METRICS,
    degradation,
    signature,
    signature_tost,
)
from ood_lab.lvlm.statistics.statistic_tables import Draws, Findings
from ood_lab.metrics import holm
from ood_lab.metrics.answer_metrics import yes_no_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import cluster_sums, resampled_sums
from ood_lab.schema.arrays import Bools, Ints

Wrong = Bools


def compare_models(
    wrong: Mapping[str, Wrong], pairs: Ints, draws: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """All pairs of models on the same N answers.

    McNemar's exact test takes answers for independent; the bootstrap, which resamples question
    pairs whole, does not. Both p-values are two-sided and Holm-corrected over the pairs of models.

    Args:
        wrong: model → ``[N]``, whether each answer is wrong.
        pairs: ``[N]``, number of the question pair of each answer.
        draws: resamples.
        seed: of them.

    Returns:
        ``model_a, model_b, accuracy_a, accuracy_b, difference, ci_low, ci_high, only_a_right,
        only_b_right, p_mcnemar, p_mcnemar_holm, p_bootstrap, p_bootstrap_holm``.
    """
    rows = []
    for (name_a, a), (name_b, b) in combinations(wrong.items(), 2):
        only_a, only_b = int((~a & b).sum()), int((a & ~b).sum())
        difference = (only_a - only_b) / len(a)
        sums = cluster_sums(np.column_stack([b.astype(int) - a, np.ones(len(a), int)]), pairs)
        sample = resampled_sums(sums, draws, np.random.default_rng(seed))
        values = sample[:, 0] / sample[:, 1]
        low, high = np.quantile(values, [0.025, 0.975])
        tail = min((values <= 0).mean(), (values >= 0).mean())
        discordant = only_a + only_b
        rows.append(
            {
                "model_a": name_a,
                "model_b": name_b,
                "accuracy_a": 1 - a.mean(),
                "accuracy_b": 1 - b.mean(),
                "difference": difference,
                "ci_low": low,
                "ci_high": high,
                "only_a_right": only_a,
                "only_b_right": only_b,
                "p_mcnemar": binomtest(only_a, discordant).pvalue if discordant else 1.0,
                "p_bootstrap": min(1.0, 2 * max(tail, 1 / (draws + 1))),
            }
        )
    table = pd.DataFrame(rows)
    for name in ("p_mcnemar", "p_bootstrap") if rows else ():
        table[f"{name}_holm"] = holm(table[name].to_numpy())
    return table


def shared_errors(wrong: Mapping[str, Wrong]) -> pd.DataFrame:
    """How much of a benchmark each model, and all models so far, answer wrongly.

    ``|B ∩ E_m| / |B|`` of error set ``E_m``, and of the union over an ordered list of models.

    Args:
        wrong: model → ``[N]``, in the order of the union.

    Returns:
        ``model, errors, share, union, gain``: ``gain`` is what the model adds to the union.
    """
    errors = np.stack([*wrong.values()])
    union = np.logical_or.accumulate(errors).mean(axis=1)
    known = {"model": [*wrong], "errors": errors.sum(axis=1), "share": errors.mean(axis=1)}
    return pd.DataFrame({**known, "union": union, "gain": np.diff(union, prepend=0.0)})


def wrong_counts(wrong: Mapping[str, Wrong]) -> pd.DataFrame:
    """How many of M models answer a question wrongly.

    Args:
        wrong: model → ``[N]``.

    Returns:
        ``models`` (0 to M), ``questions``, ``share`` of all, ``at_least``: the share that so many
        models or more get wrong.
    """
    item = np.sum(list(wrong.values()), axis=0)
    questions = np.bincount(item, minlength=len(wrong) + 1)
    share = questions / len(item)
    return pd.DataFrame(
        {
            "models": np.arange(len(wrong) + 1),
            "questions": questions,
            "share": share,
            "at_least": share[::-1].cumsum()[::-1],
        }
    )


def errors_together(wrong: Mapping[str, Wrong]) -> pd.DataFrame:
    """Of what a model gets wrong, how much each other one gets wrong too: ``|E_a ∩ E_b| / |E_a|``.

    Args:
        wrong: model → ``[N]``.

    Returns:
        ``model`` (a), ``other`` (b), ``errors`` (of a), ``both``, ``share`` (NaN where a errs
        nowhere), and ``chance``: what it would be if they erred independently, ``|E_b| / N``.
    """
    rows = []
    for name, own in wrong.items():
        for other, theirs in wrong.items():
            errors, both = int(own.sum()), int((own & theirs).sum())
            share = both / errors if errors else float("nan")
            rows.append((name, other, errors, both, share, float(theirs.mean())))
    return pd.DataFrame(rows, columns=["model", "other", "errors", "both", "share", "chance"])


Counts = Ints
#: Image and category.
Pairs = Collection[tuple[str, str]]
#: Subsets of the hard pairs at most, as in the paper.
_SUBSETS = 1000


def add_degradations(
    into: Findings,
    sides: Mapping[str, tuple[Counts, Counts]],
    references: Sequence[str],
    *,
    eta_resample: int,
    **resampling: Any,
) -> None:
    """``degradation`` of all models; with references also their ``signature``, and ``tost``.

    Args:
        into: where the tables go.
        sides: model → counts of its ID and of its OOD pairs, ``[P, 4]`` and ``[Q, 4]``.
        references: models whose degradations make the signature.
        eta_resample: see :func:`~ood_lab.lvlm.statistics.degradation.signature_tost`.
        resampling: ``draws`` (resamples and permutations) and their ``seed``.
    """
    results = {name: degradation(a, b, **resampling) for name, (a, b) in sides.items()}
    into.keep_all("degradation", results)
    if not references:
        return
    ends = signature({name: results[name] for name in references})
    into.tables["signature"] = pd.DataFrame(
        [(metric, *interval) for metric, interval in ends.items()],
        columns=["metric", "low", "high"],
    )
    known = {name: sides[name] for name in references}
    rest = {
        name: signature_tost(side, known, eta_resample=eta_resample, **resampling)
        for name, side in sides.items()
        if name not in references
    }
    into.keep_all("tost", rest)


def add_comparison(
    into: Findings, wrong: Mapping[str, Wrong], ood: Bools, pairs: Ints, **resampling: Any
) -> None:
    """``comparison`` on all answers; of the OOD ones ``errors, wrong_by, errors_together``.

    Args:
        into: where the tables go.
        wrong: model → ``[N]``, whether each answer is wrong.
        ood: ``[N]``, which answers are to OOD questions.
        pairs: ``[N]``, number of the question pair of each answer.
        resampling: ``draws`` and their ``seed``.
    """
    on_ood = {name: errors[ood] for name, errors in wrong.items()}
    into.tables["errors"] = shared_errors(on_ood)
    into.tables["wrong_by"] = wrong_counts(on_ood)
    into.tables["errors_together"] = errors_together(on_ood)
    if len(wrong) > 1:
        into.tables["comparison"] = compare_models(wrong, pairs, **resampling)


def add_hard(
    into: Findings,
    sides: tuple[Counts, Counts, Counts],
    pairs: tuple[Pairs, Pairs],
    *,
    models: Sequence[str],
    ood_split: str,
    subset: int,
    draws: int,
    seed: int,
) -> None:
    """``hard``: E1 to E5; ``samples``: metrics on ID, OOD and hard pairs, and the drop from ID.

    Args:
        into: where the table goes.
        sides: counts of all models on ID, OOD and hard pairs, ``[M, P, 4]`` each.
        pairs: the OOD and the hard ones.
        models: M names.
        ood_split: name of the OOD split.
        subset: hard pairs of a random subset.
        draws: subsets; no more than 1,000.
        seed: of them.
    """
    into.tables["samples"] = pd.DataFrame(
        [
            {"model": name, **row}
            for number, name in enumerate(models)
            for row in _samples([side[number] for side in sides], ood_split, draws, seed)
        ]
    )
    inside, ood, hard = (yes_no_metrics(side.sum(axis=1))["accuracy"] for side in sides)
    d_hard, d_ood = inside - hard, inside - ood
    resampled = resampling_test(
        inside, ood, sides[2], pairs=subset, draws=min(draws, _SUBSETS), seed=seed
    )
    parts = {
        "E1": spread_test(d_hard, d_ood)._asdict(),
        "E2": correlation_test(d_hard, d_ood)._asdict(),
        "E3, E4": into.keep("hard", resampled),
        "E5": shared_pairs(pairs[0], pairs[1])._asdict(),
    }
    into.tables["hard"] = pd.DataFrame(
        [
            {"test": test, "quantity": quantity, "value": value}
            for test, values in parts.items()
            for quantity, value in values.items()
        ]
    )


def _samples(
    sides: Sequence[Counts], ood_split: str, draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Metrics of a model on ID, OOD and hard pairs; ``drop``: accuracy on ID minus that accuracy.

    The interval and ``p`` are those of :func:`~ood_lab.lvlm.statistics.degradation.degradation`.
    """
    for name, side in zip(("id", ood_split, "hard"), sides, strict=True):
        values = {metric: float(yes_no_metrics(side.sum(axis=0))[metric]) for metric in METRICS}
        row = {"samples": name, "questions": int(side.sum()), **values}
        drop = degradation(sides[0], side, draws=draws, seed=seed)["accuracy"]
        ends = (math.nan,) * 4 if name == "id" else drop[:4]
        yield row | dict(zip(("drop", "low", "high", "p"), ends, strict=True))


class Spread(NamedTuple):
    """E1: do models differ more in how they suffer from hard than from OOD pairs?

    Attributes:
        f: ``Var(Delta_hard) / Var(Delta_ood)``, ddof 1.
        p: right tail of F(M - 1, M - 1).
    """

    f: float
    p: float


class Correlation(NamedTuple):
    """E2: do the models that suffer from hard pairs suffer from OOD pairs? p-values: two-sided."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float


class Resampled(NamedTuple):
    """E3 and E4: what OOD pairs show, among subsets of the hard pairs of the same size.

    Attributes:
        variance: ``Var(Delta_ood)``.
        variance_p: left tail among ``Var(Delta_H(b))``.
        pearson: ``corr(Delta_ood, Delta_hard)``.
        pearson_p: left tail among ``corr(Delta_H(b), Delta_hard)``.
        spearman: the same by ranks.
        spearman_p: the same.
        lowest_pearson: least of the subsets: the baseline.
        lowest_spearman: the same by ranks.
        pairs: of a subset.
        drawn: ``variance``, ``pearson`` and ``spearman`` of the subsets.
    """

    variance: float
    variance_p: float
    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    lowest_pearson: float
    lowest_spearman: float
    pairs: int
    drawn: Draws


class Shared(NamedTuple):
    """E5: pairs that are both OOD and hard.

    Attributes:
        shared: their number.
        of_ood: as a share of the OOD pairs.
        of_hard: as a share of the hard ones.
    """

    shared: int
    of_ood: float
    of_hard: float


def spread_test(hard: ArrayLike, ood: ArrayLike) -> Spread:
    """E1 on degradations ``Delta_hard`` and ``Delta_ood`` of M models, ``[M]`` each.

    Raises:
        ValueError: OOD degradations that are all equal.
    """
    first, second = (np.asarray(item, np.float64) for item in (hard, ood))
    variance = second.var(ddof=1)
    if variance == 0:
        raise ValueError("all models degrade alike on OOD pairs: there is no ratio of variances")
    f = float(first.var(ddof=1) / variance)
    return Spread(f, float(stats.f.sf(f, len(first) - 1, len(first) - 1)))


def correlation_test(hard: ArrayLike, ood: ArrayLike) -> Correlation:
    """E2 on degradations of M models, ``[M]`` each."""
    first, second = (np.asarray(item, np.float64) for item in (hard, ood))
    pearson, spearman = stats.pearsonr(first, second), stats.spearmanr(first, second)
    return Correlation(
        pearson=float(pearson.statistic),
        pearson_p=float(pearson.pvalue),
        spearman=float(spearman.statistic),
        spearman_p=float(spearman.pvalue),
    )


def resampling_test(
    id_metric: ArrayLike,
    ood_metric: ArrayLike,
    hard_pairs: Ints,
    *,
    metric: str = "accuracy",
    pairs: int = 500,
    draws: int = 1000,
    seed: int = 0,
) -> Resampled:
    """E3 and E4: ``p = (1 + #{S_b <= s}) / (B + 1)`` over random subsets of the hard pairs.

    Args:
        id_metric: of M models on ID pairs, ``[M]``.
        ood_metric: on OOD pairs, ``[M]``.
        hard_pairs: TP, FP, TN, FN of every model and hard pair, ``[M, P, 4]``.
        metric: which of :func:`~ood_lab.metrics.answer_metrics.yes_no_metrics`.
        pairs: of a subset (500 pairs are 1,000 questions); all of them where there are fewer.
        draws: B.
        seed: of the subsets.
    """
    base = np.asarray(id_metric, np.float64)
    ood = base - np.asarray(ood_metric, np.float64)
    counts = np.asarray(hard_pairs, np.int64)
    hard = base - yes_no_metrics(counts.sum(axis=1))[metric]
    rng = np.random.default_rng(seed)
    size = min(pairs, counts.shape[1])
    subsets = (rng.choice(counts.shape[1], size, replace=False) for _ in range(draws))
    sample = np.stack([base - yes_no_metrics(counts[:, s].sum(1))[metric] for s in subsets])
    variances = sample.var(axis=1, ddof=1)
    pearsons = np.array([np.corrcoef(row, hard)[0, 1] for row in sample])
    ranks = np.array([stats.spearmanr(row, hard).statistic for row in sample])
    own = correlation_test(hard, ood)
    variance = float(ood.var(ddof=1))
    return Resampled(
        variance,
        left_tail_p(variance, variances),
        own.pearson,
        left_tail_p(own.pearson, pearsons),
        own.spearman,
        left_tail_p(own.spearman, ranks),
        float(pearsons.min()),
        float(ranks.min()),
        size,
        {"variance": variances, "pearson": pearsons, "spearman": ranks},
    )


def left_tail_p(observed: float, sample: ArrayLike) -> float:
    """``(1 + #{S_b <= s}) / (B + 1)``."""
    values = np.asarray(sample, np.float64)
    return float((1 + np.count_nonzero(values <= observed)) / (len(values) + 1))


def shared_pairs(ood: Collection[tuple[str, str]], hard: Collection[tuple[str, str]]) -> Shared:
    """E5 on pairs of image and category."""
    both = len(set(ood) & set(hard))
    return Shared(both, both / max(len(set(ood)), 1), both / max(len(set(hard)), 1))

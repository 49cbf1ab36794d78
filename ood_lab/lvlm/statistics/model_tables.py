"""Tables over several models: degradations, errors that they share, OOD against hard."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from ood_lab.common.arguments import Fields
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.statistics.degradation import METRICS, degradation, signature_tost
from ood_lab.lvlm.statistics.statistic_tables import Draws, Findings
from ood_lab.metrics.answer_metrics import yes_no_metrics
from ood_lab.schema.arrays import Bools, Floats, Ints


def add_errors(into: Findings, wrong: Mapping[str, Bools]) -> None:
    """``errors``, ``wrong_by`` and ``errors_together``: what models answer wrongly.

    - ``errors``: how much of a benchmark each model gets wrong: ``model, errors, share``;
    - ``wrong_by``: how many of M models get a question wrong: ``models`` (0 to M), ``questions``,
      ``share`` of all, ``at_least``: the share that so many models or more get wrong;
    - ``errors_together``: of what a model gets wrong, how much each other one gets wrong too:
      ``model`` (a), ``other`` (b), ``errors`` (of a), ``both``, ``share``,
      ``|E_a ∩ E_b| / |E_a|`` (NaN where a errs nowhere), and ``chance``: what it would be if they
      erred independently, ``|E_b| / N``.

    Args:
        into: where the tables go.
        wrong: model → whether each answer is wrong, ``[N]``.
    """
    flags, names = np.stack([*wrong.values()]), [*wrong]
    errors, shares = flags.sum(axis=1), flags.mean(axis=1)
    into.tables["errors"] = pd.DataFrame({"model": names, "errors": errors, "share": shares})
    numbers = np.arange(len(names) + 1)
    questions = np.bincount(flags.sum(axis=0), minlength=len(numbers))
    share = questions / flags.shape[1]
    by = {"models": numbers, "questions": questions, "share": share}
    into.tables["wrong_by"] = pd.DataFrame(by | {"at_least": share[::-1].cumsum()[::-1]})
    rows = []
    for a, first in enumerate(flags):
        for b, second in enumerate(flags):
            both = int((first & second).sum())
            share_of_a = both / errors[a] if errors[a] else float("nan")
            rows.append((names[a], names[b], errors[a], both, share_of_a, shares[b]))
    columns = ["model", "other", "errors", "both", "share", "chance"]
    into.tables["errors_together"] = pd.DataFrame(rows, columns=columns)


Counts = Ints
#: Image and category.
Pairs = Collection[tuple[str, str]]
#: Subsets of the hard pairs at most, and their pairs (1,000 questions), as in the paper.
_SUBSETS, _SUBSET_PAIRS = 1000, 500


def add_degradations(
    into: Findings,
    sides: Mapping[str, tuple[Counts, Counts]],
    references: Sequence[str],
    *,
    eta_resample: int,
    resampling: Resampling,
) -> None:
    """``degradation`` of all models; with references also their ``signature``, and ``tost``.

    Args:
        into: where the tables go.
        sides: model → counts of its ID and of its OOD pairs, ``[P, 4]`` and ``[Q, 4]``.
        references: models whose degradations make the signature.
        eta_resample: see :func:`~ood_lab.lvlm.statistics.degradation.signature_tost`.
        resampling: resamples and permutations.
    """
    results = {name: degradation(a, b, resampling=resampling) for name, (a, b) in sides.items()}
    into.keep_all("degradation", results)
    if not references:
        return
    table = into.tables["degradation"]
    by_metric = table[table["model"].isin(references)].groupby("metric", sort=False)
    into.tables["signature"] = by_metric.agg({"low": "min", "high": "max"}).reset_index()
    known = {name: sides[name] for name in references}
    rest = {
        name: signature_tost(side, known, eta_resample=eta_resample, resampling=resampling)
        for name, side in sides.items()
        if name not in references
    }
    into.keep_all("tost", rest)


def add_hard(
    into: Findings,
    sides: Mapping[str, tuple[Counts, Counts, Counts]],
    pairs: tuple[Pairs, Pairs],
    *,
    ood_split: str,
    resampling: Resampling,
) -> None:
    """``hard``: E1 to E5; ``samples``: metrics on ID, OOD and hard pairs, and the drop from ID.

    Args:
        into: where the table goes.
        sides: model → counts of its ID, OOD and hard pairs, ``[P, 4]`` each.
        pairs: the OOD and the hard ones.
        ood_split: name of the OOD split.
        resampling: of the subsets; no more than 1,000 are drawn.
    """
    rows = []
    for model, counts_of in sides.items():
        for name, side in zip(("id", ood_split, "hard"), counts_of, strict=True):
            row: Fields = {"model": model, "samples": name, **_metrics(side)}
            if name != "id":
                drop = degradation(counts_of[0], side, resampling)["accuracy"]
                row |= {"drop": drop.value, "low": drop.low, "high": drop.high, "p": drop.p}
            rows.append(row)
    into.tables["samples"] = pd.DataFrame(rows)
    counts = [np.stack(side) for side in zip(*sides.values(), strict=True)]
    inside, ood, hard = (yes_no_metrics(side.sum(axis=1))["accuracy"] for side in counts)
    d_hard, d_ood = inside - hard, inside - ood
    of_subsets, subset_draws = resampling_test(
        inside,
        ood,
        counts[2],
        draws=min(resampling.draws, _SUBSETS),
        seed=resampling.seed,
    )
    into.keep("hard", subset_draws)
    parts = {
        "E1": spread_test(d_hard, d_ood),
        "E2": correlation_test(d_hard, d_ood),
        "E3, E4": of_subsets,
        "E5": shared_pairs(pairs[0], pairs[1]),
    }
    into.tables["hard"] = pd.DataFrame(
        [
            {"test": test, "quantity": quantity, "value": value}
            for test, values in parts.items()
            for quantity, value in values.items()
        ]
    )


def _metrics(pairs: Counts) -> dict[str, float]:
    """The number of questions of these pairs, and their metrics."""
    values = yes_no_metrics(pairs.sum(axis=0))
    return {"questions": int(pairs.sum()), **{metric: float(values[metric]) for metric in METRICS}}


def spread_test(hard: Floats, ood: Floats) -> dict[str, float]:
    """E1: do models differ more in how they suffer from hard than from OOD pairs?

    Args:
        hard: degradations ``Delta_hard`` of M models, ``[M]``.
        ood: ``Delta_ood``, ``[M]``.

    Returns:
        ``f``, ``Var(Delta_hard) / Var(Delta_ood)`` with ddof 1; ``p``, right tail of
        F(M - 1, M - 1).

    Raises:
        ValueError: OOD degradations that are all equal.
    """
    variance = np.var(ood, ddof=1)
    if variance == 0:
        raise ValueError("all models degrade alike on OOD pairs: there is no ratio of variances")
    f = float(np.var(hard, ddof=1) / variance)
    return {"f": f, "p": float(stats.f.sf(f, len(hard) - 1, len(hard) - 1))}


def correlation_test(hard: Floats, ood: Floats) -> dict[str, float]:
    """E2: do the models that suffer from hard pairs suffer from OOD pairs? p-values: two-sided.

    Args:
        hard: degradations ``Delta_hard`` of M models, ``[M]``.
        ood: ``Delta_ood``, ``[M]``.
    """
    results: dict[str, float] = {}
    for name, test in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        result = test(hard, ood)
        results |= {name: float(result.statistic), f"{name}_p": float(result.pvalue)}
    return results


def resampling_test(
    id_accuracy: Floats,
    ood_accuracy: Floats,
    hard_pairs: Ints,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[dict[str, float], Draws]:
    """E3 and E4: what OOD pairs show, among random subsets of the hard pairs of the same size.

    ``variance`` is ``Var(Delta_ood)``, ``pearson`` is ``corr(Delta_ood, Delta_hard)``, and
    ``spearman`` the same by ranks. Their p-values are ``(1 + #{S_b <= s}) / (B + 1)`` over the same
    statistics ``S_b`` of the subsets.

    Args:
        id_accuracy: of M models on ID pairs, ``[M]``.
        ood_accuracy: on OOD pairs, ``[M]``.
        hard_pairs: TP, FP, TN, FN of every model and hard pair, ``[M, P, 4]``.
        draws: B.
        seed: of the subsets.

    Returns:
        The three with their p-values, the least correlations of the subsets (the baseline), and the
        pairs of a subset; the three of every subset.
    """

    def degradations(chosen: Ints) -> Floats:
        return id_accuracy - yes_no_metrics(chosen.sum(axis=1))["accuracy"]

    rng = np.random.default_rng(seed)
    count = hard_pairs.shape[1]
    size = min(_SUBSET_PAIRS, count)
    subsets = (rng.choice(count, size, replace=False) for _ in range(draws))
    sample = np.stack([degradations(hard_pairs[:, subset]) for subset in subsets])
    ood, hard = id_accuracy - ood_accuracy, degradations(hard_pairs)
    observed = {"variance": float(ood.var(ddof=1)), **correlation_test(hard, ood)}
    of_subsets = {
        "variance": sample.var(axis=1, ddof=1),
        "pearson": np.array([np.corrcoef(row, hard)[0, 1] for row in sample]),
        "spearman": np.array([stats.spearmanr(row, hard).statistic for row in sample]),
    }
    numbers: dict[str, float] = {}
    for name, values in of_subsets.items():
        numbers |= {name: observed[name], f"{name}_p": left_tail_p(observed[name], values)}
    for name in ("pearson", "spearman"):
        numbers[f"lowest_{name}"] = float(of_subsets[name].min())
    return {**numbers, "pairs": size}, of_subsets


def left_tail_p(observed: float, sample: Floats) -> float:
    """``(1 + #{S_b <= s}) / (B + 1)``."""
    return float((1 + np.count_nonzero(sample <= observed)) / (len(sample) + 1))


def shared_pairs(ood: Pairs, hard: Pairs) -> dict[str, float]:
    """E5: how many pairs are both OOD and hard, and their shares of the OOD and the hard ones."""
    first, second = set(ood), set(hard)
    both = len(first & second)
    return {
        "shared": both,
        "of_ood": both / max(len(first), 1),
        "of_hard": both / max(len(second), 1),
    }

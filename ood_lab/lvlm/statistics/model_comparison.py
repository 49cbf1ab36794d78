"""Models compared on the same questions, and what their errors have in common."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ood_lab.metrics import holm
from ood_lab.metrics.resampling.clustered_bootstrap import resampled_sums
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
        sums = np.zeros((int(pairs.max()) + 1, 2), np.int64)
        np.add.at(sums, pairs, np.column_stack([b.astype(int) - a, np.ones(len(a), int)]))
        drawn = resampled_sums(sums, draws, np.random.default_rng(seed))
        values = drawn[:, 0] / drawn[:, 1]
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
    each = np.sum(list(wrong.values()), axis=0)
    questions = np.bincount(each, minlength=len(wrong) + 1)
    share = questions / len(each)
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

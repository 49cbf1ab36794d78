"""The tables over several models: degradations, errors that they share, OOD against hard."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ood_lab.lvlm.statistics.degradation import (
    METRICS,
    Eta,
    degradation,
    signature,
    signature_tost,
)
from ood_lab.lvlm.statistics.difficulty import (
    correlation_test,
    resampling_test,
    shared_pairs,
    spread_test,
)
from ood_lab.lvlm.statistics.model_comparison import (
    Wrong,
    compare_models,
    errors_together,
    shared_errors,
    wrong_counts,
)
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.metrics.yes_no import yes_no_metrics
from ood_lab.schema.arrays import Bools, Ints

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
    eta: Eta,
    eta_resample: int,
    **resampling: Any,
) -> None:
    """``degradation`` of all models; with references also their ``signature``, and ``tost``.

    Args:
        into: where the tables go.
        sides: model → counts of its ID and of its OOD pairs, ``[P, 4]`` and ``[Q, 4]``.
        references: models whose degradations make the signature.
        eta: see :func:`~ood_lab.lvlm.statistics.degradation.signature_tost`; the others too.
        eta_resample: questions of a resample behind the margin.
        resampling: ``draws`` (resamples and permutations) and their ``seed``.
    """
    found = {name: degradation(*side, **resampling) for name, side in sides.items()}
    into.keep_all("degradation", found)
    if not references:
        return
    ends = signature({name: found[name] for name in references})
    into.tables["signature"] = pd.DataFrame(
        [(metric, *interval) for metric, interval in ends.items()],
        columns=["metric", "low", "high"],
    )
    known = {name: sides[name] for name in references}
    others = {
        name: signature_tost(side, known, eta=eta, eta_resample=eta_resample, **resampling)
        for name, side in sides.items()
        if name not in references
    }
    into.keep_all("tost", others)


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
        "E5": shared_pairs(*pairs)._asdict(),
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

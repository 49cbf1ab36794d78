"""The words that go with every number: which FPR95, which direction, what is not shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import grouped
from ood_lab.metrics import known_metrics, metric_of
from ood_lab.schema.run_record import Finding

FPR95 = {
    "ood": "FPR95 = share of ID flagged when 95% of OOD is detected (OOD positive)",
    "id": "FPR95 = share of OOD accepted when 95% of ID is accepted (ID positive)",
}

#: Shown for a cell with too few samples; never 0.
MISSING = "N/A"

#: What the p-values of contrasts are.
P_NOTE = (
    "p: two-sided, normal approximation with the bootstrap's standard error, at least "
    "1 / (resamples + 1); then Holm-corrected."
)

#: What a number of a detector is, whatever the metric; before and behind the metrics.
_SCORE = ("Score", "One number per image, higher = more OOD, in any range; ties count half.")
_INTERVAL = (
    "Interval",
    "95%, stratified bootstrap over images; FPR95 of fewer than 100 images from order statistics "
    "and proportions: sampling error of this run, not the spread over seeds.",
)


def star_sentence(tested: bool) -> str:
    """What a star, or bold type, says, in one line, as printed under every table."""
    return f"* = best of its column{' or not significantly worse' if tested else ''}."


#: Behind the name of a set that the check of the data has found something about.
DAGGER = "†"


def finding_sentences(findings: Sequence[Finding]) -> list[str]:
    """What the check of the data found, a sentence each, with the mark that tables have."""
    return [f"{f'{DAGGER} ' if finding.sets else ''}data: {finding.text}" for finding in findings]


def definitions_of(results: pd.DataFrame) -> list[tuple[str, str]]:
    """The definitions of what a results table has values of, in order; none without detectors."""
    metrics = results.loc[results["value"].notna() & results["detector"].notna(), "metric"].unique()
    if not len(metrics):
        return []
    names = {metric_of(str(name)).name for name in metrics}
    # The headline FPR95 is one of two: both are explained.
    names |= {f"{name}_{positive}_positive" for name in metrics for positive in FPR95}
    shown = (record for record in known_metrics() if record.meaning and record.name in names)
    meant = grouped((record.meaning, record.title) for record in shown)
    return [_SCORE, *((", ".join(titles), m) for m, titles in meant.items()), _INTERVAL]


def fpr95_sentence(positive: str) -> str:
    """What FPR95 with this positive class is, in one line, as printed on every table and figure.

    Raises:
        UserError: neither ``ood`` nor ``id``.
    """
    if positive not in FPR95:
        raise UserError(
            f"metrics.fpr95_positive={positive} is unknown: choose {' or '.join(FPR95)}"
        )
    return FPR95[positive]


def percent(value: float) -> str:
    """A fraction as percent with one decimal, ``N/A`` where it is missing (NaN)."""
    return MISSING if value != value else f"{100 * value:.1f}"


def p_text(value: float) -> str:
    """Three decimals, ``<.001`` below."""
    if math.isnan(value):
        return MISSING
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")

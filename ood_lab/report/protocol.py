"""The words that go with every number: which FPR95, which direction, what is not shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ood_lab.errors import UserError

FPR95 = {
    "openood": "FPR95 = share of ID rejected when 95% of OOD is caught (openood)",
    "hendrycks": "FPR95 = share of OOD accepted when 95% of ID is kept (hendrycks)",
}

#: Shown for a cell with too few samples; never 0.
MISSING = "N/A"

DEFINITIONS = (
    ("Score", "One number per image, higher = more OOD, in any range; ties count half."),
    (
        "AUROC",
        "Probability that a random OOD image scores above a random ID image; 50% is chance, "
        "higher is better.",
    ),
    (
        "FPR95 (openood)",
        "fpr95_ood: share of ID images rejected at the threshold that catches 95% of the OOD "
        "images (OOD is the positive class); lower is better.",
    ),
    (
        "FPR95 (hendrycks)",
        "fpr95_id: share of OOD images accepted at the threshold that keeps 95% of the ID images "
        "(ID is the positive class); lower is better.",
    ),
    (
        "AUPR",
        "Area under precision and recall, with ID (aupr_in) or OOD (aupr_out) as the positive "
        "class; depends on the ratio of ID to OOD images.",
    ),
    (
        "DAD",
        "Number of pairs of OOD sets in which the set with the larger declared shift has the "
        "lower FPR95: the sum over j < k of 1[s_j > s_k], from 0 to n(n-1)/2 (larger shifts are "
        "always easier). It describes how a detector follows the shift, not how good it is.",
    ),
    (
        "Correlation",
        "Pearson correlation between shift level and AUROC (or FPR95), levels without enough "
        "images left out. It has no interval: sampling weakens it in every draw.",
    ),
    (
        "Sensitivity",
        "By how many percentage points AUROC (or FPR95) moves a shift level: the absolute "
        "least-squares slope; the sign is that of the correlation.",
    ),
    (
        "AURC",
        "Area under the risk-coverage curve: the mean, over all shares of images that are kept, of "
        "the share of failures among them, where the highest scores are rejected first; lower is "
        "better. A failure is a wrong prediction on ID, and every OOD image. E-AURC is how far it "
        "lies above that of the best order.",
    ),
    (
        "Interval",
        "95%, stratified bootstrap over images; FPR95 of fewer than 100 images from order "
        "statistics and proportions: sampling error of this run, not the spread over seeds.",
    ),
)


def star_sentence(tested: bool) -> str:
    """What a star, or bold type, says, in one line, as printed under every table."""
    return f"* = best of its column{' or not significantly worse' if tested else ''}."


#: Behind the name of a set that the check of the data has found something about.
DAGGER = "†"


def finding_sentences(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the check of the data found, a sentence each, with the mark that tables have."""
    return [
        f"{f'{DAGGER} ' if finding['sets'] else ''}data: {finding['text']}" for finding in findings
    ]


#: Metrics that a definition is of, by the beginning of their name; the others are of any.
_METRICS = {
    "AUROC": "auroc",
    "FPR95 (openood)": "fpr95",
    "FPR95 (hendrycks)": "fpr95",
    "AUPR": "aupr_",
    "DAD": "dad",
    "Correlation": "correlation_",
    "Sensitivity": "sensitivity_",
    "AURC": "aurc",
}


def definitions_of(results: pd.DataFrame) -> list[tuple[str, str]]:
    """The definitions of what a results table has values of, in order; none without detectors."""
    known = set(results.loc[results["value"].notna() & results["detector"].notna(), "metric"])
    return [
        (word, meaning)
        for word, meaning in DEFINITIONS
        if any(str(metric).startswith(_METRICS.get(word, "")) for metric in known)
    ]


def fpr95_sentence(protocol: str) -> str:
    """What FPR95 means under ``protocol``, in one line, as printed on every table and figure.

    Raises:
        UserError: the protocol is not known.
    """
    if protocol not in FPR95:
        raise UserError(f"metrics.protocol={protocol} is unknown: choose {' or '.join(FPR95)}")
    return FPR95[protocol]


def percent(value: float) -> str:
    """A fraction as percent with one decimal, ``N/A`` where it is missing (NaN)."""
    return MISSING if value != value else f"{100 * value:.1f}"

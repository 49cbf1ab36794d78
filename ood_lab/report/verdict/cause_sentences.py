"""What differs between a dataset and ID test, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ood_lab.common.english import listed
from ood_lab.metrics import named_causes
from ood_lab.schema.image_statistics import value_text, words_of

#: Causes that a sentence names, and datasets that a verdict speaks of.
_NAMED, _DATASETS = 2, 3


def differs(row: pd.Series) -> str:
    """What the images of a dataset are called: "darker"."""
    return words_of(str(row["statistic"]))[int(row["value"] > 0.5)]


def cause_sentence(
    causes: pd.DataFrame, name: str, subject: str = "{} is", inside: str = "ID test"
) -> str | None:
    """How a dataset differs from ID test; None where no difference is significant.

    Args:
        causes: rows of ``auroc``, see :func:`ood_lab.metrics.causes_of`.
        name: of the dataset.
        subject: begins the sentence; ``{}`` = the name.
        inside: what ID test is called.
    """
    found = named_causes(causes[causes["dataset"] == name])
    if found.empty:
        return None
    parts = [f"{differs(row)} ({_share(row['value'])})" for _, row in found.iterrows()]
    first = found.iloc[0]
    median, of_id = (value_text(first["statistic"], first[of]) for of in ("median", "median_id"))
    medians = f"AUROC {_share(first['value'])}, median {median} against {of_id}"
    parts[0] = f"{differs(first)} ({medians})"
    return f"{subject.format(name)} {listed(parts[:_NAMED])} than {inside}."


def cause_sentences(causes: pd.DataFrame) -> Iterator[str]:
    """Of the datasets that differ most, by their first cause; then what may be a shortcut."""
    if causes.empty:
        return
    aurocs = causes[causes["metric"] == "auroc"]
    found = named_causes(aurocs).drop_duplicates("dataset")
    strength = (found["value"] - 0.5).abs().sort_values(ascending=False, kind="stable")
    order = [str(name) for name in found.loc[strength.index, "dataset"]]
    for name in order[:_DATASETS]:
        if sentence := cause_sentence(aurocs, name):
            yield sentence
    alike = causes[causes["metric"] == "matched_auroc"]
    for name in order:
        for row in alike[alike["dataset"] == name].to_dict("records"):
            yield from shortcut_sentence(row, name)


def shortcut_sentence(row: Mapping[Any, Any], name: str) -> Iterator[str]:
    """Whether a detector detects the first cause; nothing where it detects more.

    Args:
        row: of ``matched_auroc``, see :func:`ood_lab.metrics.matched_aurocs`.
        name: of the dataset.
    """
    detector, statistic = row["detector"], row["statistic"]
    if math.isnan(row["value"]):
        yield (
            f"Whether {detector} detects more than {statistic} on {name} is not known: too few "
            "images are alike in it."
        )
    elif row["ci_low"] <= 0.5:
        yield (
            f"Among images alike in {statistic}, AUROC of {detector} on {name} is "
            f"{100 * row['value']:.0f}% [{100 * row['ci_low']:.0f}, {100 * row['ci_high']:.0f}]: "
            f"it may detect {statistic}."
        )


def _share(auroc: float) -> str:
    return f"{max(auroc, 1 - auroc):.0%}"

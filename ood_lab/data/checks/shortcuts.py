"""Signs that tell a set from ID test without a look at the content."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ood_lab.data.checks.check_report import Finding
from ood_lab.data.datamodules.splits import ID_SPLITS

#: Differences that are worth a line: share of images, ratio of median sides, AUROC of the size.
SHARE, RATIO, SEPARATION = 0.2, 1.25, 0.8


def shortcuts(facts: pd.DataFrame) -> Iterable[Finding]:
    """Compares each OOD set with ID test, and the size of the training images.

    Args:
        facts: one row a readable file: ``split, format, width, height, grey`` (share or NaN).

    Yields:
        A finding for each difference, with its figures.
    """
    inside = facts[facts["split"] == "test"]
    if inside.empty:
        return
    for sizes in _by_size(facts[facts["split"] == "train"], inside, ("train", "test")):
        yield Finding(
            f"train can be told from test by {sizes}. Detectors are fitted on train, and may call "
            "ID test images OOD for their size",
            ("test",),
        )
    for name, outside in facts[~facts["split"].isin(ID_SPLITS)].groupby("split", sort=False):
        yield from (
            Finding(f"{name} can be told from ID by {reason}", (str(name),))
            for reason in (
                *_by_format(inside, outside, str(name)),
                *_by_size(inside, outside, ("ID", str(name))),
            )
        )


def _by_format(inside: pd.DataFrame, outside: pd.DataFrame, name: str) -> Iterable[str]:
    a, b = (pd.Series(shares_of_formats(part), dtype=float) for part in (inside, outside))
    # Of images that arrive decoded nobody knows the format.
    if len(a) and len(b) and a.sub(b, fill_value=0).abs().sum() / 2 > SHARE:
        yield f"file format: ID {_shares(a)}, {name} {_shares(b)}"
    grey_in, grey_out = inside["grey"].mean(), outside["grey"].mean()
    if abs(grey_in - grey_out) > SHARE:
        yield f"colour: ID {grey_in:.0%} grey images, {name} {grey_out:.0%}"


def shares_of_formats(facts: pd.DataFrame) -> dict[str, float]:
    """Share of each known file format, largest first."""
    known = facts.loc[facts["format"] != "", "format"]
    return {str(name): share for name, share in known.value_counts(normalize=True).items()}


def _shares(formats: pd.Series) -> str:
    return ", ".join(f"{share:.0%} {name}" for name, share in formats.head(2).items())


def _by_size(inside: pd.DataFrame, outside: pd.DataFrame, names: tuple[str, str]) -> Iterable[str]:
    if inside.empty:
        return
    a, b = ((part["width"] * part["height"]) ** 0.5 for part in (inside, outside))
    ranks = pd.concat([a, b]).rank().to_numpy()[len(a) :]
    auroc = (ranks.sum() - len(b) * (len(b) + 1) / 2) / (len(a) * len(b))
    ratio = b.median() / a.median()
    if max(auroc, 1 - auroc) >= SEPARATION and max(ratio, 1 / ratio) >= RATIO:
        yield (
            f"size, AUROC {max(auroc, 1 - auroc):.0%}: "
            f"{names[0]} {a.median():.0f} px (median side), {names[1]} {b.median():.0f} px"
        )

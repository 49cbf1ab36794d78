"""Signs that tell a set from ID test without a look at the content."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ood_lab.data.checks.check_report import Finding
from ood_lab.data.dataset import ID_SPLITS
from ood_lab.metrics.causes import auroc
from ood_lab.schema.image_statistics import FORMAT

#: Differences that are worth a line: share of images, ratio of median sides, AUROC of the size.
SHARE, RATIO, SEPARATION = 0.2, 1.25, 0.8


def shortcuts(facts: pd.DataFrame) -> Iterable[Finding]:
    """Compares each OOD set with ID test, and the size of the training images.

    Args:
        facts: one row a readable file: ``split, path, format, width, height, quality``
            and ``grey`` (0, 1 or NaN).

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


def file_statistics(facts: pd.DataFrame) -> pd.DataFrame:
    """Statistics of files, see :data:`~ood_lab.schema.image_statistics.FILES`.

    Args:
        facts: ``path, format, width, height, grey, quality`` of readable files.

    Returns:
        ``path``, the statistics, and of every format a column that is 1 for its files; NaN where
        something is not known.
    """
    from_file = facts["format"] != ""  # of images that arrive decoded nobody knows the format
    statistics = pd.DataFrame({"path": facts["path"]})
    statistics["size"] = (facts["width"] * facts["height"]).astype(float) ** 0.5
    statistics["aspect ratio"] = facts["width"] / facts["height"]
    statistics["JPEG quality"] = facts["quality"].astype(float).where(from_file)
    statistics["grey"] = facts["grey"].astype(float)
    for name in sorted(set(facts.loc[from_file, "format"])):
        statistics[f"{FORMAT}{name}"] = (facts["format"] == name).astype(float).where(from_file)
    return statistics


def _by_format(inside: pd.DataFrame, outside: pd.DataFrame, name: str) -> Iterable[str]:
    a, b = (file_statistics(part) for part in (inside, outside))
    formats = [c for c in a.columns.union(b.columns, sort=False) if c.startswith(FORMAT)]
    a, b = (part.reindex(columns=[*formats, "grey"], fill_value=0.0) for part in (a, b))
    # The AUROC of a statistic that is 0 or 1 is 50% and half of the difference of the shares.
    far = [c for c in a if 2 * abs(_auroc(a[c], b[c]) - 0.5) > SHARE]
    if set(far) & set(formats):
        parts = (pd.Series(shares_of_formats(part), dtype=float) for part in (inside, outside))
        id_shares, shares = map(_shares, parts)
        yield f"file format: ID {id_shares}, {name} {shares}"
    if "grey" in far:
        yield f"colour: ID {a['grey'].mean():.0%} grey images, {name} {b['grey'].mean():.0%}"


def _auroc(inside: pd.Series, outside: pd.Series) -> float:
    """:func:`~ood_lab.metrics.causes.auroc` of the known values; NaN without any."""
    a, b = (part.dropna().to_numpy(float) for part in (inside, outside))
    return auroc(a, b) if len(a) and len(b) else float("nan")


def shares_of_formats(facts: pd.DataFrame) -> dict[str, float]:
    """Share of each known file format, largest first."""
    formats = facts.loc[facts["format"] != "", "format"]
    return {str(name): share for name, share in formats.value_counts(normalize=True).items()}


def _shares(formats: pd.Series) -> str:
    return ", ".join(f"{share:.0%} {name}" for name, share in formats.head(2).items())


def _by_size(inside: pd.DataFrame, outside: pd.DataFrame, names: tuple[str, str]) -> Iterable[str]:
    if inside.empty:
        return
    a, b = (file_statistics(part)["size"] for part in (inside, outside))
    auroc = _auroc(a, b)
    ratio = b.median() / a.median()
    if max(auroc, 1 - auroc) >= SEPARATION and max(ratio, 1 / ratio) >= RATIO:
        yield (
            f"size, AUROC {max(auroc, 1 - auroc):.0%}: "
            f"{names[0]} {a.median():.0f} px (median side), {names[1]} {b.median():.0f} px"
        )

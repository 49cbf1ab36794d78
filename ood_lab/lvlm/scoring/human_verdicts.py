"""What people say of a benchmark's ``audit.csv``: error rates, and the agreement of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_texts
from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, share
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.schema.arrays import Floats

#: What a person may write into the column ``verdict``; nothing is no verdict.
ACCEPT, REJECT = "accept", "reject"
VERDICT = "verdict"
#: Optional column: the kind of error of a rejected row, in a person's words.
ERROR = "error"


def read_audit(path: Path, needed: Sequence[str] = (), key: str = "task.audit") -> pd.DataFrame:
    """An ``audit.csv`` as text, its verdicts in lower case.

    Rows of objects that were considered and not ``chosen`` are no questions, and left out.

    Args:
        path: of the file.
        needed: columns that it must have in addition to ``verdict``.
        key: that gave it, for errors.

    Raises:
        UserError: the file is missing or no such CSV, or has another verdict.
    """
    if not path.is_file():
        raise UserError(f"{key}={path}: there is no such file")
    if path.suffix.lower() != ".csv":
        raise UserError(f"{key}={path} is no CSV: give the audit.csv of a run")
    audit = read_texts(path, (*needed, VERDICT), hint=": give the audit.csv of a run")
    if "chosen" in audit:
        audit = audit[audit["chosen"].str.lower() == "true"]
    audit = audit.assign(**{VERDICT: audit[VERDICT].str.strip().str.lower()})
    if len(wrong := audit.loc[~audit[VERDICT].isin(["", ACCEPT, REJECT]), VERDICT]):
        raise UserError(
            f"{path}, line {wrong.index[0] + 2}: the verdict is '{wrong.iloc[0]}'; write "
            f"{ACCEPT}, {REJECT} or nothing"
        )
    return audit


@dataclass(frozen=True)
class AuditVerdicts:
    """What a person says of rows, which some columns tell apart.

    Attributes:
        keys: these columns.
        audit: see :func:`read_audit`; None = there are no verdicts.
        path: of the file.
    """

    keys: Sequence[str]
    audit: pd.DataFrame | None = None
    path: Path | None = None

    def check(self, rows: pd.DataFrame, problem: str) -> None:
        """Rejects verdicts on other rows.

        Args:
            rows: what the verdicts are on.
            problem: of a verdict on none of them; the names of columns in braces are filled in.

        Raises:
            UserError: see ``problem``; with the line in the file.
        """
        if self.audit is None:
            return
        keys = list(self.keys)
        known = pd.MultiIndex.from_frame(rows[keys].astype(str))
        out = self.audit[~pd.MultiIndex.from_frame(self.audit[keys]).isin(known)]
        if len(out):
            line = int(out.index.to_numpy()[0]) + 2
            raise UserError(f"{self.path}, line {line}: {problem.format(**out.iloc[0])}")

    def of(self, rows: pd.DataFrame) -> pd.Series:
        """The last verdict on each of these rows, "" = none."""
        if self.audit is None:
            return pd.Series("", rows.index, dtype=object)
        keys = list(self.keys)
        last = self.audit.drop_duplicates(keys, keep="last")[[*keys, VERDICT]]
        verdicts = rows[keys].astype(str).merge(last, "left", keys)[VERDICT].fillna("")
        return verdicts.astype(object).set_axis(rows.index)

    def rejects(self, rows: pd.DataFrame) -> pd.Series:
        """Which of these rows are rejected, by their index."""
        return self.of(rows) == REJECT


def drawn(audit: pd.DataFrame, number: int, by: str | None, seed: int) -> pd.DataFrame:
    """Rows for a person to look at: so many of each group at random, all of a smaller one.

    Args:
        audit: see :func:`read_audit`.
        number: rows of each group.
        by: column of the groups; None = one group.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    groups = [rows for _, rows in audit.groupby(by, sort=True)] if by else [audit]
    rows = [g.iloc[np.sort(rng.permutation(len(g))[:number])] for g in groups]
    return pd.concat(rows).assign(**{VERDICT: "", ERROR: ""})


def kappa_of(counts: NDArray[Any]) -> dict[str, Floats]:
    """Cohen's kappa (1960) of counts ``[..., 4]``: both accept, only first, only second, neither.

    ``(p_o - p_e) / (1 - p_e)`` with the observed share of agreement and that of two people who
    judge independently; 0 where both always say the same one thing.
    """
    both, first, second, neither = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    total = both + first + second + neither
    observed = share(both + neither, total)
    chance = share(both + first, total) * share(both + second, total)
    chance = chance + share(neither + second, total) * share(neither + first, total)
    return {"kappa": share(observed - chance, 1 - chance), "agreement": observed}


def agreement(
    first: pd.DataFrame, second: pd.DataFrame, resampling: Resampling
) -> tuple[dict[str, Estimate], int]:
    """Cohen's kappa and the share of equal verdicts of two people, with bootstrap intervals.

    Args:
        first: verdicts of one, see :func:`read_audit`.
        second: those of the other; rows match where all other common columns do.
        resampling: of the bootstrap.
            Rows are resampled.

    Returns:
        The estimates, and the number of rows that both have judged.

    Raises:
        UserError: there is none.
    """
    keys = [name for name in first if name in second and name not in (VERDICT, ERROR)]
    given = [rows[rows[VERDICT] != ""].drop_duplicates(keys) for rows in (first, second)]
    both = given[0][[*keys, VERDICT]].merge(
        given[1][[*keys, VERDICT]], on=keys, suffixes=("_a", "_b")
    )
    if both.empty:
        raise UserError("the two audits have no row that both have judged: give copies of one file")
    a, b = (both[f"{VERDICT}_{who}"].to_numpy() == ACCEPT for who in "ab")
    counts = np.stack([a & b, a & ~b, ~a & b, ~a & ~b], axis=1).astype(np.int64)
    return clustered(counts, kappa_of, resampling=resampling).estimates(), len(both)

"""OODBench's division: which annotated objects image-text models do not find (arXiv 2602.18094).

With scores ``s_d(x, y)`` of model ``d``, annotated labels ``Y`` and absent labels ``A`` of image
``x``, every annotated label ``c`` is *purified*: the softmax skips the other annotated
labels, ``p_c = e^{s_c} / (e^{s_c} + sum_{y in A} e^{s_y})``. A pair ``(x, c)`` is flagged by

- case 1, a label that is absent scores higher: than every annotated label (``all_labels``, the
  literal text) or than ``c`` (``per_label``); it does not depend on the scale of the scores;
- case 2, ``p_c < T``; it does.

The paper does not say how the two go together. ``per_label`` with ``or`` cannot depend on ``T``
below 1/n (if ``s_c`` is no less than every absent score, ``p_c >= 1 / (1 + |A|)``), and
``all_labels`` with ``and`` never flags a minor object while the main one is found.

``OOD-H`` are the pairs that every model flags, ``OOD-S`` those that some but not all of them flag.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from ood_lab.common.arguments import InnerShare
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.image_text.base import purified
from ood_lab.lvlm.scoring.human_verdicts import REJECT, AuditVerdicts, read_audit
from ood_lab.schema.arrays import Bools, Reals

log = logging.getLogger(__name__)

Case1 = Literal["all_labels", "per_label"]
Combine = Literal["or", "and"]

#: Names of the splits, as questions and tables have them.
ID, OOD_S, OOD_H = "id", "ood_s", "ood_h"
SPLITS = (ID, OOD_S, OOD_H, "hard")
#: The uncut splits, S' and H' of the paper's tables 10 to 13: the split, and ``split`` of the pairs
#: that were cut from it.
UNCUT = {"ood_s_uncut": (OOD_S, "ood_s_rest"), "ood_h_uncut": (OOD_H, "ood_h_rest")}
#: File of :func:`divide`'s pairs in a run folder.
DIVISION = "division.parquet"
#: ``split`` of results of all splits together, which the paper never reports.
TOGETHER = "id_and_ood"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a pair of an image and an annotated label is flagged.

    Attributes:
        case1: whose scores an absent label must exceed.
        combine: of case 1 and case 2.
        threshold: T of case 2.
    """

    case1: Case1 = "all_labels"
    combine: Combine = "or"
    threshold: InnerShare = 0.05

    def flags(self, scores: Reals, labels: ImageLabels) -> Bools:
        """Flagged pairs, ``[N, n] bool``; only annotated labels can be.

        Args:
            scores: ``s(x, y)``, ``[N, n]``, temperature included.
            labels: what is annotated.

        Raises:
            UserError: scores that are not finite.
        """
        values = np.asarray(scores, np.float64)
        if not np.isfinite(values).all():
            raise UserError(
                "an image-text model gave scores that are not finite: give it full precision"
            )
        best_absent = np.where(labels.absent, values, -np.inf).max(axis=1, keepdims=True)
        rival = values
        if self.case1 == "all_labels":
            rival = np.where(labels.present, values, -np.inf).max(axis=1, keepdims=True)
        chances = purified(values, labels.present, labels.absent)
        first, second = best_absent > rival, chances < self.threshold
        both = first | second if self.combine == "or" else first & second
        return both & labels.present


def divide(scores: Mapping[str, Reals], labels: ImageLabels, rule: Rule) -> pd.DataFrame:
    """Every annotated pair with the models' verdicts and its split.

    Args:
        scores: by the name of the model, ``[N, n]`` each.
        labels: what is annotated.
        rule: when a pair is flagged.

    Returns:
        One row per pair: ``image, category, p_<model>, flagged_<model>, split``; ``split`` is
        ``ood_h`` (all models flag it), ``ood_s`` (some do) or ``id`` (none does).

    Raises:
        UserError: no model, or scores that are not finite.
    """
    if not scores:
        raise UserError("no image-text model divides the images: choose image_text=[...]")
    rows, columns = np.nonzero(labels.present)
    table = {
        "image": [labels.images[row] for row in rows],
        "category": [labels.categories[column] for column in columns],
    }
    flagged = np.zeros((len(scores), len(rows)), bool)
    for number, (name, values) in enumerate(scores.items()):
        flagged[number] = rule.flags(values, labels)[rows, columns]
        chances = purified(values, labels.present, labels.absent)[rows, columns]
        if len(chances) and chances.max() < rule.threshold:
            log.warning(
                "%s gives no annotated label a probability of at least %g, so it flags every "
                "pair: its scores need another scale",
                name,
                rule.threshold,
            )
        table |= {f"p_{name}": chances, f"flagged_{name}": flagged[number]}
    table["split"] = np.select([flagged.all(axis=0), flagged.any(axis=0)], [OOD_H, OOD_S], ID)
    return pd.DataFrame(table)


_KEY = ["image", "category"]


def audited(division: pd.DataFrame, path: Path | None) -> pd.DataFrame:
    """The division with a person's verdict on each pair, in the column ``verdict``.

    Args:
        division: see :func:`~ood_lab.lvlm.benchmarks.oodbench.division.divide`.
        path: the CSV of :func:`write_audit`, with ``accept``, ``reject`` or nothing as verdicts;
            None = no pair has one.

    Raises:
        UserError: the file is missing or not such a CSV, has another verdict, or names a pair
            that is not in the division.
    """
    verdicts = AuditVerdicts(_KEY, None if path is None else read_audit(path, _KEY), path)
    verdicts.check(
        division,
        "the division has no pair of image {image} and '{category}'; the audit belongs to other "
        "annotations",
    )
    return division.assign(verdict=verdicts.of(division))


def without_rejected(audited: pd.DataFrame) -> pd.DataFrame:
    """Pairs that have not been rejected, without the column ``verdict``.

    Rejected pairs are in no split: not in an OOD one, where they do not belong, nor in ID, which
    would make ID of what the models overlook.
    """
    return audited[audited["verdict"] != REJECT].drop(columns="verdict").reset_index(drop=True)


def write_audit(audited: pd.DataFrame, files: Mapping[int | str, Path], path: Path) -> None:
    """Writes every OOD pair, and every rejected one, with its image's file and its verdict.

    Args:
        audited: see :func:`audited`.
        files: path of every image, by id.
        path: the CSV to write.
    """
    listed = audited[(audited["split"] != ID) | (audited["verdict"] == REJECT)]
    table = listed.assign(file=[str(files[image]) for image in listed["image"]])
    first = [*_KEY, "split", "verdict", "file"]
    write_csv(table[[*first, *[c for c in table if c not in first]]], path)


def read_ood_pairs(path: Path, key: str) -> pd.DataFrame:
    """OOD pairs that have not been rejected: ``image, category, split, file``, as text.

    Args:
        path: see :func:`write_audit`.
        key: setting that gave it, for errors.

    Raises:
        UserError: the file is missing or not such a CSV.
    """
    pairs = read_audit(path, (*_KEY, "split", "file"), key)
    return without_rejected(pairs[pairs["split"] != ID])

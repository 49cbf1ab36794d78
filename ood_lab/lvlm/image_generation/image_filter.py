"""Which images show what they should, by a detector's or an image-text model's confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from scipy.special import softmax

from ood_lab.common.arguments import Share
from ood_lab.lvlm.image_generation.compositions import Order, Orders
from ood_lab.lvlm.image_text.base import ImageTextModel, Scores, purified
from ood_lab.lvlm.scoring.human_verdicts import ACCEPT, REJECT, AuditVerdicts, read_audit

#: Confidence above which an object is there.
_DETECTED = 0.6
_COLUMNS = [
    *("file", "criterion", "kind", "first", "second", "conf_first", "conf_second"),
    *("detected", "kept"),
]


@runtime_checkable
class ConfidenceModel(Protocol):
    """A model whose scores are confidences by themselves."""

    def confidences(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """Confidence that an image shows a label, ``[N, n]``, from 0 to 1."""


@dataclass(frozen=True)
class Filter:
    """Drops the images that do not show the entities that their prompt names.

    What is seen with a confidence above 0.6 (the released code's) is no hallucination candidate.

    Args:
        min_conf: least confidence of an expected entity. The paper has .65, its code .2.
        by_scene: a scene that is drawn in several styles is kept or dropped by the first of them,
            so that every style has the same scenes.
    """

    min_conf: Share = 0.65
    by_scene: bool = False

    def table(self, orders: Orders, confidences: Scores, labels: Sequence[str]) -> pd.DataFrame:
        """What the model sees, and what follows from it.

        Args:
            orders: of N images.
            confidences: ``[N, n]``, see :func:`confidences_of`.
            labels: n names.

        Returns:
            One row per image: ``file, criterion, kind, first, second, conf_first, conf_second,
            detected`` (names, comma-separated), ``kept, verdict`` (empty).
        """
        column = {name: place for place, name in enumerate(labels)}
        rows = []
        for order, seen in zip(orders, confidences, strict=True):
            pair = order.composition.pair
            both = [float(seen[column[name]]) for name in (pair.first, pair.second)]
            expected = both if pair.kind == "ee" else both[:1]
            shows = order.annotated or min(expected) >= self.min_conf
            rest = [n for n in labels if seen[column[n]] > _DETECTED and n not in pair]
            about = (order.file, order.composition.criterion, pair.kind, pair.first, pair.second)
            rows.append((*about, *both, ",".join(rest), shows))
        table = pd.DataFrame(rows, columns=_COLUMNS)
        if self.by_scene:
            scenes = [_scene(order) for order in orders]
            table["kept"] = table.groupby(scenes, sort=False)["kept"].transform("first")
        return table.assign(verdict="")


def confidences_of(
    model: ImageTextModel, images: Sequence[Path], orders: Orders, labels: Sequence[str]
) -> Scores:
    """Confidence that every image shows every label, ``[N, n]``.

    A detector's own, or, of an image-text model, the purified probability
    (:func:`~ood_lab.lvlm.image_text.base.purified`) of an expected label over the
    labels that the image was not asked to show; of any other label the softmax over all of them.

    Args:
        model: finds the concepts.
        images: N files.
        orders: of these images.
        labels: n names.
    """
    if isinstance(model, ConfidenceModel):
        return model.confidences(images, labels)
    scores = model.scores(images, labels).astype(np.float64)
    shown = [{*order.composition.pair[:2], *order.also} for order in orders]
    expected = np.array([[name in there for name in labels] for there in shown], bool)
    results = np.where(expected, purified(scores, expected, ~expected), softmax(scores, axis=1))
    return results.astype(np.float32)


def audited(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table with a person's verdicts, which have the last word.

    Args:
        table: see :meth:`Filter.table`.
        path: ``audit.csv`` of an earlier run, its column ``verdict`` filled in.

    Raises:
        UserError: the file is missing or no such CSV, or has another verdict.
    """
    verdicts = AuditVerdicts(["file"], read_audit(path, ["file"]), path).of(table)
    kept = table["kept"].mask(verdicts == ACCEPT, True).mask(verdicts == REJECT, False)
    return table.assign(kept=kept.astype(bool), verdict=verdicts)


def summary(table: pd.DataFrame) -> dict[Any, Any]:
    """Images made and kept, by criterion."""
    groups = table.groupby("criterion", sort=False)
    return groups.agg(made=("kept", "size"), kept=("kept", "sum")).to_dict("index")


def _scene(order: Order) -> str:
    origin = order.meta.get("split", "")
    return f"{order.composition.criterion}/{order.prompt}/{order.number}/{origin}"

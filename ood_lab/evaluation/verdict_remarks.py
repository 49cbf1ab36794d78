"""What a verdict adds to its numbers: what they rest on, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ood_lab.common.english import counted, listed
from ood_lab.models.head_kind import HeadKind
from ood_lab.schema.run_record import RunRecord
from ood_lab.schema.shift_axes import CLASS_UNITS

#: What a ruler is made of, where there is none.
_NO_RULER = {CLASS_UNITS: "held-out classes", "": "corruption severity"}
#: Of a network that does not know the classes.
LOST = "No detector is recommended: the ID accuracy is no better than chance."
#: Of a multi-label head.
_MULTILABEL = "The head is multi-label: detectors that assume one class per image are skipped."


def shift_remarks(facts: Mapping[str, Any]) -> Iterator[str]:
    """How the shift was measured, and why a scale is missing.

    Args:
        facts: ``rulers`` (see :mod:`~ood_lab.evaluation.shift.shift_rulers`) and, of features of
            the classifier, ``unsplit`` and ``by``.
    """
    rulers = facts.get("rulers", ())
    if facts.get("unsplit"):
        yield (
            f"Semantic shift is a distance in the features of {facts['by']}, to which covariate "
            "shift adds; a CLIP separates them (clip=vit_b32 clip.download=true)."
        )
    reasons: dict[str, list[str]] = {}
    for ruler in rulers:
        if ruler["note"]:
            yield ruler["note"]
        if ruler["reason"]:
            unit = _NO_RULER.get(ruler["metric"], _NO_RULER[""])
            reasons.setdefault(ruler["reason"], []).append(unit)
    for reason, units in reasons.items():
        yield f"Shift is not in units of {listed(units, 'or')}: {reason}."


def kind_remarks(kind: str, multilabel: bool = False) -> list[str]:
    """What kind of head was found, where detectors are skipped for it."""
    sentences = [HeadKind(kind).sentence, _MULTILABEL if multilabel else None]
    return [sentence for sentence in sentences if sentence]


def data_remarks(split_off: Mapping[str, int]) -> Iterator[str]:
    """Where the images of the intervals come from.

    Args:
        split_off: number of images of each split that was taken from the training images.
    """
    if "test" in split_off:
        images = counted(split_off["test"], "ID test image")
        yield f"The {images} were split off from the training images: the intervals rest on them."


def remarks_of(record: RunRecord) -> list[str]:
    """All remarks of a run."""
    parts: Iterable[Iterable[str]] = (
        kind_remarks(record.head or HeadKind.LINEAR, record.multilabel),
        shift_remarks(record.distance),
        data_remarks(record.split_off),
    )
    return [sentence for part in parts for sentence in part]

"""nuScenes' categories in words (OODBench, arXiv 2602.18094), and its validation scenes."""

from __future__ import annotations

from ood_lab.common.errors import UserError
from ood_lab.common.hints import suggestion
from ood_lab.lvlm.annotations import annotation_files

#: The 22 names that OODBench keeps; questions ask for them in lower case.
LABELS: dict[str, str] = annotation_files.LABELS["nuscenes"]
_DROPPED = "movable_object.debris"
#: Numbers of the 150 scenes of the validation split.
_VAL = (
    "3 12-18 35-36 38-39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629-630 "
    "632-638 770-771 775 777-778 780-784 794-800 802 904-917 919-931 962-963 966-969 971-972 "
    "1059-1073"
)


def label_of(category: str) -> str | None:
    """The name of a category; None = left out.

    The tables write ``personal_mobility``, papers ``personal.mobility``: both are known.

    Raises:
        UserError: there is no such category.
    """
    asked = category.replace("_", ".")
    if asked == _DROPPED.replace("_", "."):
        return None
    for known, label in LABELS.items():
        if asked == known.replace("_", "."):
            return label
    raise UserError(f"nuScenes has no category '{category}': {suggestion(category, LABELS)}")


def validation_scenes() -> set[str]:
    """Names of nuScenes' 150 validation scenes."""
    names = set()
    for part in _VAL.split():
        first, _, last = part.partition("-")
        names |= {f"scene-{n:04d}" for n in range(int(first), int(last or first) + 1)}
    return names

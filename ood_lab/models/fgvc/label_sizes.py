"""What a fine-grained method knows of the labels: sizes, and who is whose parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ood_lab.common.errors import UserError

#: What a method may ask for, and how the user provides it.
REMEDIES = {
    "levels": "a hierarchy of the classes (data.hierarchy=FILE, or columns level_0, level_1, ...)",
    "shapes": "a shape of every training image (column shape)",
    "attributes": "characteristics of the training images (columns attribute_<name>)",
}


@dataclass(frozen=True)
class LabelSpace:
    """Sizes of the label sets and the hierarchy of the classes.

    Attributes:
        classes: number of ID classes C; they are the finest level.
        level_sizes: labels at each level, coarse to fine, the last one C; empty = no hierarchy.
        parents: for every level but the coarsest, the parent (index at the level above) of each
            label.
        categories: number of categories, independent of the hierarchy; 0 = none.
        shapes: number of shapes; 0 = none.
        attributes: number of 0/1 characteristics; 0 = none.
    """

    classes: int
    level_sizes: tuple[int, ...] = ()
    parents: tuple[tuple[int, ...], ...] = ()
    categories: int = 0
    shapes: int = 0
    attributes: int = 0

    @classmethod
    def of(cls, classes: int, plain: Mapping[str, Any] | None) -> LabelSpace:
        """From plain numbers and lists, as configurations and checkpoints hold them."""
        settings = dict(plain or {})
        return cls(
            classes,
            tuple(settings.get("level_sizes") or ()),
            tuple(tuple(level) for level in settings.get("parents") or ()),
            *(int(settings.get(key) or 0) for key in ("categories", "shapes", "attributes")),
        )

    def require(self, method: str, needs: Iterable[str]) -> None:
        """Checks that the data has what a method needs.

        Raises:
            UserError: names the method and what is missing.
        """
        has = {"levels": len(self.level_sizes) > 1, "shapes": self.shapes > 0}
        has["attributes"] = self.attributes > 0
        missing = [REMEDIES[need] for need in needs if not has[need]]
        if missing:
            raise UserError(
                f"{method} needs {' and '.join(missing)}, and the data has none: "
                "provide it, or choose nts, sps or p2p, which need only classes"
            )

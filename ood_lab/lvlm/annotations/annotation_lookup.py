"""What is annotated of single images and categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ood_lab.lvlm.annotations import Annotations
from ood_lab.schema.shift_axes import LEVELS


class AnnotationLookup:
    """Look-ups in annotations.

    Attributes:
        files: path of each image, by its id.
    """

    def __init__(self, annotations: Annotations) -> None:
        images, objects = annotations.images.set_index("image"), annotations.objects
        paths = (str(annotations.root / file) for file in images["file"])
        self.files: dict[int | str, str] = dict(zip(images.index, paths, strict=True))
        self._pixels = (images["width"].astype(float) * images["height"]).to_dict()
        self._levels = images[[name for name in LEVELS if name in images]].to_dict("index")
        self._places = images["place"].to_dict() if "place" in images else annotations.scenes
        known = {"count": ("area", "size"), "area": ("area", "max"), "crowd": ("crowd", "any")}
        if "semantic_level" in objects:
            known["object_semantic_level"] = ("semantic_level", "max")
        groups = objects.groupby(["image", "category"], observed=True, sort=False)
        self._objects: Mapping[Any, Mapping[Any, Any]] = groups.agg(**known).to_dict("index")

    def of(self, image: int | str, category: str) -> Mapping[Any, Any]:
        """What is annotated of a category in an image: ``count, area`` (of the largest), ``crowd``.

        With ``object_semantic_level``, where the source has levels of objects.
        """
        return self._objects.get((image, category), {"count": 0, "area": 0.0, "crowd": False})

    def levels(self, image: int | str) -> dict[str, int]:
        """Known levels of shift of an image."""
        return {str(name): int(value) for name, value in self._levels[image].items()}

    def of_pair(self, image: int | str, category: str) -> dict[str, Any]:
        """Columns of ``meta``: how many there are, how large the largest is, and where it is."""
        found = {k: v for k, v in self.of(image, category).items() if k != "crowd"}
        share = found["area"] / max(self._pixels[image], 1.0)
        facts = {"count": found.pop("count"), "area": found.pop("area")}
        place = {"place": str(self._places[image])} if image in self._places else {}
        return {**facts, "area_share": round(share, 6), **found, **place, **self.levels(image)}

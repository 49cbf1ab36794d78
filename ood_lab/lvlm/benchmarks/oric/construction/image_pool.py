"""The images that the questions of a run are about, and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oric.published_files import Item
from ood_lab.lvlm.parsers import YES


@dataclass(frozen=True)
class Pool:
    """Images by their row.

    Attributes:
        names: of their files: those of the annotations, else as the questions name them.
        paths: of their files.
        annotations: of all of them, in the same order; None = nothing is known of them.
    """

    names: Sequence[str]
    paths: Sequence[Path]
    annotations: Annotations | None = None

    @classmethod
    def of(
        cls, annotations: Annotations | None, folder: Path | None, asked: Sequence[str] = ()
    ) -> Pool:
        """Annotated images, or those that the questions ask about.

        Args:
            annotations: of the images, if any.
            folder: of the images; None = that of the annotations.
            asked: names of the images of all questions, which may repeat.
        """
        if annotations is None:
            names = list(dict.fromkeys(asked))
        else:
            names = annotations.images["file"].tolist()
        if folder is None:
            root = Path() if annotations is None else annotations.root
            return cls(names, [root / name for name in names], annotations)
        # Annotations may name sub-folders that this folder does not have.
        paths = [folder.absolute() / name for name in names]
        paths = [path if path.is_file() else folder.absolute() / path.name for path in paths]
        return cls(names, paths, annotations)

    @cached_property
    def files(self) -> dict[str, str]:
        """Path of each image, by its name."""
        return {name: str(path) for name, path in zip(self.names, self.paths, strict=True)}

    def missing(self, rows: NDArray[np.int64]) -> list[Path]:
        """Those of some images that are not there, each once."""
        return [self.paths[row] for row in np.unique(rows) if not self.paths[row].is_file()]

    def rows_of(self, items: Sequence[Item], source: str) -> tuple[list[Item], pd.DataFrame]:
        """Items of a file, their images named as here, and what they ask: ``row, object, label``.

        Args:
            items: of a published file.
            source: the file, for messages.

        Raises:
            UserError: an image or an object is not in the annotations, or they say otherwise.
        """
        known = pd.Index([Path(name).name for name in self.names])
        rows = known.get_indexer(pd.Index([Path(item.image).name for item in items]))
        if self.annotations is not None:
            _check(items, rows, self.annotations, source)
        named = [
            replace(i, image=self.names[row]) for i, row in zip(items, rows.tolist(), strict=True)
        ]
        table = {
            "row": rows.astype(np.int64),
            "object": [item.target_object for item in items],
            "label": [item.solution for item in items],
        }
        return named, pd.DataFrame(table)


def _check(
    items: Sequence[Item], rows: NDArray[np.int64], annotations: Annotations, source: str
) -> None:
    pairs = zip(annotations.objects["image"], annotations.objects["category"], strict=True)
    there, ids = set(pairs), annotations.images["image"].tolist()
    remedy = "choose the annotations of its images, or give only their folder, task.images=DIR"
    for item, row in zip(items, rows.tolist(), strict=True):
        if row < 0:
            raise UserError(
                f"{source}: the image {item.image} of question {item.id} is not among the "
                f"{len(ids):,} of {annotations.name}: {remedy}"
            )
        if item.target_object not in annotations.categories:
            raise UserError(
                f"{source}: question {item.id} asks for '{item.target_object}', which "
                f"{annotations.name} does not annotate: {remedy}"
            )
        if ((ids[row], item.target_object) in there) != (item.solution == YES):
            raise UserError(
                f"{source}: question {item.id} has the answer {item.solution}, but "
                f"{annotations.name} says otherwise of '{item.target_object}' in {item.image}: "
                f"{remedy}"
            )

"""The images that the questions of a run are about, and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.parsers import YES
from ood_lab.schema.arrays import Ints


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

    def missing(self, rows: Ints) -> list[Path]:
        """Those of some images that are not there, each once."""
        return [self.paths[row] for row in np.unique(rows) if not self.paths[row].is_file()]

    def located(self, questions: pd.DataFrame, source: str) -> pd.DataFrame:
        """Questions of a file with the ``row`` of their images, which are then named as here.

        Args:
            questions: ``item, image, object, problem, label``.
            source: the file, for messages.

        Raises:
            UserError: an image or an object is not in the annotations, or they say otherwise.
        """
        known = pd.Index([Path(name).name for name in self.names])
        rows = known.get_indexer(pd.Index([Path(name).name for name in questions["image"]]))
        table = questions.assign(row=rows.astype(np.int64))
        if self.annotations is not None:
            _check(table, self.annotations, source)
        return table.assign(image=[self.names[row] for row in rows.tolist()])


def _check(questions: pd.DataFrame, annotations: Annotations, source: str) -> None:
    pairs = zip(annotations.objects["image"], annotations.objects["category"], strict=True)
    there, ids = set(pairs), annotations.images["image"].tolist()
    remedy = "choose the annotations of its images, or give only their folder, task.images=DIR"
    for number, image, name, _, label, row in questions.itertuples(index=False, name=None):
        if row < 0:
            raise UserError(
                f"{source}: the image {image} of question {number} is not among the "
                f"{len(ids):,} of {annotations.name}: {remedy}"
            )
        if name not in annotations.categories:
            raise UserError(
                f"{source}: question {number} asks for '{name}', which {annotations.name} does "
                f"not annotate: {remedy}"
            )
        if ((ids[row], name) in there) != (label == YES):
            raise UserError(
                f"{source}: question {number} has the answer {label}, but {annotations.name} "
                f"says otherwise of '{name}' in {image}: {remedy}"
            )

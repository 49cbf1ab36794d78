"""ORIC's training questions: for reinforcement fine-tuning here, and for the released code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Lt
from torch.utils.data import Dataset

from ood_lab.common.arguments import Natural
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.benchmarks.oric.published_files import (
    OricItem,
    plain_text,
    problem_of,
    read_train,
)
from ood_lab.lvlm.training.examples import Chats, Prompt
from ood_lab.schema.run_record import RunRecord


@dataclass(eq=False)
class OricPrompts(Dataset[Prompt]):
    """Training questions with their images.

    Args:
        items: of ``oric_train.json``.
        images: folder of their images.
        problem: ``reasoning``: as the file has it, to be reasoned about between tags; ``plain``:
            the same question as the benchmark asks it.
    """

    items: Sequence[OricItem]
    images: Path
    problem: Literal["reasoning", "plain"]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int | tuple[int, int]) -> Prompt:
        item = self.items[index if isinstance(index, int) else index[0]]  # nothing is drawn
        image = load_rgb(self.images / item.image)
        if self.problem == "reasoning":
            return Prompt(image, item.problem[0], item.solution)
        return Prompt(image, plain_text(problem_of(item.target_object)[0]), item.solution)


class OricTraining(Chats):
    """``oric_train.json``, one prompt at a time, with a part of its images held out.

    Args:
        train: the file.
        images: folder of its images; None = what the manifest next to the file says.
        problem: see :class:`OricPrompts`.
        val_share: share of the images whose questions are held out.
        num_workers: loader processes.
        seed: of the held-out part and the order.

    Raises:
        UserError: the file is missing or no training file, or an image is missing.
    """

    train: OricPrompts
    val: OricPrompts
    collate = staticmethod(itemgetter(0))

    def __init__(
        self,
        train: str,
        images: str | None = None,
        problem: Literal["reasoning", "plain"] = "reasoning",
        val_share: Annotated[float, Ge(0), Lt(1)] = 0.2,
        num_workers: Natural = 0,
        seed: Natural = 0,
    ) -> None:
        items = read_train(Path(train))
        folder = Path(images) if images is not None else _folder_of(Path(train))
        if missing := [item.image for item in items if not (folder / item.image).is_file()]:
            raise UserError(
                f"{len(missing)} of {len(items)} images of {train} are not in {folder}, such as "
                f"{missing[0]}: give model.prompts.images=DIR"
            )
        names = sorted({item.image for item in items})
        order = np.random.default_rng(seed).permutation(len(names))
        held_out = {names[k] for k in order[: round(val_share * len(names))]}
        learnt = OricPrompts([i for i in items if i.image not in held_out], folder, problem)
        held = OricPrompts([i for i in items if i.image in held_out], folder, problem)
        super().__init__(learnt, held, 1, 1, num_workers, seed)


def _folder_of(train: Path) -> Path:
    annotations = RunRecord.read(train.parent, missing_ok=True).annotations
    if "root" not in annotations:
        raise UserError(f"where are the images of {train}? Give model.prompts.images=DIR")
    return Path(str(annotations["root"]))

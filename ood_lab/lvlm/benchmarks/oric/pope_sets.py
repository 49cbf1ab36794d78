"""POPE's questions next to those of another benchmark: published, or from the same annotations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import Contents, pair_counts
from ood_lab.lvlm.benchmarks.oric.published_files import problem_of
from ood_lab.lvlm.benchmarks.oric.question_sets import ITEM, SUBSET, QuestionSets, Wording
from ood_lab.lvlm.benchmarks.pope import pope_questions, split_of
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.schema.arrays import Ints

Sampling = Literal["random", "popular", "adversarial"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
_STREAM = 2


def pope_of(
    contents: Contents, sampling: Sampling, questions: int, seed: int, per_image: int = 3
) -> pd.DataFrame:
    """Questions as POPE draws them, yes and no in turn: ``pair, row, object, label``.

    Of images with at least ``per_image`` categories, the first ``per_image`` get a question, each
    followed by one that is absent: any (``random``), the most frequent one (``popular``), or the
    one that occurs most often with the object before it (``adversarial``); any, where none occurs.
    No absent object is repeated within an image, which ``pair`` numbers. The images are the same
    for each kind of sampling.

    Frequencies are those in the drawn images, as POPE counts them. A random absent object may be of
    any category; POPE takes only those that some drawn image has.

    Args:
        contents: what is in N images.
        sampling: of the absent objects.
        questions: about so many.
        seed: of all draws.
        per_image: objects of an image.

    Raises:
        UserError: no image has enough categories, or enough absent ones.
    """
    sizes, absent = np.diff(contents.starts), (~contents.present).sum(axis=1)
    eligible = np.flatnonzero((sizes >= per_image) & (absent >= per_image))
    if not len(eligible):
        raise UserError(
            f"POPE's questions need images with {per_image} categories and as many that "
            "are absent; there is none: set task.pope=[]"
        )
    images = max(1, -(-questions // (2 * per_image)))
    order = np.random.default_rng([seed, _STREAM]).permutation(eligible)[:images]
    together = pair_counts(contents.present[order]).astype(np.int64)
    rows = []
    for pair, row in enumerate(order.tolist()):
        rng = np.random.default_rng([seed, row, _STREAM])
        free = np.flatnonzero(~contents.present[row])
        for code in contents.codes[contents.entries(row)][:per_image].tolist():
            chosen = _absent(code, free, together, sampling, rng)
            free = free[free != chosen]
            for item, label in ((code, YES), (chosen, NO)):
                rows.append((pair, row, contents.categories[item], label))
    return pd.DataFrame(rows, columns=["pair", "row", "object", "label"])


def _absent(
    code: int, free: Ints, together: Ints, sampling: Sampling, rng: np.random.Generator
) -> int:
    """The absent object that goes with an object; of equals the first category."""
    if sampling == "popular" and np.diag(together)[free].any():
        return int(free[np.argmax(np.diag(together)[free])])
    if sampling == "adversarial" and together[code, free].any():
        return int(free[np.argmax(together[code, free])])
    return int(rng.choice(free))


#: The sets, and what they are called.
POPE_SETS = {
    f"pope_{name}{end}": f"POPE {name}{words}"
    for name in SAMPLINGS
    for end, words in (("", ""), (SUBSET, " (subset)"))
}
_TEXT = re.compile(r"Is there an? (.+) in the image\?")


@dataclass(frozen=True)
class PopeSets:
    """Sets ``pope_random``, ``pope_popular`` and ``pope_adversarial``.

    Attributes:
        entries: of ``task.pope``: a kind of sampling to draw questions by, or a published file.
        subset: questions of one more set that is drawn from each; None = there is none.

    Reading them raises a UserError where an entry is neither, or two are of the same kind.
    """

    entries: Sequence[str]
    subset: int | None = None

    @cached_property
    def samplings(self) -> dict[Sampling, str]:
        """The entries by the sampling of their questions, in order."""
        results: dict[Sampling, str] = {}
        for entry in self.entries:
            if results.setdefault(sampling_of(entry), entry) is not entry:
                raise UserError(f"task.pope has two sets of '{sampling_of(entry)}': give one")
        return results

    @property
    def drawn(self) -> list[str]:
        """The sets that are drawn from annotations."""
        return [f"pope_{name}" for name, entry in self.samplings.items() if entry == name]

    def published(self) -> dict[str, tuple[pd.DataFrame, str]]:
        """The sets of files: their questions, see :func:`read_pope`, and the file."""
        files = {name: entry for name, entry in self.samplings.items() if entry != name}
        return {f"pope_{name}": (read_pope(Path(file)), file) for name, file in files.items()}

    def add_to(
        self, sets: QuestionSets, contents: Contents, count: int, wording: Wording, seed: int
    ) -> None:
        """Adds the sets in the order of the entries; those of files may be there already.

        Args:
            sets: of the other benchmark.
            contents: of the annotated images.
            count: questions of a set that is drawn.
            wording: of these.
            seed: of all draws.

        Raises:
            UserError: see :func:`read_pope` and :func:`pope_of`.
        """
        for sampling, entry in self.samplings.items():
            name = f"pope_{sampling}"
            if entry == sampling:
                sets.make(name, pope_of(contents, sampling, count, seed), wording)
            elif name not in sets.sets:
                sets.add(name, read_pope(Path(entry)), entry)
            if self.subset is not None:
                sets.draw(name, self.subset, seed)


def sampling_of(entry: str) -> Sampling:
    """The sampling that an entry of ``task.pope`` names, or that its file was drawn with.

    Raises:
        UserError: neither.
    """
    for name in SAMPLINGS:
        if entry == name or (Path(entry).is_file() and split_of(Path(entry)) == name):
            return name
    raise UserError(
        f"task.pope={entry}: give {', '.join(SAMPLINGS)}, or a file of POPE whose name ends in one "
        "of these, such as coco_pope_random.json"
    )


def read_pope(file: Path) -> pd.DataFrame:
    """POPE's published questions (:data:`ITEM`): in their own words first, then in ORIC's.

    All sets of a run are so asked in the same wordings, and differ by what they ask about.

    Args:
        file: of POPE.

    Raises:
        UserError: see :func:`~ood_lab.lvlm.benchmarks.pope.pope_questions`, or a text
            is worded otherwise than POPE's.
    """
    items = []
    for number, row in enumerate(pope_questions(file), 1):
        results = _TEXT.fullmatch(row.text)
        if results is None:
            raise UserError(
                f"{file}, record {number}: '{row.text}' is not worded as POPE's questions are "
                "(Is there a dog in the image?)"
            )
        problem = [row.text, *problem_of(results[1])[1:]]
        items.append((number, row.image, results[1], problem, row.answer))
    return pd.DataFrame(items, columns=[*ITEM])

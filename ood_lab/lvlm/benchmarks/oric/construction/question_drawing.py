"""One construction under way: images are drawn, judged, paired, and all of it is noted down."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.lvlm.benchmarks.oric.construction.construction_settings import OricConstruction
from ood_lab.lvlm.benchmarks.oric.construction.image_regions import Regions, regions_of
from ood_lab.lvlm.benchmarks.oric.construction.judges import Expectation, Judge, says_no
from ood_lab.lvlm.image_text.clip_space import Space
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.schema.arrays import Floats, Ints

log = logging.getLogger(__name__)

Cosines = NDArray[np.float32]
#: Why an image gives no pair.
FEW_POSITIVES, FEW_NEGATIVES, SEEN = (
    "fewer than k unexpected objects",
    "fewer than k absent objects",
    "asked about already",
)
_QUESTION = ["pair", "row", "object", "label", "background", "cosine", "nearest_to"]
_AUDIT = [
    *("row", "object", "label", "chosen", "pair", "background", "reply", "unexpected", "expected"),
    *("cosine", "nearest_to", "skipped"),
]


@dataclass(frozen=True)
class Constructed:
    """What came of it.

    Attributes:
        questions: ``pair, row, object, label, background, cosine, nearest_to``: ``row`` is that of
            the image, ``background`` the names that its objects were held against, ``cosine`` that
            of image and text, ``nearest_to`` the row of ``I`` where the image is ``I'``, else -1.
        audit: every object that was considered, chosen or not, with the judge's reply and
            ``expected``, which is ``P(object | background)``.
        skipped: how many images gave no pair, by reason.
    """

    questions: pd.DataFrame
    audit: pd.DataFrame
    skipped: Mapping[str, int]

    @property
    def counts(self) -> dict[str, Any]:
        """What a manifest says of it: pairs that were found, and images that gave none."""
        return {"found": int(self.questions["pair"].nunique()), "skipped": dict(self.skipped)}


def construct(
    how: OricConstruction,
    contents: Contents,
    space: Space,
    judge: Judge,
    seed: int,
    among: Ints | None = None,
) -> Constructed:
    """Draws images in random order until there are enough pairs.

    What is chosen for an image depends only on the seed and the image.

    Args:
        how: questions are made.
        contents: what is in N images.
        space: the same images, and the labels.
        judge: says what is unexpected.
        seed: of all draws.
        among: rows of the images that may be asked about; None = all.

    Raises:
        UserError: no image has enough categories, the judge's replies cannot be read, or no
            image gives a pair.
    """
    rows = np.arange(len(contents)) if among is None else np.sort(among)
    eligible = rows[np.diff(contents.starts)[rows] >= how.min_categories]
    if how.pairs and not len(eligible):
        raise UserError(
            f"no image has {how.min_categories} categories, as "
            f"task.construct.min_categories={how.min_categories} asks for"
        )
    pool = rows if how.rules.pool == "all" else eligible
    run = Drawing(how, contents, regions_of(contents, eligible), space, judge, seed, pool)
    run.fill(np.random.default_rng(seed).permutation(eligible))
    return run.result()


class _Positive(NamedTuple):
    """An object that may be asked about."""

    entry: int
    reply: str | None
    unexpected: bool | None


@dataclass
class Drawing:
    """One construction under way."""

    settings: OricConstruction
    contents: Contents
    regions: Regions
    space: Space
    judge: Judge
    seed: int
    pool: Ints
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    audit: list[dict[str, Any]] = field(default_factory=list)
    used: set[frozenset[int]] = field(default_factory=set)
    asked: set[tuple[int, int, str]] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    read: Counter[bool] = field(default_factory=Counter)
    made: int = 0

    def fill(self, order: Ints) -> None:
        """Goes through the images, some at a time: a judge gets several at once."""
        wanted, start = self.settings.pairs, 0
        if self.settings.rules.quota == "sampled":
            order = self._without_repeats(order)[:wanted]
        while self.made < wanted and start < len(order):
            size = max(32, 2 * (wanted - self.made))
            self._some(order[start : start + size])
            start += size
        self._complain(len(order))

    def _without_repeats(self, order: Ints) -> Ints:
        """The images whose pair with the nearest no earlier image of the annotations makes."""
        if not (self.settings.deduplicate and len(order)):
            return order
        rows = np.sort(order)
        pairs = np.sort(np.column_stack([rows, self.space.nearest(rows, self.pool)]), axis=1)
        first = np.unique(pairs, axis=0, return_index=True)[1]
        self.skipped[SEEN] += len(rows) - len(first)
        return order[np.isin(order, rows[first])]

    def _complain(self, drawn: int) -> None:
        settings, reasons = self.settings, "; ".join(f"{k}: {n:,}" for k, n in self.skipped.items())
        if self.read and not self.read[True]:
            example = next(row["reply"] for row in self.audit if row["label"] == YES)
            raise UserError(
                "the judge never answered yes or no; its first reply was "
                f"'{str(example)[:80]}': choose another judge=..."
            )
        if settings.pairs and not self.made:
            raise UserError(
                f"none of {drawn:,} images gives a pair ({reasons}): lower task.construct.k, or "
                "choose a judge that expects less"
            )
        if self.read[False]:
            log.warning("%d replies of the judge are neither yes nor no", self.read[False])
        if self.made < settings.pairs:
            log.warning("%d of %d pairs were found (%s)", self.made, settings.pairs, reasons)

    def _some(self, rows: Ints) -> None:
        candidates = self._candidates(rows)
        enough = [row for row in rows.tolist() if len(candidates[row][1]) >= self.settings.k]
        nearest: dict[int, int] = {}
        if enough:
            found = self.space.nearest(np.array(enough), self.pool)
            nearest = dict(zip(enough, found.tolist(), strict=True))
        for row in rows.tolist():
            if self.made == self.settings.pairs:
                return
            considered, chosen = candidates[row]
            reason = self._pair(row, nearest[row], chosen) if row in nearest else FEW_POSITIVES
            self._note_positives(row, considered, chosen, reason)
            if reason is not None:
                self.skipped[reason] += 1

    def _candidates(self, rows: Ints) -> dict[int, tuple[list[_Positive], list[int]]]:
        """Of each image, what was considered, and the (up to) k entries that were picked."""
        if self.settings.positives == "uniform":
            return {row: self._uniform(row) for row in rows.tolist()}
        entries = [e for row in rows.tolist() for e in self._of_interest(row)]
        of_image = self.contents.rows
        backgrounds = {row: tuple(self.regions.background(row)) for row in rows.tolist()}
        names = self.contents.names(self.contents.codes[entries])
        asked = [
            Expectation(name, backgrounds[int(of_image[e])], float(self.regions.rank[e]))
            for e, name in zip(entries, names, strict=True)
        ]
        found: dict[int, tuple[list[_Positive], list[int]]] = {r: ([], []) for r in rows.tolist()}
        for entry, reply in zip(entries, self.judge.replies(asked), strict=True):
            verdict = says_no(reply, self.settings.rules.no_test)
            self.read[verdict is not None] += 1
            found[int(of_image[entry])][0].append(_Positive(entry, reply, verdict))
        for row, (considered, chosen) in found.items():
            entries = [p.entry for p in considered if p.unexpected]
            first = self.settings.rules.pick == "first"
            chosen += entries[: self.settings.k] if first else self._drawn(row, 0, entries)
        return found

    def _of_interest(self, row: int) -> list[int]:
        where = self.contents.entries(row)
        return (where.start + np.flatnonzero(self.regions.interest[where])).tolist()

    def _uniform(self, row: int) -> tuple[list[_Positive], list[int]]:
        where = self.contents.entries(row)
        every = list(range(where.start, where.stop))
        return [_Positive(entry, None, None) for entry in every], self._drawn(row, 0, every)

    def _pair(self, row: int, other: int, entries: Sequence[int]) -> str | None:
        """Adds a pair; the reason why not, or None."""
        absent, cosines = self._absent(row, other)
        if len(absent) < self.settings.k:
            return FEW_NEGATIVES
        codes = [int(self.contents.codes[entry]) for entry in entries]
        questions = [(row, code, YES) for code in codes] + [(other, c, NO) for c in absent]
        if self.settings.deduplicate:
            if {row, other} in self.used or self.asked & set(questions):
                return SEEN
            self.used.add(frozenset({row, other}))
            self.asked.update(questions)
        self._add(row, other, codes, absent, cosines)
        return None

    def _absent(self, row: int, other: int) -> tuple[list[int], Cosines]:
        """The k absent objects to ask about, and the cosines of all."""
        settings, cosines = self.settings, self.space.cosines([other])[0]
        free = np.flatnonzero(~self.contents.present[other])
        if settings.absent == "of_interest":
            free = np.intersect1d(free, self.contents.codes[self._of_interest(row)])
        if settings.negatives == "uniform":
            return self._drawn(row, 1, free), cosines
        scores = self._scores(cosines[free])
        order = np.argsort(-scores, kind="stable")[: settings.k]
        return free[order].tolist(), cosines

    def _scores(self, cosines: Cosines) -> Floats:
        values = cosines.astype(np.float64)
        if self.settings.rules.chunk is None:
            return values
        cuts = range(self.settings.rules.chunk, len(values), self.settings.rules.chunk)
        parts = np.split(self.space.scale * values, list(cuts))
        return np.concatenate([softmax(part) for part in parts if len(part)] or [values])

    def _add(
        self, row: int, other: int, codes: Sequence[int], absent: Sequence[int], cosines: Cosines
    ) -> None:
        """Keeps the questions of a pair; of absent objects also the next k, passed over, are noted.

        Args:
            row: of ``I``.
            other: row of ``I'``.
            codes: of the objects of ``I`` in questions.
            absent: those of ``I'``.
            cosines: of ``I'`` and all texts.
        """
        own, background = self.space.cosines([row])[0], self.regions.background(row)
        there = self.contents.names(self.contents.codes[self.contents.entries(other)])
        asked = [(row, code, YES, background, own, -1) for code in codes]
        asked += [(other, code, NO, there, cosines, row) for code in absent]
        for image, code, label, words, of_texts, nearest_to in asked:
            known = (self.made, *self._object(image, code, label).values(), ", ".join(words))
            self.rows.append((*known, float(of_texts[code]), nearest_to))
        free = np.flatnonzero(~self.contents.present[other])
        order = free[np.argsort(-cosines[free], kind="stable")]
        for code in dict.fromkeys([*absent, *order[: 2 * self.settings.k].tolist()]):
            noted = {"chosen": code in absent, "pair": self.made, "skipped": ""}
            noted |= {"cosine": float(cosines[code]), "nearest_to": row}
            self.audit.append(self._object(other, code, NO) | noted)
        self.made += 1

    def _object(self, row: int, code: int, label: str) -> dict[str, Any]:
        return {"row": row, "object": self.contents.categories[code], "label": label}

    def _note_positives(
        self, row: int, considered: Sequence[_Positive], chosen: Sequence[int], reason: str | None
    ) -> None:
        background = ", ".join(self.regions.background(row))
        for entry, reply, unexpected in considered:
            noted = {
                "chosen": reason is None and entry in chosen,
                "pair": self.made - 1 if reason is None else -1,
                "background": background,
                "reply": reply,
                "unexpected": unexpected,
                "expected": float(self.regions.expected[entry]),
                "skipped": reason or "",
            }
            self.audit.append(self._object(row, self.contents.codes[entry], YES) | noted)

    def _drawn(self, row: int, stream: int, values: Sequence[int] | Ints) -> list[int]:
        """Up to k of some numbers, in ascending order."""
        rng, count = np.random.default_rng([self.seed, row, stream]), len(values)
        return sorted(rng.choice(values, min(self.settings.k, count), replace=False).tolist())

    def result(self) -> Constructed:
        """Tables of what was made."""
        questions = pd.DataFrame(self.rows, columns=_QUESTION)
        audit = pd.DataFrame(self.audit).reindex(columns=_AUDIT)
        return Constructed(questions, audit, dict(self.skipped))

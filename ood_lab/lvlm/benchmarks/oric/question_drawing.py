"""One construction under way: images are drawn, judged, paired, and all of it is noted down."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.annotations.image_contents import Contents, expected
from ood_lab.lvlm.benchmarks.oric.construction import (
    Expectation,
    Judge,
    OricConstruction,
    says_no,
)
from ood_lab.lvlm.benchmarks.oric.published_files import items_of, write_bench, write_train
from ood_lab.lvlm.benchmarks.oric.question_sets import Verdicts, Wording, worded
from ood_lab.lvlm.image_text.clip import ClipSpace
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.schema.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Regions:
    """Which entries of ``Contents`` are objects of interest.

    ``ROI = {i: A_i < median(A)}`` and ``nonROI = {i: A_i >= median(A)}`` over the categories of an
    image, with the areas ``A_i`` of the unions of their boxes.

    Attributes:
        contents: of all images.
        interest: ``[E] bool``.
        expected: ``P(i | nonROI)`` of every entry, ``[E]``; see
            :mod:`ood_lab.lvlm.annotations.image_contents`.
        rank: of ``expected`` among the objects of interest of all eligible images: the share of
            them that is less expected, ``[E]``.
    """

    contents: Contents
    interest: Bools
    expected: Floats
    rank: Floats

    def background(self, row: int) -> list[str]:
        """Names of the nonROI categories of an image."""
        where = self.contents.entries(row)
        return self.contents.names(self.contents.codes[where][~self.interest[where]])


def regions_of(contents: Contents, eligible: Ints) -> Regions:
    """Objects of interest of all images.

    Args:
        contents: of all images.
        eligible: images among whose objects of interest ``rank`` is taken.
    """
    sizes, rows = np.diff(contents.starts), contents.rows
    areas = pd.Series(contents.areas)
    interest = np.asarray(areas < areas.groupby(rows).transform("median"))
    background = np.zeros_like(contents.present)
    background[rows[~interest], contents.codes[~interest]] = True
    every = expected(contents.present, np.arange(len(contents)), background)
    chances = every[rows, contents.codes]
    among = np.zeros(len(sizes), bool)
    among[eligible] = True
    pool = np.sort(chances[interest & among[rows]])
    rank = np.searchsorted(pool, chances, side="left") / max(len(pool), 1)
    return Regions(contents, interest, chances, rank)


log = logging.getLogger(__name__)

Cosines = NDArray[np.float32]
#: Why an image gives no pair.
FEW_POSITIVES, FEW_NEGATIVES, SEEN = (
    "fewer than k unexpected objects",
    "fewer than k absent objects",
    "asked about already",
)
#: Texts of which the released code takes a softmax at a time.
CHUNK = 100
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


class _Positive(NamedTuple):
    """An object that may be asked about."""

    entry: int
    reply: str | None
    unexpected: bool | None


@dataclass
class Drawing:
    """One construction under way.

    Attributes:
        builder: what the questions are made of.
        contents: of all images.
        settings: how they are made.
        regions: objects of interest of all images.
        pool: rows of the images that ``I'`` may be.
    """

    builder: Builder
    contents: Contents
    settings: OricConstruction
    regions: Regions
    pool: Ints
    rows: list[Fields] = field(default_factory=list)
    audit: list[Fields] = field(default_factory=list)
    used: set[frozenset[int]] = field(default_factory=set)
    asked: set[tuple[int, int, str]] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    read: Counter[bool] = field(default_factory=Counter)
    made: int = 0

    def draw(self, order: Ints) -> Constructed:
        """Goes through the images, some at a time: a judge gets several at once."""
        wanted, start = self.settings.pairs, 0
        if self.settings.released:
            order = self._without_repeats(order)[:wanted]
        while self.made < wanted and start < len(order):
            size = max(32, 2 * (wanted - self.made))
            self._some(order[start : start + size])
            start += size
        self._complain(len(order))
        questions = pd.DataFrame(self.rows, columns=_QUESTION)
        return Constructed(questions, pd.DataFrame(self.audit, columns=_AUDIT), dict(self.skipped))

    def _without_repeats(self, order: Ints) -> Ints:
        """The images whose pair with the nearest no earlier image of the annotations makes."""
        if not (self.settings.deduplicate and len(order)):
            return order
        rows = np.sort(order)
        pairs = np.sort(
            np.column_stack([rows, self.builder.space.nearest(rows, self.pool)]), axis=1
        )
        first = np.unique(pairs, axis=0, return_index=True)[1]
        self.skipped[SEEN] += len(rows) - len(first)
        return order[np.isin(order, rows[first])]

    def _complain(self, sample: int) -> None:
        settings, reasons = self.settings, "; ".join(f"{k}: {n:,}" for k, n in self.skipped.items())
        if self.read and not self.read[True]:
            example = next(row["reply"] for row in self.audit if row["label"] == YES)
            raise UserError(
                "the judge never answered yes or no; its first reply was "
                f"'{str(example)[:80]}': choose another judge=..."
            )
        if not self.made:
            raise UserError(
                f"none of {sample:,} images gives a pair ({reasons}): lower task.construct.k, or "
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
            results = self.builder.space.nearest(np.array(enough), self.pool)
            nearest = dict(zip(enough, results.tolist(), strict=True))
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
        interest = {row: self._of_interest(row) for row in rows.tolist()}
        asked = []
        for row, entries in interest.items():
            background = tuple(self.regions.background(row))
            names = self.contents.names(self.contents.codes[entries])
            ranks = self.regions.rank[entries].tolist()
            asked += [Expectation(n, background, r) for n, r in zip(names, ranks, strict=True)]
        replies, results = self.builder.judge.replies(asked), {}
        if len(replies) != len(asked):  # of a judge of the user's own
            raise UserError(f"the judge gave {len(replies)} replies to {len(asked)} questions")
        in_order = iter(replies)
        for row, entries in interest.items():
            considered = []
            for entry, reply in zip(entries, in_order, strict=False):  # the next of all replies
                verdict = says_no(reply, self.settings.released)
                self.read[verdict is not None] += 1
                considered.append(_Positive(entry, reply, verdict))
            unexpected = [p.entry for p in considered if p.unexpected]
            first = unexpected[: self.settings.k]
            chosen = first if self.settings.released else self._drawn(row, 0, unexpected)
            results[row] = considered, chosen
        return results

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
        settings, cosines = self.settings, self.builder.space.cosines([other])[0]
        free = np.flatnonzero(~self.contents.present[other])
        if settings.absent == "of_interest":
            free = np.intersect1d(free, self.contents.codes[self._of_interest(row)])
        if settings.negatives == "uniform":
            return self._drawn(row, 1, free), cosines
        order = np.argsort(-self._scores(cosines[free]), kind="stable")[: settings.k]
        return free[order].tolist(), cosines

    def _scores(self, cosines: Cosines) -> Floats:
        values = cosines.astype(np.float64)
        if not self.settings.released:
            return values
        cuts = range(CHUNK, len(values), CHUNK)
        parts = np.split(self.builder.space.scale * values, list(cuts))
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
        own, background = self.builder.space.cosines([row])[0], self.regions.background(row)
        there = self.contents.names(self.contents.codes[self.contents.entries(other)])
        for image, objects, label, words, of_texts, nearest_to in (
            (row, codes, YES, background, own, -1),
            (other, absent, NO, there, cosines, row),
        ):
            about = {"pair": self.made, "background": ", ".join(words), "nearest_to": nearest_to}
            self.rows += [
                {**self._object(image, code, label), **about, "cosine": float(of_texts[code])}
                for code in objects
            ]
        free = np.flatnonzero(~self.contents.present[other])
        order = free[np.argsort(-cosines[free], kind="stable")]
        for code in dict.fromkeys([*absent, *order[: 2 * self.settings.k].tolist()]):
            noted = {"chosen": code in absent, "pair": self.made, "skipped": "", "nearest_to": row}
            cosine = {"cosine": float(cosines[code])}
            self.audit.append(self._object(other, code, NO) | noted | cosine)
        self.made += 1

    def _object(self, row: int, code: int, label: str) -> Fields:
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
        rng, count = np.random.default_rng([self.builder.seed, row, stream]), len(values)
        return sorted(rng.choice(values, min(self.settings.k, count), replace=False).tolist())


#: Ablations: which of the two samplers are ORIC's own; the others draw at random.
Ablation = Literal["uniform", "pos_only", "neg_only"]
_SAMPLERS: Mapping[Ablation, Fields] = {
    "uniform": {"positives": "uniform", "negatives": "uniform"},
    "pos_only": {"negatives": "uniform"},
    "neg_only": {"positives": "uniform"},
}


@dataclass(frozen=True)
class Builder:
    """Builds sets of questions from the same images.

    Attributes:
        contents: what is in N images.
        space: the same images, and the labels.
        judge: says what is unexpected.
        seed: of all draws.
    """

    contents: Contents
    space: ClipSpace
    judge: Judge
    seed: int

    def oric(self, how: OricConstruction, train_pairs: int = 0) -> dict[str, Constructed]:
        """ORIC's questions, ``bench``, and others to train on, ``train``, where these are wanted.

        The images are dealt to the two at random, in proportion to their pairs: none is in both.

        Args:
            how: pairs are those of the benchmark.
            train_pairs: pairs to train on.

        Raises:
            UserError: see :meth:`construct`.
        """
        if not train_pairs:
            return {"bench": self.construct(how)}
        order = np.random.default_rng([self.seed, 3]).permutation(len(self.contents))
        cut = round(len(order) * train_pairs / (train_pairs + how.pairs))
        train = replace(how, pairs=train_pairs)
        return {
            "bench": self.construct(how, order[cut:]),
            "train": self.construct(train, order[:cut]),
        }

    def construct(self, how: OricConstruction, among: Ints | None = None) -> Constructed:
        """Draws images in random order until there are enough pairs.

        What is chosen for an image depends only on the seed and the image.

        Args:
            how: questions are made.
            among: rows of the images that may be asked about; None = all.

        Raises:
            UserError: no image has enough categories, the judge's replies cannot be read, or no
                image gives a pair.
        """
        rows = np.arange(len(self.contents)) if among is None else np.sort(among)
        eligible = rows[np.diff(self.contents.starts)[rows] >= how.min_categories]
        if not len(eligible):
            raise UserError(
                f"no image has {how.min_categories} categories, as "
                f"task.construct.min_categories={how.min_categories} asks for"
            )
        pool = rows if how.released else eligible
        run = Drawing(self, self.contents, how, regions_of(self.contents, eligible), pool)
        return run.draw(np.random.default_rng(self.seed).permutation(eligible))

    def ablation(
        self, how: OricConstruction, name: Ablation, among: Ints | None = None
    ) -> pd.DataFrame:
        """ORIC's questions with one or both of its samplers swapped for random draws.

        Args:
            how: ORIC's are made.
            name: which samplers stay.
            among: rows of the images that may be asked about; None = all.
        """
        return self.construct(replace(how, **_SAMPLERS[name]), among).questions


def write_construction(
    parts: Mapping[str, Constructed],
    annotations: Annotations,
    verdicts: Verdicts,
    wording: Wording,
    folder: Path,
) -> pd.DataFrame:
    """Writes ``oric_bench.json``, ``oric_train.json`` where there is one, and ``audit.csv``.

    Args:
        parts: see :meth:`Builder.oric`.
        annotations: of the images.
        verdicts: on the questions; rejected ones are only in the audit.
        wording: of the questions.
        folder: where to.

    Returns:
        The questions of the benchmark that nobody has rejected, with their texts.

    Raises:
        UserError: a verdict is on none of the questions.
    """
    files = annotations.images["file"].to_numpy(object)

    def named(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(image=files[rows["row"].to_numpy(np.int64)])

    audits = [made.audit.assign(file=file) for file, made in parts.items()]
    audit = named(pd.concat(audits, ignore_index=True))
    chosen = audit["chosen"].astype(bool)
    verdicts.check_questions(audit[chosen])
    write_csv(audit.assign(verdict=verdicts.of(audit).where(chosen, "")), folder / "audit.csv")
    kept = {}
    for file, made in parts.items():
        rejected = verdicts.rejects(named(made.questions))
        questions = made.questions[~rejected].reset_index(drop=True)
        kept[file] = worded(questions, annotations, wording)
        write = write_bench if file == "bench" else write_train
        write(items_of(kept[file]), folder / f"oric_{file}.json")
    return kept["bench"]

"""What a caption gets right and what it makes up: AMBER's rules (arXiv 2311.07397)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from operator import eq
from typing import Any, Protocol

from ood_lab.common.arguments import Settings
from ood_lab.lvlm.captions.nouns import spacy_pipeline

#: AMBER's: above it two words are synonyms.
THRESHOLD = 0.8


class Similarity(Protocol):
    """Tells synonyms."""

    @property
    def made_with(self) -> Settings:
        """What tells its results from another's: way, model, version."""

    def __call__(self, first: str, second: str) -> bool:
        """True where the two are synonyms."""


@dataclass(frozen=True)
class Association:
    """Equality: only the association tables know synonyms. Needs no data."""

    @property
    def made_with(self) -> Settings:
        """The way."""
        return {"similarity": "association"}

    def __call__(self, first: str, second: str) -> bool:
        """See :class:`Similarity`."""
        return first == second


@dataclass(frozen=True)
class SpacyVectors:
    """Cosine of spaCy's word vectors above a threshold: AMBER's own way.

    Args:
        model: name or folder of a pipeline with vectors.
        threshold: of the cosine.

    Raises:
        UserError: spaCy or the model is not on this machine.
    """

    model: str = "en_core_web_lg"
    threshold: float = THRESHOLD

    @property
    def made_with(self) -> Settings:
        """The way, the model, its version and the threshold."""
        version = self._pipeline.meta.get("version", "")
        return {
            "similarity": "spacy_vectors",
            "similarity_model": self.model,
            "similarity_version": version,
            "threshold": self.threshold,
        }

    def __call__(self, first: str, second: str) -> bool:
        """See :class:`Similarity`."""
        return self._cosine(first, second) > self.threshold

    @cached_property
    def _cosine(self) -> Callable[[str, str], float]:
        pipeline = self._pipeline
        return cache(lambda first, second: pipeline(first).similarity(pipeline(second)))

    @cached_property
    def _pipeline(self) -> Any:
        return spacy_pipeline(self.model)


class CaptionWords(Protocol):
    """The words of a data set."""

    @property
    def vocabulary(self) -> Collection[str]:
        """Words that a caption is searched for."""

    @property
    def associates(self) -> Mapping[str, Sequence[str]]:
        """Of an object, words that stand for it."""

    @property
    def safe_words(self) -> Collection[str]:
        """Words that never count as hallucinated."""


@dataclass(frozen=True)
class CaptionVerdict:
    """What a caption names.

    Attributes:
        nouns: concepts that it names, in order, repeated as it repeats them.
        flagged: those of them that are hallucinated.
        covered: positions in the truth that it names.
        marked: positions among the hallucination candidates that it names.
    """

    nouns: list[str]
    flagged: list[str]
    covered: set[int]
    marked: set[int]

    def counts(self, truth: int, hallu: int) -> list[int]:
        """In the order of :data:`ood_lab.metrics.answer_metrics.COUNTS`."""
        named = [len(self.flagged), len(self.nouns), len(self.covered), truth]
        return [*named, len(self.marked), hallu, int(not self.flagged), 1]


@dataclass(frozen=True)
class CaptionRules:
    """AMBER's rules for the nouns of a caption.

    Every noun is looked at in turn:

    1. A safe word is passed over; it stays in CHAIR's denominator.
    2. A true object, or an associate of one, covers the first that fits; done.
    3. A candidate, or an associate of one, marks it.
    4. So does the first synonym of a candidate, whether 3 has found one or not.
    5. A synonym of a true object covers it; done.
    6. Anything else is hallucinated.

    Attributes:
        vocabulary: words that count as nouns at all.
        associates: of an object, words that stand for it.
        safe_words: see 1.
        similarity: tells synonyms.
    """

    vocabulary: Collection[str]
    associates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    safe_words: Collection[str] = ()
    similarity: Similarity = field(default_factory=Association)

    def judge(
        self, nouns: Sequence[str], truth: Sequence[str], hallu: Sequence[str]
    ) -> CaptionVerdict:
        """Judges the nouns of one caption; those outside the vocabulary are skipped first."""
        true, tempting = self._expanded(truth), self._expanded(hallu)
        named = [noun for noun in nouns if noun in self.vocabulary]
        flagged: list[str] = []
        covered: set[int] = set()
        marked: set[int] = set()
        for noun in named:
            if noun in self.safe_words:
                continue
            same, synonym = partial(eq, noun), partial(self.similarity, noun)
            place = _first(true, same)
            if place is None:
                results = {_first(tempting, same), _first(tempting, synonym)}
                marked |= {item for item in results if item is not None}
                place = _first(true, synonym)
            if place is None:
                flagged.append(noun)
            else:
                covered.add(place)
        return CaptionVerdict(named, flagged, covered, marked)

    def _expanded(self, objects: Sequence[str]) -> list[tuple[str, int]]:
        """Words with the position of the object that they stand for: associates, then objects."""
        words = [
            (word, place)
            for place, name in enumerate(objects)
            for word in self.associates.get(name, ())
        ]
        return words + [(name, place) for place, name in enumerate(objects)]


def _first(words: Sequence[tuple[str, int]], fits: Callable[[str], bool]) -> int | None:
    return next((place for word, place in words if fits(word)), None)

"""Which concepts a caption names: three ways to find its nouns."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import reported_as
from ood_lab.lvlm.parsers.base import english

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


class NounExtractor(Protocol):
    """Finds the words of a vocabulary in a caption."""

    @property
    def made_with(self) -> Settings:
        """What tells its results from another's: way, package, model, versions."""

    def __call__(self, caption: str, vocabulary: Collection[str]) -> list[str]:
        """Every occurrence, in order, as the vocabulary has it."""


@dataclass(frozen=True)
class Lexicon:
    """Looks up every word and every sequence of words; needs no data.

    A word that the vocabulary has is taken unchanged, and as one of its plurals only where it is
    not: no lemmatiser turns a bus into a bu. A possessive is taken without its "'s". It does not
    know parts of speech, so that it takes "light" and "watch" for nouns wherever they occur.
    Longest match first; case does not matter.
    """

    @property
    def made_with(self) -> Settings:
        """The way, and the package of plurals."""
        return {"nouns": "lexicon", "plurals": "inflect"}

    def __call__(self, caption: str, vocabulary: Collection[str]) -> list[str]:
        """See :class:`NounExtractor`."""
        forms = word_forms(frozenset(vocabulary))
        longest = max((len(form) for form in forms), default=0)
        words_of_forms = {word for form in forms for word in form}
        # Without the "'s" of a possessive, unless the vocabulary has it with one.
        words = [w if w in words_of_forms else w.removesuffix("'s") for w in _split(caption)]
        results, place = [], 0
        while place < len(words):
            for length in range(min(longest, len(words) - place), 0, -1):
                if word := forms.get(tuple(words[place : place + length])):
                    results.append(word)
                    place += length
                    break
            else:
                place += 1
        return results


@cache
def word_forms(vocabulary: frozenset[str]) -> dict[tuple[str, ...], str]:
    """Words of the vocabulary by themselves, split at spaces, and by their plurals.

    Raises:
        UserError: inflect is missing.
    """
    forms = {_split(word): word for word in vocabulary}
    for word in vocabulary:
        forms.setdefault(_split(str(english().plural_noun(word))), word)
    return forms


@dataclass(frozen=True)
class SpacyNouns:
    """Tokens that spaCy tags NN*, as lemmas.

    Args:
        model: name or folder of a pipeline with a tagger and a lemmatizer.

    Raises:
        UserError: spaCy or the model is not on this machine.
    """

    model: str = "en_core_web_lg"

    @property
    def made_with(self) -> Settings:
        """The way, the model and its version."""
        meta = self._pipeline.meta
        return {"nouns": "spacy", "model": self.model, "version": meta.get("version", "")}

    def __call__(self, caption: str, vocabulary: Collection[str]) -> list[str]:
        """See :class:`NounExtractor`."""
        tokens = self._pipeline(caption)
        return [t.lemma_ for t in tokens if t.tag_.startswith("NN") and t.lemma_ in vocabulary]

    @cached_property
    def _pipeline(self) -> Any:
        return spacy_pipeline(self.model)


@dataclass(frozen=True)
class NltkNouns:
    """Tokens that NLTK tags NN*, lemmatised with WordNet, case kept: AMBER's own way.

    Raises:
        UserError: NLTK or its data (``punkt``, the tagger, ``wordnet``) is not on this machine.
    """

    @property
    def made_with(self) -> Settings:
        """The way and the version."""
        return {"nouns": "nltk", "version": _nltk().__version__}

    def __call__(self, caption: str, vocabulary: Collection[str]) -> list[str]:
        """See :class:`NounExtractor`."""
        nltk = _nltk()
        with reported_as(
            "noun_extractor=nltk: NLTK's data is not on this machine: python -m "
            "nltk.downloader punkt_tab averaged_perceptron_tagger_eng wordnet",
            LookupError,
        ):
            lemma = nltk.stem.WordNetLemmatizer().lemmatize
            tagged = nltk.pos_tag(nltk.word_tokenize(caption))
            nouns = [lemma(word) for word, tag in tagged if tag.startswith("NN")]
        return [noun for noun in nouns if noun in vocabulary]


def spacy_pipeline(model: str) -> Any:
    """A spaCy pipeline.

    Raises:
        UserError: spaCy or the model is not on this machine.
    """
    with reported_as("spacy is not installed: pip install spacy, and a model for it", ImportError):
        import spacy
    with reported_as(
        f"spaCy's model '{model}' is not on this machine: python -m spacy download {model}", OSError
    ):
        return spacy.load(model)


def _nltk() -> Any:
    with reported_as("nltk is not installed: pip install nltk", ImportError):
        import nltk
    return nltk


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(text))

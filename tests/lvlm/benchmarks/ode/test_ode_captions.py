from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pytest
from small_concepts import SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.captions import nouns
from ood_lab.lvlm.captions.caption_rules import CaptionRules
from ood_lab.lvlm.captions.nouns import Lexicon, NltkNouns, SpacyNouns
from ood_lab.metrics.answer_metrics import amber_caption_metrics, caption_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import clustered


class Synonyms:
    """Knows that a vessel is a boat and a puppy a dog."""

    made_with: ClassVar = {"similarity": "test"}

    def __call__(self, first, second):
        return first == second or {first, second} in ({"vessel", "boat"}, {"cat", "kitten"})


def rules(**more):
    words = {*SMALL.vocabulary, "vessel", "kitten", "line"}
    return CaptionRules(words, SMALL.associates, safe_words=("line",), **more)


def published(concepts):
    return CaptionRules(frozenset(concepts.vocabulary), concepts.associates, concepts.safe_words)


def test_associates_stand_for_their_object():
    verdict = rules().judge(["people", "man", "ship"], ["boat", "person"], [])
    assert verdict.covered == {0, 1}
    assert not verdict.flagged


def test_a_repeated_object_is_covered_once():
    verdict = rules().judge(["ship", "ship"], ["ship", "ship"], [])
    assert verdict.counts(2, 0) == [0, 2, 1, 2, 0, 0, 1, 1]


def test_safe_words_count_in_the_denominator_only():
    verdict = rules().judge(["line", "unknown"], ["dog"], [])
    assert verdict.counts(1, 0) == [0, 1, 0, 1, 0, 0, 1, 1]


def test_a_named_candidate_is_marked_and_flagged():
    verdict = rules().judge(["cat"], ["dog"], ["sun", "cat"])
    assert (verdict.marked, verdict.flagged) == ({1}, ["cat"])


def test_synonyms_cover_or_mark():
    judge = rules(similarity=Synonyms()).judge
    assert judge(["vessel"], ["boat"], []).covered == {0}
    verdict = judge(["kitten"], ["dog"], ["cat"])
    assert (verdict.marked, verdict.flagged) == ({0}, ["kitten"])


def test_no_truth_covers_nothing():
    assert rules().judge(["dog"], [], []).counts(0, 0) == [1, 1, 0, 0, 0, 0, 0, 1]


NOUNS = {
    1: "man boat lake dog dog cloud orange spaceship",
    2: "ship bridge mountain water tree bird",
    3: "child grass",
}


@needs_data
def test_check_vector_of_amber(amber):
    total = np.zeros(8, int)
    for number, words in NOUNS.items():
        truth, hallu = amber.truth[number - 1], amber.hallu[number - 1]
        verdict = published(amber).judge(words.split(), truth, hallu)
        total += verdict.counts(len(truth), len(hallu))
    assert total.tolist() == [5, 15, 9, 20, 3, 15, 1, 3]
    assert amber_caption_metrics(total) == {"chair": 33.3, "cover": 45.0, "hal": 66.7, "cog": 20.0}


def test_lexicon_takes_words_as_they_are_and_plurals():
    words = {"bus", "leaf", "sunglasses", "people", "wine glass", "glass", "TV"}
    caption = "Two buses, leaves and sunglasses; people with wine glasses and a glass, a tv."
    assert Lexicon()(caption, words) == [
        "bus",
        "leaf",
        "sunglasses",
        "people",
        "wine glass",
        "glass",
        "TV",
    ]


def test_lexicon_does_not_find_words_inside_words():
    assert Lexicon()("A carpet and a scarf.", {"car"}) == []


@needs_data
def test_lexicon_finds_every_word_of_amber_and_its_plural(amber):
    lexicon, words = Lexicon(), amber.vocabulary
    for word in words:
        assert lexicon(f"There is a {word}.", words) == [word]


def test_a_missing_model_of_spacy_is_named():
    with pytest.raises(UserError, match="spacy"):
        SpacyNouns("no_such_model")("A dog.", {"dog"})


@pytest.mark.skipif(find_spec("nltk") is not None, reason="nltk is installed")
def test_a_missing_nltk_is_named():
    with pytest.raises(UserError, match="pip install nltk"):
        NltkNouns()("A dog.", {"dog"})


@needs_data
def test_the_plurals_of_a_vocabulary_are_made_once_for_all_captions(amber):
    rng, words = np.random.default_rng(0), amber.vocabulary
    nouns.word_forms.cache_clear()
    lexicon, judge = Lexicon(), published(amber).judge
    counts = []
    for truth, hallu in zip(amber.truth, amber.hallu, strict=True):
        caption = " and ".join(rng.choice([*words, *truth, *hallu], 15))
        counts.append(judge(lexicon(caption, words), truth, hallu).counts(len(truth), len(hallu)))
    assert len(counts) == 1004
    assert nouns.word_forms.cache_info().misses == 1
    found = clustered(counts, caption_metrics, resampling=Resampling(draws=100)).estimates()
    assert all(each.low <= each.value <= each.high for each in found.values())

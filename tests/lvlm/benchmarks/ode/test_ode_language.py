"""AMBER's own nouns and similarity, with language data small enough to be made here."""

import numpy as np
import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.captions.caption_rules import SpacyVectors
from ood_lab.lvlm.captions.nouns import Lexicon, NltkNouns, SpacyNouns

CAPTION = "Two dogs stand near a Boat."
TAGGED = [
    [word.split("/") for word in sentence.split()]
    for sentence in (
        "Two/CD dogs/NNS stand/VBP near/IN a/DT Boat/NN ./.",
        "A/DT stand/NN near/IN cars/NNS ./.",
    )
] * 5
INDEX = "{0} n 1 0 1 1 0000{1:04d}  \n"


def test_possessives_are_named_too():
    pytest.importorskip("inflect")
    caption = "The dog's collar, a bus's wheels, the cats' tails: it's a hunter's stool."
    words = {"dog", "bus", "cat", "collar", "hunter's stool"}
    assert Lexicon()(caption, words) == ["dog", "collar", "bus", "cat", "hunter's stool"]


# First in this file: NLTK keeps what it has once found.
def test_missing_data_of_nltk_is_one_line(tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(UserError, match=r"nltk\.downloader punkt_tab"):
        NltkNouns()(CAPTION, {"dog"})


@pytest.fixture(scope="module")
def nltk_data(tmp_path_factory):
    """The three parts that NLTK looks up, of a few words each."""
    nltk = pytest.importorskip("nltk")
    root = tmp_path_factory.mktemp("nltk")
    punkt, wordnet = root / "tokenizers/punkt_tab/english", root / "corpora/wordnet"
    punkt.mkdir(parents=True)
    wordnet.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (punkt / name).touch()
    nouns = "".join(INDEX.format(word, n) for n, word in enumerate(["boat", "car", "dog"]))
    for part in ("noun", "verb", "adj", "adv"):
        (wordnet / f"index.{part}").write_text(nouns if part == "noun" else "")
        (wordnet / f"data.{part}").touch()
        (wordnet / f"{part}.exc").touch()
    for name in ("index.sense", "cntlist.rev"):
        (wordnet / name).touch()
    (wordnet / "lexnames").write_text("00\tnoun.Tops\t1\n")
    tagger = nltk.tag.PerceptronTagger(load=False)
    tagger.train(TAGGED)
    with pytest.MonkeyPatch.context() as patch:  # NLTK writes and reads nowhere else
        patch.setattr(nltk.data, "path", [str(root)])
        tagger.save_to_json("eng", str(root / "taggers/averaged_perceptron_tagger_eng"))
        yield nltk


def test_nouns_of_nltk_keep_their_case(nltk_data):
    nouns = NltkNouns()
    assert nouns(CAPTION, {"dog", "boat", "Boat", "stand"}) == ["dog", "Boat"]
    assert nouns(CAPTION, {"dog", "boat"}) == ["dog"]
    assert nouns.made_with == {"nouns": "nltk", "version": nltk_data.__version__}


@pytest.fixture(scope="module")
def spacy_model(tmp_path_factory):
    """A pipeline with a tagger, a lemmatizer and vectors of a few words."""
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import Doc
    from spacy.training import Example

    nlp = spacy.blank("en")
    tagger = nlp.add_pipe("tagger")
    lemmatizer = nlp.add_pipe("lemmatizer", config={"mode": "lookup"})
    docs = [
        Doc(nlp.vocab, [w for w, _ in sentence], tags=[t for _, t in sentence])
        for sentence in TAGGED
    ]
    examples = [Example(Doc(nlp.vocab, [t.text for t in doc]), doc) for doc in docs]
    tables = nlp.vocab.lookups.add_table("lemma_lookup", {"dogs": "dog", "Boat": "boat"})
    lemmatizer.lookups.set_table("lemma_lookup", tables)
    tagger.initialize(lambda: examples, nlp=nlp)
    optimizer = nlp.create_optimizer()
    for _ in range(30):
        tagger.update(examples, sgd=optimizer)
    for word, vector in {"dog": [3.0, 4.0], "puppy": [4.0, 3.0], "boat": [4.0, -3.0]}.items():
        nlp.vocab.set_vector(word, np.array(vector, np.float32))
    path = tmp_path_factory.mktemp("spacy") / "en_tiny"
    nlp.to_disk(path)
    return str(path)


def test_nouns_of_spacy_are_lemmas(spacy_model):
    nouns = SpacyNouns(spacy_model)
    assert nouns(CAPTION, {"dog", "boat", "stand"}) == ["dog", "boat"]
    assert nouns.made_with["model"] == spacy_model


def test_similarity_of_spacy_is_a_cosine_above_the_threshold(spacy_model):
    near, far = SpacyVectors(spacy_model, threshold=0.95), SpacyVectors(spacy_model, threshold=0.97)
    assert near("dog", "puppy")  # (3, 4)(4, 3) / 25 = 0.96
    assert not far("dog", "puppy")
    assert not near("dog", "boat")  # at a right angle

import pytest
import torch

from ood_lab.builtin.vessels import caption_labels, caption_templates
from ood_lab.builtin.vessels.covariate_styles import STYLES
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.builtin.vessels.periods import CLASSES


@pytest.fixture
def tokenizer(tiny):
    return tiny.tokenizer


def tokens_of(tokenizer, text):
    """The tokens that the ids of a text stand for; ``+a`` spells an unknown word."""
    tokens = {number: token for token, number in tokenizer.ids.items()}
    return [tokens[number] for number in tokenizer.encode(text)]


def test_every_caption_comes_back_and_no_word_is_spelled(tokenizer):
    captions = [text.format(f"{CLASSES[0]} ding") for text in caption_templates()]
    words = {*caption_labels(), *NOUNS, *CLASSES, *(s.phrases[0] for s in STYLES.values())}
    for caption in {*captions, *words}:
        words = caption.lower().replace(",", " ,").split()
        expected = ["a" if word == "an" else word for word in words]
        assert tokens_of(tokenizer, caption) == expected, caption
        assert len(tokenizer.encode(caption)) <= 30


def test_the_layout_is_that_of_open_clip(tokenizer):
    ids = tokenizer(["a ding.", "a clear photo of a gui in a museum"])
    assert ids.shape == (2, 32)
    assert ids.dtype == torch.int64
    assert (ids[:, 0] == tokenizer.sot_token_id).all()
    ends = ids.argmax(-1)
    assert ends.tolist() == [4, 10]
    assert ids.max() == tokenizer.eot_token_id == tokenizer.vocab_size - 1
    assert not ids[0, 5:].any()
    assert tokenizer("a ding.").tolist() == ids[:1].tolist()


def test_any_text_can_be_encoded(tokenizer):
    spelled = [f"+{letter}" for letter in "cafegoldenbrownr2d2"]
    assert tokens_of(tokenizer, "Café GOLDEN-brown R2D2") == spelled
    assert tokenizer.encode("dog") != tokenizer.encode("god")
    assert tokens_of(tokenizer, "dog") == ["+d", "+o", "+g"]
    strange = tokenizer.encode("鼎!")
    assert len(strange) == 2
    assert set(strange) == {tokenizer.ids["<unknown>"]}
    assert tokenizer.encode("") == []
    # Neither a special token nor a letter token can be written in a text.
    assert tokenizer.eot_token_id not in tokenizer.encode("<end> <start>")
    assert tokenizer.encode("+a") != [tokenizer.ids["+a"]]


def test_prompt_templates_split_where_they_should(tokenizer):
    name = "early Shang"
    prompt = tokenizer.encode("X " * 4 + name + ".")
    k = len(tokenizer.encode(name))
    assert len(prompt) == 4 + k + 1
    assert prompt[4 : 4 + k] == tokenizer.encode(name)
    assert prompt[:4] == 4 * prompt[:1]


def test_long_texts_are_cut_before_the_end(tokenizer):
    ids = tokenizer(["ding " * 100])[0]
    assert ids[-1] == tokenizer.eot_token_id
    assert (ids[1:-1] == tokenizer.ids["ding"]).all()

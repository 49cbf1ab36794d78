"""Layouts of learned prompts, and the backbone that they make."""

import pytest
import torch
import torch.nn.functional as F
from clip_towers import clip, images

from ood_lab.clip import zero_shot_weights
from ood_lab.common.errors import UserError
from ood_lab.models import check_contract
from ood_lab.prompts import prompt_backbone
from ood_lab.prompts.learned_texts import ContextPrompts, OutlierPrompts

NAMES = ["great_white_shark", "cat"]
START, X, STOP, END = 49406, 343, 269, 49407
SHARK = [830, 1579, 7980]


def ids(prompts, row=0):
    tokens = prompts.texts.ids[row].tolist()
    return tokens[: tokens.index(END) + 1]


def test_the_layout():
    expected = [START, X, X, X, X, *SHARK, STOP, END]
    prompts = ContextPrompts(clip("t-vit"), NAMES, n_ctx=4)
    assert ids(prompts) == expected  # the end is token M + k + 2
    assert prompts.texts.ids.shape == (2, 77)
    learned = [i for i, token in enumerate(expected) if token == X]
    assert prompts.texts.learned[0].nonzero().flatten().tolist() == learned
    assert len(ids(prompts, 1)) == 8


def test_the_usual_layout_is_what_the_tokenizer_makes():
    model = clip("t-vit")
    prompts = ContextPrompts(model, NAMES, n_ctx=4)
    expected = model.tokenizer(["X X X X great white shark.", "X X X X cat."])
    assert torch.equal(prompts.texts.ids, expected)


@pytest.mark.parametrize("name", ["t-vit", "t-custom", "t-eos", "t-bidirectional", "t-resnet"])
def test_words_as_vectors_give_the_features_of_the_words(name):
    model = clip(name)
    prompts = ContextPrompts(model, NAMES, ctx_init="a_photo of a")
    assert prompts.ctx.shape[-2] == 4
    texts = ["a photo of a great white shark.", "a photo of a cat."]
    torch.testing.assert_close(prompts.features(model), model.encode_text(texts))


#: Of ImageNet's own names, and others that end in punctuation.
PUNCTUATED = ["kite (bird of prey)", "missile (rocket)", "St.", "what?", "cat"]


@pytest.mark.parametrize("name", PUNCTUATED)
def test_a_name_and_its_full_stop_are_encoded_together(name):
    model = clip("t-vit")
    prompts = ContextPrompts(model, [name], ctx_init="a photo of a")
    assert torch.equal(prompts.texts.ids, model.tokenizer([f"X X X X {name}."]))
    expected = model.encode_text([f"a photo of a {name}."])
    torch.testing.assert_close(prompts.features(model), expected)


def test_vectors_lie_where_the_layout_says():
    model = clip("t-vit")
    prompts = ContextPrompts(model, NAMES, n_ctx=4)
    by_hand = prompts.texts.embeddings.clone()
    by_hand[:, 1:5] = prompts.ctx.detach()
    expected = model.text_from_embeddings(by_hand, prompts.texts.ids)
    torch.testing.assert_close(prompts.features(model), expected)


def test_outlier_prompts_share_all_vectors_but_one():
    model = clip("t-vit")
    prompts = OutlierPrompts(model, 3, n_ctx=4)
    assert ids(prompts) == [START, X, X, X, X, X, STOP, END]
    assert sum(p.numel() for p in prompts.parameters()) == (4 + 3) * 32
    by_hand = prompts.texts.embeddings.clone()
    by_hand[:, 1:5], by_hand[:, 5:6] = prompts.ctx.detach(), prompts.tokens.detach()
    expected = model.text_from_embeddings(by_hand, prompts.texts.ids)
    torch.testing.assert_close(prompts.features(model), expected)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n_ctx": 72}, "the prompt of 'great_white_shark' has 78 tokens, t-vit takes 77"),
    ],
)
def test_prompts_that_cannot_be(options, named):
    with pytest.raises(UserError, match=named):
        ContextPrompts(clip("t-vit"), NAMES, **options)
    ContextPrompts(clip("t-vit"), NAMES, n_ctx=71)


def test_towers_without_prompts_are_refused_by_name():
    with pytest.raises(UserError, match="t-coca"):
        ContextPrompts(clip("t-coca"), NAMES)


def test_the_head_are_the_texts():
    model = clip("t-vit")
    backbone = prompt_backbone(model, NAMES, ctx_init="a photo of a", input_size=32)
    check_contract(backbone)
    expected = zero_shot_weights(model, NAMES, ["a photo of a {}."]) * model.logit_scale
    torch.testing.assert_close(backbone.head.weight, expected)
    output = backbone(images("t-vit"))
    torch.testing.assert_close(output.features, F.normalize(output.features, dim=1))


def test_only_prompts_can_be_trained():
    backbone = prompt_backbone(clip("t-vit"), NAMES, n_outliers=3)
    backbone.train()
    trainable = {n for n, p in backbone.named_parameters() if p.requires_grad}
    assert trainable == {"prompts.ctx", "outliers.ctx", "outliers.tokens"}
    assert not any(m.training for m in backbone.clip.modules())
    assert backbone.outlier_head.weight.shape == (3, 48)


def test_wrong_sizes_are_refused():
    with pytest.raises(UserError, match=r"set model\.input_size=32"):
        prompt_backbone(clip("t-vit"), NAMES, input_size=224)
    with pytest.raises(UserError, match="1 names for 2 classes"):
        prompt_backbone(clip("t-vit"), NAMES, classnames=["one"])

"""Text features from embeddings and features of regions, against open_clip and by hand."""

import pytest
import torch
import torch.nn.functional as F
from clip_towers import clip, images

from ood_lab.clip import LocalFeaturesUnsupported
from ood_lab.common.errors import UserError

TEXTS = ["a photo of a cat.", "a photo of a great white shark.", "ding"]
CAUSAL = ("t-vit", "t-custom", "t-eos")


@pytest.mark.parametrize("name", [*CAUSAL, "t-bidirectional", "t-resnet", "t-timm"])
def test_text_from_embeddings_is_encode_text(name):
    model = clip(name)
    ids = model.tokenizer(TEXTS)
    ours = model.text_from_embeddings(model.embed_tokens(ids), ids)
    theirs = F.normalize(model.model.encode_text(ids), dim=-1)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours, model.encode_text(TEXTS), atol=1e-6, rtol=0)
    assert (ours[0] - ours[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", [*CAUSAL, "t-bidirectional"])
def test_cropping_changes_nothing_and_only_causal_towers_crop(name):
    model = clip(name)
    ids = model.tokenizer(TEXTS)
    lengths = []
    tower = getattr(model.model, "text", model.model).transformer
    hook = tower.register_forward_pre_hook(lambda m, args: lengths.append(args[0].shape[1]))
    cropped = model.text_from_embeddings(model.embed_tokens(ids), ids)
    hook.remove()
    torch.testing.assert_close(cropped, model.encode_text(TEXTS), atol=2e-6, rtol=0)
    assert lengths == [int(ids.argmax(-1).max()) + 1 if name in CAUSAL else 77]


def test_gradients_reach_the_prompt_and_no_parameter():
    model = clip("t-vit")
    ids = model.tokenizer(TEXTS)
    prompt = model.embed_tokens(ids).clone().requires_grad_()
    model.text_from_embeddings(prompt, ids)[:, 0].sum().backward()
    assert prompt.grad is not None
    used = prompt.grad.abs().amax((0, 2)) > 0
    assert used[: int(ids.argmax(-1).max()) + 1].all()
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())


def test_the_towers_stay_in_eval():
    holder = torch.nn.ModuleList([clip("t-resnet")]).train()
    assert not any(m.training for m in holder[0].modules())


@pytest.mark.parametrize("name", ["t-vit", "t-custom", "t-resnet"])
def test_the_global_feature_is_encode_image(name):
    model, batch = clip(name), images(name)
    whole, regions = model.image_features_and_local(batch)
    torch.testing.assert_close(whole, model.encode_image(batch), atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(regions.norm(dim=-1), torch.ones(regions.shape[:2]))
    cells = 4 if name == "t-resnet" else 16
    assert regions.shape == (2, cells, 48)


def test_regions_of_a_vit_are_its_values_by_hand():
    model, batch = clip("t-vit"), images("t-vit")
    visual = model.model.visual
    *earlier, last = visual.transformer.resblocks
    x = visual._embeds(batch)
    for block in earlier:
        x = block(x)
    width = x.shape[-1]
    attention = last.attn
    value = F.linear(
        last.ln_1(x), attention.in_proj_weight[2 * width :], attention.in_proj_bias[2 * width :]
    )
    x = x + attention.out_proj(value)
    x = x + last.mlp(last.ln_2(x))
    expected = F.normalize(visual.ln_post(x)[:, 1:] @ visual.proj, dim=-1)
    regions = model.image_features_and_local(batch)[1]
    torch.testing.assert_close(regions, expected, atol=1e-5, rtol=0)


def test_regions_of_a_resnet_are_projected_cells():
    model, batch = clip("t-resnet"), images("t-resnet")
    visual = model.model.visual
    cells = visual.layer4(visual.layer3(visual.layer2(visual.layer1(visual.stem(batch)))))
    pool = visual.attnpool
    by_hand = [
        [pool.c_proj(pool.v_proj(cells[i, :, r, c])) for r in (0, 1) for c in (0, 1)]
        for i in (0, 1)
    ]
    expected = F.normalize(torch.stack([torch.stack(row) for row in by_hand]), dim=-1)
    regions = model.image_features_and_local(batch)[1]
    torch.testing.assert_close(regions, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "tower"),
    [("t-timm", "TimmModel"), ("t-vit-avg", "'avg'"), ("t-coca", "'attention'")],
)
def test_towers_without_regions_are_named(name, tower):
    with pytest.raises(LocalFeaturesUnsupported, match=tower) as error:
        clip(name).image_features_and_local(images(name))
    assert name in str(error.value)


def test_coca_takes_no_prompts():
    model = clip("t-coca")
    with pytest.raises(UserError, match=r"t-coca.*CoCa"):
        model.embed_tokens(model.tokenizer(TEXTS))


def test_features_are_float32_whatever_the_towers():
    from clip_towers import network

    from ood_lab.clip import ClipModel

    net = network("t-vit").to(torch.bfloat16)
    model = ClipModel(net, clip("t-vit").tokenizer, "half", input_dtype=torch.bfloat16)
    whole, regions = model.image_features_and_local(images("t-vit"))
    for features in (whole, regions, model.encode_text(TEXTS)):
        assert features.dtype == torch.float32
        torch.testing.assert_close(features.norm(dim=-1), torch.ones(features.shape[:-1]))

"""CLIPN from a synthetic checkpoint of the authors' layout."""

import pytest
import torch
import torch.nn.functional as F
from clip_towers import images, network

from ood_lab.common.errors import UserError
from ood_lab.prompts import CLIPNScore, clipn_backbone
from ood_lab.prompts.clipn import load_clipn

CLASSES = ["cat", "dog", "great white shark"]
TEXT = ("transformer", "token_embedding", "positional_embedding", "ln_final", "text_projection")


@pytest.fixture(scope="module")
def towers():
    return network("t-vit", seed=1), network("t-vit", seed=2)


@pytest.fixture(scope="module")
def prompt():
    return 0.1 * torch.randn(16, 77, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def checkpoint(towers, prompt, tmp_path_factory):
    yes, no = towers
    state = dict(yes.state_dict())
    for key, value in no.state_dict().items():
        if key.startswith(TEXT):
            group, dot, rest = key.partition(".")
            state[f"{group}_no{dot}{rest}"] = value
    state["prompt_no"] = prompt
    path = tmp_path_factory.mktemp("clipn") / "epoch_10.pt"
    torch.save({"epoch": 10, "state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    return path


def test_both_towers_come_out_as_they_went_in(checkpoint, towers, prompt):
    yes, no = towers
    clip, no_texts = load_clipn("t-vit", checkpoint)
    texts = ["a photo of a cat.", "no"]
    ids = clip.tokenizer(texts)
    with torch.no_grad():
        torch.testing.assert_close(clip.encode_text(texts), yes.encode_text(ids, normalize=True))
        torch.testing.assert_close(
            clip.encode_image(images("t-vit")), yes.encode_image(images("t-vit"), normalize=True)
        )
        x = no.token_embedding(ids) + no.positional_embedding + prompt.mean(dim=0)
        x = no.ln_final(no.transformer(x, attn_mask=no.attn_mask))
        x = x[torch.arange(2), ids.argmax(dim=1)] @ no.text_projection
    torch.testing.assert_close(no_texts.encode_text(texts), F.normalize(x, dim=1))


def test_the_same_templates_go_through_both_towers(checkpoint, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"'a photo of a {}.'\r\n'a drawing of a {}.',\r\n")
    backbone = clipn_backbone("t-vit", checkpoint, CLASSES, templates_file=file)
    _, no_texts = load_clipn("t-vit", checkpoint)
    texts = no_texts.encode_text(["'a photo of a cat.'", "'a drawing of a cat.',"])
    expected = 100 * F.normalize(texts.sum(dim=0), dim=0)
    torch.testing.assert_close(backbone.no_head.weight[0], expected)
    torch.testing.assert_close(backbone.head.weight.norm(dim=1), torch.full((3,), 100.0))
    assert not any(p.requires_grad for p in backbone.parameters())


def test_the_column_scores_images(checkpoint):
    backbone = clipn_backbone("t-vit", checkpoint, CLASSES)
    image = images("t-vit")
    column = CLIPNScore().extraction_hook
    assert column.layers(backbone) == []
    with torch.no_grad():
        output = backbone(image)
        won, none = column.compute(backbone, image, output, {}).unbind(dim=1)
        pair = torch.stack([output.logits, backbone.no_head(output.features)])
    p_yes = pair.double().softmax(dim=0)[0]
    weights = output.logits.double().softmax(dim=1)
    best = output.logits.argmax(dim=1, keepdim=True)
    torch.testing.assert_close(won.sigmoid(), p_yes.gather(1, best)[:, 0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(1 - none.exp(), (p_yes * weights).sum(dim=1), atol=1e-4, rtol=1e-4)


def test_other_files_are_refused(checkpoint, tmp_path):
    plain = tmp_path / "plain.pt"
    torch.save({"state_dict": network("t-vit").state_dict()}, plain)
    with pytest.raises(UserError, match=r"not a checkpoint of CLIPN: it has no transformer_no"):
        load_clipn("t-vit", plain)
    with pytest.raises(UserError, match=r"does not fit t-resnet"):
        load_clipn("t-resnet", checkpoint)
    with pytest.raises(UserError, match=r"does not exist"):
        load_clipn("t-vit", tmp_path / "none.pt")
    with pytest.raises(UserError, match=r"templates_file"):
        clipn_backbone("t-vit", checkpoint, CLASSES, templates_file=tmp_path / "none.txt")

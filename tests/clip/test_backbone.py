"""CLIP behind the backbone contract, through the entry point too."""

import pandas as pd
import pytest
import torch
from cli import call, run_folders
from clip_towers import clip, images

from ood_lab.clip import ClipBackbone, clip_backbone, zero_shot_weights
from ood_lab.common.errors import UserError
from ood_lab.models import check_contract

CLASSES = ["cat", "dog", "great white shark"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t-vit", "t-resnet", "t-timm"])
def test_features_are_normalised_and_the_head_is_text(name):
    model = clip(name)
    backbone = clip_backbone(model, CLASSES, templates=["a photo of a {}.", "a {}"])
    check_contract(backbone)
    with torch.no_grad():
        output = backbone(images(name))
    torch.testing.assert_close(output.features.norm(dim=1), torch.ones(2))
    weights = zero_shot_weights(model, CLASSES, ["a photo of a {}.", "a {}"])
    torch.testing.assert_close(backbone.head.weight.data, weights * model.logit_scale)
    cosine = output.features @ weights.T
    torch.testing.assert_close(output.logits, cosine / 0.07, atol=1e-4, rtol=1e-4)
    assert backbone.data_config["input_size"] == images(name).shape[1:]


def test_only_the_head_can_be_trained():
    backbone = ClipBackbone(clip("t-vit"), CLASSES).train()
    trainable = [n for n, p in backbone.named_parameters() if p.requires_grad]
    assert trainable == ["head.weight"]
    assert not any(m.training for m in backbone.clip.modules())


def test_one_word_a_class():
    with pytest.raises(UserError, match="2 names for 3 classes"):
        clip_backbone(clip("t-vit"), CLASSES, classnames=["a", "b"])
    named = clip_backbone(clip("t-vit"), ["n01", "n02"], classnames=["cat", "dog"])
    expected = clip_backbone(clip("t-vit"), ["cat", "dog"])
    torch.testing.assert_close(named.head.weight, expected.head.weight)


@pytest.mark.slow
def test_detectors_run_on_the_shipped_clip(tmp_path):
    arguments = ("experiment=smoke", "model=clip", "name=clip", "logger=none")
    arguments += ("detector=[msp,knn,vim]", "task.report=false", f"paths.outputs={tmp_path}")
    assert call("eval.py", *arguments) == 0
    results = pd.read_csv(run_folders(tmp_path)[0] / "results.csv")
    assert set(results.detector.dropna()) == {"msp", "knn", "vim"}
    (accuracy,) = results[results.metric == "id_accuracy"].value
    assert accuracy > 0.4
    assert set(results.model) == {"clip-tiny"}


@pytest.mark.slow
def test_wrong_settings_are_one_line(tmp_path, capsys):
    arguments = ("model=clip", "clip=vit_b16", f"clip.cache_dir={tmp_path}", "logger=none")
    assert call("eval.py", *arguments, f"paths.outputs={tmp_path}") != 0
    error = capsys.readouterr().err.strip()
    assert "clip.download=true" in error
    assert len(error.splitlines()) == 1


def test_class_names_beyond_the_context(caplog):
    model = clip("t-vit")
    long = " ".join(["great white shark"] * 30)
    zero_shot_weights(model, ["cat", long])
    assert f"the texts of these classes are cut: '{long}'" in caplog.text
    assert "'cat'" not in caplog.text
    with pytest.raises(UserError, match=r"reads 'great.* one' and 'great.* two' as the same text"):
        zero_shot_weights(model, ["cat", f"{long} one", f"{long} two"])
    with pytest.raises(UserError, match="'cat' and 'cat' as the same text"):
        zero_shot_weights(model, ["cat", "dog", "cat"])

"""Networks of Hugging Face are those that they are as plain modules."""

import json

import pytest
import torch
from PIL import Image
from tiny_net import TinyNet
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models import hf_backbone, module_backbone, timm_backbone
from ood_lab.models.loading.headless_networks import linear_head, nearest_mean_head

IMAGES = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))
PLAIN = {"input_size": 32, "mean": 0.5, "std": 0.5}


def same_outputs(backbone, other, images=IMAGES):
    with torch.no_grad():
        ours, theirs = backbone.eval()(images), other.eval()(images)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.features, theirs.features, rtol=0, atol=1e-5)


def one_line(make, *says):
    with pytest.raises(UserError) as refusal:
        make()
    message = str(refusal.value)
    assert "\n" not in message
    for part in says:
        assert part in message


# Hugging Face


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def saved(model, folder, transformers, size=32, **options):
    """The folder of a model and its processor."""
    model.save_pretrained(folder)
    square = {"height": size, "width": size}
    transformers.ViTImageProcessor(size=square, **options).save_pretrained(folder)
    return str(folder)


def vit_config(transformers, **options):
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    rest = {"intermediate_size": 32, "image_size": 32, "patch_size": 8, "num_labels": 4}
    return transformers.ViTConfig(**small, **rest | options)


@pytest.fixture(scope="module")
def vit(tmp_path_factory, transformers):
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(vit_config(transformers))
    return saved(model, tmp_path_factory.mktemp("vit"), transformers), model


def resnet(transformers):
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4}
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(layer_type="basic", **sizes)
    )


def swin(transformers):
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "window_size": 4}
    return transformers.SwinForImageClassification(
        transformers.SwinConfig(num_heads=[1, 2], num_labels=4, **sizes)
    )


@pytest.mark.parametrize("make", [resnet, swin])
def test_classifiers_of_hugging_face_are_themselves(tmp_path, transformers, make):
    model = make(transformers).eval()
    backbone = hf_backbone(saved(model, tmp_path, transformers))
    with torch.no_grad():
        expected = model(pixel_values=IMAGES)
        output = backbone.eval()(IMAGES)
    torch.testing.assert_close(output.logits, expected.logits, rtol=0, atol=1e-5)
    assert backbone.data_config["input_size"] == (3, 32, 32)


def test_their_processor_is_the_transform(vit, transformers):
    path, model = vit
    backbone = hf_backbone(path)
    photo = Image.effect_noise((50, 40), 90)
    processor = transformers.AutoImageProcessor.from_pretrained(path)
    pixels = processor(images=photo.convert("RGB"), return_tensors="pt")["pixel_values"]
    assert torch.equal(backbone.transform(photo), pixels[0])
    assert '"image_mean": [0.5, 0.5, 0.5]' in repr(backbone.transform)
    assert backbone.data_config["std"] == (0.5, 0.5, 0.5)
    with torch.no_grad():
        tokens = model.eval().vit(pixel_values=pixels).last_hidden_state[:, 0]
        output = backbone.eval()(backbone.transform(photo)[None])
    torch.testing.assert_close(output.features, tokens, rtol=0, atol=1e-5)
    assert (backbone.head.out_features, backbone.fitted_head) == (4, None)
    assert hf_backbone(path, num_classes=7).head.out_features == 7  # to be trained


def test_models_without_a_head_get_one_or_are_refused(tmp_path, transformers):
    model = transformers.ViTModel(vit_config(transformers), add_pooling_layer=False).eval()
    path = saved(model, tmp_path, transformers)
    one_line(lambda: hf_backbone(path), "is not an image classifier: its files lack classifier")
    backbone = hf_backbone(path, head="nearest_mean", classes=["a", "b", "c"]).eval()
    assert (backbone.fitted_head, backbone.head.out_features) == ("nearest_mean", 3)
    with torch.no_grad():
        tokens = model(pixel_values=IMAGES).last_hidden_state[:, 0]
        features = backbone(IMAGES).features
    torch.testing.assert_close(features, tokens, rtol=0, atol=1e-5)


def test_wrong_folders_of_hugging_face(vit, tmp_path, transformers):
    path, model = vit
    one_line(lambda: hf_backbone("/nowhere"), "/nowhere holds no config.json")
    one_line(lambda: hf_backbone("nobody/nothing"), "model.download=true")
    model.save_pretrained(tmp_path / "alone")
    one_line(lambda: hf_backbone(str(tmp_path / "alone")), "has no image processor")
    large = saved(model, tmp_path / "large", transformers, size=64)
    one_line(lambda: hf_backbone(large), "makes [3, 64, 64] of every image", "does not take")
    sound = saved(model, tmp_path / "sound", transformers)
    config = {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}
    (tmp_path / "sound" / "preprocessor_config.json").write_text(json.dumps(config))
    one_line(lambda: hf_backbone(sound), "is its preprocessor_config.json that of an image")
    one_line(lambda: hf_backbone(path, head="clasifier"), "nearest: ")
    text = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    text.save_pretrained(tmp_path / "text")
    transformers.ViTImageProcessor().save_pretrained(tmp_path / "text")
    one_line(lambda: hf_backbone(str(tmp_path / "text")), "is it an image classifier?")


def test_averaged_heads_are_one_linear_head(tmp_path, transformers):
    config = transformers.LevitConfig(
        image_size=64, hidden_sizes=[16, 16, 16], num_attention_heads=[1, 1, 1],
        depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=4,
    )  # fmt: skip
    model = transformers.LevitForImageClassificationWithTeacher(config)
    path = saved(model, tmp_path, transformers, size=64)
    # transformers itself takes the first head alone, which is one linear layer.
    assert hf_backbone(path).head.out_features == 4
    config = transformers.SwiftFormerConfig(
        image_size=64, depths=[1, 1], embed_dims=[8, 16], downsamples=[True, True], num_labels=4
    )
    model = transformers.SwiftFormerForImageClassification(config)
    path = saved(model, tmp_path / "swift", transformers, size=64)
    backbone = hf_backbone(path)
    assert backbone.reading.names == ["model.head", "model.dist_head"]
    same_outputs(backbone, backbone, torch.randn(2, 3, 64, 64))


# Heads


def test_the_linear_head_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    x = torch.randn(90, 6, generator=generator) + 0.8 * nn.functional.one_hot(labels, 6) + 5
    weight, bias = linear_head(x, labels, 3)
    other = LogisticRegression(C=1.0, tol=1e-9, max_iter=10_000).fit(x.double(), labels)
    torch.testing.assert_close(weight, torch.from_numpy(other.coef_), rtol=0, atol=1e-5)
    ours, theirs = x.double() @ weight.T + bias, torch.from_numpy(other.decision_function(x))
    centred = [z - z.mean(dim=1, keepdim=True) for z in (ours, theirs)]
    torch.testing.assert_close(*centred, rtol=0, atol=1e-5)


def test_the_nearest_mean_head_chooses_the_nearest_mean():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.arange(60) % 4
    weight, bias = nearest_mean_head(x, labels, 4)
    means = torch.stack([x[labels == c].mean(dim=0) for c in range(4)])
    distances = torch.cdist(x, means).square()
    logits = x @ weight.T + bias
    torch.testing.assert_close(x.square().sum(1, keepdim=True) - 2 * logits, distances)


def test_any_features_get_a_head():
    small = {"layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8)}
    backbone = timm_backbone("resnet18", 3, input_size=32, kwargs=small, head="linear")
    assert (backbone.fitted_head, backbone.head.weight.shape) == ("linear", (3, 8))
    bare = TinyNet()
    bare.fc = nn.Identity()
    assert module_backbone(bare, "linear", 3, **PLAIN).fitted_head == "linear"
    maps = nn.Sequential(nn.Conv2d(3, 4, 3))
    assert module_backbone(maps, "linear", 3, **PLAIN).head.weight.shape == (3, 4)
    lines = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2))
    one_line(
        lambda: module_backbone(lines, "linear", 3, **PLAIN), "gives features [2, 4, 900]: one"
    )

"""Image-text models of transformers and open_clip, tiny and with random weights."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.annotation_table import Annotations, objects_table
from ood_lab.lvlm.image_text.base import cached_scores
from ood_lab.lvlm.image_text.clip import ClipScores

transformers = pytest.importorskip("transformers")
LABELS = ["cat", "dog", "red car"]
SIDE = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    files = [folder / f"{i}.png" for i in range(5)]
    for file in files:
        Image.fromarray(rng.integers(0, 255, (40, 48, 3), np.uint8)).save(file)
    return files


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<unk>", "<s>", "</s>", "a", "photo", "of", *["cat", "dog", "red", "car"]]
    found = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, model_max_length=16, **names
    )


TEXT = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
VISION = {
    "image_size": SIDE,
    "patch_size": 8,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def clip():
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=8)
    return transformers.CLIPModel(config)


def siglip():
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    return transformers.SiglipModel(config)


def groupvit():
    stages = {"depths": [1, 1], "num_group_tokens": [4, 0], "num_output_groups": [4, 2]}
    vision = {**VISION, **stages, "num_hidden_layers": 2}
    config = transformers.GroupViTConfig(
        text_config=TEXT, vision_config=vision, projection_dim=8, projection_intermediate_dim=16
    )
    return transformers.GroupViTModel(config)


def lit():
    vision = transformers.ViTModel(transformers.ViTConfig(**VISION))
    text = transformers.BertModel(transformers.BertConfig(**TEXT))
    return transformers.VisionTextDualEncoderModel(vision_model=vision, text_model=text)


@pytest.fixture(scope="module", params=[clip, siglip, groupvit, lit], ids=lambda f: f.__name__)
def folder(request, tmp_path_factory, tokenizer):
    place = tmp_path_factory.mktemp(request.param.__name__)
    torch.manual_seed(0)
    request.param().eval().save_pretrained(place)
    size = {"height": SIDE, "width": SIDE}
    processor = transformers.ViTImageProcessor(size=size, do_center_crop=False)
    processor.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def scores_of(path, **settings):
    from ood_lab.lvlm.image_text.transformers import TransformersScores

    return TransformersScores(str(path), batch_size=2, **settings)


def test_scores_are_the_logits_of_the_model(folder, images, tokenizer):
    model = scores_of(folder, template="a photo of {}")
    found = model.scores(images, LABELS)
    assert found.shape == (5, 3)
    tokens = tokenizer([f"a photo of {label}" for label in LABELS], padding=True)
    tokens = {k: torch.tensor(tokens[k]) for k in ("input_ids", "attention_mask")}
    if "siglip" in folder.name:  # it was trained on texts of full length
        tokens = tokenizer([f"a photo of {x}" for x in LABELS], padding="max_length")
        tokens = {k: torch.tensor(tokens[k]) for k in ("input_ids", "attention_mask")}
    with Image.open(images[0]) as image:
        pixels = model.image_processor([image.convert("RGB")], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model.model(**tokens, pixel_values=pixels).logits_per_image[0]
    assert found[0] == pytest.approx(expected.numpy(), abs=1e-4)


def test_scale_is_the_factor_of_the_cosine_and_recorded(folder, images):
    own = scores_of(folder)
    assert own.made_with["scale"] == pytest.approx(own.own_scale, abs=1e-5)
    double = scores_of(folder, scale=2 * own.own_scale)
    first, second = own.scores(images, LABELS), double.scores(images, LABELS)
    # A bias, as SigLIP has one, is the same for all labels.
    assert second - second[:, :1] == pytest.approx(2 * (first - first[:, :1]), abs=1e-3)
    assert own.made_with != double.made_with


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no model can be loaded"):
        scores_of(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def blip2_folder(tmp_path_factory, tokenizer):
    place = tmp_path_factory.mktemp("blip2")
    torch.manual_seed(0)
    bert = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Blip2Config(
        vision_config=VISION,
        qformer_config={
            **bert,
            **heads,
            "encoder_hidden_size": 16,
            "use_qformer_text_input": True,
            "max_position_embeddings": 32,
        },
        image_text_hidden_size=8,
        num_query_tokens=3,
    )
    transformers.Blip2ForImageTextRetrieval(config).eval().save_pretrained(place)
    size = {"height": SIDE, "width": SIDE}
    transformers.ViTImageProcessor(size=size).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def test_blip2_by_both_heads(blip2_folder, images):
    from ood_lab.lvlm.image_text.transformers import Blip2Scores

    found = {
        (head, t): Blip2Scores(str(blip2_folder), head=head, temperature=t).scores(images, LABELS)
        for head, t in (("itm", 0.01), ("itc", 1.0), ("itc", 0.01))
    }
    assert all(values.shape == (5, 3) for values in found.values())
    cosines = found["itc", 1.0]
    assert np.abs(cosines).max() <= 1.0  # no temperature of its own
    assert found["itc", 0.01] == pytest.approx(100 * cosines, rel=1e-3)
    assert np.ptp(found["itm", 0.01]) > 0


class Counting:
    """Scores of a model, and how often it was asked."""

    name = "counting"

    def __init__(self, weights="a"):
        self.made_with = {"weights": weights}
        self.asked = 0

    def scores(self, images, labels):
        self.asked += 1
        return np.arange(len(images) * len(labels), dtype=np.float32).reshape(len(images), -1)


def test_scores_are_computed_once_for_the_same_model_images_and_labels(images, tmp_path):
    def annotations(names):
        rows = pd.DataFrame({"image": range(5), "file": [f.name for f in images]})
        objects = objects_table([0], [0], names, np.zeros((1, 4)), [1], [False])
        sized = rows.assign(width=48, height=40)
        return Annotations("toy", tuple(names), images[0].parent, sized, objects)

    model = Counting()
    first = cached_scores(model, annotations(LABELS), tmp_path)
    assert (cached_scores(model, annotations(LABELS), tmp_path) == first).all()
    assert model.asked == 1
    cached_scores(model, annotations(LABELS[:2]), tmp_path)
    assert model.asked == 2
    other = Counting("b")
    cached_scores(other, annotations(LABELS), tmp_path)
    assert other.asked == 1
    images[0].touch()
    cached_scores(model, annotations(LABELS), tmp_path)
    assert model.asked == 2
    content, facts = images[0].read_bytes(), images[0].stat()
    images[0].write_bytes(content[:-1] + b"x")  # another image, as `cp -p` leaves it
    os.utime(images[0], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    cached_scores(model, annotations(LABELS), tmp_path)
    assert model.asked == 3


def test_open_clip_scores_are_scaled_cosines(images):
    from ood_lab.clip import load_clip

    clip = load_clip("tiny")
    found = ClipScores(clip).scores(images, ["ding", "gui"])
    own = ClipScores(clip, scale=1.0).scores(images, ["ding", "gui"])
    assert np.abs(own).max() <= 1
    assert found == pytest.approx(clip.logit_scale * own, rel=1e-4)


def test_a_broken_image_is_named(images, tmp_path):
    from ood_lab.clip import load_clip

    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"broken\.png"):
        ClipScores(load_clip("tiny")).scores([broken], ["ding"])

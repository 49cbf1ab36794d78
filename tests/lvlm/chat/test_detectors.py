"""Detectors and a CLIP as chat models, with small untrained models of the real architectures."""

import numpy as np
import pytest
import torch
from PIL import Image

from ood_lab.clip import load_clip
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.image_text.clip import label_features
from ood_lab.lvlm.image_text.object_detectors import ObjectDetector
from ood_lab.lvlm.questions.question_files import Question

transformers = pytest.importorskip("transformers")

OBJECTS = ("dog", "traffic light", "cup")
OWL = "an image of {}"


def question(number, image, name, text="Is there a {}?", **meta):
    meta = {"category": name, **meta}
    return Question(f"q{number}", "oric", str(image), text.format(name), "yes", meta=meta)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    paths = []
    for number in range(2):
        pixels = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        paths.append(folder / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def ask(model, questions, tmp_path):
    answers = answers_to(questions, tmp_path, model, AnswerStore(tmp_path / "answers.jsonl"))
    return [(a.response, a.p_yes) for a in answers]


def tokenizer(words, **special):
    """One token a word; letters for all else."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    known = [*special.values(), *words, *"abcdefghijklmnopqrstuvwxyz.", "[UNK]"]
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys(known))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    start, end = special.get("cls_token", "<s>"), special.get("sep_token", "</s>")
    if start in vocabulary:
        ids = [(start, vocabulary[start]), (end, vocabulary[end])]
        made.post_processor = processors.TemplateProcessing(f"{start} $A {end}", None, ids)
    return made, len(vocabulary)


@pytest.fixture(scope="module")
def owl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owl")
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    words, size = tokenizer(["an", "image", "of", "dog", "traffic", "light", "cup"], **special)
    from transformers import (
        CLIPTokenizerFast,
        Owlv2Config,
        Owlv2ForObjectDetection,
        Owlv2ImageProcessor,
        Owlv2Processor,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(0)
    small = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = Owlv2Config(
        text_config={
            **small,
            "vocab_size": size,
            "max_position_embeddings": 16,
            "eos_token_id": 2,
            "bos_token_id": 1,
            "pad_token_id": 0,
        },
        vision_config={**small, "image_size": 32, "patch_size": 16},
        projection_dim=32,
    )
    assert CLIPTokenizerFast is not None
    Owlv2ForObjectDetection(config).save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=16, **special)
    processor = Owlv2Processor(Owlv2ImageProcessor(size={"height": 32, "width": 32}), fast)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def grounding_dino(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grounding_dino")
    from transformers import (
        BertConfig,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
        PreTrainedTokenizerFast,
        SwinConfig,
    )

    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words, size = tokenizer(["dog", "traffic", "light", "cup"], **special)
    torch.manual_seed(0)
    swin = SwinConfig(
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        window_size=2,
        image_size=64,
        patch_size=2,
        out_features=["stage2", "stage3", "stage4"],
        out_indices=[2, 3, 4],
    )
    text = BertConfig(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    config = GroundingDinoConfig(
        backbone_config=swin,
        text_config=text,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_queries=6,
        max_text_len=32,
        use_pretrained_backbone=False,
    )
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=32, **special)
    size = {"shortest_edge": 64, "longest_edge": 64}
    GroundingDinoProcessor(GroundingDinoImageProcessor(size=size), fast).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def yolos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("yolos")
    from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessor

    torch.manual_seed(0)
    config = YolosConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=[32, 32],
        patch_size=16,
        num_detection_tokens=5,
        id2label={0: "Dog", 1: "traffic light", 2: "cup"},
    )
    YolosForObjectDetection(config).save_pretrained(folder)
    size = {"shortest_edge": 32, "longest_edge": 32}
    YolosImageProcessor(size=size).save_pretrained(folder)
    return folder


def test_owl_asks_about_all_objects_of_an_image_in_one_call(owl, images, tmp_path, monkeypatch):
    model = ObjectDetector(str(owl), threshold=0.0, template=OWL)
    calls = []
    found = model.best_scores
    monkeypatch.setattr(model, "best_scores", lambda i, o: calls.append(list(o)) or found(i, o))
    asked = [question(3 * n + k, i, o) for n, i in enumerate(images) for k, o in enumerate(OBJECTS)]
    asked += [question(9, images[0], "dog", "Is there no {}?", form="negative")]
    answers = ask(model, asked, tmp_path)
    assert calls == [list(OBJECTS)] * 2
    assert [text for text, _ in answers] == ["Yes"] * 6 + ["No"]
    assert answers[-1][1] == pytest.approx(1 - answers[0][1])


def test_the_threshold_decides_and_is_part_of_what_an_answer_is_made_with(
    owl, images, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        ObjectDetector, "best_scores", lambda self, image, objects: dict.fromkeys(objects, 0.3)
    )
    asked = [question(k, images[0], name) for k, name in enumerate(OBJECTS)]
    strict, loose = (ObjectDetector(str(owl), threshold=t) for t in (0.31, 0.3))
    assert ask(strict, asked, tmp_path) == [("No", 0.3)] * 3
    assert ask(loose, asked, tmp_path) == [("Yes", 0.3)] * 3  # from the same file of answers


def test_owl_scores_are_those_of_its_own_post_processing(owl, images):
    model = ObjectDetector(str(owl), threshold=0.0, template=OWL)
    with Image.open(images[0]) as file:
        image = file.convert("RGB")
    processor, network = model._loaded
    texts = [[f"an image of {name}" for name in OBJECTS]]
    inputs = processor(text=texts, images=image, return_tensors="pt")
    with torch.inference_mode():
        outputs = network(**inputs)
    result = processor.post_process_grounded_object_detection(outputs, threshold=0.0)[0]
    for code, name in enumerate(OBJECTS):
        scores = result["scores"][result["labels"] == code]
        wanted = float(scores.max()) if len(scores) else 0.0
        assert model.best_scores(image, OBJECTS)[name] >= wanted - 1e-6


def test_grounding_dino_reads_each_object_by_its_own_tokens(grounding_dino, images, tmp_path):
    model = ObjectDetector(str(grounding_dino), threshold=0.0)
    with Image.open(images[0]) as file:
        image = file.convert("RGB")
    found = model.best_scores(image, OBJECTS)
    processor, network = model._loaded
    inputs = processor(text="dog . traffic light . cup .", images=image, return_tensors="pt")
    with torch.inference_mode():
        scores = network(**inputs).logits[0].sigmoid().amax(dim=0)
    # [CLS] dog . traffic light . cup . [SEP]
    wanted = {"dog": scores[1], "traffic light": scores[3:5].max(), "cup": scores[6]}
    assert found == pytest.approx({name: float(score) for name, score in wanted.items()})
    answers = ask(model, [question(k, images[0], o) for k, o in enumerate(OBJECTS)], tmp_path)
    assert [score for _, score in answers] == pytest.approx([found[name] for name in OBJECTS])


def test_a_detector_of_fixed_classes_is_one_error(yolos, images, tmp_path):
    with pytest.raises(UserError, match=r"is a yolos, which has fixed classes: give an OWL-ViT"):
        ask(ObjectDetector(str(yolos)), [question(0, images[0], "dog")], tmp_path)


def test_a_clip_that_does_not_come_to_the_object_is_one_error():
    """It spells words that it does not know, and reads ten tokens."""
    with pytest.raises(UserError, match=r"reads the same with .* 'a photo of a \{\}'"):
        label_features(load_clip("scenes_64"), ("book", "cup"), "an image contains {}")


def test_confidences_of_labels_are_those_of_the_chat_model(owl, grounding_dino, images):
    for path, template in ((owl, OWL), (grounding_dino, "{}")):
        scores = ObjectDetector(str(path), template=template).confidences(images, OBJECTS)
        model = ObjectDetector(str(path), template=template)
        for row, image in enumerate(images):
            best = model.best_scores(load_rgb(image), OBJECTS)
            assert scores[row] == pytest.approx([best[name] for name in OBJECTS], abs=1e-6)


def test_a_question_without_an_object_is_one_error(owl, images, tmp_path):
    asked = Question("q", "caption", str(images[0]), "What is this?", "")
    with pytest.raises(UserError, match="'What is this\\?' names none"):
        ask(ObjectDetector(str(owl)), [asked], tmp_path)


def test_a_folder_without_a_detector_is_one_error(tmp_path):
    with pytest.raises(UserError, match="no model can be loaded"):
        ObjectDetector(str(tmp_path)).check()

"""Every family of vision-language models answers a batch as it answers each request alone."""

import numpy as np
import pytest
from PIL import Image
from vlm_families import FAMILIES, SIZES, build

from ood_lab.common.errors import UserError
from ood_lab.lvlm.chat.base import Request
from ood_lab.lvlm.chat.image_features import InferenceMode, features_of
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question

pytest.importorskip("transformers")

TOKENS = 5
TEXTS = ("Is there a dog?", "How many big dogs are there in the image, and where?", "Why?")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for number, (width, height) in enumerate(SIZES):
        pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [str(folder / f"{number}.png") for number in range(len(SIZES))]


def request(text, *images):
    content = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    messages = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    return Request("/".join([text, *images]), messages, Question("", "", None, text, ""))


def asked(images):
    """Several questions about each image, about none and about two of them."""
    about_one = [request(text, image) for image in images for text in TEXTS]
    about_none = [request(text) for text in TEXTS]
    about_two = [request(text, images[0], images[2]) for text in TEXTS]
    return [*about_one, *about_none, *about_two]


def plainly(model, processor, one):
    """Reply and scores of the first token, as transformers' own documentation asks."""
    messages = [
        {
            **message,
            "content": [
                {"type": "image", "image": Image.open(part["image_url"]["url"]).convert("RGB")}
                if part["type"] == "image_url"
                else part
                for part in message["content"]
            ],
        }
        for message in one.messages
    ]
    inputs = processor.apply_chat_template(
        messages,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    ).to(dtype=model.dtype)
    out = model.generate(
        **inputs,
        max_new_tokens=TOKENS,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    new = out.sequences[0, -len(out.scores) :]
    return processor.tokenizer.decode(new, skip_special_tokens=True).strip()


def families():
    """All of them; those that stand for a way of their own are quick looks."""
    return [
        name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES
    ]


#: A tensor, cross attention, and what is asked one by one; tiles and token types are slow.
USUAL = {"llava", "mllama", "instructblip"}


@pytest.mark.parametrize("name", families())
def test_replies_are_those_of_plain_generate(name, images, tmp_path):
    if name == "smolvlm":
        pytest.importorskip("num2words")
    folder = str(build(name, tmp_path / name))
    requests = asked(images)
    found = {}
    for size in (1, 8):
        chat = TransformersChat(folder, batch_size=size, max_new_tokens=TOKENS, device="cpu")
        found[size] = {reply.key: reply for reply in chat.ask(requests)}
    vlm = chat._vlm
    expected = {}
    for each in requests:
        try:
            expected[each.key] = plainly(vlm.model, vlm.processor, each)
        except (ValueError, TypeError, RuntimeError) as error:  # no image, or two
            expected[each.key] = type(error).__name__
    assert len({expected[each.key] for each in requests[:12]}) > 2
    for replies in found.values():
        for key, reply in replies.items():
            said = reply.response if reply.error is None else reply.error.split(":")[0].split()[-1]
            assert said == expected[key], (key, reply)
    for key, one in found[1].items():
        assert found[8][key].p_yes == pytest.approx(one.p_yes, abs=1e-4)
        assert found[8][key].usage == one.usage
    # The quick ways are still taken where they fit.
    ways = {kind.way for kind, is_trusted in chat._trusted.items() if is_trusted and kind.images}
    assert (InferenceMode.FEATURES in ways) == (name not in NOT_AGAIN)
    assert (InferenceMode.TOGETHER in ways or InferenceMode.FEATURES in ways) == (
        name not in ONE_BY_ONE
    )


#: Their language model has no place for features, or these depend on the question (InstructBLIP).
NOT_AGAIN = {
    "janus",
    "mllama",
    "blip_2",
    "blip_2_t5",
    "instructblip",
    "florence2",
    "kosmos2",
}
#: Padding on the left changes what they read.
ONE_BY_ONE = {"instructblip", "kosmos2"}


def test_a_template_beside_a_processor_that_reads_none_is_used(tmp_path):
    folder = build("blip_2", tmp_path / "mute")
    assert TransformersChat(str(folder))._processor.chat_template
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match=r"has no chat template.*chat_template\.jinja"):
        TransformersChat(str(folder)).check()


def test_features_that_say_something_else_are_not_used(images, tmp_path, monkeypatch, caplog):
    folder = str(build("llava", tmp_path / "llava"))
    requests = asked(images)[: 2 * len(TEXTS)]
    expected = {
        reply.key: reply.response
        for reply in TransformersChat(folder, batch_size=1, max_new_tokens=TOKENS).ask(requests)
    }

    def wrong(model, inputs, count):
        return list(reversed(features_of(model, inputs, count)))

    monkeypatch.setattr("ood_lab.lvlm.chat.transformers.features_of", wrong)
    chat = TransformersChat(folder, batch_size=6, max_new_tokens=TOKENS)
    with caplog.at_level("INFO"):
        found = {reply.key: reply.response for reply in chat.ask(requests)}
    assert found == expected
    assert "features of images are not used again" in caplog.text

"""Local models: the tiny one that is shipped, and folders that hold none."""

import base64
import io
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from ood_lab.builtin.scenes import ScenesDataset
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to, messages_of
from ood_lab.lvlm.chat.base import Request
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.request_images import data_url
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.training.conversation_files import ChatFile

pytest.importorskip("transformers")
TEXTS = (
    "Is there a mug in the image?",
    "Does this image not contain a boat? (yes or no)",
    "How many cats are there in the picture?",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    scenes = ScenesDataset("test", 5, 0)
    for index in range(5):
        scenes.load_image(index).save(folder / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def tiny():
    return TransformersChat("shipped:tiny", batch_size=4, max_new_tokens=8)


def questions():
    return [
        Question(f"{i}/{n}", "yes_no", f"{i}.png", text, "2" if "How many" in text else "yes")
        for i in range(5)
        for n, text in enumerate(TEXTS)
    ]


def ask(model, asked, folder, path):
    return answers_to(asked, folder, model, AnswerStore(path))


@pytest.fixture(scope="module")
def answers(tiny, folder, tmp_path_factory):
    return ask(tiny, questions(), folder, tmp_path_factory.mktemp("asked") / "answers.jsonl")


def test_replies_do_not_depend_on_batches_or_shared_features(answers, folder, tmp_path):
    alone = TransformersChat("shipped:tiny", batch_size=1, max_new_tokens=8)
    again = [
        ask(alone, [question], folder, tmp_path / "answers.jsonl")[0]
        for question in questions()[:6]
    ]
    assert [a.response for a in again] == [a.response for a in answers[:6]]
    assert [a.p_yes for a in again] == pytest.approx([a.p_yes for a in answers[:6]], abs=1e-4)
    assert all(a.usage["prompt_tokens"] > 144 for a in again)


def test_the_first_token_says_what_the_reply_says(answers, folder, tmp_path):
    quick = TransformersChat("shipped:tiny", "first_token", batch_size=16, max_new_tokens=8)
    found = ask(quick, questions(), folder, tmp_path / "answers.jsonl")
    for first, whole in zip(found, answers, strict=True):
        assert first.p_yes == pytest.approx(whole.p_yes, abs=1e-4)
        if first.answer == "yes":
            assert first.finish_reason == "first_token"
            assert first.response == ("Yes" if first.p_yes >= 0.5 else "No")
            assert whole.response in ("Yes", "No")
        else:  # a number is not to be had in this way
            assert first.response == whole.response
            assert first.finish_reason == "stop"


@pytest.mark.slow
def test_dtype_and_max_pixels_change_what_is_computed_and_its_key(answers, folder, tmp_path):
    rough = TransformersChat("shipped:tiny", dtype="bfloat16", batch_size=4, max_new_tokens=8)
    rough.check()
    assert {p.dtype for p in rough._vlm.model.parameters()} == {torch.bfloat16}
    small = TransformersChat("shipped:tiny", max_pixels=100, batch_size=4, max_new_tokens=8)
    for other in (rough, small):
        found = ask(other, questions(), folder, tmp_path / "answers.jsonl")
        assert {a.key for a in found}.isdisjoint(a.key for a in answers)
        assert [a.p_yes for a in found] != pytest.approx([a.p_yes for a in answers], abs=1e-5)
        # Rounding moves a probability by little; an image of 10 pixels says something else.
        moved = max(abs(a.p_yes - b.p_yes) for a, b in zip(found, answers, strict=True))
        assert (moved < 0.15) == (other is rough)


@pytest.mark.parametrize("device", ["tpu9", "cuda:99"])
def test_a_device_that_is_not_there_is_said_at_once(device):
    with pytest.raises(UserError, match=f"device={device}: "):
        TransformersChat("shipped:tiny", device=device)


def test_what_is_no_model_is_said_in_one_line(tmp_path):
    def error():
        with pytest.raises(UserError) as caught:
            TransformersChat(str(tmp_path)).check()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "holds no config.json" in error()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert "cannot be loaded" in error()
    with pytest.raises(UserError, match="is not a directory"):
        _ = TransformersChat(str(tmp_path / "nowhere")).made_with


def test_weights_that_are_cut_off_are_said_in_one_line(tmp_path):
    shutil.copytree(ModelFolder("shipped:tiny").path, tmp_path / "cut")
    whole = (tmp_path / "cut" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        TransformersChat(str(tmp_path / "cut")).check()
    assert "\n" not in str(caught.value)


def test_a_model_without_an_image_processor_is_refused(tmp_path):
    from transformers import AutoTokenizer, LlamaConfig

    AutoTokenizer.from_pretrained(ModelFolder("shipped:tiny").path).save_pretrained(tmp_path)
    LlamaConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no image processor"):
        TransformersChat(str(tmp_path)).check()


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    shutil.copytree(ModelFolder("shipped:tiny").path, tmp_path / "mute")
    (tmp_path / "mute" / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template"):
        TransformersChat(str(tmp_path / "mute")).check()


def test_photographs_are_seen_upright_everywhere(tiny, folder, tmp_path):
    """What a camera stored on its side is turned once: local models, servers, CLIPs, training."""
    upright = Image.open(folder / "0.png").convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    upright.save(tmp_path / "upright.png")
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as file:
        assert np.any(np.asarray(file.convert("RGB")) != np.asarray(upright))
    turned = tmp_path / "turned.png"
    chat = {"image": "turned.png", "conversations": [{"from": "human", "value": "?"}]}
    chat["conversations"].append({"from": "gpt", "value": "Yes"})
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat))
    sent = base64.b64decode(data_url(str(turned)).split(",")[1])
    for seen in (
        Image.open(io.BytesIO(sent)),
        load_rgb(turned),
        ChatFile(tmp_path / "chats.jsonl")[0].image,
    ):
        assert np.array_equal(np.asarray(seen), np.asarray(upright))
    as_it_is = base64.b64decode(data_url(str(tmp_path / "upright.png")).split(",")[1])
    assert as_it_is == (tmp_path / "upright.png").read_bytes()
    asked = [
        Question(name, "yes_no", f"{name}.png", "Is there a mug in the image?", "yes")
        for name in ("upright", "turned")
    ]
    one, other = ask(tiny, asked, tmp_path, tmp_path / "answers.jsonl")
    assert one.p_yes == pytest.approx(other.p_yes, abs=1e-6)


def test_an_image_that_is_cut_off_is_named(tiny, folder, tmp_path):
    whole = (folder / "0.png").read_bytes()
    (tmp_path / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cannot read image '.*0\.png'"):
        ask(tiny, questions()[:1], tmp_path, tmp_path / "answers.jsonl")


def test_how_long_a_reply_may_be_suits_the_question(folder, tmp_path):
    chat = TransformersChat("shipped:tiny")
    asked = [
        Question(form, "any", "0.png", "Is there a mug in the image?", "yes", reply=form)
        for form in ("word", "steps", "text")
    ]
    requests = [Request(each.question_id, messages_of(each, folder), each) for each in asked]
    assert {b.requests[0].key: b.tokens for b in chat._batches(requests)} == {
        "word": 64,
        "text": 512,
        "steps": 1024,
    }
    kept = [chat.made_for(each)["gen_kwargs"]["max_new_tokens"] for each in asked]
    assert kept == [64, 1024, 512]
    one = TransformersChat("shipped:tiny", max_new_tokens=1)
    assert [reply.finish_reason for reply in one.ask(requests[:1])] == ["length"]
    assert [reply.finish_reason for reply in chat.ask(requests[:1])] == ["stop"]

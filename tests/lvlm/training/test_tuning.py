"""Supervised fine-tuning: batches, the loss, and python train.py model=vlm."""

import json
import random

import pytest
import torch
from PIL import Image

from ood_lab.errors import UserError
from ood_lab.lvlm.training.chat_files import ChatFile
from ood_lab.lvlm.training.dialogues import Seen, SeenScene, caption, dialogues, plural
from ood_lab.lvlm.training.examples import IGNORED, Packed, Rows
from ood_lab.lvlm.training.grounding import Grounding
from ood_lab.lvlm.training.scene_chats import SceneChats


@pytest.fixture(scope="module")
def vlm():
    from ood_lab.lvlm.training.tiny import untrained_vlm

    torch.manual_seed(0)
    model, processor = untrained_vlm(hidden=32, layers=2, heads=2)
    return model.eval(), processor


@pytest.fixture(scope="module")
def scenes():
    return SceneChats("train", 6)


def learned(model, batch):
    inputs = {k: v for k, v in batch["inputs"].items() if k != "labels"}
    labels = batch["inputs"]["labels"]
    with torch.no_grad():
        logits = model(**inputs).logits
    mask = labels[:, 1:] != IGNORED
    return logits[:, :-1][mask], labels[:, 1:][mask]


def test_packed_conversations_see_what_they_see_alone(vlm, scenes):
    model, processor = vlm
    examples = [scenes[(row, 7)] for row in range(3)]
    packed, packed_labels = learned(model, Packed(processor, 144)(examples))
    rows, row_labels = learned(model, Rows(processor)(examples))
    assert torch.equal(packed_labels, row_labels)
    assert torch.allclose(packed, rows, atol=1e-5)


def test_only_the_last_message_is_learned(vlm, scenes):
    _, processor = vlm
    example = scenes[0]
    labels = Rows(processor)([example])["inputs"]["labels"]
    texts = [processor.tokenizer.decode(row[row != IGNORED]) for row in labels]
    assert texts == [f"{c[-1]['content'][0]['text']}<|end|>" for c in example.conversations]


def test_questions_have_right_answers_and_both_kinds():
    objects = (
        Seen("mug", (0.2, 0.5), 90, {"colour": "red"}),
        Seen("mug", (0.6, 0.5), 50, {"colour": "blue"}),
        Seen("axe", (0.8, 0.8), 200, {}),
    )
    scene = SeenScene("kitchen", objects)
    assert caption(scene) == "A kitchen with an axe and two mugs."
    asked = dict(dialogues(scene, random.Random(0), 3000))
    assert asked["Does this image contain a mug? (yes or no)"] == "Yes"
    assert asked["Does this image not contain a mug? (yes or no)"] == "No"
    assert asked["Does this image not contain a boat? (yes or no)"] == "Yes"
    assert asked["How many mugs are there in the picture?"] == "2"
    more = "Is the number of {} in the image greater than the number of {}? Answer with 'yes' or "
    assert asked[f"{more.format('mug', 'axe')}'no'."] == "Yes"
    assert asked[f"{more.format('axe', 'mug')}'no'."] == "No"
    assert not any("Is the mug" in question for question in asked)  # which of the two?
    presence = [a for q, a in dialogues(scene, random.Random(1), 4000) if "contain" in q]
    assert 0.45 < presence.count("Yes") / len(presence) < 0.55


def test_plurals():
    assert [plural(w) for w in ("wine glass", "butterfly", "person", "fish", "axe")] == [
        "wine glasses",
        "butterflies",
        "people",
        "fish",
        "axes",
    ]


def test_the_tower_learns_where_words_are(vlm, scenes):
    _, processor = vlm
    grounding = Grounding(["mug", "red", "wine glass"], processor.tokenizer, (12, 12))
    example = scenes[0].__class__(
        None, [], grounds=[(("mug", "red"), (0.5, 0.25)), (("boat",), (0.1, 0.1))]
    )
    targets = grounding.targets([example])
    assert targets.shape == (1, 144, 3)
    assert targets.sum((0, 1)).tolist() == pytest.approx([1.0, 1.0, 0.0])
    where = targets[0, :, 0].view(12, 12).nonzero()
    assert where.float().mean(0).tolist() == pytest.approx([2.5, 5.5])  # centre 3, 6 less a half
    # A token along the word's embedding at the centre costs less than one elsewhere.
    embeddings = torch.randn(len(processor.tokenizer), 16)
    word = embeddings[processor.tokenizer(" mug")["input_ids"]].mean(0)
    right, wrong = torch.zeros(1, 144, 16), torch.zeros(1, 144, 16)
    right[0, targets[0, :, 0] > 0] = 2 * word
    wrong[0, :4] = 2 * word
    assert grounding(right, embeddings, targets) < grounding(wrong, embeddings, targets)


def test_files_of_both_forms_are_read(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    trl = {
        "images": ["a.png"],
        "messages": [
            {"role": "user", "content": "Is it?"},
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "No"},
        ],
    }
    llava = {
        "id": "1",
        "image": "a.png",
        "conversations": [
            {"from": "human", "value": "<image>\nIs it?"},
            {"from": "gpt", "value": "Yes"},
        ],
    }
    (tmp_path / "trl.jsonl").write_text(f"{json.dumps(trl)}\n")
    (tmp_path / "llava.json").write_text(json.dumps([llava]))
    [first, second] = ChatFile(tmp_path / "trl.jsonl")[0].conversations
    [only] = ChatFile(tmp_path / "llava.json")[0].conversations
    assert first == only
    assert first[0]["content"] == [{"type": "image"}, {"type": "text", "text": "Is it?"}]
    assert [len(first), len(second)] == [2, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "neither JSON nor JSON lines"),
        ('{"question": 1}', "entry 1, has neither messages nor conversations"),
        ('{"image": "no.png", "conversations": []}', r"there is no image .*no\.png"),
        ("", "holds no conversations"),
    ],
)
def test_files_of_another_form_are_one_line(tmp_path, content, message):
    (tmp_path / "f.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        ChatFile(tmp_path / "f.jsonl")

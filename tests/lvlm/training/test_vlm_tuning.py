"""Supervised fine-tuning: batches, the loss, and python train.py model=vlm."""

import copy
import json
import os
import random
import subprocess
import sys
from functools import partial

import pytest
import torch
from cli import ROOT, call, run_folders
from PIL import Image
from safetensors.torch import load_file

from ood_lab.errors import UserError
from ood_lab.lvlm.training.chat_files import ChatFile
from ood_lab.lvlm.training.data import Chats
from ood_lab.lvlm.training.dialogues import Seen, SeenScene, caption, dialogues, plural
from ood_lab.lvlm.training.examples import IGNORED, Example, Packed, Rows
from ood_lab.lvlm.training.grounding import Grounding
from ood_lab.lvlm.training.make import vlm_tuning
from ood_lab.lvlm.training.module import TinyVlmTuning, VlmTuning, with_lora
from ood_lab.lvlm.training.reading import read_the_tower
from ood_lab.lvlm.training.scene_chats import SceneChats
from ood_lab.lvlm.training.tiny import untrained_vlm


@pytest.fixture(scope="module")
def vlm():
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


def test_the_tower_learns_where_words_are():
    grounding = Grounding(["mug", "red", "wine glass"], 16, (12, 12))
    example = Example(None, [], grounds=[(("mug", "red"), (0.5, 0.25)), (("boat",), (0.1, 0.1))])
    targets = grounding.targets([example])
    assert targets.shape == (1, 144, 3)
    assert targets.sum((0, 1)).tolist() == pytest.approx([1.0, 1.0, 0.0])
    where = targets[0, :, 0].view(12, 12).nonzero()
    assert where.float().mean(0).tolist() == pytest.approx([2.5, 5.5])  # centre 3, 6 less a half
    # A feature that says "mug" at the centre costs less than one elsewhere.
    word = grounding.head.weight[0] / grounding.head.weight[0].square().sum()
    right, wrong = torch.zeros(1, 144, 16), torch.zeros(1, 144, 16)
    right[0, targets[0, :, 0] > 0] = 5 * word
    wrong[0, :4] = 5 * word
    assert grounding(right, targets) < grounding(wrong, targets)


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    return vlm_tuning(None, partial(torch.optim.AdamW, lr=1e-3), tower_epochs=0).eval()


def test_a_name_attends_to_what_the_tower_takes_for_it(tiny):
    read_the_tower(tiny.model, tiny.processor.tokenizer, tiny.grounding)
    words = list(tiny.grounding.words)
    head = tiny.grounding.head
    cells = {9: words.index("mug"), 77: words.index("cat")}
    wanted = torch.full((144, len(words)), -5.0)
    for cell, word in cells.items():
        wanted[cell, word] = 1.0
    features = torch.linalg.lstsq(head.weight, (wanted - head.bias).T).solution.T
    tokens = tiny.processor.tokenizer(" mug cat boat")["input_ids"]
    inner = tiny.model.model
    embedded = tiny.model.get_input_embeddings()(torch.tensor(tokens))
    prompt = torch.cat([inner.multi_modal_projector(features), embedded])[None]
    inner.language_model.set_attn_implementation("eager")
    first = inner.language_model(inputs_embeds=prompt, output_attentions=True).attentions[0][0]
    mug, cat, boat = first[:, 144:, :144].mean(0)
    assert (mug.argmax(), cat.argmax()) == (9, 77)
    assert mug[9] > 0.5
    assert boat.max() < 0.2


def test_a_tower_that_rests_sees_an_image_once(tiny, scenes, monkeypatch):
    seen = []
    see = tiny._seen
    monkeypatch.setattr(tiny, "_seen", lambda pixels: seen.append(len(pixels)) or see(pixels))
    batch = tiny.collate([scenes[(row, 7)] for row in range(3)])
    first, again = tiny._features(batch), tiny._features(batch)
    assert seen == [3]
    assert torch.equal(first, again)
    assert torch.allclose(first, see(batch["inputs"]["pixel_values"]), atol=1e-2)


def test_the_tower_of_an_earlier_training_is_taken(tiny, tmp_path):
    torch.save({"state_dict": tiny.state_dict()}, tmp_path / "weights.ckpt")
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    taken = vlm_tuning(None, optimizer, tower=str(tmp_path / "weights.ckpt"))
    for kept, part in ((tiny.grounding, taken.grounding), (tiny._tower, taken._tower)):
        mine = part.state_dict()
        assert all(torch.equal(value, mine[name]) for name, value in kept.state_dict().items())
    torch.save({"state_dict": {}}, tmp_path / "none.ckpt")
    with pytest.raises(UserError, match=r"model\.tower=.*none\.ckpt holds no tower"):
        vlm_tuning(None, optimizer, tower=str(tmp_path / "none.ckpt"))


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


def chat(*roles, text="Is it?", **more):
    turns = [{"from": role, "value": text} for role in roles]
    return json.dumps({"conversations": turns, **more})


def test_the_image_stands_where_it_is_marked(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    turns = [("human", "Hello"), ("gpt", "Hi"), ("human", "<image>Is it?"), ("gpt", "Yes")]
    turns = [{"from": role, "value": text} for role, text in turns]
    (tmp_path / "f.json").write_text(json.dumps([{"image": "a.png", "conversations": turns}]))
    _, second = ChatFile(tmp_path / "f.json")[0].conversations
    assert [part["type"] for message in second for part in message["content"]] == [
        "text",
        "text",
        "image",
        "text",
        "text",
    ]


def test_every_conversation_is_learned_in_an_epoch(tmp_path):
    (tmp_path / "f.jsonl").write_text(
        "\n".join(chat("human", "gpt", text=str(i)) for i in range(60))
    )
    data = Chats(train=str(tmp_path / "f.jsonl"), batch_size=32)
    data.collate = list
    seen = [
        e.conversations[0][-1]["content"][0]["text"] for b in data.train_dataloader() for e in b
    ]
    assert sorted(seen, key=int) == [str(i) for i in range(60)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "neither JSON nor JSON lines"),
        ('{"question": 1}', "entry 1, has neither messages nor conversations"),
        ('{"image": "no.png", "conversations": []}', r"there is no image .*no\.png"),
        ("", "holds no conversations"),
        (chat("human"), "entry 1, has no turn of the assistant: there is nothing to learn"),
        (chat("human", "bot"), "entry 1: unknown role 'bot'; known are user, assistant, system"),
        (chat("human", text="<image>?"), "has an <image> in its text, but names no image"),
        (chat("human", text="<image><image>", image="f.jsonl"), "marks 2 images"),
        (chat("gpt", image="f.jsonl"), "an image belongs to a turn of the user"),
        (chat("human", "gpt", text=""), "an empty turn of the assistant"),
        (chat("human", "gpt", image={"bytes": ""}), "give the path of the image, not dict"),
        ('"text"', "has neither messages nor conversations"),
    ],
)
def test_files_of_another_form_are_one_line(tmp_path, content, message):
    (tmp_path / "f.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        ChatFile(tmp_path / "f.jsonl")


def command(folder, *settings):
    return [
        "model=vlm",
        "model.chats.val_scenes=4",
        "model.chats.batch_size=10",
        "task.scenes=3",
        "logger=none",
        f"paths.outputs={folder}",
        *settings,
    ]


@pytest.mark.slow
def test_the_tiny_model_is_trained_in_stages_and_resumed(tmp_path, monkeypatch):
    short = [
        "model.chats.scenes=20",
        "model.tower_epochs=1",
        "model.join_epochs=1",
        "trainer.max_epochs=3",
    ]

    def weights(outputs):
        [folder] = run_folders(outputs)
        files = {p.name: p for p in (folder / "model").iterdir()}
        assert {"config.json", "about.json", "tokenizer.json"} <= files.keys()
        assert (folder / "results.csv").is_file()
        told = json.loads(files["about.json"].read_text())["command"]
        assert told.startswith("python train.py model=vlm model.chats.val_scenes=4")
        assert "paths.outputs" not in told
        return load_file(files["model.safetensors"])

    assert call("train.py", *command(tmp_path / "whole", *short)) == 0
    whole = weights(tmp_path / "whole")

    def stops(self):
        if self.current_epoch == 2:
            raise UserError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(TinyVlmTuning, "on_train_batch_start", lambda self, *_: stops(self))
        assert call("train.py", *command(tmp_path / "parts", *short)) != 0
    assert not run_folders(tmp_path / "parts")
    assert call("train.py", *command(tmp_path / "parts", *short)) == 0
    parts = weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def chats_in(folder):
    """A file of eight equal conversations."""
    Image.new("RGB", (96, 96)).save(folder / "a.png")
    entry = {
        "image": "a.png",
        "conversations": [
            {"from": "human", "value": "<image>Is it?"},
            {"from": "gpt", "value": "Yes"},
        ],
    }
    (folder / "chats.jsonl").write_text(f"{json.dumps(entry)}\n" * 8)
    return folder / "chats.jsonl"


def test_without_validation_the_last_epoch_is_exported(tmp_path, recwarn, capsys):
    settings = ["model.path=shipped:tiny", "task.scenes=0", "trainer.max_epochs=2"]
    arguments = command(tmp_path / "out", *settings, f"model.chats.train={chats_in(tmp_path)}")
    assert call("train.py", *arguments) == 0
    [folder] = run_folders(tmp_path / "out")
    assert folder.parents[1].name == "vlm-chats"
    assert "val/loss" not in "".join([*map(str, recwarn), *capsys.readouterr()])
    best, last = (
        torch.load(folder / "checkpoints" / name, weights_only=True)
        for name in ("best.ckpt", "last.ckpt")
    )
    assert best["epoch"] == last["epoch"] == 1
    assert (folder / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_two_processes_train_a_model_of_ones_own(vlm, tmp_path):
    for part in vlm:
        part.save_pretrained(tmp_path / "mine")
    chats = chats_in(tmp_path)
    arguments = command(
        tmp_path / "out",
        f"model.path={tmp_path / 'mine'}",
        f"model.chats.train={chats}",
        f"model.chats.val={chats}",
        "model.chats.batch_size=2",
        "trainer=ddp_cpu",
        "trainer.max_epochs=1",
        "task.scenes=0",
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "train.py", *arguments], check=True, env=environment, cwd=ROOT)
    [folder] = run_folders(tmp_path / "out")
    before = load_file(tmp_path / "mine" / "model.safetensors")
    after = load_file(folder / "model" / "model.safetensors")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_adapters_need_peft(monkeypatch, vlm):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"pip install 'ood_lab\[lora\]'"):
        with_lora(vlm[0], {"r": 2})


def test_only_adapters_are_trained_and_then_merged(vlm, tmp_path):
    pytest.importorskip("peft")
    model, processor = copy.deepcopy(vlm[0]), vlm[1]
    settings = {"r": 2, "target_modules": ["q_proj", "v_proj"]}
    module = VlmTuning(model, processor, partial(torch.optim.SGD, lr=0.1), lora=settings)
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora" in name for name in trained)
    module.save(tmp_path)
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1  # others may read all
    from transformers import AutoModelForImageTextToText

    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert not any("lora" in name for name, _ in again.named_parameters())


def test_what_is_no_model_is_said_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"holds no config\.json"):
        vlm_tuning(str(tmp_path), partial(torch.optim.SGD, lr=0.1))
    with pytest.raises(UserError, match=r"for a model in model\.path"):
        vlm_tuning(None, partial(torch.optim.SGD, lr=0.1), lora={"r": 2})

"""Supervised fine-tuning: batches, the loss, and python train.py model=vlm."""

import copy
import json
import os
import subprocess
import sys
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from cli import ROOT, call, run_folders
from PIL import Image
from safetensors.torch import load_file
from torch.utils.data import DistributedSampler

from ood_lab.common.errors import UserError
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.training.conversation_files import ChatFile
from ood_lab.lvlm.training.examples import (
    IGNORED,
    Chats,
    ConversationRows,
    Example,
    conversation,
)
from ood_lab.lvlm.training.tuning_module import VlmTuning, with_lora


@pytest.fixture(scope="module")
def vlm():
    folder = ModelFolder("shipped:tiny")
    return folder.load_model("float32"), folder.load_processor()


def test_only_the_last_message_is_learned(vlm):
    _, processor = vlm
    pairs = [("Is there a mug in the image?", "Yes"), ("What is it?", "A kitchen with a mug.")]
    example = Example(Image.new("RGB", (96, 96)), [conversation(*pair) for pair in pairs])
    labels = ConversationRows(processor)([example])["inputs"]["labels"]
    texts = [processor.tokenizer.decode(row[row != IGNORED]) for row in labels]
    assert texts == [f"{c[-1]['content'][0]['text']}<|end|>" for c in example.conversations]


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
    data = Chats(ChatFile(tmp_path / "f.jsonl"), batch_size=32)
    data.collate = list

    def seen():
        batches = list(data.train_dataloader())
        return [e.conversations[0][-1]["content"][0]["text"] for b in batches for e in b]

    alone = seen()
    assert sorted(alone, key=int) == [str(i) for i in range(60)]
    for devices in (1, 2):  # every other example of the same order, which Lightning mixes no more
        for device in range(devices):
            data.trainer = Mock(world_size=devices, global_rank=device)
            data.trainer._checkpoint_connector._loaded_checkpoint = {}
            data.trainer.fit_loop.epoch_progress.current.processed = 0
            assert isinstance(data.train_dataloader().sampler, DistributedSampler)
            assert seen() == alone[device::devices]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1, is no JSON"),
        ('{"question": 1}', "entry 1, has neither messages nor conversations"),
        ('{"image": "no.png", "conversations": []}', r"there is no image .*no\.png"),
        ("", "has no records"),
        (chat("human"), "entry 1, has no turn of the assistant, or an empty one: nothing to learn"),
        (chat("human", "bot"), r"conversations of user, assistant, system, .* KeyError\('bot'\)"),
        (chat("human", text="<image>?"), "names 0 images and shows 1 in its text"),
        (chat("human", text="<image><image>", image="f.jsonl"), "names 1 images and shows 2"),
        (chat("gpt", image="f.jsonl"), "an image belongs to a turn of the user"),
        (chat("human", "gpt", text=""), "or an empty one"),
        (chat("human", "gpt", image={"bytes": ""}), "with the path of an image: TypeError"),
        ('"text"', "line 1, is no object"),
    ],
)
def test_files_of_another_form_are_one_line(tmp_path, content, message):
    (tmp_path / "f.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        ChatFile(tmp_path / "f.jsonl")


def command(folder, *settings):
    return [
        "model=vlm",
        "model.chats.batch_size=10",
        "logger=none",
        f"paths.outputs={folder}",
        *settings,
    ]


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
    settings = ["trainer.max_epochs=2"]
    arguments = command(tmp_path / "out", *settings, f"model.chats.train={chats_in(tmp_path)}")
    assert call("train.py", *arguments) == 0
    [folder] = run_folders(tmp_path / "out")
    assert folder.parents[1].name == "vlm"
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


def test_what_is_missing_is_said_in_one_line(tmp_path, capsys):
    assert call("train.py", *command(tmp_path / "out")) == 1
    assert "model.chats.train" in capsys.readouterr().err
    line = (f"model.path={tmp_path}", f"model.chats.train={chats_in(tmp_path)}")
    assert call("train.py", *command(tmp_path / "out", *line)) == 1
    assert "holds no config.json" in capsys.readouterr().err

"""The tiny vision-language model: its questions, batches, stages, and python train.py model=vlm."""

import json
import random
from functools import partial

import pytest
import torch
from cli import call, run_folders
from safetensors.torch import load_file

from ood_lab.builtin.vlm.dialogues import SeenScene, VisibleObject, caption, dialogues, plural
from ood_lab.builtin.vlm.grounding import Grounding
from ood_lab.builtin.vlm.packed_batches import Packed
from ood_lab.builtin.vlm.scene_conversations import SceneChats
from ood_lab.builtin.vlm.tiny_architecture import untrained_vlm
from ood_lab.builtin.vlm.tiny_training import TinyVlmTuning
from ood_lab.builtin.vlm.tower_alignment import read_the_tower
from ood_lab.builtin.vlm.tuning_module import vlm_tuning
from ood_lab.common.errors import UserError
from ood_lab.lvlm.training.examples import IGNORED, Example, Rows


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


@pytest.mark.slow
def test_packed_conversations_see_what_they_see_alone(vlm, scenes):
    model, processor = vlm
    examples = [scenes[(row, 7)] for row in range(3)]
    packed, packed_labels = learned(model, Packed(processor, 144)(examples))
    rows, row_labels = learned(model, Rows(processor)(examples))
    assert torch.equal(packed_labels, row_labels)
    assert torch.allclose(packed, rows, atol=1e-5)


def test_questions_have_right_answers_and_both_kinds():
    objects = (
        VisibleObject("mug", (0.2, 0.5), 90, {"colour": "red"}),
        VisibleObject("mug", (0.6, 0.5), 50, {"colour": "blue"}),
        VisibleObject("axe", (0.8, 0.8), 200, {}),
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

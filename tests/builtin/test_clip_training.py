"""Training a CLIP on captions."""

import functools
import json

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from cli import call, run_folders

from ood_lab.builtin.clip import ClipTraining, untrained_backbone
from ood_lab.builtin.clip.contrastive_training import ClipOutput
from ood_lab.builtin.vessels import CLASSES, VesselsWorld
from ood_lab.clip import load_clip

ADAM = functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return ClipTraining(untrained_backbone(None, CLASSES), ADAM)


def test_equal_captions_are_positives_of_each_other(module):
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([0, 1, 0, 2, 0])
    terms = module.losses(ClipOutput(logits), {"label": label})
    rows = [F.cross_entropy(logits[i], label[i]) for i in range(5)]
    columns = []
    for text in range(3):
        log_share = F.log_softmax(logits[:, text], 0)
        columns.append(-torch.stack([log_share[i] for i in range(5) if label[i] == text]).mean())
    torch.testing.assert_close(terms["image_to_text"], 0.5 * torch.stack(rows).mean())
    torch.testing.assert_close(terms["text_to_image"], 0.5 * torch.stack(columns).mean())


def test_both_towers_learn_and_what_has_no_direction_does_not_decay(module):
    assert module.backbone.clip.training
    decayed, kept = module.parameter_groups()
    assert all(p.ndim > 1 for p in decayed["params"])
    assert kept["weight_decay"] == 0
    ids = {id(p) for group in (decayed, kept) for p in group["params"]}
    assert ids == {id(p) for p in module.backbone.clip.parameters()}


@pytest.mark.slow
def test_a_few_steps_lower_the_loss(module):
    data = VesselsWorld("few", 32, seed=0)
    clip = module.backbone.clip
    image = torch.stack([clip.preprocess(data.load_image(i)) for i in range(32)])
    captions = data.table["caption"].tolist()
    texts = list(dict.fromkeys(captions))
    batch = {
        "image": image,
        "ids": clip.tokenizer(texts),
        "label": torch.tensor([texts.index(c) for c in captions]),
    }
    optimizer = ADAM(module.parameter_groups())
    losses = []
    for _ in range(12):
        total = torch.stack(list(module.losses(module.outputs(batch), batch).values())).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total.detach()))
    assert losses[-1] < losses[0] - 0.5


def test_samples_carry_their_captions(module):
    data = VesselsWorld("few", 3, seed=0)
    data.transform = module.backbone.transform
    assert [data[i]["caption"] for i in range(3)] == data.table["caption"].tolist()
    longer = VesselsWorld("few", 6, seed=0)
    assert longer.table["caption"].tolist()[:3] == data.table["caption"].tolist()


def test_a_clip_as_it_is_is_measured(tmp_path, capsys):
    line = ["task=clip_report", "model=clip", f"paths.outputs={tmp_path}", "logger=none"]
    line += [f"data.{size}" for size in ("test=66", "per_shift_set=4", "per_cell=0")]
    assert call("eval.py", *line) == 1
    assert "needs images with captions: choose data=vessels_world" in capsys.readouterr().err
    assert call("eval.py", *line, "data=vessels_world", "data.world=96") == 0
    (run,) = run_folders(tmp_path)
    results = pd.read_csv(run / "results.csv").set_index("metric").value
    assert results.category_accuracy > 0.9
    assert results.style_accuracy > 0.8


@pytest.mark.slow
def test_the_command_trains_measures_and_exports(tmp_path, capsys):
    sizes = ("train=256", "val=64", "world=96", "test=66", "per_shift_set=4", "per_cell=0")
    arguments = [f"data.{size}" for size in sizes]
    arguments += ["trainer.max_epochs=2", "logger=none", f"paths.outputs={tmp_path}"]
    assert call("train.py", "model=tiny_clip", *arguments) == 0
    (run,) = run_folders(tmp_path)
    results = pd.read_csv(run / "results.csv").set_index("metric").value
    names = {"category_accuracy", "period_accuracy", "style_accuracy", "retrieval_at_1"}
    assert names <= set(results.index)
    assert results.between(0, 1).all()
    assert f"local-dir:{run}/clip" in "".join(capsys.readouterr().out.split())
    clip = load_clip(f"local-dir:{run / 'clip'}")
    about = json.loads((run / "clip" / "about.json").read_text())
    assert about["metrics"]["period_accuracy"] == pytest.approx(results.period_accuracy, abs=1e-4)
    assert about["templates"] == list(clip.templates)
    told = " ".join([*(f"data.{size}" for size in sizes), "trainer.max_epochs=2"])
    assert about["command"] == f"python train.py model=tiny_clip {told}"
    best = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    stored = clip.model.state_dict()["token_embedding.weight"]
    torch.testing.assert_close(
        best["backbone.clip.model.token_embedding.weight"].half().float(), stored
    )

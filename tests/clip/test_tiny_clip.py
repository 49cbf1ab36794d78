"""The shipped CLIP on freshly drawn vessels, and a CLIP with fresh weights."""

import json

import pytest
import torch
import torch.nn.functional as F

from ood_lab.builtin.vessels import CATEGORIES, CLASSES, VesselsDataset, VesselsGrid
from ood_lab.builtin.vessels.covariate_styles import STYLES
from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS
from ood_lab.builtin.vessels.scene import RENDERER
from ood_lab.clip import load_clip, missing_files, untrained_clip, zero_shot_weights
from ood_lab.clip.weight_sources import SHIPPED
from ood_lab.common.errors import UserError

SEED = 977  # no image of it was trained on


def encode(clip, data):
    images = torch.stack([clip.preprocess(data.load_image(i)) for i in range(len(data))])
    with torch.no_grad():
        return clip.encode_image(images)


def test_it_is_small_and_says_how_it_was_made():
    folder = SHIPPED / "tiny"
    assert sum(f.stat().st_size for f in folder.iterdir()) < 8_000_000
    about = json.loads((folder / "about.json").read_text())
    assert about["renderer"] == RENDERER
    assert {"seed", "metrics", "knows"} <= about.keys()


def test_it_loads_without_network():
    assert missing_files("tiny") == []
    clip = load_clip("tiny")
    assert clip.embed_dim == 128
    assert clip.data_config["input_size"] == (3, 64, 64)


def test_it_tells_categories_and_periods(tiny):
    data = VesselsDataset("fresh", 220, seed=SEED)
    features = encode(tiny, data)
    templates = [f"a clear photo of a {{}} in a {place}" for place in ("studio", "museum")]
    categories = zero_shot_weights(tiny, CATEGORIES, templates)
    truth = torch.tensor(data.table["category"].to_numpy())
    assert ((features @ categories.T).argmax(1) == truth).float().mean() > 0.95
    periods = zero_shot_weights(tiny, CLASSES)
    assert ((features @ periods.T).argmax(1) == data.labels).float().mean() > 0.4


@pytest.mark.slow
def test_it_tells_styles(tiny):
    data = VesselsGrid("fresh", 9, seed=SEED)
    captions = [
        [f"a {s.phrases[0]} of a thing {s.material} {BACKGROUNDS[b].place}" for b in s.backgrounds]
        for s in STYLES.values()
    ]
    texts = [tiny.encode_text(group).mean(0) for group in captions]
    styles = F.normalize(torch.stack(texts), dim=-1)
    truth = torch.tensor(data.table["style"].map(list(STYLES).index).to_numpy())
    assert ((encode(tiny, data) @ styles.T).argmax(1) == truth).float().mean() > 0.6


def test_zero_shot_weights_equal_those_of_open_clip(tiny):
    import open_clip

    theirs = open_clip.build_zero_shot_classifier(
        tiny.model, tiny.tokenizer, CLASSES, tiny.templates
    )
    torch.testing.assert_close(zero_shot_weights(tiny, CLASSES), theirs.T)
    spaced = [name.replace(" ", "_") for name in CLASSES]
    torch.testing.assert_close(zero_shot_weights(tiny, spaced), theirs.T)
    for classes, templates in (([], None), (["a"], ["no place"]), (["a"], [])):
        with pytest.raises(UserError):
            zero_shot_weights(tiny, classes, templates)


def test_fresh_weights_differ():
    assert untrained_clip("tiny").identity != untrained_clip("tiny").identity
    with pytest.raises(UserError, match="no such folder"):
        untrained_clip("local-dir:nowhere")

"""Trains one of the shipped CLIPs of the builtin scenes.

``python -m ood_lab.builtin.clip.scenes_clip FOLDER --size 96 --seed 0`` writes a folder that
``clip.name=local-dir:FOLDER`` loads: the shipped ``scenes_96`` and ``scenes_64`` were made by it.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader

from ood_lab.builtin.clip.contrastive_training import ClipTraining, untrained_backbone
from ood_lab.builtin.scenes import THINGS, ScenesDataset
from ood_lab.builtin.scenes.scene import RENDERER
from ood_lab.builtin.vessels.augmentation import LightAugment
from ood_lab.builtin.vessels.scene import generator
from ood_lab.clip import ClipBackbone, save_clip, zero_shot_weights
from ood_lab.common.files import packaged_table

TEMPLATES = ("{}", "a photo of a {}")
_BATCH, _LR, _DECAY = 64, 2e-3, 0.1


class CaptionedScenes(ScenesDataset):
    """Scenes with a ``caption`` that names one of their things.

    As people's captions do, it names large things more often: with a chance in proportion to the
    visible area, sampled at each access to row ``i``.
    """

    def __init__(self, name: str, n: int, seed: int, size: int) -> None:
        super().__init__(name, n, seed, size, breaks=0.3)
        self._things: dict[int, tuple[list[str], np.ndarray]] = {}
        self._rng = generator(seed, 0, f"captions/{name}")

    def things(self, index: int) -> tuple[list[str], np.ndarray]:
        """Names of what can be seen in row ``index``, and the share of each in their area."""
        if index not in self._things:
            seen = self.objects(index)
            areas = np.array([one.area for one in seen], float)
            self._things[index] = ([one.item.look.thing for one in seen], areas / areas.sum())
        return self._things[index]

    def __getitem__(self, index: int) -> dict[str, Any]:
        names, shares = self.things(index)
        thing = names[int(self._rng.choice(len(names), p=shares))]
        template = TEMPLATES[int(self._rng.integers(len(TEMPLATES)))]
        return {**super().__getitem__(index), "caption": template.format(thing)}


def write_config(folder: Path, size: int) -> None:
    """Writes the architecture for images of a size, and the words of the scenes."""
    words = sorted({word for text in (*THINGS, *TEMPLATES) for word in text.split()} - {"{}"})
    letters = [f"+{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocabulary = ["<unknown>", *letters, *words, "<start>", "<end>"]
    config = packaged_table(__package__, "scenes_clip.yaml")
    config["model_cfg"]["vision_cfg"]["image_size"] = config["preprocess_cfg"]["size"] = size
    config["model_cfg"]["text_cfg"]["vocab_size"] = len(vocabulary) + 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "vocabulary.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "about.json").write_text(json.dumps({"templates": list(TEMPLATES)}) + "\n")


def train(folder: Path, size: int, seed: int, images: int, epochs: int) -> dict[str, float]:
    """Trains a CLIP on captioned scenes and writes it to ``folder``.

    Args:
        folder: made if missing.
        size: height and width of its input, pixels.
        seed: of the weights, the captions and the order; the scenes are those of seed 0.
        images: number of scenes.
        epochs: passes over them.

    Returns:
        How well the stored model knows the largest thing in held-out scenes.
    """
    L.seed_everything(seed, workers=True, verbose=False)
    with TemporaryDirectory() as plan:
        write_config(Path(plan), size)
        backbone = untrained_backbone(plan, list(THINGS), TEMPLATES)
        data = CaptionedScenes("train", images, 0, 96)
        augment, preprocess = LightAugment(0.5, 4, 0.1, 0.1, 0.05, 0.0), backbone.transform
        data.transform = lambda image: preprocess(augment(image))
        loader = DataLoader(data, _BATCH, shuffle=True, drop_last=True)
        module = ClipTraining(
            backbone,
            partial(torch.optim.AdamW, lr=_LR, weight_decay=_DECAY),
            partial(
                torch.optim.lr_scheduler.OneCycleLR,
                max_lr=_LR,
                total_steps=epochs * len(loader),
                pct_start=0.15,
            ),
        )
        trainer = L.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            gradient_clip_val=1.0,
            enable_model_summary=False,
        )
        trainer.fit(module, loader)
        backbone.clip.model.half().float()  # measured as it is stored
        metrics = accuracy(backbone)
        about = {
            "knows": "only things of the builtin scenes",
            "command": "python -m ood_lab.builtin.clip.scenes_clip FOLDER "
            f"--size {size} --seed {seed} --images {images} --epochs {epochs}",
            "renderer": RENDERER,
            "metrics": {name: round(value, 4) for name, value in metrics.items()},
        }
        save_clip(backbone.clip, folder, plan, about)
    return metrics


@torch.no_grad()
def accuracy(backbone: ClipBackbone, n: int = 600) -> dict[str, float]:
    """Of held-out scenes: how often the nearest name is that of the largest thing, or of any."""
    clip = backbone.clip.eval()
    data = CaptionedScenes("val", n, 0, 96)
    data.transform = backbone.transform
    weights = zero_shot_weights(clip, list(THINGS), TEMPLATES)
    largest = anything = 0
    for start in range(0, n, 100):
        rows = range(start, min(start + 100, n))
        images = torch.stack([data[i]["image"] for i in rows])
        found = (clip.encode_image(images) @ weights.T).argmax(1).tolist()
        for row, best in zip(rows, found, strict=True):
            names, shares = data.things(row)
            largest += names[int(shares.argmax())] == list(THINGS)[best]
            anything += list(THINGS)[best] in names
    return {"largest_thing_accuracy": largest / n, "any_thing_accuracy": anything / n}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to; made if missing")
    parser.add_argument("--size", type=int, default=96, help="of the input, pixels")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and captions")
    parser.add_argument("--images", type=int, default=12000, help="scenes to learn from")
    parser.add_argument("--epochs", type=int, default=10, help="passes over them")
    arguments = parser.parse_args()
    for name, value in train(**vars(arguments)).items():
        print(f"{name} {value:.3f}")


if __name__ == "__main__":
    main()

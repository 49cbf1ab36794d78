"""A CLIP of one's own in a folder: configuration, vocabulary, weights, how it was made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ood_lab.clip.frozen_clip import ClipModel
from ood_lab.clip.loading import create, folder_facts, folder_tokenizer
from ood_lab.clip.weight_sources import ABOUT, CONFIG, SHIPPED, VOCABULARY, read_config
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import save_tensors

WEIGHTS = "open_clip_model.safetensors"


def untrained_clip(folder: str | Path | None = None) -> ClipModel:
    """A CLIP with fresh weights, as the configuration in ``folder`` describes it.

    Args:
        folder: with ``open_clip_config.json`` and, for an own vocabulary, ``vocabulary.txt``
            (one token per line, see :class:`WordTokenizer`); None = those of the shipped CLIP: a
            ResNet of 4 blocks at 64 pixels, a text transformer of 2 layers, 32 tokens per text.

    Raises:
        UserError: the folder lacks something.
    """
    place = SHIPPED / "tiny" if folder is None else Path(folder)
    config = read_config(place)["model_cfg"]
    tokenizer = folder_tokenizer(place, config)
    rows = config["text_cfg"]["vocab_size"]
    if tokenizer.vocab_size != rows:
        raise UserError(
            f"{place / CONFIG}: text_cfg.vocab_size={rows}, the vocabulary has "
            f"{tokenizer.vocab_size} ids (its lines and the padding)"
        )
    model = create(f"local-dir:{place}", load_weights=False)
    return ClipModel(model, tokenizer, place.name, folder_facts(place).templates)


def save_clip(
    clip: ClipModel, folder: Path, like: str | Path | None, about: Mapping[str, Any]
) -> None:
    """Writes a CLIP as a folder that ``clip.name=local-dir:FOLDER`` loads.

    Weights are stored in half precision.

    Args:
        clip: the model.
        folder: made if missing.
        like: the folder that :func:`untrained_clip` made the model from.
        about: how the weights were made; ``templates`` of that other folder are kept.
    """
    origin = SHIPPED / "tiny" if like is None else Path(like)
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != origin.resolve():
        for name in (CONFIG, VOCABULARY):
            if (origin / name).is_file():
                shutil.copyfile(origin / name, folder / name)
    state = {
        key: value.detach().cpu().to(torch.float16 if value.is_floating_point() else value.dtype)
        for key, value in clip.model.state_dict().items()
    }
    save_tensors({k: v.contiguous() for k, v in state.items()}, folder / WEIGHTS)
    described = {"templates": list(clip.templates), **about}
    (folder / ABOUT).write_text(json.dumps(described, indent=1) + "\n")

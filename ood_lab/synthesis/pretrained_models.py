"""Pretrained models from local folders: how they are loaded, what they answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from PIL import Image

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.installed_packages import need

#: Of weights; None = float16 on a GPU, float32 elsewhere.
Dtype = Literal["float32", "float16", "bfloat16"] | None


def check_package(*names: str) -> None:
    """Raises ``UserError`` naming a package that is not installed."""
    for name in names:
        need(name, "synthesis", "synthesis")


def check_model(folders: Mapping[str, str | None]) -> None:
    """Checks that the folders of models are there; weights are the loading library's business.

    Args:
        folders: option -> folder; None = not given.

    Raises:
        UserError: names all that is missing.
    """
    problems = []
    for option, folder in folders.items():
        place = Path(folder or "").expanduser()
        if folder is None:
            problems.append(f"{option} is not set: give the folder of a model")
        elif not place.is_dir():
            problems.append(f"{option}={folder} is not a directory")
        elif lacking := [str(path) for path in _parts(place) if not path.exists()]:
            problems.append(f"{option} lacks {', '.join(lacking)}")
    if problems:
        raise UserError(f"models are not complete: {'; '.join(problems)}")


def _parts(folder: Path) -> list[Path]:
    """The folders of the parts of a pipeline; of a single model, its configuration."""
    index = folder / "model_index.json"
    if not index.exists():
        return [folder / "config.json"]
    with reported_as(f"'{index}' is damaged: fetch it again ({{reason}})", (OSError, ValueError)):
        entries = json.loads(index.read_text(encoding="utf-8")).items()
    return [folder / name for name, part in entries if isinstance(part, list) and part[0]]


def load_transformers(task: str, option: str, folder: str, device: torch.device) -> Any:
    """A pipeline of transformers from a local folder, quietly.

    Args:
        task: what it does, in the words of ``transformers.pipeline``.
        option: what messages call the folder.
        folder: of the model.
        device: where to run.

    Raises:
        UserError: it cannot be loaded.
    """
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Its overloads want literal tasks, and are not there at all without the extra.
    pipeline: Any = transformers.pipeline
    with reported_as(f"{option}={folder} cannot be loaded for {task}: {{reason}}"):
        return pipeline(task, model=str(Path(folder).expanduser()), device=device)


def chosen_dtype(name: Dtype, device: torch.device) -> torch.dtype:
    """The type of that name."""
    default = "float16" if device.type == "cuda" else "float32"
    dtype: torch.dtype = vars(torch)[name or default]
    return dtype


def licence(folder: str | Path) -> str:
    """The licence that the model card (``README.md``) of a folder names."""
    card = Path(folder).expanduser() / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    lines = re.findall(r"^licen[sc]e(?:_name)?:\s*(\S.*)$", front[1] if front else "", re.MULTILINE)
    return ", ".join(lines) or "not stated in its folder; look at the model's card before sharing"


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ANSWER = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def parse_answer(text: str) -> bool | None:
    """The first ``yes`` or ``no`` of an answer, after its thoughts; None without any."""
    match = _ANSWER.search(_THOUGHT.sub("", text))
    return None if match is None else match[1].lower() == "yes"


class LanguageModel:
    """The most likely answer to each question, without sampling.

    A model that was tuned for chats (its tokenizer has a chat template) is prompted with it.

    Args:
        folder: of a causal language model of transformers.
        device: where to run.
        max_new_tokens: length of an answer.
    """

    def __init__(self, folder: str, device: torch.device, max_new_tokens: int) -> None:
        from transformers import GenerationConfig

        self.model = load_transformers("text-generation", "task.llm", folder, device)
        tokenizer = self.model.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Answers continue at the right end of every question of a batch.
        tokenizer.padding_side = "left"
        self.generation = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )

    def __call__(self, questions: Sequence[str]) -> list[str]:
        """The answers, in order."""
        chat = bool(self.model.tokenizer.chat_template)
        inputs = [[{"role": "user", "content": q}] if chat else q for q in questions]
        outputs = self.model(
            inputs,
            batch_size=len(inputs),
            return_full_text=False,
            generation_config=self.generation,
        )
        return [str(output[0]["generated_text"]).strip() for output in outputs]


class Box(NamedTuple):
    """The main box of a label in an image.

    Attributes:
        score: of the detector, in [0, 1]; 0 where it finds nothing.
        share: area of the box / area of the image, in [0, 1].
    """

    score: float
    share: float


#: What the detector looks for.
QUERY = "a photo of a {}"


class MainObject:
    """The box with the highest score for an image's own label.

    Args:
        folder: of a zero-shot detector of transformers (OWL-ViT, OWLv2, Grounding DINO).
        device: where to run.
    """

    def __init__(self, folder: str, device: torch.device) -> None:
        self.model = load_transformers(
            "zero-shot-object-detection", "task.detector", folder, device
        )

    def __call__(self, images: Sequence[Image.Image], labels: Sequence[str]) -> list[Box]:
        """The main box of each image."""
        inputs = [
            {"image": image, "candidate_labels": [QUERY.format(label)]}
            for image, label in zip(images, labels, strict=True)
        ]
        detections = self.model(inputs, threshold=0.0, top_k=1)
        return [_box(boxes, image) for boxes, image in zip(detections, images, strict=True)]


def _box(boxes: list[dict], image: Image.Image) -> Box:
    if not boxes:
        return Box(0.0, 0.0)
    box, (width, height) = boxes[0]["box"], image.size
    # Boxes may reach beyond the image.
    left, right = (min(max(box[key], 0), width) for key in ("xmin", "xmax"))
    top, bottom = (min(max(box[key], 0), height) for key in ("ymin", "ymax"))
    area = max(right - left, 0) * max(bottom - top, 0)
    return Box(float(boxes[0]["score"]), area / (width * height))

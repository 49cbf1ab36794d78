"""The folder of a model's answers, and its name in tables."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ood_lab.common.line_files import write_records
from ood_lab.lvlm.answers.answer_files import Answer, AnswerStore, model_of


def model_name(made_with: Mapping[str, Any]) -> str:
    """Name of a model: the last part of its path."""
    return str(made_with.get("model", "model")).rstrip("/").rpartition("/")[2] or "model"


def store_of(made_with: Mapping[str, Any], folder: Path) -> AnswerStore:
    """The file of a model's answers: its name, and a hash of what tells it from others.

    Answers in other files of models of that name are found, too, where they are of the same model:
    settings that change no reply, too, change the name of the file.

    Args:
        made_with: of the model.
        folder: of all such files.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", model_name(made_with))
    path = folder / f"{name}-{_digest(dict(made_with))}.jsonl"
    named = re.compile(rf"{re.escape(name)}-[0-9a-f]{{10}}\.jsonl")

    def others() -> list[Path]:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        return [file for file in files if named.fullmatch(file.name) and file != path]

    # Models that may use each other's answers wait for each other.
    return AnswerStore(path, others, f"{name}-{_digest(model_of(made_with))}")


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def write_answers(answers: Iterable[Answer], path: Path) -> None:
    """Writes one answer per line, whole or not at all."""
    write_records(map(vars, answers), path)

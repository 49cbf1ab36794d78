"""Answers of a slow model, kept one a line, so that none is asked for twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ood_lab.errors import UserError


class Ledger:
    """A JSON-lines file: first what the answers were made with, then ``{"key": ..., ...}`` a line.

    A last line that a stopped run left unfinished is dropped.

    Args:
        path: the file; made if missing.
        made_with: model, question and whatever else changes the answers.

    Raises:
        UserError: the file holds answers that were made with something else.
    """

    def __init__(self, path: Path, made_with: Mapping[str, Any]) -> None:
        self.path = path
        self.answers: dict[str, dict[str, Any]] = {}
        header = json.dumps({"made_with": dict(made_with)})
        lines = _whole_lines(path)
        if lines and lines[0] != header:
            raise UserError(
                f"'{path}' holds answers to other questions or of another model: choose another "
                "task.out, or remove the file"
            )
        for line in lines[1:]:
            answer = json.loads(line)
            self.answers[answer.pop("key")] = answer
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in (lines or [header])), encoding="utf-8")

    def add(self, answers: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Keeps answers by key, on disk at once."""
        with self.path.open("a", encoding="utf-8") as file:
            for key, answer in answers:
                self.answers[key] = dict(answer)
                file.write(json.dumps({"key": key, **answer}) + "\n")


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()

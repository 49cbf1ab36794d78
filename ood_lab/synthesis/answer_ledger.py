"""Answers of a slow model, kept one per line, so that none is computed twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.line_files import append_lines, create_with, read_records


class Ledger:
    """A JSON-lines file: first what the answers were made with, then ``{"key": ..., ...}`` a line.

    The file only grows: an answer that was paid for is never written a second time, so that
    nothing can take it away. A line that a killed run left unfinished is passed over.

    Args:
        path: the file; made if missing.
        made_with: model, question and whatever else changes the answers.

    Raises:
        UserError: the file holds answers that were made with something else.
    """

    def __init__(self, path: Path, made_with: Mapping[str, Any]) -> None:
        self.path = path
        header = json.dumps({"made_with": dict(made_with)})
        create_with(path, f"{header}\n")
        records = list(read_records(path))
        if not records:  # of a run that was killed, or found the disk full, before its first line
            append_lines(path, [header])
        elif records[0] != json.loads(header):
            raise UserError(
                f"'{path}' holds answers to other questions or of another model: choose another "
                "task.out, or remove the file"
            )
        self.answers: dict[str, dict[str, Any]] = {r.pop("key"): r for r in records if "key" in r}

    def add(self, answers: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Keeps answers by key, each on disk as soon as it exists."""
        append_lines(self.path, self._kept(answers))

    def _kept(self, answers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
        for key, answer in answers:
            self.answers[key] = dict(answer)
            yield json.dumps({"key": key, **answer})

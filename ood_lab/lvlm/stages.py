"""What the benchmarks share: their questions and the answers to them, noted in the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ood_lab.io import read_json
from ood_lab.lvlm.answers import Answer
from ood_lab.lvlm.asking import answers_to
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.kept import store_of, write_answers
from ood_lab.lvlm.levelled import with_levels
from ood_lab.lvlm.questions import Question, read_questions
from ood_lab.lvlm.recorded import recorded_answers

ANSWERS = "answers.jsonl"


def built_with(file: Path, keys: Iterable[str]) -> dict[str, Any]:
    """What the manifest of the run that built a file of questions says of them, where it is there.

    Args:
        file: of questions, in the folder of a run.
        keys: of the manifest.
    """
    manifest = file.parent / "manifest.json"
    found = read_json(manifest) if manifest.is_file() else {}
    return {key: found[key] for key in keys if key in found}


def noted_questions(file: Path, levels: str | None, manifest: dict[str, Any]) -> list[Question]:
    """The questions of a file, with measured levels of shift where there are any.

    Args:
        file: of questions.
        levels: see :func:`~ood_lab.lvlm.levelled.with_levels`.
        manifest: is told the file, its sha256 and the number of questions.

    Raises:
        UserError: the file is not one of questions, or the levels are not those of its images.
    """
    questions = with_levels(read_questions(file), levels)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["questions"] = {"file": str(file), "n": len(questions), "sha256": digest}
    return questions


def recorded_or_asked(
    questions: Sequence[Question],
    folder: Path,
    recorded: str | None,
    model: Callable[[], ChatModel],
    root: Path,
    manifest: dict[str, Any],
) -> list[Answer]:
    """The answers in a file of another run, or those of a chat model.

    Args:
        questions: to be answered.
        folder: from which the paths of their images start.
        recorded: the file; None = the model is asked.
        model: makes the chat model, which nobody needs where answers are recorded.
        root: of the files that keep the answers of all models.
        manifest: is told where the answers come from.

    Raises:
        UserError: see :func:`~ood_lab.lvlm.recorded.recorded_answers` and
            :func:`~ood_lab.lvlm.asking.answers_to`.
    """
    if recorded is not None:
        manifest["answers"] = recorded
        return recorded_answers(questions, Path(recorded))
    chat = model()
    store = store_of(chat.made_with, root)
    found = answers_to(questions, folder, chat, store)
    manifest["answers"] = str(store.path)
    return found


def by_question(
    found: Iterable[Answer], folder: Path, manifest: dict[str, Any]
) -> dict[str, Answer]:
    """The answers by the id of their question; they are written to the run folder.

    Args:
        found: answers of one model.
        folder: of the run.
        manifest: is told which model gave them.
    """
    answers = list(found)
    manifest["lvlm"] = dict(answers[0].made_with) if answers else {}
    write_answers(answers, folder / ANSWERS)
    return {answer.question_id: answer for answer in answers}

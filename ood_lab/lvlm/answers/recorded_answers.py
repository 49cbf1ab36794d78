"""Answers of an earlier run, for scoring without asking."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import Answer, answer_key, model_of, read_answers
from ood_lab.lvlm.answers.answer_requests import answer_of, as_answer_to, messages_hashes
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.chat.recorded_replies import _other_question, matcher
from ood_lab.lvlm.questions.question_files import SAMPLE, Questions

log = logging.getLogger(__name__)


def recorded_answers(questions: Questions, path: Path, folder: Path) -> list[Answer]:
    """The answers in a file to these questions, in their order; some may be missing.

    An answer belongs to a question if it was given to the same messages about the same image,
    whatever the ids. Of several answers to a question, the last without an error counts.

    Args:
        questions: of the answers.
        path: ``answers.jsonl`` of a run; or lines with ``question_id`` and ``response``, see
            :func:`matcher`. Of repeated samples the first answer counts.
        folder: from which the paths of their images start.

    Raises:
        UserError: the file has no answer to any of them, answers of several models, or, under the
            id of a question, an answer to another text or about another image.
    """
    results: dict[str, Answer] = {}
    models = set()
    answers = [answer for answer in read_answers(path) if not answer.made_with.get(SAMPLE)]
    if not answers:
        return list(_replayed(questions, path, folder))
    hashes = _hashes_by_id(questions, folder)
    texts = {question.question_id: question.text for question in questions}
    wanted = set(hashes.values())
    for answer in answers:
        name, digest = answer.question_id, answer.messages_hash
        by_hash = bool(hashes) and bool(digest)
        if name in texts and (digest != hashes[name] if by_hash else answer.prompt != texts[name]):
            raise _other_question(path, name, texts[name], answer.prompt)
        key = digest if by_hash else name
        if key not in (wanted if by_hash else texts):
            continue
        models |= {model_of(answer.made_with)} if answer.error is None else set()
        if len(models) > 1:
            raise UserError(
                f"{path} holds answers of several models: give the answers.jsonl of one run"
            )
        if key not in results or answer.error is None:
            results[key] = answer
    if not results:
        raise UserError(f"{path} has no answer to any of the {len(questions):,} questions")
    ids = [(q, hashes.get(q.question_id, "")) for q in questions]
    fitting = [(q, results.get(digest) or results.get(q.question_id)) for q, digest in ids]
    if lost := [q.question_id for q, answer in fitting if answer is None]:
        log.warning("%s has no answer to %d questions, '%s' first", path, len(lost), lost[0])
    return [as_answer_to(q, answer) for q, answer in fitting if answer is not None]


def _replayed(questions: Questions, path: Path, folder: Path) -> Iterator[Answer]:
    """Answers of a file that does not have the messages."""
    hashes = _hashes_by_id(questions, folder)
    pairs = [(question, hashes.get(question.question_id, "")) for question in questions]
    results = matcher(pairs, path)
    made_with = {"backend": "replay", "model": path.stem}
    for question, digest in pairs:
        recorded = results(question, digest)
        if recorded is None:
            continue
        key = answer_key(digest, made_with)
        reply = Reply(
            key,
            recorded.reply,
            recorded.p_yes,
            recorded.finish_reason,
            error=recorded.error,
            reasoning=recorded.reasoning,
        )
        yield answer_of(question, digest, made_with, reply)


def _hashes_by_id(questions: Questions, folder: Path) -> dict[str, str]:
    """Hash of the messages by the id of the question; none where the images are gone."""
    try:
        hashes = list(messages_hashes(questions, folder))
    except UserError as error:
        log.warning("%s: answers are held against only the texts of the questions", error)
        return {}
    return {q.question_id: item for q, item in zip(questions, hashes, strict=True)}

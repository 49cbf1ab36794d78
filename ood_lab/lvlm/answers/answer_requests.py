"""Prompts a vision-language model with the questions that have no answer yet.

``answers = answers_to(questions, folder, model, AnswerStore(path))`` gives one :class:`Answer` for
each question, in order. What the store holds is not asked again; what comes is in its file before
anything else happens; what failed has ``error`` set, and the next call requests it again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import file_sha256, text_sha256
from ood_lab.common.grouping import without_keys
from ood_lab.common.progress import Pace
from ood_lab.lvlm.answers.answer_files import (
    Answer,
    AnswerStore,
    answer_key,
    server_of,
)
from ood_lab.lvlm.answers.asking_facts import failures
from ood_lab.lvlm.chat.base import ChatModel, CostOf, Message, Reply, Request, Requests
from ood_lab.lvlm.chat.recorded_replies import matcher
from ood_lab.lvlm.questions.question_files import LONGEST, ONE_WORD, Question, Questions


@contextmanager
def asking_progress(total: int, cost_of: CostOf) -> Iterator[Callable[[Reply], None]]:
    """Takes each reply as it comes; reports count, rate, failures, cost and the time that is left.

    Where there is no terminal, a line every 10 seconds and at the end.

    Args:
        total: replies to come.
        cost_of: of the usage of a reply.
    """
    console, pace = get_console(), Pace(total, interval=10.0)
    count, failed, cost = 0, 0, 0.0
    columns = (
        TextColumn("asking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("asking", total=total, facts="")

        def tell(reply: Reply) -> None:
            nonlocal count, failed, cost
            count += 1
            failed += reply.error is not None
            cost += cost_of(reply.usage) or 0.0
            rate = count / max(pace.elapsed, 1e-6)
            facts = [
                f"{rate:.3g} a second",
                f"{failed:,} failed" if failed else "",
                f"cost {cost:.2f}" if cost else "",
            ]
            words = ", ".join(filter(None, facts))
            bar.update(task, completed=count, facts=words)
            if pace.due or count == total:
                parts = [f"asked {count} of {total} questions", words, pace.left(count)]
                pace.line(", ".join(filter(None, parts)))

        yield tell


log = logging.getLogger(__name__)


def answers_to(
    questions: Questions, folder: Path, model: ChatModel, store: AnswerStore
) -> list[Answer]:
    """The answers of a model, in the order of the questions.

    Args:
        questions: what to ask; ids are unique.
        folder: from which the paths of their images start.
        model: answers the questions that the store does not have.
        store: is filled; an interrupted call resumes.

    Raises:
        UserError: an image is missing, or the model cannot answer (its endpoint is down or
            rejects the key, its folder is not a model, ...), or answers cannot be written. Answers
            that came before are kept.
    """
    wanted = _wanted(questions, folder, model)
    with store.taken():
        unique: dict[str, Request] = {}
        for item in wanted:
            unique.setdefault(item.key, item)
        results = {
            key: answer
            for key, item in unique.items()
            if (answer := store.find(item.messages_hash, item.made_with, model.server))
        }
        todo = without_keys(unique, results)
        failed: dict[str, Answer] = {}
        if todo and len(todo) < len(wanted):
            log.info("%d of %d questions are to be asked", len(todo), len(wanted))
        _say_where_from(results, model)
        _say_without_chance(wanted, results, model)
        if todo:
            model.check()
            model.expect(wanted)
            # About what answers take on disk, at two bytes a token of the longest usual reply.
            needed = sum(2048 + 2 * LONGEST[item.question.reply] for item in todo.values())
            with store.reserved(len(todo), needed):
                for answer in store.add(_asked(todo, model)):
                    (results if answer.error is None else failed)[answer.key] = answer
                    if store.full is not None:
                        model.stop(store.full)
    if failed:
        kinds = failures([*failed.values()])
        log.warning("%d of %d questions have no answer: %s", len(failed), len(todo), kinds)
    # Several questions may be the same to a model.
    return [
        replace(results.get(item.key) or failed[item.key], **_about(item.question))
        for item in wanted
    ]


def messages_of(question: Question, folder: Path) -> list[Message]:
    """A question in OpenAI's form: a system message if it has one, its images, then the text."""
    content: list[Fields] = [
        {"type": "image_url", "image_url": {"url": str(folder / image)}}
        for image in question.images
    ]
    content.append({"type": "text", "text": question.text})
    system = [{"role": "system", "content": question.system}] if question.system else []
    return [*system, {"role": "user", "content": content}]


def messages_hashes(questions: Questions, folder: Path) -> Iterator[str]:
    """Hash of the messages of each question, with the content of images in place of their paths.

    Raises:
        UserError: an image is missing.
    """
    digest = cache(_content_hash)  # of this call: images may change between calls
    for question in questions:
        content = [digest(folder / image) for image in question.images]
        first = content[0] if content else None
        by_content = replace(question, image=first, more_images=content[1:])
        yield text_sha256(json.dumps(messages_of(by_content, Path())))[:32]


def _wanted(questions: Questions, folder: Path, model: ChatModel) -> list[Request]:
    wanted = []
    for question, messages_hash in zip(questions, messages_hashes(questions, folder), strict=True):
        made_with = dict(model.made_for(question))
        key, messages = answer_key(messages_hash, made_with), messages_of(question, folder)
        wanted.append(Request(key, messages, question, messages_hash, made_with))
    return wanted


def _content_hash(image: Path) -> str:
    with reported_as(f"the image '{image}' of a question cannot be read: {{reason}}", OSError):
        return f"sha256:{file_sha256(image)}"


def _say_where_from(results: Mapping[str, Answer], model: ChatModel) -> None:
    """Says which answers another address gave; the user may have meant another model by it."""
    places = Counter(server_of(answer) for answer in results.values())
    for place, count in places.items():
        if model.server and place not in (model.server, None):
            log.warning(
                "%d of the answers were given at %s, by the model of that name; "
                "lvlm.by_server=true tells servers apart",
                count,
                place,
            )


def _say_without_chance(wanted: Requests, results: Mapping[str, Answer], model: ChatModel) -> None:
    """Says of how many answers, asked before, P(yes) is not known though it is wanted now."""
    kept = [
        results[item.key]
        for item in wanted
        if item.key in results and item.question.reply in ONE_WORD
    ]
    lost = sum(answer.p_yes is None for answer in kept)
    if model.logprobs and lost:
        log.warning(
            "%d of %d answers that were kept have no P(yes): lvlm.logprobs asks for it with new "
            "questions only; another folder (paths.answers=DIR) asks all of them again",
            lost,
            len(kept),
        )


def _asked(todo: Mapping[str, Request], model: ChatModel) -> Iterator[Answer]:
    """What comes back; a bar, or a line now and then, says how many there are."""
    with asking_progress(len(todo), model.cost_of) as tell:
        for reply in model.ask([*todo.values()]):
            tell(reply)
            request = todo[reply.key]
            yield answer_of(
                request.question, request.messages_hash, request.made_with, reply, model.server
            )


def answer_of(
    question: Question,
    messages_hash: str,
    made_with: Settings,
    reply: Reply,
    server: str | None = None,
) -> Answer:
    """The reply to a question, as a record."""
    return Answer(
        **vars(reply),
        **_about(question),
        messages_hash=messages_hash,
        prompt=question.text,
        made_with=made_with,
        server=server,
    )


def _about(question: Question) -> Fields:
    """What an answer says of its question, beyond its messages."""
    return {
        "question_id": question.question_id,
        "task": question.task,
        "image": question.image,
        "answer": question.answer,
    }


def recorded_answers(questions: Questions, path: Path, folder: Path) -> list[Answer]:
    """The answers in a file to these questions, in their order; some may be missing.

    An answer belongs to a question if it was given to the same messages about the same image,
    whatever the ids.

    Args:
        questions: of the answers.
        path: ``answers.jsonl`` of a run; or lines with ``question_id`` and ``response``, see
            :func:`matcher`. Of repeated samples the first answer counts.
        folder: from which the paths of their images start.

    Raises:
        UserError: the file has no answer to any of them; see :func:`matcher`.
    """
    try:
        hashes = list(messages_hashes(questions, folder))
    except UserError as error:
        log.warning("%s: answers are held against only the texts of the questions", error)
        hashes = [""] * len(questions)
    pairs = list(zip(questions, hashes, strict=True))
    find, results = matcher(pairs, path), []
    for question, digest in pairs:
        if item := find(question, digest):
            made_with = item.made_with or {"backend": "replay", "model": path.stem}
            digest = digest or item.messages_hash
            results.append(answer_of(question, digest, made_with, item.reply, item.server))
    if not results:
        raise UserError(f"{path} has no answer to any of the {len(questions):,} questions")
    if lost := len(questions) - len(results):
        log.warning("%s has no answer to %d of %d questions", path, lost, len(questions))
    return results

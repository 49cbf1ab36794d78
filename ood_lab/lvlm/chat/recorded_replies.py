"""Replies in files of this package and of others, and the questions that they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.grouping import with_keys
from ood_lab.common.line_files import read_records
from ood_lab.lvlm.chat.base import Reply, model_of
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.parsers.reply_text import APART, is_text
from ood_lab.lvlm.questions.question_files import SAMPLE, Question, Questions
from ood_lab.lvlm.questions.question_records import records_of

#: Packages that number their questions, by a key that only their files have: the keys of the reply,
#: of what was asked, and of the right answer.
_NUMBERED: Mapping[str, tuple[Sequence[str], Sequence[str], str]] = {
    "doc_id": (("resps", "filtered_resps"), ("input", "doc"), "target"),  # lmms-eval
    "prediction": (("prediction",), ("question",), "answer"),  # VLMEvalKit
}


#: What files of this package say of a request, beyond its reply.
_FACTS = ("usage", "latency_s", "retries", "p_options")
#: How VLMEvalKit begins the reply to a request that failed.
_NO_REPLY = "Failed to obtain answer"


class RecordedReply(NamedTuple):
    """A reply in a file of any package.

    Args:
        question_id: of its question, as text.
        messages_hash: of the messages, images included; "" where the file does not say.
        text: of the question; None where the file does not say.
        reply: as it came; ``finish_reason`` is ``stop`` where the file does not say.
        made_with: the model and its settings; None where the file does not say.
        server: address that replied, as far as the file says.
    """

    question_id: str
    messages_hash: str
    text: str | None
    reply: Reply
    made_with: Settings | None = None
    server: str | None = None


def matcher(
    questions: Sequence[tuple[Question, str]], path: Path
) -> Callable[[Question, str], RecordedReply | None]:
    """What finds the reply to a question in a file that any package may have written.

    A line that knows its messages and its image is found by them. Other lines are found by the id
    of their question; then the texts, where the file has them, and the numbers must agree. Samples
    of lmms-eval (``*_samples_*.jsonl``) and predictions of VLMEvalKit name no question: the n-th is
    that to the n-th question, where the texts up to the question mark and the answers agree. Of
    several replies to the same messages, the last without an error counts.

    Args:
        questions: all of them, each with the hash of its messages; all hashes are "" where the
            images are gone.
        path: JSON lines, a JSON list, CSV, TSV or XLSX (which needs openpyxl). A line has
            ``question_id`` and ``response`` (or ``text`` or ``answer``), and perhaps
            ``messages_hash`` and ``prompt`` (or ``question``).

    Raises:
        UserError: the file holds no replies, two to a question, replies to other questions, or
            those of several models.
    """
    records = _records(path)
    texts = {question.question_id: question.text for question, _ in questions}
    hashes = {question.question_id: key for question, key in questions}
    numbered = [keys for key, keys in _NUMBERED.items() if records and key in records[0]]
    if numbered:
        recorded = _by_number(records, numbered[0], [question for question, _ in questions], path)
    else:
        recorded = _said(records, path, any(hashes.values()))
    for item in recorded.values():
        name, digest = item.question_id, item.messages_hash
        if name in texts and (
            digest != hashes[name]
            if digest and hashes[name]
            else item.text is not None and item.text.strip() != texts[name].strip()
        ):
            raise _other_question(path, name, texts[name], item.text or "")
    by_id = {item.question_id for item in recorded.values() if not item.messages_hash}
    if by_id and by_id != set(texts):
        raise UserError(
            f"{path} has {len(by_id):,} replies to {len(texts):,} questions ('"
            f"{min(by_id ^ set(texts))}' is in one of them only): lines that do not name their "
            "question and image are taken for an answer only where they are exactly those of the "
            "questions"
        )
    return lambda question, key: recorded.get(key) or recorded.get(question.question_id)


def _records(path: Path) -> list[Fields]:
    """The lines of a file of replies, whatever its format."""
    if path.suffix.lower() == ".xlsx":
        other = "or write it as TSV, CSV or JSON (VLMEvalKit: PRED_FORMAT=tsv)"
        with (
            reported_as(f"{path} is no sheet of Excel ({{reason}})"),
            reported_as(f"{path} needs openpyxl: pip install openpyxl; {other}", ImportError),
        ):
            table = pd.read_excel(path, dtype=str, keep_default_na=False, engine="openpyxl")
        return [{str(key): cell for key, cell in row.items()} for row in table.to_dict("records")]
    if path.suffix.lower() in (".csv", ".tsv", ".json"):
        return [record for record, _ in records_of(path)]
    return list(read_records(path))


def _by_number(
    records: list[Fields],
    keys: tuple[Sequence[str], Sequence[str], str],
    questions: Questions,
    path: Path,
) -> dict[str, RecordedReply]:
    """By question, the replies of a package that numbers its questions, see :data:`_NUMBERED`."""
    results: dict[str, RecordedReply] = {}
    of_reply, of_text, of_truth = keys
    records = sorted(records, key=lambda record: int(record.get("doc_id", 0)))
    if len(records) != len(questions):
        raise UserError(
            f"{path} has {len(records):,} replies to {len(questions):,} questions: its package "
            "numbers them, so that every question needs its reply, in the same order"
        )
    for record, question in zip(records, questions, strict=True):
        prompt = " ".join(str(next((record[k] for k in of_text if record.get(k)), "")).split())
        text = question.text.split("\nA. ")[0]  # options may be written in any way
        stem = " ".join((text[: text.rfind("?") + 1] or text).split())
        answers = {question.answer.lower(), str(record.get(of_truth)).strip().lower()}
        other = answers == {YES, NO} or (len(answers) == 2 and all(len(a) == 1 for a in answers))
        if stem not in prompt or other:
            raise _other_question(path, question.question_id, question.text, prompt)
        reply = next((record[key] for key in of_reply if key in record), "")
        while isinstance(reply, list):
            reply = reply[0] if reply else ""
        name, words = question.question_id, str(_text(reply))
        failed = words.startswith(_NO_REPLY)
        parsed = Reply(
            name, "" if failed else words, finish_reason="stop", error=words if failed else None
        )
        results[name] = RecordedReply(name, "", None, parsed)
    return results


def _text(reply: object) -> object:
    """A reply that is a number as the text that it was."""
    return json.dumps(reply) if isinstance(reply, int | float) else reply


def _said(
    records: Sequence[Mapping[str, Any]], path: Path, by_messages: bool
) -> dict[str, RecordedReply]:
    """By messages, or else by question, the replies of lines that name them."""
    results: dict[str, RecordedReply] = {}
    models = set()
    for record in records:
        if "parser" in record and "task" in record:
            raise UserError(f"{path} holds questions, no replies: name a file of answers")
        texts = [record[key] for key in ("response", "text", "answer") if key in record]
        # A reply that is null is one of a model that only thought, or refused.
        reply = "" if texts[:1] == [None] else _text(next(iter(texts), None))
        how = record.get("made_with")
        made_with = how if isinstance(how, dict) else {}
        if "question_id" not in record or not is_text(reply) or made_with.get(SAMPLE):
            continue
        text, error = record.get("prompt", record.get("question")), record.get("error")
        name, digest = str(record["question_id"]), str(record.get("messages_hash") or "")
        key = digest if by_messages and digest else name
        if before := results.get(key):
            if error:
                continue
            if not (digest or before.reply.error or before.reply.response == str(reply)):
                both = f"'{before.reply.response}' and '{reply}'"
                raise UserError(f"{path} has two replies to '{name}' ({both}): leave one of them")
        if made_with and not error:
            models.add(model_of(made_with))
        chance, reason = record.get("p_yes"), record.get("finish_reason", "stop")
        thoughts = [str(record[key]) for key in APART if record.get(key) is not None]
        parsed = Reply(
            str(record.get("key", key)) if made_with else key,
            str(reply),
            float(chance) if isinstance(chance, int | float) else None,
            reason if isinstance(reason, str) else None,
            error=str(error) if error else None,
            reasoning=next(filter(None, thoughts), "" if thoughts or texts[:1] == [None] else None),
            **(with_keys(record, _FACTS) if made_with else {}),
        )
        results[key] = RecordedReply(
            name,
            digest,
            text if isinstance(text, str) else None,
            parsed,
            made_with,
            record.get("server"),
        )
    if not results:
        raise UserError(f"{path} holds no replies: a line needs 'question_id' and 'response'")
    if len(models) > 1:
        raise UserError(
            f"{path} holds answers of several models: give the answers.jsonl of one run"
        )
    return results


def _other_question(path: Path, name: str, text: str, prompt: str) -> UserError:
    what = "another image" if prompt.strip() == text.strip() else f"'{prompt}'"
    return UserError(
        f"{path} answers another question than '{text}' under the id '{name}' ({what}): the "
        "questions have changed since, or are of another benchmark; ask them again"
    )

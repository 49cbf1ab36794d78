"""Every answer of a run with its question and images: a folder that a browser opens by itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from ood_lab.common.files import write_text
from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED
from ood_lab.lvlm.answers.reply_text import without_reasoning
from ood_lab.lvlm.pages.benchmark_page import ANSWERS_PAGE, Scored
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.report.rendering.page import page_template
from ood_lab.schema.shift_axes import LEVELS

#: Rows of a file: a page reads no more files than it shows, or searches.
_ROWS = 1000
RIGHT, WRONG = "right", "wrong"
#: What an answer can be; the page knows it by its place.
_STATES = (RIGHT, WRONG, UNPARSED, FAILED)


def write_answers_page(
    run: Scored, questions: Questions, answers: Answers, judged: Sequence[pd.DataFrame]
) -> Path:
    """Writes ``answers/index.html`` of a run, and its rows in files of 1,000.

    The page filters by state, set and category, searches texts, and shows images from where they
    lie; it needs no server. ``index.html#show=wrong&set=new&find=dog&page=2`` opens it so.

    Args:
        run: its folder, its page, and the folder that the paths of images start from.
        questions: of the answers.
        answers: by the id of the question.
        judged: tables of single answers, see
            :func:`ood_lab.lvlm.answers.judgements.judge`, and of captions, see
            :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
    """
    page = run.folder / ANSWERS_PAGE
    shutil.rmtree(page.parent, ignore_errors=True)
    asked = {question.question_id: question for question in questions}
    rows = [row for table in judged for row in _rows(table, asked, answers, run.source, page)]
    names: dict[str, list[str]] = {
        key: list(dict.fromkeys(str(row[key]) for row in rows)) for key in ("set", "category")
    }
    place = {key: {name: n for n, name in enumerate(known)} for key, known in names.items()}
    index = {
        "states": "".join(str(_STATES.index(row["state"])) for row in rows),
        **{key: [place[key][str(row[key])] for row in rows] for key in names},
    }
    for start in range(0, len(rows), _ROWS):
        part = [row["shown"] for row in rows[start : start + _ROWS]]
        text = f"rowsRead({start // _ROWS}, {json.dumps(part)});\n"
        write_text(text, page.parent / f"rows-{start // _ROWS:03d}.js")
    write_text(f"const index = {json.dumps(index)};\n", page.parent / "index.js")
    text = page_template("answers.html.j2").render(
        title=run.title,
        sentence="All questions with images, replies, parsed and correct answers",
        answer=[],
        facts=[],
        warnings=[],
        thumbnails=[],
        manifest=[],
        downloads=[],
        report=f"../{run.manifest['benchmark']['page']}",
        states=_STATES,
        counts=[sum(row["state"] == state for row in rows) for state in _STATES],
        names=names,
        rows=_ROWS,
    )
    write_text(text, page)
    return page


def _rows(
    table: pd.DataFrame, asked: Mapping[str, Question], answers: Answers, source: Path, page: Path
) -> Iterator[dict[str, Any]]:
    for row in table.to_dict("records"):
        question = asked[row["question_id"]]
        answer = answers.get(question.question_id)
        caption = "flagged_nouns" in row
        said = "" if answer is None else answer.response
        reply = without_reasoning(said)
        thought = said if reply != said else (answer.reasoning if answer else "")
        state = row["status"]
        if state not in (FAILED, UNPARSED):
            wrong = len(row["flagged_nouns"]) > 0 if caption else not row["correct"]
            state = WRONG if wrong else RIGHT
        if caption:
            read, made_up = (", ".join(row[key]) for key in ("named", "flagged_nouns"))
            read, right = f"{read}; made up: {made_up or 'nothing'}", ", ".join(row["truth_words"])
        else:
            read, right = row["parsed"], " / ".join(str(row["truth"]).split("\n"))
        levels = [f"{k.replace('_', ' ')} {row[k]:g}" for k in LEVELS if pd.notna(row.get(k))]
        images = [
            quote(Path(os.path.relpath(os.path.abspath(source / image), page.parent)).as_posix())
            for image in question.images
        ]
        yield {
            "state": state,
            "set": _name(row.get("split")),
            "category": _name(row.get("category")),
            "shown": [
                question.question_id,
                images,
                question.text,
                reply,
                thought or "",
                "" if pd.isna(read) else str(read),
                right,
                ", ".join(levels),
                row.get("error") or "",
            ],
        }


def _name(value: object) -> str:
    return "" if value is None or value != value else str(value)

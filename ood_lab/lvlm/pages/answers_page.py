"""Every answer of a run with its question and images: a folder that a browser opens by itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.files import write_text
from ood_lab.common.grouping import distinct, grouped
from ood_lab.lvlm.answers.answer_files import NOT_ASKED, Answers
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED
from ood_lab.lvlm.pages.benchmark_page import ANSWERS_PAGE, ScoredRun
from ood_lab.lvlm.parsers.reply_text import without_reasoning
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.report.rendering.prose import load_template
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Row

#: Rows of a file: a page reads no more files than it shows, or searches.
_ROWS = 1000
RIGHT, WRONG = "right", "wrong"
#: What an answer can be; the page knows it by its place.
_STATES = (RIGHT, WRONG, UNPARSED, FAILED)
#: What the page filters by beside the state, with the choice of all.
_FILTERS = {
    "set": "every set",
    "category": "every category",
    "kind": "every kind",
    "truth": "every correct answer",
    "ending": "whole and cut replies",
    "models": "models agree or differ",
}
#: Right answers that can be chosen from.
_MOST_TRUTHS = 50
#: Images up to this size are put into the folder of the page.
_MOST_BYTES = 200 * 2**20


def write_answers_page(
    run: ScoredRun,
    questions: Questions,
    answers: Answers,
    judgements: Sequence[pd.DataFrame],
    models: Sequence[pd.DataFrame] = (),
) -> Path:
    """Writes ``answers/index.html`` of a run, and its rows in files of 1,000.

    The page filters by state, set, category, kind, right answer, cut replies and agreement of
    models, searches texts, and needs no server. ``index.html#show=wrong&set=new&find=dog&page=2``
    opens it so. Images are linked or copied into its folder, so that the folder of the run can be
    sent; where they are larger than :data:`_MOST_BYTES`, the page says where they are.

    Args:
        run: its folder, its page, and the folder that the paths of images start from.
        questions: of the answers.
        answers: by the id of the question.
        judgements: tables of single answers, see
            :func:`ood_lab.lvlm.answers.judgements.judge`, and of captions, see
            :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        models: such tables of several models, with a column ``model``; they are side by side.
    """
    page = run.folder / ANSWERS_PAGE
    shutil.rmtree(page.parent, ignore_errors=True)
    asked = {question.question_id: question for question in questions}
    links, note = _links([run.source / i for q in questions for i in q.images], run.folder, page)
    beside = grouped(
        (str(row["question_id"]), row) for table in models for row in table.to_dict("records")
    )
    rows = []
    for record in (row for table in judgements for row in table.to_dict("records")):
        question = asked[record["question_id"]]
        row = _shown(record, question, answers, beside.get(question.question_id, []))
        row["shown"]["images"] = [links[run.source / image] for image in question.images]
        rows.append(row)
    index: Fields = {"states": "".join(str(_STATES.index(row["state"])) for row in rows)}
    names: dict[str, list[str]] = {}
    for key in _FILTERS:
        places, known = pd.factorize(np.array([row[key] for row in rows], object))
        names[key] = [] if key == "truth" and len(known) > _MOST_TRUTHS else list(known)
        index[key] = places.tolist() if len(names[key]) > 1 else []
    for start in range(0, len(rows), _ROWS):
        part = [row["shown"] for row in rows[start : start + _ROWS]]
        text = f"rowsRead({start // _ROWS}, {json.dumps(part)});\n"
        write_text(text, page.parent / f"rows-{start // _ROWS:03d}.js")
    text = json.dumps(index, separators=(",", ":"))
    write_text(f"const index = {text};\n", page.parent / "index.js")
    text = load_template("rendering/answers.html.j2").render(
        title=run.title,
        sentence=f"All questions with images, replies, parsed and correct answers{note}",
        report=f"../{run.benchmark.page}",
        states=_STATES,
        counts=[sum(row["state"] == state for row in rows) for state in _STATES],
        names=names,
        every=_FILTERS,
        rows=_ROWS,
    )
    write_text(text, page)
    return page


def _links(files: Sequence[Path], folder: Path, page: Path) -> tuple[dict[Path, str], str]:
    """Where the page finds each image, and, as words, where those are that are not in the run."""
    files = distinct(files)
    here = os.path.abspath(folder)
    outside = [
        file
        for file in files
        if file.is_file() and not Path(os.path.abspath(file)).is_relative_to(here)
    ]
    inside = sum(file.stat().st_size for file in outside) <= _MOST_BYTES
    place = {file: file for file in files}
    for number, file in enumerate(outside if inside else ()):
        place[file] = page.parent / "images" / f"{number}-{file.name}"
        place[file].parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(os.path.realpath(file), place[file])  # takes no room on the disk
        except OSError:
            shutil.copyfile(file, place[file])
    links = {
        file: quote(Path(os.path.relpath(os.path.abspath(of), page.parent)).as_posix())
        for file, of in place.items()
    }
    if inside or not outside:
        return links, ""
    root = os.path.commonpath([file.absolute().parent for file in outside])
    relative = os.path.relpath(root, folder)
    return links, f". Images are in {relative} from the folder of the run: send both together"


def _reading(row: Row) -> dict[str, str]:
    """What a row of :func:`judge`, or of captions, says: its state, and how it was read."""
    caption, state = "flagged_nouns" in row, str(row["status"])
    read = row.get("parsed")
    if caption:
        read, made_up = (", ".join(row[key]) for key in ("named", "flagged_nouns"))
        read = f"{read}; made up: {made_up or 'nothing'}"
    if state not in (FAILED, UNPARSED):
        wrong = len(row["flagged_nouns"]) > 0 if caption else not row["correct"]
        state = WRONG if wrong else RIGHT
    chance = row.get("p_yes")
    chance = {} if chance is None or pd.isna(chance) else {"P(yes)": f"{chance:.3f}"}
    read = _name(read) or "nothing"
    return {"reply": str(row["reply"]), "parsed as": read, **chance, "status": state}


def _shown(
    row: Row,
    question: Question,
    answers: Answers,
    beside: Sequence[Row],
) -> Fields:
    """What the page knows of an answer: what it filters by, and what it shows."""
    answer = answers.get(question.question_id, NOT_ASKED)
    caption, reading = "flagged_nouns" in row, _reading(row)
    thought = answer.response if without_reasoning(answer.response) != answer.response else ""
    right = ", ".join(row["truth_words"]) if caption else " / ".join(question.answer.split("\n"))
    models = [{"model": of_model["model"], **_reading(of_model)} for of_model in beside]
    levels = [f"{k.replace('_', ' ')} {row[k]:g}" for k in LEVELS if pd.notna(row.get(k))]
    tokens = [f"{name.replace('_', ' ')} {count:,}" for name, count in answer.usage.items()]
    facts = {
        "question": question.text,
        **reading,
        "correct answer": right,
        "P(letter)": ", ".join(f"{letter} {p:.3f}" for letter, p in answer.p_options.items()),
        "finish reason": answer.finish_reason or "",
        "usage": ", ".join(tokens),
        "error": row.get("error") or "",
        "set": _name(row.get("split")),
        "category": _name(row.get("category")),
        "shift": ", ".join(levels),
        "id": question.question_id,
        "reasoning": thought or answer.reasoning or "",
    }
    differ = len({of_model["parsed as"] for of_model in models}) > 1
    return {
        "state": reading["status"],
        "set": facts["set"],
        "category": facts["category"],
        "kind": question.task.replace("_", " "),
        "truth": "" if caption else right,
        "ending": "cut" if row.get("cut") else "whole",
        "models": ("models differ" if differ else "models agree") if models else "",
        "shown": {k: v for k, v in facts.items() if v} | ({"models": models} if models else {}),
    }


def _name(value: object) -> str:
    return "" if value is None or value != value else str(value)

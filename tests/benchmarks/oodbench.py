"""How long OODBench's division and scores take on real sizes.

Run by hand: ``python -m tests.benchmarks.oodbench``. The division of 5,000 images and 80 labels by
two models, from scores that are computed already (under 5 seconds), and the results of 100,000
answers with intervals, both ways of treating unparsed ones and levels of shift (under 10 seconds).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.oodbench.division import Rule, divide
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import Pairing
from ood_lab.lvlm.benchmarks.oodbench.scoring import results_of
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.questions.question_files import Question

IMAGES, LABELS, ANSWERS = 5_000, 80, 100_000


def division() -> int:
    """Divides, and draws the pairs to ask about; returns their number."""
    rng = np.random.default_rng(0)
    present = rng.random((IMAGES, LABELS)) < 3 / LABELS
    names = tuple(f"c{number}" for number in range(LABELS))
    labels = ImageLabels(tuple(range(IMAGES)), names, present, ~present)
    scores = {name: rng.normal(20, 3, present.shape) + 4 * present for name in ("clip", "blip2")}
    table = divide(scores, labels, Rule())
    return len(Pairing().draw(table, labels, 0))


def answers() -> tuple[list[Question], dict[str, Answer]]:
    """100,000 questions in pairs, with levels of shift, and answers; one in fifty is unparsed."""
    rng = np.random.default_rng(0)
    questions, found = [], {}
    for number in range(ANSWERS):
        pair = number // 2
        meta = {
            "split": ("id", "ood_s", "ood_h")[pair % 3],
            "category": f"c{pair % 80}",
            "image": pair // 4,
            "semantic_level": pair % 6,
            "covariate_level": pair // 6 % 6,
        }
        right = "yes" if number % 2 else "no"
        question = Question(str(number), "yes_no", None, "?", right, pair_id=str(pair), meta=meta)
        text = "I cannot tell" if rng.random() < 0.02 else "Yes" if rng.random() < 0.5 else "No"
        questions.append(question)
        found[question.question_id] = answer_of(question, "", {}, Reply("", text))
    return questions, found


def timed(what: str, limit: float, work: Callable[[], Any]) -> Any:
    """Prints the seconds that the work takes, of the clock and of the CPU, beside what it may."""
    start, cpu = time.perf_counter(), time.process_time()
    found = work()
    seconds, own = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what}: {seconds:.2f} s, {own:.2f} s of CPU (limit {limit:g} s)")
    return found


def main() -> None:
    """See the module."""
    timed(f"division of {IMAGES:,} images x {LABELS} labels by two models", 5, division)
    questions, found = answers()
    judged = timed(f"parsing {ANSWERS:,} answers", 10, lambda: judge(questions, found))
    timed(
        f"scoring {ANSWERS:,} answers, 1,000 draws",
        10,
        lambda: results_of(judged, resampling=Resampling()),
    )


if __name__ == "__main__":
    main()

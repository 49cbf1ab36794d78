"""What a model answers about builtin scenes that it has not seen."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ood_lab.builtin.scenes import PLACES, THINGS, ScenesDataset, visible
from ood_lab.builtin.vlm.dialogues import SeenScene, attribute, compare, count
from ood_lab.builtin.vlm.scene_conversations import seen_scene
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.metrics import wilson_interval

#: Limits of "small" and "medium": visible pixels of the largest object of the kind.
_AREAS = (100, 400)
_ASKED = "Does this image contain a {}? (yes or no)"
_ASKED_NOT = "Does this image not contain a {}? (yes or no)"


def held_out_accuracy(model: ChatModel, scenes: int, seed: int = 0) -> pd.DataFrame:
    """Shares of right answers, with Wilson's 95% interval, over test scenes of levels 0.

    ``yes_no`` is balanced: as many questions about what is there as about what is not, half of
    those drawn from the place's prior and half from all kinds; both forms of OODBench.

    Args:
        model: to be asked.
        scenes: number of scenes.
        seed: of scenes and questions.

    Returns:
        Columns ``metric, value, ci_low, ci_high, n_id``.
    """
    data = ScenesDataset("test", scenes, seed, keep=False)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        questions: list[Question] = []
        for index in range(scenes):
            scene = data.scene(index)
            data.load_image(index).save(folder / f"{index}.png", compress_level=1)
            rng = random.Random(f"{seed}/held out/{index}")
            shown = seen_scene(scene, visible(scene))
            questions += [
                replace(each, image=f"{index}.png", question_id=f"{index}/{number}")
                for number, each in enumerate(_questions(shown, rng))
            ]
        answers = answers_to(questions, folder, model, AnswerStore(folder / "answers.jsonl"))
    right = [
        a.error is None and a.response.strip().rstrip(".").lower() == q.answer
        for q, a in zip(questions, answers, strict=True)
    ]
    table = pd.DataFrame({"metric": [q.meta["metrics"] for q in questions], "right": right})
    return _shares(table.explode("metric"))


def _questions(scene: SeenScene, rng: random.Random) -> Iterator[Question]:
    here = rng.choice(list(scene.counts))
    area = max(seen.area for seen in scene.objects if seen.name == here)
    size = ("small", "medium", "large")[sum(area >= limit for limit in _AREAS)]
    expected = [name for name in PLACES[scene.place].prior if name not in scene.counts]
    anything = [name for name in THINGS if name not in scene.counts]
    prior = rng.random() < 0.5 and bool(expected)
    absent = rng.choice(expected if prior else anything)
    kind = "absent_from_prior" if prior else "absent_uniform"
    for name, present, part in ((here, True, f"present_{size}"), (absent, False, kind)):
        parts = ("yes_no", "present" if present else "absent", part)
        yield _question(_ASKED.format(name), "yes" if present else "no", parts)
        yield _question(_ASKED_NOT.format(name), "no" if present else "yes", ("yes_no_negated",))
    for make, metric in ((count, "count"), (compare, "compare"), (attribute, "attribute")):
        if (made := make(scene, rng)) is not None:
            yield _question(made[0], made[1].lower(), (metric,))


def _question(text: str, answer: str, metrics: tuple[str, ...]) -> Question:
    return Question("", "yes_no", None, text, answer, meta={"metrics": list(metrics)})


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    # In order of the names: those of one kind begin alike.
    for metric, right in table.groupby("metric")["right"]:
        share, n = float(right.mean()), len(right)
        low, high = wilson_interval(share, n)
        rows.append({"metric": metric, "value": share, "ci_low": low, "ci_high": high, "n": n})
    return pd.DataFrame(rows)

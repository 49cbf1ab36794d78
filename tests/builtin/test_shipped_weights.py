"""The weights that come with the package load, and score on new images as when they were made."""

import pytest
import torch

from ood_lab.builtin.scenes import PLACES, THINGS, ScenesDataset
from ood_lab.builtin.vessels import CATEGORIES, CLASSES, VesselsDataset
from ood_lab.clip import load_clip, zero_shot_weights
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question


def predicted(clip, data, names, templates=None):
    images = torch.stack([clip.preprocess(data.load_image(i)) for i in range(len(data))])
    with torch.no_grad():
        return (clip.encode_image(images) @ zero_shot_weights(clip, names, templates).T).argmax(1)


def test_the_clip_of_vessels():
    data = VesselsDataset("test", 220, 977)
    clip = load_clip("tiny")
    periods = (predicted(clip, data, CLASSES) == data.labels).float().mean()
    templates = [f"a clear photo of a {{}} in a {place}" for place in ("studio", "museum")]
    category = torch.tensor(data.table["category"].to_numpy())
    categories = (predicted(clip, data, CATEGORIES, templates) == category).float().mean()
    assert (float(categories), float(periods)) == pytest.approx((1.0, 0.609), abs=0.01)


@pytest.mark.parametrize(
    ("name", "largest", "any_of_them"), [("scenes_64", 0.55, 0.758), ("scenes_96", 0.683, 0.85)]
)
def test_the_clips_of_scenes(name, largest, any_of_them):
    data, names = ScenesDataset("val", 120, 0, breaks=0.3), list(THINGS)
    rows = zip(predicted(load_clip(name), data, names).tolist(), range(120), strict=True)
    objects = [(names[best], data.objects(row)) for best, row in rows]
    first = [name == max(seen, key=lambda o: o.area).item.look.thing for name, seen in objects]
    anything = [name in {o.item.look.thing for o in seen} for name, seen in objects]
    measured = (sum(first) / 120, sum(anything) / 120)
    assert measured == pytest.approx((largest, any_of_them), abs=0.01)


def test_the_chat_model(tmp_path):
    data = ScenesDataset("test", 30, 0)
    questions = []
    for index in range(30):
        data.load_image(index).save(tmp_path / f"{index}.png")
        things = {seen.item.look.thing for seen in data.objects(index)}
        expected = PLACES[data.scene(index).place].prior
        for name in expected:
            text = f"Does this image contain a {name}? (yes or no)"
            answer = "yes" if name in things else "no"
            asked = Question(f"{index}/{name}", "yes_no", f"{index}.png", text, answer)
            questions.append(asked)
    model = TransformersChat("shipped:tiny", batch_size=64)
    answers = answers_to(questions, tmp_path, model, AnswerStore(tmp_path / "answers.jsonl"))
    right = [a.response.lower() == q.answer for a, q in zip(answers, questions, strict=True)]
    assert sum(right) / len(right) == pytest.approx(0.919, abs=0.01)

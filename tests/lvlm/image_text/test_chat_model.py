"""A chat model as an image-text model: log-odds of its replies, against numbers by hand."""

import math
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.benchmarks.oodbench.division import Rule
from ood_lab.lvlm.chat.base import ChatModel, Reply
from ood_lab.lvlm.image_text.chat_model import ChatScores

LABELS = ["cat", "dog", "red car"]


class Scripted(ChatModel):
    """Replies of a table, by image and label; notes how often each was asked."""

    def __init__(self, replies):
        self.replies = replies
        self.asked = Counter()
        self.texts = set()

    @property
    def made_with(self):
        return {"backend": "scripted", "model": "scripted"}

    def ask(self, requests):
        for request in requests:
            name = request.question.image.rpartition("/")[2], request.question.meta["category"]
            self.asked[name] += 1
            self.texts.add(request.messages[-1]["content"][-1]["text"])
            said = self.replies[name]
            chance = said if isinstance(said, float) else None
            text = ("Yes" if said >= 0.5 else "No") if chance is not None else said
            if text is None:
                yield Reply(request.key, "", error="the server is down")
            else:
                yield Reply(request.key, text, p_yes=chance, finish_reason="stop")


@pytest.fixture
def images(tmp_path):
    paths = [tmp_path / f"{n}.png" for n in "ab"]
    for shade, path in enumerate(paths):
        Image.new("RGB", (4, 4), (shade, 0, 0)).save(path)
    return paths


def table(first, second):
    rows = zip("ab", (first, second), strict=True)
    return {
        (f"{n}.png", label): said
        for n, row in rows
        for label, said in zip(LABELS, row, strict=True)
    }


def test_scores_are_log_odds_of_the_first_token(images, tmp_path):
    model = Scripted(table([0.9, 0.25, 0.5], [1.0, 0.0, 1e-5]))
    found = ChatScores(model, tmp_path / "answers").scores(images, LABELS)
    end = math.log(0.999999 / 0.000001)
    odds = [[math.log(9), math.log(1 / 3), 0], [end, -end, math.log(1e-5 / (1 - 1e-5))]]
    assert found == pytest.approx(np.array(odds), rel=1e-4, abs=1e-6)
    assert found.dtype == np.float32
    assert model.texts == {f"Does this image contain a {c}? (yes or no)" for c in LABELS}


def test_the_softmax_of_log_odds_is_the_chance_of_one_label_among_those_absent(images, tmp_path):
    chances = [[0.3, 0.05, 0.2], [0.6, 0.5, 0.1]]
    model = Scripted(table(*chances))
    scores = ChatScores(model, tmp_path / "answers").scores(images, LABELS)
    present = np.array([[True, False, False], [True, True, False]])
    labels = ImageLabels((0, 1), tuple(LABELS), present)
    # The first image's p_c: only the cat is there, of all cases in which one of the three is.
    only = [
        math.prod(p if k == label else 1 - p for k, p in enumerate(chances[0]))
        for label in range(3)
    ]
    p_c = only[0] / sum(only)
    for threshold, flagged in ((p_c - 1e-4, False), (p_c + 1e-4, True)):
        rule = Rule(threshold=threshold)
        assert rule.flags(scores, labels)[0].tolist() == [flagged, False, False]


def test_replies_without_probabilities_count_and_tie(images, tmp_path):
    model = Scripted(table(["Yes", "No.", "Perhaps"], ["no", "Yes, there is", "yes"]))
    scores = ChatScores(model, tmp_path / "answers").scores(images, LABELS)
    assert np.sign(scores).tolist() == [[1, -1, 0], [-1, 1, 1]]
    present = np.array([[False, True, True], [True, False, True]])
    labels = ImageLabels((0, 1), tuple(LABELS), present)
    # Case 1: only the cat of a is seen, which is not there; in b a car and a dog tie.
    case_1 = Rule(threshold=1e-13).flags(scores, labels)
    assert case_1.tolist() == [[False, True, True], [False, False, False]]
    # Case 2: the cat of b, as the dog that is not there is seen; the car shares with it.
    assert Rule().flags(scores, labels)[1].tolist() == [True, False, False]


def test_what_failed_is_one_error_and_is_all_that_is_asked_again(images, tmp_path):
    model = Scripted(table([0.9, None, 0.5], [0.1, 0.2, 0.3]))
    chat = ChatScores(model, tmp_path / "answers")
    with pytest.raises(UserError, match=r"image_text=chat has not answered .*the server is down"):
        chat.scores(images, LABELS)
    model.replies["a.png", "dog"] = 0.5
    assert chat.scores(images, LABELS)[0, 1] == 0
    assert model.asked == Counter({**dict.fromkeys(model.replies, 1), ("a.png", "dog"): 2})


def test_identity_is_that_of_the_chat_model_and_the_question(tmp_path):
    known = ChatScores(Scripted({}), tmp_path).made_with
    assert known["chat"] == {"backend": "scripted", "model": "scripted"}
    assert ChatScores(Scripted({}), tmp_path, template="A {}?").made_with != known

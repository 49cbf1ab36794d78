"""Questions word for word, answers judged, BAP, and both ways of treating unparsed answers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.annotations.annotation_table import Annotations, objects_table
from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.oodbench.question_building import WORDINGS, questions_of
from ood_lab.lvlm.benchmarks.oodbench.scoring import bap_table, contrasts, results_of
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.scoring.yes_no_scores import pair_table


@pytest.fixture
def annotations(tmp_path):
    """Image 1: two cars and a dog; image 2: a dog; image 3: a crowd of people and a car."""
    names = ("car", "dog", "person")
    objects = objects_table(
        [1, 1, 1, 2, 3, 3],
        [0, 0, 1, 1, 2, 0],
        names,
        np.array([[0, 0, 10, 10]] * 6),
        [100, 50, 20, 30, 500, 10],
        [False] * 4 + [True, False],
    )
    images = pd.DataFrame(
        {
            "image": [1, 2, 3],
            "file": ["1.png", "2.png", "3.png"],
            "width": 100,
            "height": 50,
            "semantic_level": [0, 1, 0],
            "covariate_level": [0, 0, 2],
        }
    )
    return Annotations("toy", names, tmp_path, images, objects)


def pairs(*rows):
    return pd.DataFrame(rows, columns=["image", "category", "split", "present"])


def answer(question, text, error=None, p_yes=None):
    reply = Reply("k", text, p_yes=p_yes, error=error)
    return answer_of(question, "h", {}, reply)


def test_the_wording_is_that_of_the_paper():
    assert [text.format(c="sunglasses") for text in WORDINGS["plain"].values()] == [
        "Does this image contain a sunglasses? (yes or no)",
        "Does this image not contain a sunglasses? (yes or no)",
    ]
    steps = "Yes or No? Let's break down the information step by step."
    assert [text.format(c="car") for text in WORDINGS["cot"].values()] == [
        f"Does this image contain car? {steps}",
        f"Does this image not contain car? {steps}",
    ]


def test_a_pair_is_asked_twice_with_opposite_answers(annotations):
    drawn = pairs((1, "car", "ood_h", True), (2, "car", "id", False))
    first, second, third, fourth = questions_of(drawn, annotations, seed=0, bap=False)
    assert (first.answer, second.answer) == ("yes", "no")
    assert (third.answer, fourth.answer) == ("no", "yes")
    assert first.pair_id == second.pair_id != third.pair_id
    assert first.meta["count"] == 2
    assert first.meta["area"] == 100
    assert first.meta["area_share"] == pytest.approx(0.02)
    assert (third.meta["semantic_level"], third.meta["count"]) == (1, 0)
    assert first.image == str(annotations.root / "1.png")


def test_bap_asks_existence_of_the_first_count_of_the_second_and_compares(annotations):
    drawn = pairs((1, "car", "id", True), (1, "dog", "id", True), (2, "dog", "id", True))
    found = [q for q in questions_of(drawn, annotations, seed=0) if q.task != "yes_no"]
    assert [q.task for q in found] == ["bap_existence", "bap_counting", "bap_logic"]
    c1, c2 = found[0].meta["categories"]
    counts = {"car": 2, "dog": 1}
    assert found[0].text == f"Does this image contain a {c1}? (yes or no)"
    assert found[1].text == f"How many {c2} are there in the picture?"
    assert found[2].text == (
        f"Is the number of {c1} in the image greater than the number of {c2}? "
        "Answer with 'yes' or 'no'."
    )
    assert found[1].answer == str(counts[c2])
    assert found[2].answer == ("yes" if counts[c1] > counts[c2] else "no")


def test_crowds_are_not_counted_and_an_image_has_one_sample(annotations):
    crowd = pairs((3, "person", "id", True), (3, "car", "id", True))
    assert all(q.task == "yes_no" for q in questions_of(crowd, annotations, seed=0))
    three = pairs(*((1, c, "id", c != "person") for c in ("car", "dog", "person")))
    found = questions_of(three, annotations, seed=0)
    assert sum(q.task == "bap_logic" for q in found) == 1


@pytest.fixture
def judged(annotations):
    """Ten pairs: 6 answered rightly, 1 wrongly (always yes), 1 unparsed, 1 half failed, 1 unasked.

    All of them ask whether an image with a dog has one.
    """
    drawn = pd.concat([pairs((2, "dog", "ood_h", True))] * 10)
    questions, answers = [], {}
    for number, row in enumerate(drawn.to_dict("records")):
        two = questions_of(pd.DataFrame([row]), annotations, seed=0, bap=False)
        for q, right in zip(two, ("Yes", "No"), strict=True):
            q = replace(q, question_id=f"{number}{right}", pair_id=str(number))
            questions.append(q)
            text = {6: "Yes", 7: "I cannot tell"}.get(number, right)
            error = "429" if number == 8 and right == "No" else None
            if number < 9:
                answers[q.question_id] = answer(q, "" if error else text, error)
    return judge(questions, answers)


def test_failed_answers_are_never_parsed(judged):
    failed = judged[judged["status"] == "failed"]
    assert len(failed) == 3
    assert failed["parsed"].isna().all()
    assert not failed["correct"].any()


def test_unparsed_answers_remove_their_pair_or_count_as_wrong(judged):
    rows = results_of(judged, resampling=Resampling(draws=50)).query(
        "metric == 'accuracy' and split == 'ood_h'"
    )
    rows = rows[rows["semantic_level"].isna() & rows["covariate_level"].isna()]
    drop, wrong = (rows[rows["unparsed"] == way].iloc[0] for way in ("drop_pair", "wrong"))
    for row in (drop, wrong):
        assert (row["n_asked"], row["n_unparsed"], row["n_failed"]) == (20, 2, 3)
    assert (drop["n"], drop["value"]) == (7, pytest.approx(13 / 14))
    assert (wrong["n"], wrong["value"]) == (8, pytest.approx(13 / 16))


def test_the_whole_benchmark_pools_counts(judged):
    other = judged.assign(split="id", pair_id="other " + judged["pair_id"])
    two = other[other["pair_id"].isin(["other 0", "other 1"])]
    both = pd.concat([judged, two], ignore_index=True)
    rows = results_of(both, resampling=Resampling(draws=20), min_count=1).query(
        "unparsed == 'drop_pair'"
    )
    rows = rows[rows["semantic_level"].isna() & rows["covariate_level"].isna()]
    accuracy = rows[rows["metric"] == "accuracy"].set_index("split")["value"]
    assert accuracy["id"] == 1.0
    assert accuracy["id_and_ood"] == pytest.approx(17 / 18)


def test_levels_with_too_few_pairs_are_missing(judged):
    few = results_of(judged, resampling=Resampling(draws=20), min_count=11)
    assert few["semantic_level"].isna().all()
    enough = results_of(judged, resampling=Resampling(draws=20), min_count=5)
    assert set(enough["semantic_level"].dropna()) == {1}
    assert {"ood_h"} == set(enough["split"])


def test_another_parser_reads_the_same_answers(annotations):
    questions = questions_of(pairs((2, "dog", "id", True)), annotations, seed=0, bap=False)
    texts = ("It is certainly there", "Not at all")
    found = {q.question_id: answer(q, t) for q, t in zip(questions, texts, strict=True)}
    assert (judge(questions, found)["status"] == "unparsed").all()
    assert judge(questions, found, "pope")["parsed"].tolist() == ["yes", "yes"]


def test_counting_does_not_need_existence_but_logic_needs_counting(annotations):
    drawn = pairs((1, "car", "id", True), (1, "dog", "id", True))
    three = [q for q in questions_of(drawn, annotations, seed=0) if q.task != "yes_no"]
    right = {q.task: q.answer for q in three}
    opposite = {"yes": "no", "no": "yes"}

    def scores(**wrong):
        told = {t: opposite.get(a, "7") if wrong.get(t[4:]) else a for t, a in right.items()}
        found = {q.question_id: answer(q, told[q.task]) for q in three}
        row = bap_table(judge(three, found)).iloc[0]
        return tuple(int(row[f"bap_{k}"]) for k in ("existence", "counting", "logic"))

    assert scores() == (1, 1, 1)
    assert scores(counting=True) == (1, 0, 0)
    assert scores(logic=True) == (1, 1, 0)
    assert scores(existence=True) == (0, 1, 1)


def test_models_are_compared_on_bap_samples_that_all_answered(annotations):
    drawn = pairs((1, "car", "id", True), (1, "dog", "id", True))
    three = [q for q in questions_of(drawn, annotations, seed=0) if q.task != "yes_no"]
    tables = []
    for number in range(20):  # 20 images; b counts wrongly in 5 of them, and fails in one more
        own = [
            replace(q, question_id=f"{number}{q.task}", pair_id=str(number), image=f"{number}.png")
            for q in three
        ]
        for model in "ab":
            found = {q.question_id: answer(q, q.answer) for q in own}
            count = next(q for q in own if q.task == "bap_counting")
            if model == "b" and number < 6:
                error = "429" if number == 5 else None
                found[count.question_id] = answer(count, "77", error)
            tables.append(judge(own, found).assign(model=model))
    table = contrasts(pd.concat(tables), resampling=Resampling(draws=200)).set_index("metric")
    assert table["n"].tolist() == [19] * 3
    assert table.loc["bap_existence", "difference"] == 0
    row = table.loc["bap_counting"]
    assert (row["value_a"], row["value_b"]) == (1, pytest.approx(14 / 19))
    assert row["ci_low"] > 0
    assert row["difference"] == table.loc["bap_logic", "difference"] == pytest.approx(5 / 19)


def test_pairs_keep_what_results_are_divided_by(judged):
    table = pair_table(judged, "wrong")
    assert {"split", "category", "semantic_level", "covariate_level"} <= set(table)
    assert table["kept"].tolist() == [True] * 8 + [False] * 2
    assert table.loc[~table["kept"], ["tp", "fp", "tn", "fn"]].to_numpy().sum() == 0


def test_wandb_shows_whole_splits_the_first_way(judged):
    from ood_lab.run.tracking.experiment_loggers import answer_values

    found = answer_values(results_of(judged, resampling=Resampling(draws=20), min_count=5))
    assert found["ood_h/accuracy"] == pytest.approx(13 / 16)
    assert set(found) >= {"ood_h/accuracy", "ood_h/yes_rate"}
    assert not any("nan" in key for key in found)

"""The published files: their statistics, and scoring them as they are."""

import json
from collections import Counter
from pathlib import Path

import pytest

from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.oric.page import KIND
from ood_lab.lvlm.benchmarks.oric.published_files import (
    OricItem,
    problem_of,
    questions_of,
    read_bench,
    read_predictions,
    read_train,
    with_article,
    write_bench,
    write_predictions,
    write_train,
)
from ood_lab.lvlm.scoring.answer_differences import same_questions
from ood_lab.lvlm.scoring.wording_scores import contrasts, wording_rows

DATA = Path(__file__).parents[4].parent / "shared" / "data" / "oric"
BENCH, TRAIN = DATA / "oric_bench.json", DATA / "oric_train.json"
published = pytest.mark.skipif(not BENCH.is_file(), reason="the published files are not here")


def small():
    """Four items about two images."""
    asked = [
        ("a.jpg", "dog", "yes"),
        ("a.jpg", "apple", "no"),
        ("b.jpg", "cup", "yes"),
        ("b.jpg", "bus", "no"),
    ]
    return [OricItem(i, f, o, problem_of(o), s) for i, (f, o, s) in enumerate(asked, 1)]


def by_wording(results):
    """Rows by wording, ``mean`` for all of them, and metric."""
    wording = results["part"].str.removeprefix("wording ").fillna("mean")
    return results.assign(wording=wording).set_index(["wording", "metric"])


def questions(items):
    files = {item.image: f"/images/{item.image}" for item in items}
    return list(questions_of(items, files, [{"split": "oric"}] * len(items)))


@pytest.mark.slow
@published
def test_statistics_of_the_published_files():
    items = read_bench(BENCH)
    assert Counter(item.solution for item in items) == {"yes": 1000, "no": 1000}
    per_image = Counter(item.image for item in items)
    assert len(per_image) == 983
    assert Counter(per_image.values()) == {2: 966, 4: 17}
    labels = {image: {i.solution for i in items if i.image == image} for image in per_image}
    assert Counter(tuple(sorted(s)) for s in labels.values()) == {
        ("yes",): 483,
        ("no",): 483,
        ("no", "yes"): 17,
    }
    classes = {s: Counter(i.target_object for i in items if i.solution == s) for s in ("yes", "no")}
    assert (len(classes["yes"]), len(classes["no"])) == (71, 76)
    assert len(classes["yes"] | classes["no"]) == 78
    assert len(classes["yes"].keys() & classes["no"].keys()) == 69
    assert classes["yes"].most_common(4) == [
        ("bottle", 82),
        ("cell phone", 59),
        ("cup", 48),
        ("handbag", 44),
    ]
    assert classes["no"].most_common(3) == [("dining table", 110), ("remote", 85), ("oven", 34)]
    assert sum(with_article(i.target_object).startswith("an ") for i in items) == 129
    assert all(item.problem == problem_of(item.target_object) for item in items)
    train = read_train(TRAIN)
    assert Counter(item.solution for item in train) == {"yes": 300, "no": 300}
    assert len({item.image for item in train}) == 478
    classes = {s: {i.target_object for i in train if i.solution == s} for s in ("yes", "no")}
    assert [len(classes[s]) for s in ("yes", "no")] == [57, 64]
    assert len(classes["yes"] | classes["no"]) == 73


@published
def test_published_files_are_written_again_byte_for_byte(tmp_path):
    write_bench(read_bench(BENCH), tmp_path / "bench.json")
    assert (tmp_path / "bench.json").read_bytes() == BENCH.read_bytes()
    items = [
        OricItem(i.id, i.image, i.target_object, problem_of(i.target_object), i.solution)
        for i in read_train(TRAIN)
    ]
    write_train(items, tmp_path / "train.json")
    assert (tmp_path / "train.json").read_bytes() == TRAIN.read_bytes()


@published
@pytest.mark.parametrize(
    ("right_yes", "right_no", "macro_f1"), [(631, 814, 72.02), (917, 551, 72.48)]
)
def test_predictions_with_a_published_detector_s_counts_give_its_scores(
    tmp_path, right_yes, right_no, macro_f1
):
    asked = questions(read_bench(BENCH))
    left = {"yes": right_yes, "no": right_no}
    rows = []
    for question in (q for q in asked if q.meta["prompt"] == 1):
        left[question.answer] -= 1
        opposite = {"yes": "no", "no": "yes"}[question.answer]
        said = question.answer if left[question.answer] >= 0 else opposite
        rows.append(
            {
                "question_id": str(question.meta["item"]),
                "predicted_answer": said,
                "solution": question.answer,
            }
        )
    (tmp_path / "p.json").write_text(json.dumps(rows))
    asked = [q for q in asked if q.meta["prompt"] == 1]
    judged = judge(asked, read_predictions(asked, [tmp_path / "p.json"]))
    found = by_wording(
        KIND.table(
            wording_rows(judged, 10, resampling=Resampling(draws=20)), model="detector", seed=0
        )
    )
    assert 100 * found.loc[("mean", "macro_f1"), "value"] == pytest.approx(macro_f1, abs=0.006)
    assert found.loc[("mean", "macro_f1"), "n"] == 983


def test_the_released_slip_of_the_article():
    assert problem_of("dog", "released")[0] == "Is there dog in the image?"
    assert problem_of("apple", "released")[0] == "Is there an apple in the image?"


def test_a_training_file_is_no_benchmark_and_the_other_way_round(tmp_path):
    write_bench(small(), tmp_path / "bench.json")
    write_train(small(), tmp_path / "train.json")
    assert read_bench(tmp_path / "bench.json") == small()
    assert [i.solution for i in read_train(tmp_path / "train.json")] == ["yes", "no", "yes", "no"]
    with pytest.raises(UserError, match=r"train\.json' is not ORIC's benchmark.* are a text"):
        read_bench(tmp_path / "train.json")
    with pytest.raises(UserError, match=r"bench\.json' is not a training file.* worthless"):
        read_train(tmp_path / "bench.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is no whole JSON"),
        ("{}", "is not ORIC's benchmark"),
        ('[{"id": 1}]', "missing required field `image`"),
        (
            '[{"id": 1, "image": "a", "target_object": "b", "problem": ["c"], "solution": "m"}]',
            "enum value 'm'",
        ),
    ],
)
def test_broken_files_are_one_error(tmp_path, text, message):
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_bench(tmp_path / "bench.json")


def test_contradictions_are_one_error(tmp_path):
    rows = [*small(), OricItem(5, "a.jpg", "dog", problem_of("dog"), "no")]
    write_bench(rows, tmp_path / "bench.json")
    with pytest.raises(UserError, match=r"'dog' is both in a\.jpg and not in it"):
        read_bench(tmp_path / "bench.json")


def test_questions_are_worded_as_the_paper_does():
    first = questions(small())[0]
    assert first.text == (
        "Question: Is there a dog in the image?\n"
        "Please answer the question based on the given image."
    )
    cot = next(iter(questions_of(small()[:1], {"a.jpg": "x"}, [{"split": "s"}], form="cot")))
    assert cot.text.endswith(
        "\nLet's think step-by-step and then answer the question based on the given image."
    )


def predictions(tmp_path, answers, number=1):
    """A file of answers to the items of :func:`small`, in their order."""
    rows = [
        {"question_id": str(i.id), "predicted_answer": a, "solution": i.solution}
        for i, a in zip(small(), answers, strict=True)
    ]
    path = tmp_path / f"{number}.json"
    path.write_text(json.dumps(rows))
    return path


def test_wordings_are_scored_apart_and_then_averaged(tmp_path):
    asked = [q for q in questions(small()) if q.meta["prompt"] <= 2]
    paths = [
        predictions(tmp_path, ["yes", "no", "yes", "no"], 1),
        predictions(tmp_path, ["yes", "yes", "yes", "yes"], 2),
    ]
    judged = judge(asked, read_predictions(asked, paths))
    found = by_wording(
        KIND.table(wording_rows(judged, 10, resampling=Resampling(draws=20)), model="m", seed=0)
    )["value"]
    assert found["1", "macro_f1"] == 1
    assert found["2", "macro_f1"] == pytest.approx(1 / 3)
    assert found["mean", "macro_f1"] == pytest.approx(2 / 3)
    assert found["mean", "yes_rate"] == pytest.approx(0.75)
    write_predictions(judged, tmp_path / "out")
    written = sorted((tmp_path / "out").iterdir())
    assert [p.name for p in written] == ["predictions_1.json", "predictions_2.json"]
    assert json.loads(written[0].read_text()) == json.loads(paths[0].read_text())


def test_predictions_for_other_questions_are_one_error(tmp_path):
    asked = questions(small())
    path = predictions(tmp_path, ["yes"] * 4)
    path.write_text(path.read_text().replace('"solution": "yes"', '"solution": "no"'))
    with pytest.raises(UserError, match="are for other questions"):
        read_predictions(asked, [path])
    with pytest.raises(UserError, match="does not exist"):
        read_predictions(asked, [tmp_path / "missing.json"])


def test_models_are_compared_on_the_same_questions(tmp_path):
    asked = [q for q in questions(small()) if q.meta["prompt"] == 1]
    tables = {
        name: judge(asked, read_predictions(asked, [predictions(tmp_path, said, number)]))
        for number, (name, said) in enumerate(
            {"good": ["yes", "no", "yes", "no"], "yes": ["yes"] * 4}.items()
        )
    }
    found = contrasts(same_questions(tables), "model", resampling=Resampling(draws=50)).set_index(
        "metric"
    )
    assert found.loc["accuracy", "difference"] == pytest.approx(0.5)
    assert found.loc["accuracy", ["a", "b"]].tolist() == ["good", "yes"]
    with pytest.raises(UserError, match="only answers to the same questions"):
        same_questions({"a": tables["good"], "b": tables["yes"].iloc[:3]})

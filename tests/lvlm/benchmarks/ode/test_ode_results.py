import json

import pytest
from small_concepts import SMALL

from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.ode.page import FINER, KIND
from ood_lab.lvlm.benchmarks.ode.queries import questions_of
from ood_lab.lvlm.captions.caption_rules import CaptionRules
from ood_lab.lvlm.captions.caption_scoring import amber_table, caption_table, result_rows
from ood_lab.lvlm.captions.nouns import Lexicon
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture
from ood_lab.lvlm.questions.question_files import GENERATIVE
from ood_lab.lvlm.training.conversation_files import ChatFile
from ood_lab.lvlm.training.tuning_data import LLAVA, TRL, QuestionTuning, write_tuning
from ood_lab.schema.results import whole

PICTURES = [
    AnnotatedPicture(
        f"{criterion}{number}.png",
        criterion,
        "ee",
        ("dog", "person"),
        hallu=("cat", "sky"),
        meta={"covariate_level": number % 2, "distance": 1 + number % 2},
    )
    for criterion in ("standard", "fictional")
    for number in range(6)
]
QUESTIONS = questions_of(PICTURES)


def answers(replies):
    """An answer to every question: the right one, unless ``replies`` says otherwise."""
    found = {}
    for q in QUESTIONS:
        text, error = replies(q) or q.answer, None
        if text == "fail":
            text, error = "", "no server"
        found[q.question_id] = Answer(
            key=q.question_id,
            question_id=q.question_id,
            task=q.task,
            image=q.image,
            messages_hash="",
            prompt=q.text,
            response=text,
            answer=q.answer,
            error=error,
            made_with={"model": "test"},
        )
    return found


def tables(replies):
    given = answers(replies)
    rules = CaptionRules(SMALL.vocabulary, SMALL.associates, SMALL.safe_words)
    captions = caption_table(QUESTIONS, given, rules, Lexicon())
    judged = judge([q for q in QUESTIONS if q.task != GENERATIVE], given)
    return captions, judged


def fictional_cats(question):
    """Sees cats where the pair is fictional, and says so."""
    if question.meta["split"] == "fictional":
        return "A cat and a dog." if question.task == GENERATIVE else "Yes"
    return None


def results_of(captions, judged, **options):
    rows = result_rows(captions, judged, ["standard", "fictional"], finer=FINER, **options)
    return KIND.table(rows, model="test", seed=0)


def value(results, split, metric):
    rows = whole(results)
    found = rows[(rows["split"] == split) & (rows["metric"] == metric)]
    return found["value"].iloc[0]


def test_a_model_that_knows_everything_hallucinates_nothing():
    captions, judged = tables(lambda question: None)
    results = results_of(captions, judged, resampling=Resampling(draws=50))
    for metric, right in (("chair", 0), ("cover", 1), ("hal", 0), ("cog", 0), ("all_f1", 1)):
        assert value(results, "pooled", metric) == right


@pytest.mark.slow
def test_hallucinations_are_counted_by_criterion():
    captions, judged = tables(fictional_cats)
    results = results_of(captions, judged, resampling=Resampling(draws=50), min_count=1)
    assert value(results, "standard", "chair") == 0
    assert value(results, "fictional", "chair") == 0.5
    assert value(results, "fictional", "cover") == 0.5
    assert value(results, "fictional", "cog") == 0.5
    assert value(results, "pooled", "hal") == 0.5
    assert value(results, "fictional", "existence_recall") == 0  # no absent thing is denied
    assert value(results, "fictional", "pope_yes_rate") == 1
    assert set(results["covariate_level"].dropna()) == {0, 1}
    assert set(results["part"].dropna()) == {"distance 1", "distance 2", "kind ee"}


def test_pooled_metrics_are_of_pooled_counts():
    def replies(question):
        if question.task == GENERATIVE and question.meta["split"] == "standard":
            return "A cat."
        return None

    captions, judged = tables(replies)
    results = results_of(captions, judged, resampling=Resampling(draws=50))
    # 6 of 6 and 0 of 12 named objects, not the mean of 1 and 0.
    assert value(results, "pooled", "chair") == pytest.approx(6 / 18)


def test_failed_requests_are_left_out_and_shown():
    failing = "standard0.png"
    captions, judged = tables(lambda q: "fail" if q.image == failing else None)
    results = whole(results_of(captions, judged, resampling=Resampling(draws=50)))
    row = results[(results["split"] == "standard") & (results["metric"] == "chair")].iloc[0]
    assert (row["n_asked"], row["n_failed"], row["n_images"]) == (6, 1, 5)
    row = results[(results["split"] == "standard") & (results["metric"] == "all_accuracy")].iloc[0]
    assert (row["n_failed"], row["n_images"], row["value"]) == (7, 5, 1)


def test_unparsed_answers_are_wrong_or_left_out():
    captions, judged = tables(lambda q: "Perhaps" if "cat" in q.text else None)
    results = whole(results_of(captions, judged, resampling=Resampling(draws=50)))
    rows = results[(results["split"] == "pooled") & (results["metric"] == "existence_accuracy")]
    assert rows.set_index("unparsed")["value"].to_dict() == {"wrong": 0.75, "drop": 1.0}
    assert rows["n_unparsed"].tolist() == [12, 12]


def test_images_of_one_scene_are_resampled_together():
    captions, judged = tables(fictional_cats)
    alone = results_of(captions, judged, resampling=Resampling(draws=400))
    together = results_of(
        captions.assign(scene=captions["split"]),
        judged,
        resampling=Resampling(draws=400),
    )
    rows = [
        whole(r).query("split == 'pooled' and metric == 'hal'").iloc[0] for r in (alone, together)
    ]
    assert rows[0]["value"] == rows[1]["value"]
    assert rows[1]["ci_high"] - rows[1]["ci_low"] > rows[0]["ci_high"] - rows[0]["ci_low"]


def test_rounded_metrics_are_those_of_the_published_scripts():
    captions, judged = tables(fictional_cats)
    table = amber_table(captions, judged, ["standard", "fictional"]).set_index("split")
    assert table.loc["fictional", ["chair", "cover", "hal", "cog"]].tolist() == [50, 50, 100, 50]
    assert table.loc["standard", "existence_recall"] == 100.0
    assert table.loc["fictional", "existence_f1"] == 0.0


def test_errors_are_exported_with_their_right_answers(tmp_path):
    captions, judged = tables(fictional_cats)
    chosen = QuestionTuning().questions(QUESTIONS, captions, judged, seed=0)
    assert {q.meta["split"] for q in chosen} == {"fictional"}
    assert sum(q.task == GENERATIVE for q in chosen) == 6
    assert all(q.answer == "no" for q in chosen if q.task != GENERATIVE)
    assert len(QuestionTuning("all", 3).questions(QUESTIONS, captions, judged, seed=0)) == 6
    from PIL import Image

    for each in PICTURES:
        Image.new("RGB", (8, 8)).save(tmp_path / each.file)
    write_tuning(chosen, tmp_path, tmp_path)
    first = json.loads((tmp_path / LLAVA).read_text())[0]
    assert first["conversations"][0] == {"from": "human", "value": f"<image>\n{chosen[0].text}"}
    assert len(ChatFile(tmp_path / LLAVA)) == len(ChatFile(tmp_path / TRL)) == len(chosen)


def test_fine_tuning_data_of_one_criterion():
    captions, judged = tables(fictional_cats)
    tuning = QuestionTuning("errors", 2, ["fictional"])
    tuning.check(QUESTIONS)
    chosen = tuning.questions(QUESTIONS, captions, judged, 0)
    assert [question.meta["split"] for question in chosen] == ["fictional"] * 2
    with pytest.raises(UserError, match="no question is of 'fiction'"):
        QuestionTuning("errors", 2, ["fiction"]).check(QUESTIONS)


@pytest.mark.slow
def test_results_by_kind_of_pair():
    captions, judged = tables(fictional_cats)
    for table in (captions, judged):
        table.loc[table["file"].str.contains("[0-2]"), "kind"] = "ev"
    results = results_of(captions, judged, resampling=Resampling(draws=50), min_count=3)
    for kind, rows in captions[captions["split"] == "fictional"].groupby("kind"):
        part = results[(results["part"] == f"kind {kind}") & (results["split"] == "fictional")]
        value = part.loc[part["metric"] == "chair", "value"].item()
        assert value == rows["flagged"].sum() / rows["nouns"].sum()
        assert set(part.loc[part["metric"] == "chair", "n_images"]) == {3}

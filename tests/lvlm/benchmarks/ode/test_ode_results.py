import json

import numpy as np
import pandas as pd
import pytest
from ode_data import SMALL

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.ode.figures import feature_clouds
from ood_lab.lvlm.benchmarks.ode.image_effectiveness import effectiveness
from ood_lab.lvlm.benchmarks.ode.images.annotated_images import Picture
from ood_lab.lvlm.benchmarks.ode.queries import questions_of
from ood_lab.lvlm.benchmarks.ode.scoring import results_of
from ood_lab.lvlm.benchmarks.ode.tendencies import Clustering
from ood_lab.lvlm.benchmarks.ode.tuning_data import LLAVA, TRL, Tuning, write_tuning
from ood_lab.lvlm.captions.caption_rules import Rules
from ood_lab.lvlm.captions.caption_scoring import amber_table, caption_table
from ood_lab.lvlm.captions.nouns import Lexicon
from ood_lab.lvlm.captions.question_kinds import GENERATIVE
from ood_lab.lvlm.training.conversation_files import ChatFile
from ood_lab.schema.results import whole

PICTURES = [
    Picture(
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
    captions = caption_table(QUESTIONS, given, Rules.of(SMALL), Lexicon())
    judged = judge([q for q in QUESTIONS if q.task != GENERATIVE], given)
    return captions, judged


def fictional_cats(question):
    """Sees cats where the pair is fictional, and says so."""
    if question.meta["split"] == "fictional":
        return "A cat and a dog." if question.task == GENERATIVE else "Yes"
    return None


def value(results, split, metric):
    rows = whole(results)
    found = rows[(rows["split"] == split) & (rows["metric"] == metric)]
    return found["value"].iloc[0]


def test_a_model_that_knows_everything_hallucinates_nothing():
    captions, judged = tables(lambda question: None)
    results = results_of(captions, judged, "test", ["standard", "fictional"], draws=50)
    for metric, right in (("chair", 0), ("cover", 1), ("hal", 0), ("cog", 0), ("all_f1", 1)):
        assert value(results, "pooled", metric) == right


def test_hallucinations_are_counted_by_criterion():
    captions, judged = tables(fictional_cats)
    results = results_of(captions, judged, "test", ["standard", "fictional"], draws=50, min_count=1)
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
    results = results_of(captions, judged, "test", ["standard", "fictional"], draws=50)
    # 6 of 6 and 0 of 12 named objects, not the mean of 1 and 0.
    assert value(results, "pooled", "chair") == pytest.approx(6 / 18)


def test_failed_requests_are_left_out_and_shown():
    failing = "standard0.png"
    captions, judged = tables(lambda q: "fail" if q.image == failing else None)
    results = whole(results_of(captions, judged, "test", ["standard", "fictional"], draws=50))
    row = results[(results["split"] == "standard") & (results["metric"] == "chair")].iloc[0]
    assert (row["n_asked"], row["n_failed"], row["n_images"]) == (6, 1, 5)
    row = results[(results["split"] == "standard") & (results["metric"] == "all_accuracy")].iloc[0]
    assert (row["n_failed"], row["n_images"], row["value"]) == (7, 5, 1)


def test_unparsed_answers_are_wrong_or_left_out():
    captions, judged = tables(lambda q: "Perhaps" if "cat" in q.text else None)
    results = whole(results_of(captions, judged, "test", ["standard", "fictional"], draws=50))
    rows = results[(results["split"] == "pooled") & (results["metric"] == "existence_accuracy")]
    assert rows.set_index("unparsed")["value"].to_dict() == {"wrong": 0.75, "drop": 1.0}
    assert rows["n_unparsed"].tolist() == [12, 12]


def test_images_of_one_scene_are_resampled_together():
    captions, judged = tables(fictional_cats)
    alone = results_of(captions, judged, "test", ["standard", "fictional"], draws=400)
    together = results_of(
        captions.assign(scene=captions["split"]),
        judged,
        "test",
        ["standard", "fictional"],
        draws=400,
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


def test_tendencies_group_concepts_by_what_is_made_up_beside_them():
    rows = [("a", "x")] * 3 + [("b", "x")] * 3 + [("c", "y")] * 3 + [("d", "")] * 2
    captions = pd.DataFrame(
        {
            "truth_words": [[true] for true, _ in rows],
            "flagged_nouns": [[false] if false else [] for _, false in rows],
        }
    )
    for method in ("kmeans", "agglomerative"):
        found = Clustering(method, groups=2).tendencies(captions)
        assert found.matrix.loc["a", "x"] == 3
        assert "d" not in found.matrix.index
        groups = found.groups.set_index("concept")["group"]
        assert groups["a"] == groups["b"] == 0  # the larger group comes first
        assert groups["c"] == 1
        assert found.silhouette == pytest.approx(1.0) or found.silhouette > 0.6
        assert found.summary["top_hallucinations"].tolist() == ["x", "y"]
    assert Clustering().tendencies(captions[captions["flagged_nouns"].str.len() == 0]) is None


def test_errors_are_exported_with_their_right_answers(tmp_path):
    captions, judged = tables(fictional_cats)
    chosen = Tuning().questions(QUESTIONS, captions, judged, seed=0)
    assert {q.meta["split"] for q in chosen} == {"fictional"}
    assert sum(q.task == GENERATIVE for q in chosen) == 6
    assert all(q.answer == "no" for q in chosen if q.task != GENERATIVE)
    assert len(Tuning("all", 3).questions(QUESTIONS, captions, judged, seed=0)) == 6
    from PIL import Image

    for each in PICTURES:
        Image.new("RGB", (8, 8)).save(tmp_path / each.file)
    write_tuning(chosen, tmp_path, tmp_path)
    first = json.loads((tmp_path / LLAVA).read_text())[0]
    assert first["conversations"][0] == {"from": "human", "value": f"<image>\n{chosen[0].text}"}
    assert len(ChatFile(tmp_path / LLAVA)) == len(ChatFile(tmp_path / TRL)) == len(chosen)


def test_effectiveness_is_one_for_images_as_near_as_natural_ones():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 8))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    table = effectiveness({"natural": features[:100], "made": features[100:], "far": -features[:2]})
    ratio = table.set_index("dataset")["ratio"]
    assert ratio["natural"] == 1
    assert ratio["made"] == pytest.approx(1, abs=0.2)


def test_the_distance_of_made_images_has_an_interval_and_is_in_the_legend():
    rng = np.random.default_rng(0)
    natural, made = rng.normal(size=(50, 8)), rng.normal(size=(60, 8)) + 0.5
    natural, made = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (natural, made))
    pairs = np.repeat([f"pair {n}" for n in range(20)], 3)
    sets = {"natural": natural, "long_tail": made}
    table = effectiveness(sets, {"long_tail": pairs}, draws=4000, seed=0)
    row = table.set_index("dataset").loc["long_tail"]
    nearest = [min(1 - float(a @ b) for b in natural) for a in made]
    of_pairs = np.reshape(nearest, (20, 3)).mean(axis=1)
    means = of_pairs[np.random.default_rng(5).integers(20, size=(4000, 20))].mean(axis=1)
    assert row["distance"] == pytest.approx(np.mean(nearest))
    ends = np.quantile(means, [0.025, 0.975])
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(ends, abs=0.006)
    figure = feature_clouds(sets, table, "")
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    shown = f"long-tail (n=60), distance {row['distance']:.3f} "
    assert words[1] == f"{shown}[{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    earlier = feature_clouds(sets, table.drop(columns=["ci_low", "ci_high"]), "")
    assert earlier.legends[0].get_texts()[1].get_text() == shown.strip()


def test_fine_tuning_data_of_one_criterion():
    captions, judged = tables(fictional_cats)
    tuning = Tuning("errors", 2, ["fictional"])
    tuning.check(QUESTIONS)
    chosen = tuning.questions(QUESTIONS, captions, judged, 0)
    assert [question.meta["split"] for question in chosen] == ["fictional"] * 2
    with pytest.raises(UserError, match="no question is of 'fiction'"):
        Tuning("errors", 2, ["fiction"]).check(QUESTIONS)


@pytest.mark.slow
def test_results_by_kind_of_pair():
    captions, judged = tables(fictional_cats)
    for table in (captions, judged):
        table.loc[table["file"].str.contains("[0-2]"), "kind"] = "ev"
    results = results_of(captions, judged, "test", ["standard", "fictional"], draws=50, min_count=3)
    for kind, rows in captions[captions["split"] == "fictional"].groupby("kind"):
        part = results[(results["part"] == f"kind {kind}") & (results["split"] == "fictional")]
        value = part.loc[part["metric"] == "chair", "value"].item()
        assert value == rows["flagged"].sum() / rows["nouns"].sum()
        assert set(part.loc[part["metric"] == "chair", "n_images"]) == {3}

"""AMBER from its own files, against what its script computes, written down a second time."""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image
from scripted_answers import answer_of

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.amber.concepts import AmberConcepts, attribute_pairs
from ood_lab.lvlm.benchmarks.amber.published_files import AmberFiles
from ood_lab.schema.results import read_results, whole

SHARED = Path(__file__).parents[4] / "shared" / "data" / "ode"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the published data is not here")
RELATION = {"dog": ["puppy"], "boat": ["ship", "canoe"], "cat": [], "sky": []}
KINDS = {
    "discriminative-hallucination": "ha",
    "discriminative-attribute-state": "as",
    "discriminative-attribute-number": "an",
    "discriminative-attribute-action": "aa",
    "relation": "asso",
    "discriminative-relation": "asso",
}
#: Set → counters of AMBER's script, and what it adds to P + R.
SETS = {
    "existence": (["ha"], 0.001),
    "attribute": (["as", "an", "aa"], 0.0001),
    "state": (["as"], 0.0001),
    "number": (["an"], 0.0001),
    "action": (["aa"], 0.0001),
    "relation": (["asso"], 0.0001),
    "all": (["ha", "as", "an", "aa", "asso"], 0.0001),
}
#: Of the first three images of AMBER; the sheet's check vector.
CAPTIONS = {
    1: "man boat lake dog dog cloud orange spaceship",
    2: "ship bridge mountain water tree bird",
    3: "child grass",
}


def amber_folder(root, annotations, relation, safe_words):
    """AMBER's layout, every image a colour of its own."""
    (root / "query").mkdir(parents=True)
    (root / "annotations.json").write_text(json.dumps(annotations))
    (root / "relation.json").write_text(json.dumps(relation))
    (root / "safe_words.txt").write_text("\n".join(safe_words) + "\n")
    images = sum(row["type"] == "generative" for row in annotations)
    queries = []
    for row in annotations:
        name = f"AMBER_{(row['id'] - 1) % images + 1}.png"
        words = "Describe this image." if row["type"] == "generative" else f"Is it {row['id']}?"
        queries.append({"id": row["id"], "image": name, "query": words})
    for number in range(1, images + 1):
        Image.new("RGB", (8, 8), (number, 90, 30)).save(root / f"AMBER_{number}.png")
    (root / "query" / "query_all.json").write_text(json.dumps(queries))
    captions = [each for each in queries if each["id"] <= images]
    (root / "query" / "query_generative.json").write_text(json.dumps(captions))
    others = [each for each in queries if each["id"] > images]
    (root / "query" / "query_discriminative.json").write_text(json.dumps(others))
    return [f"task.source.path={root}", f"task.source.images={root}"]


def small(root):
    annotations = [
        {"id": 1, "type": "generative", "truth": ["dog", "sky"], "hallu": ["cat"]},
        {"id": 2, "type": "generative", "truth": ["boat"], "hallu": ["dog"]},
        {"id": 3, "type": "generative", "truth": ["cat"], "hallu": ["sky"]},
    ]
    for number in range(4, 64):
        kind = list(KINDS)[number % 6]
        truth = "no" if "halluc" in kind or kind == "relation" or number % 4 < 2 else "yes"
        annotations.append({"id": number, "type": kind, "truth": truth})
    return annotations, amber_folder(root, annotations, RELATION, ["sky"])


def replies_of(annotations, captions, seed=0):
    """Right, wrong, and neither."""
    rng = random.Random(seed)
    found = {}
    for row in annotations:
        right, wrong = ("Yes", "No") if row["truth"] == "yes" else ("No", "Yes")
        said = rng.choices([right, wrong, "yes", "Hard to say"], [5, 3, 1, 1])[0]
        found[row["id"]] = captions.get(row["id"], said)
    return found


def scored(tmp_path, source, replies, *more):
    outputs, file = tmp_path / "outputs", tmp_path / "replies.jsonl"
    lines = [{"question_id": str(key), "response": text} for key, text in replies.items()]
    file.write_text("\n".join(map(json.dumps, lines)))
    line = [
        "task=amber",
        *source,
        "lvlm=replay",
        f"lvlm.path={file}",
        "metrics.n_bootstrap=50",
        "task.report=false",
    ]
    assert call("eval.py", *line, *more, "logger=none", f"paths.outputs={outputs}") == 0
    return run_folders(outputs)[-1]


def printed(annotations, replies):
    """What AMBER's script prints of yes/no questions: its counters, then its formulas."""
    names = ("n", "right", "no", "no_right", "said", "said_right")
    count = {(kind, name): 0 for kind in KINDS.values() for name in names}
    for row in annotations:
        if row["type"] == "generative":
            continue
        kind, said = KINDS[row["type"]], replies[row["id"]]
        no, right = row["truth"] == "no", said == {"yes": "Yes", "no": "No"}[row["truth"]]
        for name, one in [("n", 1), ("right", right), ("no", no), ("no_right", no and right)]:
            count[kind, name] += one
        count[kind, "said"] += said == "No"
        count[kind, "said_right"] += said == "No" and no
    found = {}
    for group, (kinds, epsilon) in SETS.items():

        def ratio(part, of, kinds=kinds):
            parts, total = (sum(count[kind, name] for kind in kinds) for name in (part, of))
            return round(parts / (total + 0.001) * 100, 1)

        p, r = ratio("said_right", "said"), ratio("no_right", "no")
        f1 = round(2 * p / 100 * r / 100 / (p / 100 + r / 100 + epsilon) * 100, 1)
        values = {"accuracy": ratio("right", "n"), "precision": p, "recall": r, "f1": f1}
        found |= {f"{group}_{name}": value for name, value in values.items()}
    return found


def value(results, split, metric):
    rows = whole(results)
    rows = rows[(rows["split"] == split) & (rows["metric"] == metric)]
    return rows.iloc[0]["value"]


def test_one_command_gives_captions_answers_and_the_score(tmp_path, capsys):
    annotations, source = small(tmp_path / "amber")
    captions = {1: "A puppy below the sky, and a cat.", 2: "Two ships.", 3: "A dog, a dog."}
    replies = replies_of(annotations, captions)
    run = scored(tmp_path, source, replies, "task.report=true")
    # Named: puppy sky cat | ship | dog dog; the sky is safe, so that it covers nothing.
    wanted = {"chair": 3 / 6, "cover": 2 / 4, "hal": 2 / 3, "cog": 1 / 3}
    results = read_results(run)
    for metric, share in wanted.items():
        assert value(results, "pooled", metric) == pytest.approx(share)
    exact = printed(annotations, replies)
    for name, percent in exact.items():
        group, _, metric = name.partition("_")
        split = "pooled" if group == "all" else group
        if metric != "f1":  # of rounded P and R
            assert 100 * value(results, split, metric) == pytest.approx(percent, abs=0.06)
    f1 = value(results, "pooled", "f1")
    p, r = value(results, "pooled", "precision"), value(results, "pooled", "recall")
    assert f1 == pytest.approx(2 * p * r / (p + r))
    assert value(results, "pooled", "amber_score") == pytest.approx((1 - 0.5 + f1) / 2)
    rows = results[results["metric"] == "amber_score"]
    assert (rows["ci_low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["ci_high"]).all()
    table = pd.read_csv(run / "amber.csv").iloc[0]
    assert table[list(exact)].to_dict() == exact
    score = (100 - table["chair"] + exact["all_f1"]) / 2
    assert table["amber_score"] == pytest.approx(score, abs=0.051)
    assert "AMBER score" in capsys.readouterr().out
    page = (run / "amber.html").read_text()
    assert "Positive class: no" in page
    assert "Made up: dog, dog" in page


@pytest.mark.parametrize(("part", "tables"), [("generative", 1), ("discriminative", 7)])
def test_one_part_alone_is_scored(part, tables, tmp_path):
    annotations, source = small(tmp_path / "amber")
    replies = replies_of(annotations, {1: "A cat.", 2: "A cat.", 3: "A cat."})
    asked = {k: v for k, v in replies.items() if (k <= 3) == (part == "generative")}
    run = scored(tmp_path, [*source, f"task.source.query=query_{part}"], asked)
    results = read_results(run)
    assert results["split"].nunique() == tables
    assert "amber_score" not in set(results["metric"])


@needs_data
def test_the_check_vector_of_published_annotations(tmp_path):
    every = json.loads((SHARED / "BaseInfo" / "amber_annotations.json").read_text())
    other = {row["type"]: row for row in every[1004:]}
    rows = every[:3] + [{**row, "id": 4 + n} for n, row in enumerate(other.values())]
    relation = json.loads((SHARED / "relation.json").read_text())
    safe = (SHARED / "safe_words.txt").read_text().split()
    replies = replies_of(rows, CAPTIONS)
    run = scored(tmp_path, amber_folder(tmp_path / "amber", rows, relation, safe), replies)
    table = pd.read_csv(run / "amber.csv").iloc[0]
    assert table[["chair", "cover", "hal", "cog"]].tolist() == [33.3, 45.0, 66.7, 20.0]
    assert table[list(printed(rows, replies))].to_dict() == printed(rows, replies)


@pytest.mark.slow
@needs_data
def test_all_of_ambers_annotations_are_read(tmp_path):
    every = json.loads((SHARED / "BaseInfo" / "amber_annotations.json").read_text())
    (tmp_path / "query").mkdir()
    (tmp_path / "annotations.json").write_text(json.dumps(every))
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    queries = [{"id": row["id"], "image": "one.png", "query": str(row["id"])} for row in every]
    (tmp_path / "query" / "query_all.json").write_text(json.dumps(queries))
    found = AmberFiles(str(tmp_path), str(tmp_path)).questions("amber")
    counts = pd.Series([question.task for question in found]).value_counts().to_dict()
    assert counts == {
        "generative": 1004,
        "existence": 4924,
        "attribute_state": 4764,
        "attribute_number": 2072,
        "attribute_action": 792,
        "relation": 1664,
    }
    assert {q.answer for q in found if q.task == "existence"} == {"no"}


@pytest.mark.slow
def test_models_are_compared_on_captions_and_answers(tmp_path):
    annotations, source = small(tmp_path / "amber")
    texts = {1: "A dog.", 2: "A dog.", 3: "A cat."}
    first = scored(tmp_path, source, replies_of(annotations, texts))
    more = replies_of(annotations, {1: "A dog.", 2: "A boat.", 3: "A cat."}, 1)
    second = scored(tmp_path, source, more, f"task.against=[{first}]")
    table = pd.read_csv(second / "models.csv").set_index("metric")
    assert table.loc["chair", "value_a"] == pytest.approx(0)
    assert table.loc["chair", "value_b"] == pytest.approx(1 / 3)
    right = [pd.read_parquet(run / "judged.parquet")["correct"].mean() for run in (second, first)]
    both = [table.loc["all_accuracy", f"value_{x}"] for x in "ab"]
    assert np.allclose(both, right)


@pytest.mark.slow
def test_the_answer_compares_models_that_were_asked_yes_no_questions_alone(tmp_path):
    annotations, source = small(tmp_path / "amber")
    source = [*source, "task.source.query=query_discriminative"]
    asked = [row for row in annotations if row["type"] != "generative"]
    right = {row["id"]: row["truth"].title() for row in asked}
    first = scored(tmp_path, source, replies_of(asked, {}))
    second = scored(tmp_path, source, right, f"task.against=[{first}]", "task.report=true")
    *_, compared = answer_of(second, "amber")
    row = pd.read_csv(second / "models.csv").set_index("metric").loc["all_accuracy"]
    assert row["p_holm"] < 0.05
    ends = "{:.1f} points [{:.1f}, {:.1f}]".format(*100 * row[["difference", "ci_low", "ci_high"]])
    assert compared == f"Compared on the same questions, it is {ends} better than {row['b']}."


def test_files_that_lack_something_are_one_line(tmp_path):
    annotations, _ = small(tmp_path / "amber")
    place = tmp_path / "amber"
    (place / "annotations.json").write_text(json.dumps([{**annotations[0], "type": "odd"}]))
    with pytest.raises(UserError, match="id 1: 'odd' is none of AMBER's types"):
        AmberFiles(str(place), str(place)).questions("amber")
    (place / "relation.json").unlink()
    with pytest.raises(UserError, match=r"relation\.json"):
        _ = AmberFiles(str(place), str(place)).vocabulary


def test_attribute_pairs_are_distinct_and_of_one_word():
    queries = [
        "Is the sky sunny in this image?",
        "Is the sky gloomy in this image?",
        "Is the sky sunny in this image?",
        "Is the sky gloomy in this image?",
        "Does the dog run in this image?",
        "Does the dog sit in this image?",
        "Are there two dogs in this image?",
        "Are there three dogs in this image?",
    ]
    states, actions = attribute_pairs(queries)
    assert states == {"sky": [("sunny", "gloomy")]}
    assert actions == {"dog": [("run", "sit")]}


def test_a_folder_without_amber_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"annotations\.json"):
        AmberConcepts(str(tmp_path)).read()

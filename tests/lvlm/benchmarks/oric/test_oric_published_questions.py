"""Published questions with images, annotations, POPE's files and people's verdicts."""

import json

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image
from scipy.stats import binomtest
from sklearn.metrics import f1_score
from test_oric_published_files import BENCH
from test_oric_published_files import published as where_published

from ood_lab.clip.loading import load_clip
from ood_lab.common.files import read_table
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.benchmarks.oric.published_files import problem_of, read_bench, write_bench
from ood_lab.lvlm.questions.question_files import read_questions
from ood_lab.lvlm.scoring.wording_scores import contrasts, scored
from ood_lab.schema.results import read_results

COMMON = ("judge.quantile=0.6", "metrics.n_bootstrap=50", "metrics.min_count=2", "logger=none")
SETS = ("random", "popular", "adversarial")
ABLATIONS = "task.ablations=[uniform,pos_only,neg_only]"


def run(outputs, *arguments, figures=()):
    line = ("task=oric", *COMMON, "lvlm=oracle", "lvlm.accuracy=0.8", *arguments)
    return call("eval.py", *line, f"paths.outputs={outputs}", figures=figures)


def newest(outputs):
    return run_folders(outputs)[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A construction on builtin scenes: run folder, and folder of images in COCO's layout."""
    outputs = tmp_path_factory.mktemp("made")
    more = ("annotations.n=60", "task.construct.pairs=4", "task.report=false", ABLATIONS)
    assert run(outputs, *more, "image_text=[scenes_64]") == 0
    (instances,) = outputs.rglob("instances.json")
    return newest(outputs), instances


def coco(made):
    """Command-line words: the same questions and images as published files have them."""
    folder, instances = made
    return (
        f"task.bench={folder}/oric_bench.json",
        f"task.images={instances.parent}/images",
        "annotations=coco",
        f"annotations.file={instances}",
        f"annotations.images={instances.parent}/images",
        "task.foreign_clip=true",
        "image_text=[scenes_64]",
    )


def pope_files(made, to):
    """POPE's questions of a run as POPE publishes them, each with one image that ORIC has not."""
    table = read_table(made[0] / "sets.parquet")
    files = []
    for name in SETS:
        rows = table[table["split"] == f"pope_{name}"]
        records = [
            {"question_id": n, "image": i, "text": problem_of(o)[0], "label": a}
            for n, (i, o, a) in enumerate(
                zip(rows["image"], rows["object"], rows["label"], strict=True), 1
            )
        ]
        files.append(to / f"coco_pope_{name}.json")
        files[-1].write_text("\n".join(map(json.dumps, records)))
    return files


@pytest.fixture(scope="module")
def again(made, tmp_path_factory):
    """The same questions, from files."""
    outputs = tmp_path_factory.mktemp("again")
    files = ",".join(map(str, pope_files(made, outputs)))
    assert run(outputs, *coco(made), f"task.pope=[{files}]", ABLATIONS, figures=["coco_tiers"]) == 0
    return newest(outputs)


def analyses(folder, *splits):
    table = read_table(folder / "analyses.csv")
    return table[table["split"].isin(splits)].reset_index(drop=True)


def test_published_files_with_annotations_give_every_analysis_of_the_construction(made, again):
    sets = ("oric", *(f"pope_{name}" for name in SETS), "annotated")
    pd.testing.assert_frame_equal(
        analyses(made[0], *sets), analyses(again, *sets), check_exact=False, atol=1e-4, rtol=1e-4
    )
    for name in ("context.csv", "tiers.csv"):
        first, second = (
            read_table(f / name).query("split == 'oric'")["n"] for f in (made[0], again)
        )
        assert len(first)
        if name == "tiers.csv":  # the curve's bins are those of all sets together
            assert first.tolist() == second.tolist()
    results = read_results(again)
    parts = results[results["metric"] == "clip_score"].groupby("split")["part"].agg(list)
    assert parts["oric"] == ["present, scenes_96", "absent, scenes_96"]
    wording = read_questions(again / "questions.jsonl")
    first = next(q for q in wording if q.meta["split"] == "pope_popular")
    assert "Is there " in first.text
    assert {q.meta["prompt"] for q in wording if q.meta["split"] == "pope_random"} == {1, 2, 3, 4}


def test_scores_distances_and_sizes_computed_a_second_way(made, again):
    items = read_bench(made[0] / "oric_bench.json")
    clip = load_clip("scenes_96")
    root = made[1].parent / "images"

    def image(name):
        with Image.open(root / name) as opened:
            pixels = clip.preprocess(opened.convert("RGB"))
        found = clip.encode_image(pixels[None]).numpy()[0].astype(np.float64)
        return found / np.linalg.norm(found)

    def text(name):
        found = clip.encode_text([clip.templates[-1].format(name)]).numpy()[0].astype(np.float64)
        return found / np.linalg.norm(found)

    seen = {item.image: image(item.image) for item in items}
    rows = analyses(again, "oric")
    for label in ("yes", "no"):
        scores = [
            100 * float(seen[i.image] @ text(i.target_object)) for i in items if i.solution == label
        ]
        said = rows[(rows["analysis"] == "clip_score") & (rows["label"] == label)]
        assert said["value"].tolist() == pytest.approx([np.mean(scores)], abs=1e-3)
    distances = {}
    for name in {item.target_object for item in items}:
        there, absent = (
            [seen[i.image] for i in items if (i.target_object, i.solution) == (name, label)]
            for label in ("yes", "no")
        )
        if there and absent:
            distances[name] = min(1 - float(a @ b) for a in there for b in absent)
    said = rows[(rows["analysis"] == "min_distance") & (rows["clip"] == "scenes_96")]
    said = said.set_index("key")["value"].to_dict()
    assert said.pop("mean", None) == pytest.approx(np.mean(list(distances.values())), abs=1e-5)
    assert said == pytest.approx(distances, abs=1e-5)
    data = json.loads(made[1].read_text())
    number = {each["file_name"]: each for each in data["images"]}
    names = {each["id"]: each["name"] for each in data["categories"]}
    areas = []
    for item in (i for i in items if i.solution == "yes"):
        about, scale = number[item.image], 4
        mask = np.zeros((about["height"] * scale, about["width"] * scale), bool)
        for box in data["annotations"]:
            if (box["image_id"], names[box["category_id"]]) == (about["id"], item.target_object):
                x, y, w, h = (round(scale * v) for v in box["bbox"])
                mask[y : y + h, x : x + w] = True
        areas.append(mask.sum() / scale**2)
    for analysis, low in (("tier_share", 24), ("coco_tier_share", 32)):
        cut = pd.cut(areas, [0, low**2, 96**2, np.inf], right=False, labels=False)
        shares = [float(np.mean(cut == tier)) for tier in range(3)]
        assert rows.loc[rows["analysis"] == analysis, "value"].tolist() == pytest.approx(shares)


@pytest.mark.slow
def test_a_subset_of_pope_is_one_more_set_in_every_measure(made, again, tmp_path):
    files = ",".join(map(str, pope_files(made, tmp_path)))
    more = ("task.pope_subset=8", "metrics.n_bootstrap=200", "task.prompts=2", "task.report=false")
    assert run(tmp_path, *coco(made), f"task.pope=[{files}]", *more) == 0
    folder = newest(tmp_path)
    table = read_table(folder / "sets.parquet").set_index("split")
    whole = read_table(again / "sets.parquet").set_index("split")
    for name in SETS:
        same = whole.loc[f"pope_{name}", table.columns]  # ablations have more columns
        pd.testing.assert_frame_equal(table.loc[f"pope_{name}"], same)
        subset = table.loc[f"pope_{name}_subset"]
        assert subset["label"].value_counts().to_dict() == {"yes": 4, "no": 4}
        found = table.loc[f"pope_{name}"].set_index("item").loc[subset["item"]]
        assert found["object"].tolist() == subset["object"].tolist()
        assert subset["item"].is_unique
        # The three are drawn at the same places, so that their present objects are the same.
        assert subset["item"].tolist() == table.loc["pope_random_subset", "item"].tolist()
        rows = (
            analyses(folder, f"pope_{name}_subset")
            .query("analysis == 'clip_score'")
            .set_index("label")
        )
        for label, part in subset.groupby("label"):
            said = rows.loc[label]
            drawn = np.random.default_rng(1).choice(
                part["row"].unique(), (2000, part["row"].nunique())
            )
            cosine = part.groupby("row")["cosine"]
            sums, sizes = (100 * cosine.sum()).to_dict(), cosine.size().to_dict()
            means = [sum(map(sums.get, d)) / sum(map(sizes.get, d)) for d in drawn.tolist()]
            assert said["value"] == pytest.approx(100 * part["cosine"].mean())
            assert said["ci_low"] == pytest.approx(np.quantile(means, 0.025), abs=4)
            assert said["ci_high"] == pytest.approx(np.quantile(means, 0.975), abs=4)
    judged = read_table(folder / "judged.parquet")
    answers = judged[judged["split"] == "pope_random_subset"]
    scores = [
        f1_score(p["truth"], p["parsed"], average="macro") for _, p in answers.groupby("prompt")
    ]
    results = read_results(folder).query("split == 'pope_random_subset' and metric == 'macro_f1'")
    assert results["value"].iloc[0] == pytest.approx(np.mean(scores))
    context = read_table(folder / "context.csv")
    asked = judged[~judged["split"].str.endswith("_subset")]
    assert context.query("split == 'all'")["n"].sum() == asked["question_id"].nunique()
    assert "POPE random (subset)" in (folder / "summary.json").read_text()


def test_drops_are_random_minus_orics_and_sets_have_the_same_images(made, again):
    judged = read_table(again / "judged.parquet")
    table = read_table(again / "drops.csv")
    assert table["a"].unique().tolist() == ["uniform"]
    recall = judged[judged["truth"] == "yes"].groupby(["split", "prompt"])["correct"].mean()
    recall = recall.groupby("split").mean()
    for row in table[table["metric"] == "recall_yes"].to_dict("records"):
        assert row["difference"] == pytest.approx(recall["uniform"] - recall[row["b"]])
        assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    images = judged.groupby("split")["pair_id"].agg(set)
    for name in ("uniform", "pos_only", "neg_only"):
        assert images[name] <= images["oric"]
    differences = read_table(again / "differences.csv")
    assert set(differences["b"]) == set(images.index) - {"oric"}
    assert (again / "figures" / "coco_tiers.png").is_file()


def test_sets_of_different_images_are_independent():
    """Then variances add up: so does the square of the width of the interval."""
    rng, rows = np.random.default_rng(0), []
    for split, images, share in (("oric", 300, 0.7), ("pope_random", 150, 0.8)):
        for number, truth in [(n, t) for n in range(images) for t in ("yes", "no")]:
            said = truth if rng.random() < share else {"yes": "no", "no": "yes"}[truth]
            image, item = f"{split}/{number}", f"{split}/{number}/{truth}"
            rows.append((split, image, item, 1, truth, said, "parsed"))
    columns = ["split", "pair_id", "question_id", "prompt", "truth", "parsed", "status"]
    judged = pd.DataFrame(rows, columns=columns)
    table = contrasts(judged, "split", first="oric", resampling=Resampling(draws=4000)).set_index(
        "metric"
    )
    both = table.loc["accuracy", "ci_high"] - table.loc["accuracy", "ci_low"]
    single = [
        scored(part, resampling=Resampling(draws=4000)).estimates()["accuracy"]
        for _, part in judged.groupby("split")
    ]
    assert both == pytest.approx(np.hypot(*(e.high - e.low for e in single)), rel=0.06)


@pytest.mark.slow
def test_without_annotations_what_needs_none_is_known_and_the_rest_is_said(made, tmp_path, capsys):
    words = (*coco(made)[:2], "task.pope=[]", *coco(made)[-2:])
    assert run(tmp_path, *words, "task.prompts=1") == 0
    folder = newest(tmp_path)
    said = "".join(capsys.readouterr())
    assert "sizes and P(object | context): there are no annotations" in " ".join(said.split())
    known = {"clip_score", "min_distance"}
    first, second = (analyses(f, "oric") for f in (made[0], folder))
    columns = ["analysis", "clip", "label", "key", "n", "value"]
    first = first.loc[first["analysis"].isin(known), columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, second[columns], atol=1e-4, rtol=1e-4)
    page = (folder / "oric.html").read_text()
    assert "Not known: sizes" in page
    # A CLIP that knows nothing of the images measures none, and the run says so.
    words = [word for word in words if word not in coco(made)[-2:]]
    assert run(tmp_path, *words, "task.prompts=1", "task.report=false") == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "CLIPScores and least distances: clip.name=scenes_96 knows" in said


def audited(folder, to, rejected):
    """Its audit with a verdict on every question."""
    table = pd.read_csv(folder / "audit.csv", keep_default_na=False)
    rows = table.index[table["chosen"]] if "chosen" in table else table.index
    table.loc[rows, "verdict"] = "accept"
    table.loc[rows[rejected], "verdict"] = "reject"
    table.to_csv(to, index=False)
    return table


def error_rate(file, outputs, *more):
    line = ("task=audits", f"task.files=[{file}]", f"paths.outputs={outputs}", "logger=none")
    assert call("eval.py", *line, *more) == 0
    return newest(outputs)


def test_rejected_published_questions_are_not_asked_and_stay_in_the_audit(made, again, tmp_path):
    file, rejected = tmp_path / "said.csv", [0, 5, 9]
    table = audited(again, file, rejected)
    words = (*coco(made), "task.pope=[]", "task.report=false", "task.prompts=2")
    # Of all questions, those that are rejected included.
    given = ",".join(f"{made[0]}/predictions_{number}.json" for number in (1, 2))
    words = (*words, f"task.audit={file}", f"task.predictions=[{given}]")
    assert run(tmp_path / "a", *words) == 0
    folder = newest(tmp_path / "a")
    judged = read_table(folder / "judged.parquet")
    assert set(judged["item"]) == set(table["question_id"].drop(rejected))
    first = read_table(made[0] / "judged.parquet").query("split == 'oric' and prompt <= 2")
    both = judged.merge(first, on=["item", "prompt"], suffixes=("", "_of_all"))
    assert (both["parsed"] == both["parsed_of_all"]).all()
    assert len(both) == len(judged) == 2 * (len(table) - 3)
    new = pd.read_csv(folder / "audit.csv", keep_default_na=False)
    assert new["verdict"].tolist() == table["verdict"].tolist()
    results = read_results(error_rate(folder / "audit.csv", tmp_path / "b"))
    found = binomtest(3, len(table)).proportion_ci(method="exact")
    row = results[results["metric"] == "error_rate"].iloc[0]
    assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx(
        (3 / len(table), found.low, found.high)
    )
    drawn = error_rate(again / "audit.csv", tmp_path / "c", "task.by=label", "task.draw=2")
    assert len(pd.read_csv(drawn / "to_check.csv")) == 4


@pytest.mark.slow
def test_rejected_constructed_questions_are_in_no_file_but_the_audit(made, tmp_path):
    file = tmp_path / "said.csv"
    table = audited(made[0], file, [1, 4])
    gone = table[table["verdict"] == "reject"]
    more = ("annotations.n=60", "task.construct.pairs=4", "task.pope=[]", "task.until=build")
    assert run(tmp_path / "a", *more, f"task.audit={file}") == 0
    folder = newest(tmp_path / "a")
    before, after = (read_bench(f / "oric_bench.json") for f in (made[0], folder))
    content = [(i.image, i.target_object, i.solution) for i in before]
    left = set(zip(gone["image"], gone["object"], gone["label"], strict=True))
    assert [(i.image, i.target_object, i.solution) for i in after] == [
        each for each in content if each not in left
    ]
    assert len(before) == len(after) + 2
    new = pd.read_csv(folder / "audit.csv", keep_default_na=False)
    assert (new["verdict"] == "reject").sum() == 2
    # The questions of another run, asked without what people reject.
    asked = (f"task.questions={made[0]}/questions.jsonl", "task.pope=[]", "task.report=false")
    assert run(tmp_path / "b", *asked, f"task.audit={file}", "annotations.n=60") == 0
    judged = read_table(newest(tmp_path / "b") / "judged.parquet").query("split == 'oric'")
    assert len(judged) == 4 * len(after)
    assert run(tmp_path / "c", *more, "task.form=both") == 0
    both = (f"task.questions={newest(tmp_path / 'c')}/questions.jsonl", *asked[1:])
    assert run(tmp_path / "d", *both, f"task.audit={file}", "annotations.n=60") == 0
    for name in ("judged", "judged_cot"):
        rows = read_table(newest(tmp_path / "d") / f"{name}.parquet")
        assert len(rows) == 4 * len(after), name


@pytest.mark.slow
@where_published
def test_the_published_benchmark_is_scored_without_its_images(tmp_path, capsys):
    left = {"yes": 631, "no": 814}  # right answers of OWLv2 in the paper
    rows = []
    for item in read_bench(BENCH):
        left[item.solution] -= 1
        other = {"yes": "no", "no": "yes"}[item.solution]
        said = item.solution if left[item.solution] >= 0 else other
        rows.append(
            {"question_id": str(item.id), "predicted_answer": said, "solution": item.solution}
        )
    (tmp_path / "p.json").write_text(json.dumps(rows))
    words = (f"task.bench={BENCH}", f"task.images={tmp_path}", "task.pope=[]", "task.prompts=1")
    given = f"task.predictions=[{tmp_path}/p.json]"
    assert run(tmp_path, *words, given, "task.report=false") == 0
    results = read_results(newest(tmp_path)).query("part.isna()").set_index("metric")["value"]
    assert 100 * results["macro_f1"] == pytest.approx(72.02, abs=0.006)
    assert 100 * results["recall_yes"] == pytest.approx(63.10)
    said = " ".join("".join(capsys.readouterr()).split())
    assert "CLIPScores and least distances: 983 of the 983 images" in said
    # The paper's human check: 150 questions of each answer, of which people reject six.
    audit = newest(tmp_path) / "audit.csv"
    drawn = error_rate(audit, tmp_path / "drawn", "task.by=label", "task.draw=150")
    table = pd.read_csv(drawn / "to_check.csv")
    assert table["label"].value_counts().to_dict() == {"yes": 150, "no": 150}
    verdicts = np.where(np.arange(300) % 50 == 0, "reject", "accept")
    table.assign(verdict=verdicts).to_csv(tmp_path / "said.csv", index=False)
    results = read_results(error_rate(tmp_path / "said.csv", tmp_path / "rates", "task.by=label"))
    found = binomtest(6, 300).proportion_ci(method="exact")
    row = results[results["part"].isna()].iloc[0]
    assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx(
        (0.02, found.low, found.high)
    )
    more = (f"task.audit={tmp_path}/said.csv", "task.report=false")
    assert run(tmp_path / "fewer", *words, given, *more) == 0
    kept = read_table(newest(tmp_path / "fewer") / "judged.parquet")["item"]
    assert sorted(kept) == sorted(set(range(1, 2001)) - set(table["question_id"][::50]))
    capsys.readouterr()
    assert run(tmp_path, *words) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "task.images=DIR" in x]
    assert "983 of the 983 images" in line


def other_words(made, tmp_path):
    """Changed files that each are one error."""
    (tmp_path / "coco_pope_popular.json").write_text(
        json.dumps({"question_id": 1, "image": "a.png", "text": "A dog?", "label": "no"})
    )
    items = read_bench(made[0] / "oric_bench.json")
    audit = {"question_id": [1], "image": [items[0].image], "object": ["sofa"], "label": ["yes"]}
    pd.DataFrame(audit | {"verdict": ["reject"]}).to_csv(tmp_path / "other.csv", index=False)
    turned = [i for i in items if i.solution == "no"]
    write_bench(
        [type(i)(**{**vars(i), "solution": "yes"}) for i in turned], tmp_path / "turned.json"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("task.pope=[{t}/coco_pope_popular.json]", "is not worded as POPE's questions are"),
        ("task.pope=[popular,{t}/coco_pope_popular.json]", "two sets of 'popular'"),
        ("task.pope=[often]", "a file of POPE whose name ends in"),
        ("task.audit={t}/other.csv", "line 2: nothing asks whether 'sofa' is in"),
        ("task.bench={t}/turned.json", "says otherwise of"),
        ("annotations=scenes", "annotations are missing to draw"),
        ("task.foreign_clip=false", "comes with the package"),
    ],
)
def test_mistakes_are_one_line(made, tmp_path, capsys, change, message):
    other_words(made, tmp_path)
    words = [w for w in coco(made) if w.split("=")[0] != change.split("=")[0]]
    if change == "annotations=scenes":  # builtin ones are not those of a folder
        words = [w for w in words if not w.startswith("annotations.")]
    assert run(tmp_path / "out", *words, change.format(t=tmp_path)) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line

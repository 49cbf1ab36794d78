"""Benchmarks from their published files, against counts made by hand."""

import base64
import json
from pathlib import Path

import exported
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image

from ood_lab.errors import UserError
from ood_lab.lvlm.published import AmberFiles, HallusionFiles, MmeFiles, PopeFiles
from ood_lab.results import read_results

SHARED = Path(__file__).parents[3] / "shared" / "data" / "ode" / "BaseInfo"


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (len(path.stem) * 20 % 255, 90, 30)).save(path)


def pope(root):
    for split in ("random", "adversarial"):
        rows = []
        for number in range(12):
            picture(root / "images" / f"{number // 3}.png")
            label = "yes" if number % 3 == 0 else "no"
            text = f"Is there a thing {number} in the image?"
            image = f"{number // 3}.png"
            rows.append({"question_id": number, "image": image, "text": text, "label": label})
        (root / f"coco_pope_{split}.json").write_text("\n".join(map(json.dumps, rows)))
    return [f"task.source.path={root}", f"task.source.images={root}/images"]


def mme(root):
    for task, flat in (("existence", False), ("color", True)):
        for number in range(4):
            folder = root / task
            picture((folder if flat else folder / "images") / f"{number}.png")
            text = folder if flat else folder / "questions_answers_YN"
            text.mkdir(parents=True, exist_ok=True)
            lines = [f"Is {number} there? Please answer yes or no.\tYes", "Is it 9?\tNo"]
            (text / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return [f"task.source.path={root}"]


def hallusion(root):
    rows = []
    for figure in range(3):
        for question in range(2):
            name = None if figure == 0 else f"VD/chart/{figure}.png"
            if name:
                picture(root / "images" / name)
            rows.append(
                {
                    "category": "VS" if figure == 0 else "VD",
                    "subcategory": "chart",
                    "set_id": "0",
                    "figure_id": str(figure),
                    "question_id": str(question),
                    "question": f"Is bar {question} the highest of figure {figure}?",
                    "gt_answer": str((figure + question) % 2),
                    "filename": name,
                }
            )
    file = root / "HallusionBench.json"
    file.write_text(json.dumps(rows))
    return [f"task.source.path={file}", f"task.source.images={root}/images"]


def amber(root):
    truths, queries = [], []
    kinds = ("discriminative-hallucination", "discriminative-attribute-state", "relation")
    for number in range(1, 13):
        kind = "generative" if number == 1 else kinds[number % 3]
        truth = ["a"] if number == 1 else "no" if "halluc" in kind or number % 2 else "yes"
        truths.append({"id": number, "type": kind, "truth": truth})
        image = f"AMBER_{number % 4}.png"
        picture(root / "images" / image)
        queries.append({"id": number, "image": image, "query": f"Is there {number}?"})
    (root / "annotations.json").write_text(json.dumps(truths))
    (root / "query").mkdir()
    (root / "query" / "query_all.json").write_text(json.dumps(queries))
    return [f"task.source.path={root}", f"task.source.images={root}/images"]


def scored(tmp_path, task, source, *more):
    """The run, the answers of a model that guesses, and the results."""
    outputs = tmp_path / "outputs"
    line = (f"task={task}", *source, "lvlm=random", "metrics.draws=50", "logger=none", *more)
    assert call("eval.py", *line, f"paths.outputs={outputs}") == 0
    run = run_folders(outputs)[-1]
    return run, pd.read_parquet(run / "judged.parquet"), read_results(run)


def value(results, split, metric):
    rows = results[(results["split"] == split) & (results["metric"] == metric)]
    return rows.iloc[0]["value"]


def test_pope_counts_yes_in_each_file(tmp_path, capsys):
    run, judged, results = scored(tmp_path, "pope", pope(tmp_path / "pope"))
    assert set(judged["split"]) == {"random", "adversarial"}
    for split, rows in judged.groupby("split"):
        said, true = rows["parsed"] == "yes", rows["truth"] == "yes"
        assert value(results, split, "precision") == pytest.approx((said & true).sum() / said.sum())
        assert value(results, split, "recall") == pytest.approx((said & true).sum() / true.sum())
        assert value(results, split, "yes_rate") == pytest.approx(said.mean())
    assert set(results["kind"]) == {"pope"}
    assert "POPE" in capsys.readouterr().out
    page = (run / "pope.html").read_text()
    assert "rounds nothing" in page
    assert "Positive class: yes" in page


def test_mme_wants_both_questions_of_an_image_right(tmp_path):
    _, judged, results = scored(tmp_path, "mme", mme(tmp_path / "mme"))
    for split, rows in judged.groupby("split"):
        both = rows.groupby("pair_id")["correct"].all()
        assert len(both) == 4
        assert value(results, split, "accuracy_plus") == pytest.approx(both.mean())
        assert value(results, split, "accuracy") == pytest.approx(rows["correct"].mean())


def test_hallusion_counts_figures_and_questions(tmp_path):
    _, judged, results = scored(tmp_path, "hallusion", hallusion(tmp_path / "hallusion"))
    assert len(judged) == 6
    parts = judged["question_id"].str.split("/")
    by_figure = judged["correct"].groupby(parts.str[3]).all().mean()
    by_question = judged["correct"].groupby(parts.str[4]).all().mean()
    assert value(results, "pooled", "figure_accuracy") == pytest.approx(by_figure)
    assert value(results, "pooled", "question_accuracy") == pytest.approx(by_question)
    root = tmp_path / "hallusion"
    file = str(root / "HallusionBench.json")
    assert len(HallusionFiles(file, str(root / "images"), blind=False).questions()) == 4


def test_the_positive_class_of_amber_is_no(tmp_path):
    run, judged, results = scored(tmp_path, "amber", amber(tmp_path / "amber"))
    assert set(judged["split"]) == {"existence", "attribute", "relation"}
    assert len(judged) == 11  # the generative question is none of these
    said, true = judged["parsed"] != "yes", judged["truth"] == "no"
    hit = (said & true).sum()
    assert value(results, "pooled", "precision") == pytest.approx(hit / max(said.sum(), 1))
    assert value(results, "pooled", "recall") == pytest.approx(hit / true.sum())
    rate = (judged["parsed"] == "yes").mean()
    assert value(results, "pooled", "yes_rate") == pytest.approx(rate)
    assert "Positive class: no" in (run / "amber.html").read_text()


def test_models_are_compared_with_the_same_positive_class(tmp_path):
    source = amber(tmp_path / "amber")
    first, _, random = scored(tmp_path, "amber", source)
    more = ("lvlm=constant", f"task.against=[{first}]")
    second, _, constant = scored(tmp_path, "amber", source, *more)
    table = pd.read_csv(second / "models.csv").set_index("metric")
    both = [value(found, "pooled", "recall") for found in (constant, random)]
    assert [table.loc["recall", key] for key in ("value_a", "value_b")] == pytest.approx(both)


SOURCES = {"pope": pope, "mme": mme, "hallusion": hallusion, "amber": amber}
NAMES = {"hallusion": "hallusionbench"}
GROUPS = {
    "mme": {"accuracy_plus": "picture"},
    "hallusion": {"figure_accuracy": "figure", "question_accuracy": "series"},
}


@pytest.mark.parametrize("task", SOURCES)
def test_other_packages_get_the_same_questions_and_count_the_same(task, tmp_path):
    formats = "task.export=[lmms_eval,vlmevalkit,pope]"
    run, judged, _ = scored(tmp_path, task, SOURCES[task](tmp_path / "files"), formats)
    name, shown = NAMES.get(task, task), judged[judged["file"].notna()]
    docs, found = exported.lmms_eval(run, name)
    assert [doc["text"] for doc in docs] == shown["text"].tolist()
    wanted = {"accuracy_yes_no": shown["correct"].mean()}
    for split, rows in shown.groupby("split"):
        wanted[f"accuracy_yes_no_{split}"] = rows["correct"].mean()
    for metric, column in GROUPS.get(task, {}).items():
        wanted[metric] = shown.groupby(column)["correct"].all().mean()
        for split, rows in shown.groupby("split"):
            wanted[f"{metric}_{split}"] = rows.groupby(column)["correct"].all().mean()
    assert found == pytest.approx(wanted)
    table = exported.vlmevalkit(run, name, "yes_no")
    images = [base64.b64decode(row["image"]) for row in table]
    assert images == [Path(file).read_bytes() for file in shown["file"]]
    assert [row["answer"].lower() for row in table] == shown["truth"].tolist()


def test_an_exported_file_of_pope_is_read_as_one(tmp_path):
    source, formats = mme(tmp_path / "mme"), "task.export=[pope]"  # images of equal names
    first, judged, _ = scored(tmp_path, "mme", source, formats)
    again = [f"task.source.path={first}/exports/pope/mme_yes_no.json"]
    again += [f"task.source.images={tmp_path}/mme"]
    again += ["task.parser=strict", "task.export=[lmms_eval]"]
    second, other, _ = scored(tmp_path, "pope", again)
    for column in ("text", "truth", "file"):
        assert other[column].tolist() == judged[column].tolist()
    docs, _ = exported.lmms_eval(second, "pope")
    assert {doc["parser"] for doc in docs} == {"strict"}
    utils: dict = {}
    exec((second / "exports" / "lmms_eval" / "utils.py").read_text(), utils)
    found = utils["process_results"](docs[0], [f"<think>Hm.</think>{docs[0]['answer']}"])
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize(
    ("given", "shown"),
    [((), "pope (POPE (arXiv 2305.10355), evaluate.py of"), (("task.parser=strict",), "strict (o")],
)
def test_a_run_says_whose_rule_read_the_replies(given, shown, tmp_path, capsys):
    run, *_ = scored(tmp_path, "pope", pope(tmp_path / "pope"), *given)
    name, _, source = shown.partition(" (")
    rules = json.loads((run / "manifest.json").read_text())["parsers"]
    assert list(rules) == [name]
    assert rules[name].startswith(source)
    assert f"Replies are read by {shown}" in " ".join(capsys.readouterr().out.split())
    assert f"Replies are read by {shown}" in (run / "pope.html").read_text()


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data")
def test_all_of_ambers_annotations_are_read(tmp_path):
    truths = json.loads((SHARED / "amber_annotations.json").read_text())
    (tmp_path / "query").mkdir()
    (tmp_path / "annotations.json").write_text(json.dumps(truths))
    picture(tmp_path / "one.png")
    queries = [{"id": row["id"], "image": "one.png", "query": str(row["id"])} for row in truths]
    (tmp_path / "query" / "query_all.json").write_text(json.dumps(queries))
    found = AmberFiles(str(tmp_path), str(tmp_path)).questions()
    counts = pd.Series([question.meta["split"] for question in found]).value_counts()
    assert counts.to_dict() == {"existence": 4924, "attribute": 7628, "relation": 1664}
    assert {q.answer for q in found if q.meta["split"] == "existence"} == {"no"}


def test_wrong_files_are_one_line(tmp_path):
    pope(tmp_path / "p")
    cases = [
        (PopeFiles(str(tmp_path / "none"), str(tmp_path)), "none"),
        (PopeFiles(str(tmp_path / "p"), str(tmp_path)), "give its folder"),
    ]
    bad = tmp_path / "bad_random.json"
    bad.write_text(json.dumps({"question_id": 1, "image": "0.png", "text": "Is it?"}))
    cases.append((PopeFiles(str(bad), str(tmp_path / "p" / "images")), "there is no 'label'"))
    mme(tmp_path / "m")
    (tmp_path / "m" / "color" / "0.txt").write_text("no answer here\n")
    cases.append((MmeFiles(str(tmp_path / "m")), "line 1"))
    for source, words in cases:
        with pytest.raises(UserError, match=words):
            source.questions()

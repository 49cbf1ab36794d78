"""Benchmarks from their published files, against counts made by hand."""

import itertools
import json
import random
import shutil

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.hallusion import HallusionFiles
from ood_lab.lvlm.benchmarks.mme import MmeFiles
from ood_lab.lvlm.benchmarks.pope import PopeFiles
from ood_lab.schema.results import read_results


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
    """Of ocr both categories have a set 0, with figures 0 to 2; those of VS begin with none."""
    rows = []
    for category, figure in itertools.product(("VD", "VS"), range(3)):
        for question in range(4):
            name = None if (category, figure) == ("VS", 0) else f"{category}/ocr/{figure}.png"
            if name:
                picture(root / "images" / name)
            rows.append(
                {
                    "category": category,
                    "subcategory": "ocr",
                    "visual_input": "2" if figure == 2 else "1" if name else "0",
                    "set_id": "0",
                    "figure_id": str(figure),
                    "question_id": str(question),
                    "question": f"Is word {question} in figure {figure} of {category}?",
                    "gt_answer": str((figure + question) % 2),
                    "filename": name,
                }
            )
    file = root / "HallusionBench.json"
    file.write_text(json.dumps(rows))
    return [f"task.source.path={file}", f"task.source.images={root}/images"]


def scored(tmp_path, task, source, *more):
    """The run, the answers of a model that guesses, and the results."""
    outputs = tmp_path / "outputs"
    line = (f"task={task}", *source, "lvlm=random", "metrics.n_bootstrap=50", "logger=none", *more)
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


#: Replies of which a package reads a few; more of them are left unread where yes is right.
SAID = ["yes", "No", "Yes.", "There is.", "no", "Perhaps", "YES", "Yes, there is", "No, none", "?"]


@pytest.mark.parametrize("parser", ["lmms_pope", "vlmeval", "pope"])
def test_numbers_of_pope_are_those_of_the_package_whose_parser_reads(parser, tmp_path):
    """As each counts: lmms-eval recalls what is answered, VLMEvalKit takes unknown for no yes."""
    rows = [
        {"text": f"Is there a dog in image {n}?", "answer": ["yes", "no"][n % 3 == 0]}
        for n in range(60)
    ]
    replies = [SAID[n * 7 % 10] for n in range(60)]
    for name, key, values in (("q", "", rows), ("a", "response", replies)):
        lines = [
            {key: value, "question_id": n} if key else {**value, "question_id": n}
            for n, value in enumerate(values)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = [f"task.questions={tmp_path}/q.jsonl", f"task.answers={tmp_path}/a.jsonl"]
    _, _, results = scored(
        tmp_path, "questions", source, f"task.parser={parser}", "task.report=false"
    )
    rule = {
        "lmms_pope": lambda reply: reply.lower().strip(),
        "vlmeval": lambda reply: reply.lower().strip(".,?").split(",")[0],
        "pope": lambda reply: "no" if {"No", "no"} & set(reply.replace(",", "").split()) else "yes",
    }[parser]
    both = [(row["answer"], rule(reply)) for row, reply in zip(rows, replies, strict=True)]
    tp, fp = both.count(("yes", "yes")), both.count(("no", "yes"))
    missed = [
        said == "no" if parser == "lmms_pope" else said != "yes"
        for true, said in both
        if true == "yes"
    ]
    precision, recall = tp / (tp + fp), tp / (tp + sum(missed))
    wanted = {
        "accuracy": sum(true == said for true, said in both) / 60,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
        "yes_rate": (tp + fp) / 60,
    }
    assert {m: value(results, "pooled", m) for m in wanted} == pytest.approx(wanted)


def test_mme_wants_both_questions_of_an_image_right(tmp_path):
    _, judged, results = scored(tmp_path, "mme", mme(tmp_path / "mme"))
    for split, rows in judged.groupby("split"):
        both = rows.groupby("pair_id")["correct"].all()
        assert len(both) == 4
        assert value(results, split, "accuracy_plus") == pytest.approx(both.mean())
        assert value(results, split, "accuracy") == pytest.approx(rows["correct"].mean())


def test_mme_totals_are_those_of_lmms_eval(tmp_path, capsys):
    """Its mean over the images of a subtask of accuracy and accuracy+, in percent, then the sum."""
    root = tmp_path / "mme"
    source = mme(root)
    for task in ("OCR", "code_reasoning", "text_translation"):
        shutil.copytree(root / "color", root / task)
    run, judged, results = scored(tmp_path, "mme", source, "task.parser=lmms_mme")
    kinds = {"perception": ["existence", "color", "OCR"], "cognition": ["code_reasoning"]}
    kinds["cognition"].append("text_translation")
    for name, subtasks in kinds.items():
        total = 0.0
        for subtask in subtasks:
            images = judged[judged["split"] == subtask].groupby("pair_id")["correct"].sum()
            points = [100 * right / 2 + 100 * (right == 2) for right in images]
            total += sum(points) / len(points)
            assert 100 * value(results, subtask, "score") == pytest.approx(
                sum(points) / len(points)
            )
        assert 100 * value(results, name, "score") == pytest.approx(total)
        row = results[(results["split"] == name) & (results["metric"] == "score")].iloc[0]
        assert 100 * row["ci_low"] < total < 100 * row["ci_high"]
    assert {"perception", "cognition"} <= set(
        (run / "mme.html").read_text().replace("<", " ").replace(">", " ").split()
    )
    assert "perception (of 2,000)" in (run / "manifest.json").read_text()


def test_hallusion_counts_as_its_script_does(tmp_path):
    source = hallusion(tmp_path / "hallusion")
    file = tmp_path / "hallusion" / "HallusionBench.json"
    rng, replies, rows = random.Random(1), tmp_path / "replies.jsonl", json.loads(file.read_text())
    # The script's three verdicts, each as a reply: wrong, right, uncertain.
    for row in rows:
        free = row["category"] == "VS" and row["figure_id"] == "0"
        row["said"] = "2" if free and row["question_id"] == "1" else rng.choice("0111111111112")
        right = row["gt_answer"] == "1"
        words = {"0": "No" if right else "Yes", "1": "Yes" if right else "No", "2": "I can't tell."}
        key = "/".join(row[k] for k in ("category", "subcategory", "set_id", "figure_id"))
        row["reply"] = {
            "question_id": f"{key}/{row['question_id']}",
            "response": words[row["said"]],
        }
        row["right"] = row["said"] == "1" or (free and row["said"] == "2")
    replies.write_text("\n".join(json.dumps(row["reply"]) for row in rows))
    _, judged, results = scored(
        tmp_path, "hallusion", source, "lvlm=replay", f"lvlm.path={replies}"
    )

    def share(rows, *keys):
        groups = {}
        for row in rows:
            groups.setdefault(tuple(row[key] for key in keys), []).append(row["right"])
        return np.mean([all(group) for group in groups.values()])

    question = ("category", "subcategory", "set_id", "question_id")
    seen = [r for r in rows if (r["category"], r["figure_id"]) != ("VS", "0")]
    wanted = {
        "accuracy": np.mean([row["right"] for row in rows]),
        "figure_accuracy": share(seen, "category", "subcategory", "set_id", "figure_id"),
        "question_accuracy": share(rows, *question),
        "easy_accuracy": share([row for row in rows if row["visual_input"] != "2"], *question),
        "hard_accuracy": share([row for row in rows if row["visual_input"] == "2"], *question),
    }
    for metric, exact in wanted.items():
        assert value(results, "pooled", metric) == pytest.approx(exact)
    assert (judged["parsed"] == "unsure").sum() == sum(
        row["right"] and row["said"] == "2" for row in rows
    )
    assert (
        len(HallusionFiles(str(file), str(file.parent / "images"), blind=False).questions()) == 20
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "shown"),
    [((), "pope (POPE (arXiv 2305.10355), evaluate.py of"), (("task.parser=strict",), "strict (o")],
)
def test_a_run_says_whose_rule_read_the_replies(given, shown, tmp_path):
    run, *_ = scored(tmp_path, "pope", pope(tmp_path / "pope"), *given)
    name, _, source = shown.partition(" (")
    rules = json.loads((run / "manifest.json").read_text())["parsers"]
    assert list(rules) == [name]
    assert rules[name].startswith(source)
    assert f"Replies are read by {shown}" in (run / "pope.html").read_text()


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


def test_an_image_of_three_files_of_pope_is_resampled_once(tmp_path):
    """Three copies of a file know no more than one."""
    images = tmp_path / "pope" / "images"
    images.mkdir(parents=True)
    rows = []
    for number in range(30):
        Image.new("RGB", (8, 8)).save(images / f"{number}.jpg")
        label = ["yes", "no"][number % 2]
        rows.append({"question_id": number, "image": f"{number}.jpg", "text": "Is there a dog?"})
        rows[-1]["label"] = label
    for split in ("random", "popular", "adversarial"):
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "pope" / f"coco_pope_{split}.json").write_text(text)
    given = [f"task.source.path={tmp_path}/pope", f"task.source.images={images}"]
    _, _, results = scored(tmp_path, "pope", given, "lvlm=constant", "metrics.n_bootstrap=1000")
    rows = results[(results["metric"] == "accuracy") & results["part"].isna()]
    widths = (rows["ci_high"] - rows["ci_low"]).groupby(rows["split"]).first()
    assert set(rows["n"]) == {30}
    assert widths["pooled"] == pytest.approx(widths["random"], rel=0.1)

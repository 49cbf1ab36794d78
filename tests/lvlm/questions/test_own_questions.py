"""A benchmark that the package does not know: a folder of questions, and a YAML beside it."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from local_server import LocalServer
from PIL import Image
from scripted_answers import answer_of
from test_packages import ROOT
from wandb_offline import read_run

from ood_lab.schema.results import CORE, read_results
from tests.benchmarks.reply_styles import styled_replies

YAML = """# @package _global_
# Colours of plain images.
defaults:
  - questions
task:
  title: Colours
  questions: {questions}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of the questions and their images, with a configuration folder."""
    folder = tmp_path_factory.mktemp("colours")
    rng = np.random.default_rng(0)
    rows = []
    for number in range(40):
        red = number % 2 == 0
        pixels = rng.integers(0, 90, (32, 32, 3), np.uint8)
        pixels[..., 0 if red else 2] += 150
        Image.fromarray(pixels).save(folder / f"{number}.png")
        meta = {"split": "plain" if number < 20 else "shifted", "semantic_level": number % 4 // 2}
        for word, answer in (("", "yes"), ("not ", "no")):
            rows.append(
                {
                    "question_id": f"{number}/{answer}",
                    "task": "yes_no",
                    "image": f"{number}.png",
                    "text": f"Is this image {word}{'red' if red else 'blue'}? (yes or no)",
                    "answer": answer,
                    "pair_id": str(number),
                    "meta": meta,
                }
            )
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "conf" / "task").mkdir(parents=True)
    (folder / "conf" / "task" / "colours.yaml").write_text(YAML.format(questions=questions))
    return folder


@pytest.fixture(scope="module")
def runs(place):
    """Two models that were asked: one at random, one that always says yes."""

    def run(*arguments):
        given = ("--config-dir", str(place / "conf"), "task=colours", "metrics.min_count=5")
        line = (*given, f"paths.outputs={place / 'out'}", *arguments)
        assert call("eval.py", *line, figures=["sets"]) == 0
        return run_folders(place / "out")[-1]

    first = run("lvlm=random")
    return first, run("lvlm=constant", f"task.against=[{first}]", "logger=none")


@pytest.mark.slow
def test_it_has_a_table_with_intervals_in_the_one_schema(runs):
    results = read_results(runs[0])
    assert list(results)[: len(CORE)] == list(CORE)
    assert set(results["kind"]) == {"colours"}
    assert set(results["split"]) == {"plain", "shifted", "pooled"}
    assert set(results["semantic_level"].dropna()) == {0, 1}
    pooled = results[(results["split"] == "pooled") & results["semantic_level"].isna()]
    row = pooled[pooled["metric"] == "accuracy"].iloc[0]
    judged = pd.read_parquet(runs[0] / "judged.parquet")
    assert row["value"] == pytest.approx(judged["correct"].mean())
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert (row["n"], row["unit"], row["n_asked"]) == (40, "question pair", 80)


def test_it_has_a_page_with_figures_and_wrong_answers(runs):
    page = (runs[0] / "colours.html").read_text()
    assert "Colours: random on " in page
    assert page.count("data:image/svg+xml") >= 2
    assert "Q: Is this image" in page
    assert (runs[0] / "figures" / "sets.png").exists()


def test_models_are_compared_on_the_same_questions(runs):
    table = pd.read_csv(runs[1] / "models.csv").set_index("metric")
    # Whoever always says yes is right half of the time.
    assert table.loc["accuracy", "value_a"] == 0.5
    assert table.loc["recall", "difference"] == pytest.approx(
        1 - read_results(runs[0]).query("split == 'pooled' and metric == 'recall'")["value"].iloc[0]
    )
    assert "Models on the same questions" in (runs[1] / "colours.html").read_text()


def test_the_answer_says_what_is_chance_and_how_the_models_compare(runs):
    for run, model in zip(runs, ("random", "constant"), strict=True):
        asked, accuracy, chance, *others = answer_of(run, "colours")
        assert asked.startswith(f"{model} was asked 80 questions about 40 images (Colours on ")
        values = pd.read_parquet(run / "judged.parquet").groupby("split")["correct"].mean()
        found = re.findall(r"([\d.]+)% \[.*?\] on (\w+)", accuracy)
        assert {name: value for value, name in found} == {
            name: f"{100 * value:.1f}" for name, value in values.items()
        }
        assert chance == (
            "On plain and shifted its accuracy is not significantly better than that of always "
            "giving the same answer (50.0%)."
        )
        assert any("Compared on" in each for each in others) == (model == "constant")
    row = pd.read_csv(runs[1] / "models.csv").set_index("metric").loc["accuracy"]
    assert row["p_holm"] >= 0.05
    assert others[-1].endswith("it is not significantly different from random.")


def test_wandb_has_its_numbers(runs):
    shown = read_run(runs[0])
    assert {"pooled/accuracy", "shifted/mcc"} <= set(shown["summary"])
    assert len(shown["table"]["data"]) == len(read_results(runs[0]))


def test_it_is_shown_again_and_stands_on_the_board_of_benchmarks(place, runs, capsys):
    again = ("--config-dir", str(place / "conf"), "task=colours", "metrics.min_count=5")
    assert call("eval.py", *again, "lvlm=random", f"paths.outputs={place / 'out'}") == 0
    shown = capsys.readouterr().out
    assert "Yes/no questions, %" in shown
    assert "asked 80 of" not in shown
    board = ("task=benchmarks", f"runs={place / 'out'}", f"paths.outputs={place / 'board'}")
    assert call("eval.py", *board) == 0
    assert "Colours on " in capsys.readouterr().out
    (folder,) = run_folders(place / "board")
    many, ahead = answer_of(folder, "benchmarks")
    assert many == "2 runs asked 2 models 1 set of questions (95% intervals in brackets)."
    rows = pd.read_csv(folder / "benchmarks.csv").sort_values("value", ascending=False)
    (best, least), values = rows["model"], 100 * rows.iloc[0][["value", "ci_low", "ci_high"]]
    assert ahead.startswith(f"On Colours ({place.name}, 80 questions) {best} is ahead in Acc (")
    assert "({:.1f}% [{:.1f}, {:.1f}])".format(*values) in ahead
    assert pd.read_csv(runs[1] / "models.csv").set_index("metric").loc["accuracy", "p_holm"] > 0.05
    assert ahead.endswith(f", but not significantly ahead of {least}.")
    (folder,) = run_folders(place / "board")
    table = pd.read_csv(folder / "benchmarks.csv")
    assert set(table["model"]) == {"random", "constant"}
    assert set(table["benchmark"]) == {"Colours"}


def test_no_benchmark_is_named_outside_its_own_folder():
    """Neither the pages, nor the W&B log, nor what shows finished runs knows one."""
    for package in ("report", "run", "api"):
        for path in (ROOT / package).rglob("*.py"):
            assert not re.findall(r"(?i)\b(oodbench|oric|ode)\b", path.read_text()), path


def test_a_file_without_questions_is_refused(tmp_path, capsys):
    (tmp_path / "questions.jsonl").touch()
    given = (
        f"task.questions={tmp_path}/questions.jsonl",
        f"paths.outputs={tmp_path}/out",
        "logger=none",
    )
    assert call("eval.py", "task=questions", "lvlm=random", *given) == 1
    assert "questions.jsonl holds no question" in capsys.readouterr().err.replace("\n", " ")


def own(folder, answers, **more):
    """A file of questions about one image with these right answers."""
    Image.new("RGB", (8, 8), "red").save(folder / "red.png")
    rows = [
        {
            "question_id": str(number),
            "task": "yes_no",
            "image": "red.png",
            "text": f"Is there a bottle on shelf {number}?",
            "answer": answer,
            **more,
        }
        for number, answer in enumerate(answers)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def replayed(folder, answers, replies, *arguments):
    """The run of a model with these replies, and its results."""
    own(folder, answers)
    lines = [{"question_id": str(n), "response": reply} for n, reply in enumerate(replies)]
    (folder / "replies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = (
        f"task.questions={folder}/questions.jsonl",
        f"paths.outputs={folder}/out",
        "logger=none",
    )
    model = ("lvlm=replay", f"lvlm.path={folder}/replies.jsonl", "metrics.n_bootstrap=50")
    assert call("eval.py", "task=questions", *model, *given, *arguments) == 0
    run = run_folders(folder / "out")[-1]
    return run, read_results(run)


def test_right_answers_are_read_however_they_are_written(tmp_path):
    own(tmp_path, ["Yes", "TRUE", 1, True, "y", "No.", "false", 0, False, "n"])
    given = (
        f"task.questions={tmp_path}/questions.jsonl",
        f"paths.outputs={tmp_path}/out",
        "logger=none",
    )
    assert call("eval.py", "task=questions", "lvlm=oracle", "metrics.n_bootstrap=20", *given) == 0
    judged = pd.read_parquet(run_folders(tmp_path / "out")[-1] / "judged.parquet")
    assert judged["truth"].tolist() == ["yes"] * 5 + ["no"] * 5
    assert judged["correct"].all()


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["A", "", "maybe", None, 2])
def test_a_right_answer_that_is_none_is_one_line(answer, tmp_path, capsys):
    own(tmp_path, ["yes", answer])
    given = (
        f"task.questions={tmp_path}/questions.jsonl",
        f"paths.outputs={tmp_path}/out",
        "logger=none",
    )
    assert call("eval.py", "task=questions", "lvlm=oracle", *given) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"questions.jsonl, line 2: the answer {answer!r} is neither yes nor no" in line


def test_a_model_that_dodges_is_not_rewarded(tmp_path, capsys):
    truth = ["yes", "no"] * 10
    replies = ["Yes.", "No."] * 3 + ["I would rather not say."] * 14
    run, results = replayed(tmp_path, truth, replies)
    accuracy = results.query("split == 'pooled' and metric == 'accuracy'").set_index("unparsed")
    assert accuracy["value"].to_dict() == {"wrong": 0.3, "drop_pair": 1.0}
    assert accuracy.index[0] == "wrong"  # comes first
    # Of 6 right of 6, the exact interval is (0.025 ** (1 / 6), 1).
    assert accuracy.loc["drop_pair", "ci_low"] == pytest.approx(0.025 ** (1 / 6))
    assert accuracy.loc["drop_pair", "ci_high"] == 1
    sentences = answer_of(run, "questions")
    assert any("(14 of 20 unparsed, counted as wrong)" in each for each in sentences)
    (warning,) = json.loads((run / "manifest.json").read_text())["warnings"]
    assert warning.startswith("14 of 20 replies (70%)")
    assert "reader=openai" in warning
    capsys.readouterr()
    board = ("task=benchmarks", f"runs={tmp_path / 'out'}", f"paths.outputs={tmp_path / 'board'}")
    assert call("eval.py", *board) == 0
    assert "unparsed" in capsys.readouterr().out


@pytest.mark.slow
def test_runs_of_one_model_have_their_names_and_differences_on_the_board(tmp_path):
    truth, right = ["yes", "no"] * 20, {"before": 20, "after": 32}
    for name, count in right.items():
        wrong = ["No" if answer == "yes" else "Yes" for answer in truth]
        more = (f"name={name}", "task.report=false", "logger=none")
        replayed(tmp_path, truth, [*truth[:count], *wrong[count:]], *more)
    board = ("task=benchmarks", f"runs={tmp_path / 'out'}", "metrics.n_bootstrap=2000")
    assert call("eval.py", *board, f"paths.outputs={tmp_path / 'board'}", "logger=none") == 0
    (folder,) = run_folders(tmp_path / "board")
    labels = sorted(pd.read_csv(folder / "benchmarks.csv")["label"].unique())
    assert [label.split(" ", 1)[1] for label in labels] == ["(after)", "(before)"]
    table = pd.read_csv(folder / "benchmark_differences.csv").set_index("metric")
    row = table.loc["accuracy"]
    assert {row["a"], row["b"]} == set(labels)
    sign = 1 if row["a"].endswith("(after)") else -1
    assert row["difference"] == pytest.approx(sign * 12 / 40)
    # Twelve of the forty pairs of answers differ, all in favour of the second run.
    gain = np.arange(40) < 12
    drawn = gain[np.random.default_rng(0).integers(40, size=(4000, 40))].mean(axis=1)
    ends = sorted(sign * np.quantile(drawn, [0.025, 0.975]))
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(ends, abs=0.03)
    assert (
        "Differences between runs on the same questions" in (folder / "benchmarks.html").read_text()
    )


@pytest.mark.slow
def test_intervals_at_both_ends_are_exact(tmp_path):
    truth = ["yes"] * 5 + ["no"] * 15
    _, results = replayed(tmp_path, truth, [*(["Yes"] * 5), *(["No"] * 15)])
    found = results.query("split == 'pooled' and unparsed == 'wrong'").set_index("metric")
    for metric, n in (("accuracy", 20), ("precision", 5), ("recall", 5), ("f1", 5)):
        assert found.loc[metric, "ci_low"] == pytest.approx(0.025 ** (1 / n)), metric
    assert found.loc["mcc", "ci_low"] == pytest.approx(2 * 0.025 ** (1 / 20) - 1)
    _, results = replayed(tmp_path, truth, [*(["No"] * 5), *(["Yes"] * 15)])
    row = results.query("split == 'pooled' and metric == 'accuracy' and unparsed == 'wrong'")
    assert row["ci_low"].iloc[0] == 0
    assert row["ci_high"].iloc[0] == pytest.approx(1 - 0.025 ** (1 / 20))


@pytest.mark.slow
def test_probabilities_have_the_tables_of_oodbench_and_their_lack_is_said(tmp_path, capsys):
    own(tmp_path, ["yes", "no"] * 10)

    def reply(_path, body):
        word = "Yes" if len(server.asked) % 3 else "No"
        choice = {"message": {"role": "assistant", "content": word}, "finish_reason": "stop"}
        if body.get("logprobs"):
            p = 0.5 + 0.02 * (len(server.asked) % 20)
            top = [{"token": word, "logprob": np.log(p)}]
            top.append({"token": "No" if word == "Yes" else "yes", "logprob": np.log(1 - p)})
            choice["logprobs"] = {"content": [{"token": word, "logprob": 0, "top_logprobs": top}]}
        return 200, {"choices": [choice]}

    with LocalServer(reply) as server:

        def ask(*more):
            given = (f"task.questions={tmp_path}/questions.jsonl", f"lvlm.base_url={server.url}")
            model = ("lvlm=openai", "lvlm.model=m", "metrics.n_bootstrap=20", "logger=none")
            places = (f"paths.outputs={tmp_path}/out", f"paths.answers={tmp_path}/answers")
            assert call("eval.py", "task=questions", *model, *given, *places, *more) == 0
            return read_results(run_folders(tmp_path / "out")[-1])

        assert "auroc_errors" not in set(ask()["metric"])
        again = ask("lvlm.logprobs=5", "metrics.n_bootstrap=30")
        shown = " ".join(capsys.readouterr().out.split())
        assert "20 of 20 answers that were kept have no P(yes)" in shown
        assert "auroc_errors" not in set(again["metric"])
        fresh = ask("lvlm.logprobs=5", "metrics.n_bootstrap=40", f"paths.answers={tmp_path}/fresh")
        assert "auroc_errors" in set(fresh["metric"])


@pytest.mark.slow
def test_what_asking_took_and_every_kind_of_failure_are_told(tmp_path, capsys):
    own(tmp_path, ["yes", "no"] * 6)

    def reply(_path, body):
        text = json.dumps(body["messages"])
        for shelf, message in ((3, "too many pixels"), (5, "the image is broken")):
            if f"shelf {shelf}?" in text and body["model"] == "first":
                return 400, {"error": {"message": message}}
        choice = {"message": {"role": "assistant", "content": "Yes"}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 2}}

    with LocalServer(reply) as server:
        for model in ("first", "second"):
            given = (f"task.questions={tmp_path}/questions.jsonl", f"lvlm.base_url={server.url}")
            named = ("lvlm=openai", f"lvlm.model={model}", "lvlm.price={input: 10, output: 100}")
            more = ("task.accept_failed=true", "logger=none", f"paths.outputs={tmp_path}/out")
            assert call("eval.py", "task=questions", *named, *given, *more) == 0
    first, second = run_folders(tmp_path / "out")
    asking = json.loads((second / "manifest.json").read_text())["asking"]
    assert (asking["calls"], asking["input_tokens"], asking["output_tokens"]) == (12, 1200, 24)
    assert asking["cost"] == pytest.approx(0.0144)
    assert asking["latency_s"] > 0
    assert "1,200 tokens of input" in (second / "questions.html").read_text()
    (warning,) = json.loads((first / "manifest.json").read_text())["warnings"]
    assert "too many pixels" in warning
    assert "the image is broken" in warning
    assert "[3]" in warning  # the id of a question
    capsys.readouterr()
    board = ("task=benchmarks", f"runs={tmp_path / 'out'}", f"paths.outputs={tmp_path / 'board'}")
    assert call("eval.py", *board) == 0
    shown = capsys.readouterr().out
    assert "tokens in" in shown
    assert "cost" in shown


@pytest.mark.slow
def test_runs_that_were_not_compared_are_compared_by_task_benchmarks(tmp_path):
    own(tmp_path, ["yes", "no"] * 30)
    for model in (("lvlm=oracle", "lvlm.accuracy=0.95"), ("lvlm=random",)):
        given = (f"task.questions={tmp_path}/questions.jsonl", f"paths.outputs={tmp_path}/out")
        assert call("eval.py", "task=questions", *model, *given, "logger=none") == 0
    board = ("task=benchmarks", f"runs={tmp_path / 'out'}", f"paths.outputs={tmp_path / 'board'}")
    assert call("eval.py", *board) == 0
    _, ahead = answer_of(run_folders(tmp_path / "board")[0], "benchmarks")
    assert ahead.endswith("significantly ahead of random.")


@pytest.mark.slow
def test_a_model_that_is_right_in_everyday_styles_is_found_to_be(tmp_path):
    """A server replies in the styles of ``styled_replies.jsonl``, always rightly or not at all."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    rows = [row for row in styled_replies() if row["kind"] != "choice" and row["reply"]]
    lines = [
        {
            "question_id": str(number),
            "task": "yes_no" if row["kind"] == "yes or no" else "count",
            "parser": "default" if row["kind"] == "yes or no" else "number",
            "image": "red.png",
            "text": f"{row['question']} (picture no. {number})",
            "answer": row["says"] or ("yes" if row["kind"] == "yes or no" else "1"),
        }
        for number, row in enumerate(rows)
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def reply(_path, body):
        number = int(json.dumps(body["messages"]).split("picture no. ")[1].split(")")[0])
        message = {"role": "assistant", "content": rows[number]["reply"]}
        return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}

    with LocalServer(reply) as server:
        model = ("lvlm=openai", "lvlm.model=m", f"lvlm.base_url={server.url}", "logger=none")
        given = (
            f"task.questions={file}",
            f"paths.outputs={tmp_path}/out",
            "metrics.n_bootstrap=20",
        )
        assert call("eval.py", "task=questions", *model, *given, "task.report=false") == 0
    judged = pd.read_parquet(run_folders(tmp_path / "out")[-1] / "judged.parquet")
    known = np.array([row["says"] is not None for row in rows])
    assert judged["correct"][known].mean() >= 0.99
    assert (judged["status"][~known] == "unparsed").mean() >= 0.99

"""Words around questions, room for replies, and several samples, as a real server gets them."""

import json

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from local_server import LocalServer
from PIL import Image

from ood_lab.lvlm.answers.judgements import PARSED
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.questions.question_forms import with_prompt
from ood_lab.schema.results import read_results, whole

ASKED = "Is there a dog in picture {}?"


@pytest.fixture
def place(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    (tmp_path / "pope").mkdir()
    lines = [
        {
            "question_id": n,
            "image": "red.png",
            "text": ASKED.format(n),
            "label": "yes" if n % 2 else "no",
        }
        for n in range(1, 9)
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "pope" / "coco_pope_random.json").write_text(text)
    return tmp_path


def ask(place, server, *arguments, status=0, model=None):
    given = (f"task.source.path={place}/pope", f"task.source.images={place}", "task.report=false")
    model = model or ("lvlm=openai", "lvlm.model=m", f"lvlm.base_url={server.url}")
    places = (
        f"paths.outputs={place}/out",
        f"paths.answers={place}/answers",
        "metrics.n_bootstrap=20",
        "logger=none",
    )
    assert call("eval.py", "task=pope", *given, *model, *places, *arguments) == status
    return run_folders(place / "out")[-1] if status == 0 else None


def said(content, reason="stop"):
    message = {"role": "assistant", "content": content}
    return 200, {"choices": [{"message": message, "finish_reason": reason}]}


def number_of(body):
    return int(json.dumps(body["messages"]).split("picture ")[1].split("?")[0])


@pytest.mark.slow
def test_words_stand_around_every_question(place):
    words = ("task.system=You are terse.", "task.prompt_prefix=Look well.")
    suffix = "'task.prompt_suffix=Answer yes or no.'"
    with LocalServer(lambda *_: said("Yes")) as server:
        ask(place, server, *words, suffix.strip("'"))
        plain = ask(place, server)
    first, last = server.asked[0]["messages"], server.asked[-1]["messages"]
    assert first[0] == {"role": "system", "content": "You are terse."}
    assert first[1]["content"][1]["text"] == f"Look well. {ASKED.format(1)} Answer yes or no."
    assert [message["role"] for message in last] == ["user"]
    assert last[0]["content"][1]["text"].startswith("Is there a dog")
    assert len({str(run) for run in (*run_folders(place / "out"), plain)}) == 2  # another run each


@pytest.mark.slow
def test_there_is_room_for_replies_to_questions_that_ask_for_no_word(place):
    with LocalServer(lambda *_: said("Yes")) as server:
        ask(place, server)
        ask(place, server, "task.prompt_suffix=Answer with one word.")
    assert {body["max_tokens"] for body in server.asked[:8]} == {1024}
    assert {body["max_tokens"] for body in server.asked[8:]} == {64}


@pytest.mark.parametrize(
    ("text", "reply", "form"),
    [
        ("Is it red?", "word", "open"),
        ("Is it red? (yes or no)", "word", "word"),
        ("Question: Is it?\nPlease answer the question based on the given image.", "word", "open"),
        ("Is it? Answer with a single word.", "word", "word"),
        ("Describe it.", "text", "text"),
        ("Is it? Think step by step.", "steps", "steps"),
    ],
)
def test_which_questions_ask_for_a_word(text, reply, form):
    question = Question("1", "yes_no", None, text, "yes", reply=reply)
    assert with_prompt(question, None, None, None).reply == form


@pytest.mark.slow
def test_a_reply_that_was_cut_under_a_smaller_limit_is_asked_for_again(place):
    """Those that ended by themselves are what a larger limit gives, too."""

    def reply(_path, body):
        cut = number_of(body) == 3 and body["max_tokens"] == 64
        return said("Let me look at", "length") if cut else said("Yes")

    with LocalServer(reply) as server:
        ask(place, server, "lvlm.max_tokens=64")
        ask(place, server)
        assert [number_of(body) for body in server.asked[8:]] == [3]


@pytest.mark.slow
def test_samples_are_asked_kept_and_spread(place):
    seen = {}

    def reply(_path, body):
        """Right in the first sample, and in the others as often as the seeds say."""
        number = number_of(body)
        seen.setdefault(number, []).append(body["seed"])
        right = "Yes" if number % 2 else "No"
        wrong = "No" if number % 2 else "Yes"
        return said(wrong if number <= 2 * (body["seed"] - 5) else right)

    more = ("lvlm.samples=3", "lvlm.temperature=1", "lvlm.seed=5")
    with LocalServer(reply) as server:
        run = ask(place, server, *more)
        assert len(server.asked) == 24
        assert all(sorted(seeds) == [5, 6, 7] for seeds in seen.values())
        again = ask(place, server, *more, "metrics.n_bootstrap=30")
        assert len(server.asked) == 24  # none is paid for twice
    accuracies = [1.0, 6 / 8, 4 / 8]
    table = pd.read_csv(again / "samples.csv").query("split == 'pooled'").set_index("metric")
    found = table.loc["accuracy", ["mean", "sd", "low", "high", "samples"]].tolist()
    assert found == pytest.approx([0.75, np.std(accuracies, ddof=1), 0.5, 1.0, 3])
    assert table.loc["agreement", "mean"] == 4 / 8
    results = read_results(run)
    assert whole(results).query("metric == 'accuracy' and split == 'pooled'")["value"].iloc[0] == 1
    spread = results[(results["metric"] == "accuracy") & (results["split"] == "pooled")]
    spread = spread.set_index("part")["value"]
    assert spread["mean of 3 samples"] == 0.75
    assert spread["sd of 3 samples"] == pytest.approx(0.25)
    judged = pd.read_parquet(run / "judged_samples.parquet")
    assert len(judged) == 16
    assert set(judged["status"]) == {PARSED}
    summary = (run / "summary.json").read_text()
    assert "3 samples of each question: mean \\u00b1" in json.dumps(json.loads(summary))


def test_recorded_samples_count_once(place):
    with LocalServer(lambda _, body: said("Yes" if body["seed"] == 1 else "No")) as server:
        run = ask(place, server, "lvlm.samples=2", "lvlm.temperature=1", "lvlm.seed=1")
        again = ask(place, server, f"task.answers={run}/answers.jsonl")
    assert pd.read_parquet(again / "judged.parquet")["parsed"].tolist() == ["yes"] * 8


def test_samples_need_a_temperature(place, capsys):
    with LocalServer(lambda *_: said("Yes")) as server:
        ask(place, server, "lvlm.samples=3", status=1)
    assert "lvlm.samples=3 with lvlm.temperature=0" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_answers_of_other_packages_are_scored_as_by_replay(place):
    file = place / "theirs.jsonl"
    lines = [
        {"question_id": f"coco_pope_random/{n}", "response": "Yes" if n < 5 else "No"}
        for n in range(1, 9)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with LocalServer(lambda *_: said("Yes")) as server:
        scored = ask(place, server, f"task.answers={file}")
        replayed = ask(place, server, model=("lvlm=replay", f"lvlm.path={file}"))
        assert not server.asked
    tables = [read_results(run).drop(columns=["model"]) for run in (scored, replayed)]
    pd.testing.assert_frame_equal(*tables)
    assert read_results(scored)["model"].iloc[0] == "theirs"


def test_answers_to_other_questions_are_refused(place, capsys):
    file = place / "theirs.jsonl"
    file.write_text('{"question_id": "coco_pope_random/1", "response": "Yes"}\n')
    with LocalServer(lambda *_: said("Yes")) as server:
        ask(place, server, f"task.answers={file}", status=1)
    assert "has 1 replies to 8 questions" in capsys.readouterr().err.replace("\n", " ")

"""``task=oodbench lvlm=openai`` through the real entry point, against a server on this machine."""

import json

import pytest
from cli import call, run_folders
from local_server import LocalServer
from PIL import Image

from ood_lab.common.files import read_table
from ood_lab.lvlm.questions.question_files import Question, write_questions

PASSWORD, KEY = "pw12secret", "sk-proj-0123456789abcdefghij"


@pytest.fixture
def server():
    """Says ``text``, or fails where the request holds the words ``fails``."""

    def reply(_path, body):
        if server.fails and server.fails in json.dumps(body):
            return 500, {"error": {"message": "boom"}}
        message = {"role": "assistant", "content": server.text}
        return 200, {"choices": [{"index": 0, "message": message, "finish_reason": server.reason}]}

    with LocalServer(reply) as server:
        server.text, server.fails, server.reason = "Yes", None, "stop"
        yield server


@pytest.fixture
def ask(tmp_path, server):
    """Asks four questions; takes further arguments of the command line."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    questions = [
        Question(
            f"{kind}{thing}",
            "yes_no",
            "red.png",
            f"Is there {kind} {thing}?",
            "yes" if kind == "a" else "no",
            pair_id=thing,
            meta={"split": "ood_h"},
        )
        for thing in ("mug", "boat")
        for kind in ("a", "no")
    ]
    write_questions(questions, tmp_path / "questions.jsonl")
    common = ("task=oodbench", "logger=none", "task.report=false", "metrics.n_bootstrap=20")
    asked = ("lvlm=openai", "lvlm.model=m", "lvlm.retries=0", f"lvlm.base_url={server.url}")
    paths = (f"paths.outputs={tmp_path}/out", f"task.questions={tmp_path}/questions.jsonl")
    return lambda *more: call("eval.py", *common, *asked, *paths, *more)


def written(tmp_path):
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    return "".join(file.read_bytes().decode("utf-8", "replace") for file in files)


@pytest.mark.slow
def test_a_run_with_failed_answers_is_not_done_and_repeating_it_asks_them(
    ask, server, tmp_path, capsys
):
    server.fails = "no mug"
    assert ask() == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert "1 of 4 questions have no answer" in error[0]
    assert "repeat the command" in error[0]
    assert run_folders(tmp_path / "out") == []
    (results,) = (tmp_path / "out").rglob("results.parquet")
    assert read_table(results)["n_failed"].max() == 1
    assert json.loads((results.parent / "manifest.json").read_text())["warnings"]
    server.fails, before = None, len(server.asked)
    assert ask() == 0
    assert len(server.asked) - before == 1
    assert read_table(results)["n_failed"].max() == 0
    assert ask() == 0  # done: shown again
    assert len(server.asked) - before == 1


def test_failures_that_are_accepted_end_the_run(ask, server, tmp_path):
    server.fails = "no mug"
    assert ask("task.accept_failed=true") == 0
    assert len(run_folders(tmp_path / "out")) == 1


def test_where_nothing_was_answered_there_are_no_numbers(ask, server, tmp_path, capsys):
    server.fails = "Is there"
    assert ask() == 1
    assert "none of 4 questions has an answer" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("results.*"))


def test_cut_and_unread_replies_are_shown_and_no_number_is_made_of_them(
    ask, server, tmp_path, capsys
):
    server.text, server.reason = "<think>The user asks whether there is no dog", "length"
    assert ask("task.report=true") == 0
    shown = capsys.readouterr().out
    assert "4 of 4 replies were cut at their longest length" in shown
    assert "N/A of OOD-H: no answer could be read (4 replies were cut)." in shown
    (folder,) = run_folders(tmp_path / "out")
    results = read_table(folder / "results.parquet")
    assert (results["n_cut"] == 4).all()
    assert results["value"].isna().all()
    page = (folder / "oodbench.html").read_text()
    assert "4 of 4 replies were cut" in page
    assert "no answer could be read" in page
    assert server.text in (folder / "answers.jsonl").read_text()


@pytest.mark.slow
def test_a_dry_run_ends_well_and_takes_further_fields_without_a_sign(ask, server, capsys):
    extra = "lvlm.extra_body={reasoning_effort: low}"
    assert ask("lvlm.dry_run=true", extra, "lvlm.max_tokens=null") == 0
    assert "nothing was sent. It would be 4 requests" in capsys.readouterr().out
    assert server.asked == []
    assert ask(extra, "lvlm.extra_body.top_k=1") == 0


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [(), ("-m", "seed=0,1")])
@pytest.mark.parametrize(
    "setting",
    [
        f"lvlm.base_url=http://me:{PASSWORD}@127.0.0.1:1/v1",
        f"lvlm.api_key_env={KEY}",
        f"lvlm.extra_body={{api_key: {PASSWORD}}}",
        f"tags=[{KEY}]",
    ],
)
def test_secrets_are_refused_before_anything_is_written(ask, tmp_path, capsys, setting, sweep):
    assert ask(setting, *sweep) == 1
    said = capsys.readouterr()
    assert len(said.err.strip().splitlines()) == 1
    assert setting.partition("=")[0].partition(".")[0] in said.err
    found = said.err + said.out + written(tmp_path)
    assert PASSWORD not in found
    assert KEY not in found


@pytest.mark.slow
@pytest.mark.parametrize("price", ["{in: 2}", "{input: 2}", "{input: 2, output: 3, image: 4}"])
def test_prices_are_checked(ask, server, capsys, price):
    assert ask(f"lvlm.price={price}") == 1
    assert "both prices of a million tokens" in capsys.readouterr().err
    assert server.asked == []

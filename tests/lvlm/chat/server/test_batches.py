"""OpenAI's Batch API, against a local server: nothing is submitted twice."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch_server import BatchServer
from cli import call, run_folders
from PIL import Image

from ood_lab.common.errors import Stopped, UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.server import batch_api
from ood_lab.lvlm.questions.question_files import Question, write_questions

ROOT = Path(__file__).parents[4]
KEY = "sk-a-secret-of-the-test"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(batch_api, "PAUSES_S", (0.01, 0.01))


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (40, 20), "red").save(tmp_path / "red.png")
    return tmp_path


@pytest.fixture
def server():
    """Says the number in the question, or fails where it is among ``fails``."""

    def reply(body):
        text = body["messages"][0]["content"][1]["text"]
        if any(f" {number}?" in text for number in server.fails):
            return 400, {"error": {"message": "too hard"}}
        message = {"role": "assistant", "content": f"Yes, {text}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}

    with BatchServer(reply) as server:
        server.fails = set()
        yield server


def questions(count):
    return [Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes") for i in range(count)]


def ask(folder, server, count=4, batch="wait", **settings):
    model = OpenAIChat("m", server.url, retries=0, batch=batch, **settings)
    return answers_to(questions(count), folder, model, AnswerStore(folder / "answers.jsonl"))


def asked(server):
    """Texts that were asked in all batches."""
    lines = [
        json.loads(line)
        for batch in server.batches.values()
        for line in server.files[batch["input_file_id"]].splitlines()
    ]
    return [line["body"]["messages"][0]["content"][1]["text"] for line in lines]


@pytest.mark.slow
def test_a_batch_gives_the_answers_of_single_requests(folder, server):
    answers = ask(folder, server)
    assert [a.response for a in answers] == [f"Yes, Is it {i}?" for i in range(4)]
    assert answers[0].usage["prompt_tokens"] == 7
    assert len(server.batches) == 1
    line = json.loads(server.files["file-0"].splitlines()[0])
    assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
    assert (line["body"]["model"], line["body"]["max_tokens"]) == ("m", 64)
    # The same store serves single requests, which nothing is left to ask of.
    single = ask(folder, server, batch=None)
    assert [a.response for a in single] == [a.response for a in answers]
    written = "".join(file.read_text() for file in folder.glob("*.jsonl"))
    assert KEY not in written


@pytest.mark.slow
def test_what_is_sent_is_picked_up_by_a_later_call(folder, server):
    server.done = False
    for _ in range(2):
        with pytest.raises(Stopped, match="in_progress"):
            ask(folder, server, batch="stop")
    assert len(server.batches) == 1
    with pytest.raises(Stopped):  # further questions go into a batch of their own
        ask(folder, server, 6, batch="stop")
    assert asked(server) == [f"Is it {i}?" for i in range(6)]
    server.done = True
    assert [a.error for a in ask(folder, server, 6, batch="stop")] == [None] * 6
    assert len(server.batches) == 2


def test_replies_that_nobody_asked_for_are_kept_for_who_does(folder, server):
    server.done = False
    with pytest.raises(Stopped):
        ask(folder, server, 4, batch="stop")
    server.done = True
    assert len(ask(folder, server, 2)) == 2
    assert [a.error for a in ask(folder, server, 4)] == [None] * 4
    assert len(server.batches) == 1


def test_a_batch_under_way_is_not_asked_beside(folder, server):
    server.done = False
    with pytest.raises(Stopped):
        ask(folder, server, 4, batch="stop")
    server.url = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(UserError, match="4 of 6 questions are in a batch that was sent before"):
        ask(folder, server, 6, batch=None)
    server.done = True
    assert [a.error for a in ask(folder, server, 4, batch="wait")] == [None] * 4
    assert len(server.batches) == 1


def test_failed_requests_are_asked_again(folder, server):
    server.fails = {1, 3}
    first = ask(folder, server)
    assert [a.error and "too hard" in a.error for a in first] == [None, True, None, True]
    server.fails = {3}
    ask(folder, server)
    server.fails = set()
    assert [a.response for a in ask(folder, server)] == [f"Yes, Is it {i}?" for i in range(4)]
    again = ["Is it 1?", "Is it 3?", "Is it 3?"]
    assert asked(server) == [f"Is it {i}?" for i in range(4)] + again


def test_a_blank_reply_in_a_batch_is_sent_again(folder, server):
    blank = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}
    before = server.reply
    server.reply = lambda body: (200, blank) if " 1?" in json.dumps(body) else before(body)
    assert [a.error for a in ask(folder, server)] == [None, "the reply is blank", None, None]
    server.reply = before
    assert [a.error for a in ask(folder, server)] == [None] * 4
    assert asked(server) == [*(f"Is it {i}?" for i in range(4)), "Is it 1?"]


def test_a_batch_whose_id_was_lost_is_found_again(folder, server):
    server.loses = True
    with pytest.raises(UserError, match="resumes with what was sent"):
        ask(folder, server)
    server.loses = False
    assert [a.error for a in ask(folder, server)] == [None] * 4
    assert len(server.batches) == 1


def test_a_file_without_a_batch_gets_one(folder, server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch_api.Batches, "_submit", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            ask(folder, server)
    assert [a.error for a in ask(folder, server)] == [None] * 4
    assert (len(server.batches), sum("custom_id" in f for f in server.files.values())) == (1, 2)


def test_a_refused_batch_is_one_line_and_sent_anew(folder, server):
    server.refuses = "token limit"
    with pytest.raises(UserError, match="batch_0: token limit"):
        ask(folder, server)
    server.refuses = None
    assert [a.error for a in ask(folder, server)] == [None] * 4
    assert len(server.batches) == 2


@pytest.mark.slow
def test_large_batches_are_several(folder, server, monkeypatch):
    monkeypatch.setattr(batch_api, "MOST_REQUESTS", 3)
    assert [a.error for a in ask(folder, server, 7)] == [None] * 7
    assert [
        len(server.files[b["input_file_id"]].splitlines()) for b in server.batches.values()
    ] == [
        3,
        3,
        1,
    ]
    monkeypatch.setattr(batch_api, "MOST_BYTES", 10)
    ask(folder, server, 9)
    assert len(server.batches) == 5


def test_a_server_without_batches_is_one_line(folder, server):
    server.url = server.url.replace("/v1", "/v2")
    with pytest.raises(UserError, match="has no Batch API"):
        ask(folder, server)


SCRIPT = """
import sys
from pathlib import Path
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.questions.question_files import Question
asked = [Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes") for i in range(4)]
folder = Path(sys.argv[1])
model = OpenAIChat("m", sys.argv[2], batch="wait")
answers_to(asked, folder, model, AnswerStore(folder / "answers.jsonl"))
"""


@pytest.mark.slow
def test_a_process_killed_while_it_waits_submits_nothing_twice(folder, server):
    server.done = False
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, folder, server.url], cwd=ROOT)
    end = time.monotonic() + 60
    while not server.looks and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (server.looks, len(server.batches)) == (1, 1)
    server.done = True
    assert [a.error for a in ask(folder, server)] == [None] * 4
    assert len(server.batches) == 1


@pytest.mark.slow
def test_from_the_command_line(folder, server):
    write_questions(questions(4), folder / "questions.jsonl")
    line = ("task=questions", f"task.questions={folder}/questions.jsonl", "metrics.n_bootstrap=20")
    line += ("lvlm=openai", "lvlm.model=m", f"lvlm.base_url={server.url}", "logger=none")
    line += (f"paths.outputs={folder}/out", "task.report=false")
    server.done = False
    assert call("eval.py", *line, "lvlm.batch=stop") == 0
    assert not run_folders(folder / "out")
    server.done = True
    assert call("eval.py", *line, "lvlm.batch=wait") == 0
    (run,) = run_folders(folder / "out")
    assert len(server.batches) == 1
    rows = (run / "answers.jsonl").read_text().splitlines()
    assert [json.loads(row)["response"] for row in rows] == [f"Yes, Is it {i}?" for i in range(4)]

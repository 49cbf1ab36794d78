"""The client of OpenAI's protocol against real servers on this machine that fail every day."""

import errno
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from local_server import LocalServer
from PIL import Image

from ood_lab.common import files
from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers import answer_files
from ood_lab.lvlm.answers.answer_files import AnswerStore, store_of
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.server import request_pool
from ood_lab.lvlm.questions.question_files import Question

YES = (
    200,
    {
        "choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 1},
    },
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-of-the-test")


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    return tmp_path


def ask(folder, server, count, **settings):
    asked = [Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes") for i in range(count)]
    model = OpenAIChat("m", server.url, **settings)
    return answers_to(asked, folder, model, AnswerStore(folder / "answers.jsonl"))


def number(body):
    """Of the question that was asked."""
    return int(json.dumps(body["messages"]).split("Is it ")[1].split("?")[0])


def kept(folder):
    lines = (folder / "answers.jsonl").read_text().splitlines()
    return [answer for answer in map(json.loads, lines) if answer["error"] is None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        "image too large for this model",
        "this model's image limit is 10 MB",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
        "'temperature' is not supported with this image",
    ],
)
def test_a_bad_request_after_others_fails_alone(folder, message):
    def reply(_path, body):
        return (400, {"error": {"message": message}}) if number(body) == 2 else YES

    with LocalServer(reply) as server:
        answers = ask(folder, server, 5, concurrency=2)
    assert [answer.question_id for answer in answers if answer.error] == ["q2"]
    assert message[:20] in answers[2].error


def test_an_image_that_the_first_request_has_is_its_own_fault_too(folder):
    def reply(_path, body):
        return (400, {"error": "this model's image limit"}) if number(body) == 0 else YES

    with LocalServer(reply) as server:
        answers = ask(folder, server, 5)
    assert [answer.question_id for answer in answers if answer.error] == ["q0"]


def test_refused_logprobs_name_their_setting(folder):
    refusal = (400, {"error": {"message": "logprobs are not supported", "param": "logprobs"}})
    with (
        LocalServer(lambda *_: refusal) as server,
        pytest.raises(UserError, match=r"set lvlm\.logprobs=null"),
    ):
        ask(folder, server, 5, logprobs=5)
    assert len(server.asked) == 1


def test_replies_under_way_are_kept_at_a_stop(folder):
    """One of eight is refused for good while seven are being answered."""
    under_way = threading.Barrier(8, timeout=10)

    def reply(_path, body):
        if number(body) == 0:
            return YES
        under_way.wait()
        if number(body) == 3:
            return 401, {"error": "no"}
        time.sleep(0.3)
        return YES

    with LocalServer(reply) as server, pytest.raises(UserError, match="rejects the key"):
        ask(folder, server, 9, concurrency=8)
    assert {answer["question_id"] for answer in kept(folder)} == {f"q{i}" for i in range(9)} - {
        "q3"
    }


@pytest.mark.slow
def test_the_first_interruption_keeps_what_is_under_way(folder):
    begun = threading.Event()

    def reply(_path, body):
        if number(body) > 0:
            begun.set()
            time.sleep(0.5)
        return YES

    def interrupt():
        begun.wait(10)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    with LocalServer(reply) as server, pytest.raises(KeyboardInterrupt):
        ask(folder, server, 50, concurrency=4)
    assert len(kept(folder)) == len(server.asked) >= 5
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_second_interruption_ends_at_once(folder):
    begun, freed, ended = threading.Event(), threading.Event(), threading.Event()
    in_time = []

    def reply(_path, body):
        if number(body) > 0:
            begun.set()
            in_time.append(freed.wait(60))
        return YES

    def interrupt():
        begun.wait(30)
        time.sleep(0.7)
        os.kill(os.getpid(), signal.SIGINT)
        while not ended.wait(2):  # on a busy machine the first may be under way yet
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
    threading.Thread(target=interrupt).start()
    with LocalServer(reply) as server:
        with pytest.raises(KeyboardInterrupt):
            ask(folder, server, 50, concurrency=4)
        ended.set()
        freed.set()
    assert all(in_time)  # no reply was waited for


@pytest.mark.slow
@pytest.mark.parametrize("bad", [{"error": "overloaded"}, b'{"choices": [', {}])
def test_an_error_with_status_200_is_repeated(folder, bad):
    seen = []

    def reply(_path, body):
        seen.append(number(body))
        return (200, bad) if seen.count(1) == 1 and number(body) == 1 else YES

    with LocalServer(reply) as server:
        answers = ask(folder, server, 3)
    assert [answer.error for answer in answers] == [None] * 3
    assert [answer.retries for answer in answers] == [0, 1, 0]


def test_a_full_disk_ends_the_asking_and_costs_nothing(folder, monkeypatch):
    """What is under way when the disk gets full is kept; nothing is asked until there is room."""
    write, reserve = answer_files.append_record, folder / ".answers.jsonl.reserve"

    def append(path, record):
        if path.read_text().count("\n") >= 9 and reserve.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, record)

    (folder / "answers.jsonl").touch()
    with monkeypatch.context() as patch, LocalServer(lambda *_: YES) as server:
        patch.setattr(answer_files, "append_record", append)
        with pytest.raises(UserError, match=f"cannot be written under '{folder}' .*No space left"):
            ask(folder, server, 60, concurrency=8)
        paid = len(server.asked)
        assert 9 < paid == len(kept(folder)) < 60
        patch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
        with pytest.raises(UserError, match=f"bytes under '{folder}' but 10,000 are free"):
            ask(folder, server, 60)
        assert len(server.asked) == paid
    with LocalServer(lambda *_: YES) as server:
        ask(folder, server, 60)
        assert len(server.asked) == 60 - paid
    assert not reserve.exists()


@pytest.mark.parametrize("addresses", [{"127.0.0.1"}, {"127.0.0.1", "localhost"}])
def test_two_processes_that_differ_in_the_longest_reply_ask_once(folder, addresses):
    def reply(*_):
        time.sleep(0.02)
        return YES

    def process(server, limit, address):
        url = server.url.replace("127.0.0.1", address)
        model = OpenAIChat("m", url, max_tokens=limit, by_server=True)
        asked = [Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes") for i in range(9)]
        return answers_to(asked, folder, model, store_of(model.made_with, folder / "answers"))

    with LocalServer(reply) as server, ThreadPoolExecutor() as pool:
        started = [
            pool.submit(process, server, limit, address)
            for limit in (32, 64, 16)
            for address in addresses
        ]
        assert all(answer.error is None for each in started for answer in each.result())
        assert len(server.asked) == 9


def test_a_time_out_of_a_gateway_is_repeated_once(folder):
    with LocalServer(lambda *_: (504, {"error": "gateway"}, {"retry-after": "0"})) as server:
        (answer,) = ask(folder, server, 1)
    assert len(server.asked) == 2
    assert "the server may charge for it twice" in answer.error


def test_a_server_that_hangs_is_said(folder, monkeypatch, caplog):
    monkeypatch.setattr(request_pool, "_SILENT_S", 0.3)
    monkeypatch.setattr(request_pool, "_LOOK_S", 0.1)

    def reply(*_):
        time.sleep(1)
        return YES

    with LocalServer(reply) as server:
        ask(folder, server, 1)
    assert caplog.text.count("no reply from http://127.0.0.1") == 1

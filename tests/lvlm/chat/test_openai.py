"""The client of OpenAI's protocol, without a socket: its transport is replaced."""

import base64
import io
import json
import logging
import threading

import httpx
import pytest
from PIL import Image

from ood_lab.errors import UserError
from ood_lab.lvlm.answers import AnswerStore
from ood_lab.lvlm.asking import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.questions import Question

KEY = "sk-a-secret-of-the-test"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (40, 20), "red").save(tmp_path / "red.png")
    return tmp_path


def ask(folder, handler, count=3, **settings):
    settings = {"retries": 0, "model": "m", "base_url": "http://server/v1", **settings}
    client = httpx.Client(transport=httpx.MockTransport(handler))
    model = OpenAIChat(http_client=client, **settings)
    asked = [Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes") for i in range(count)]
    return answers_to(asked, folder, model, AnswerStore(folder / "answers.jsonl"))


def said(text="Yes"):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    return httpx.Response(200, json={**body, "choices": [{**choice, "finish_reason": "stop"}]})


def server(chat):
    """Lists models, and answers chats with ``chat(request)``."""

    def handler(request):
        if request.url.path.endswith("/models"):
            return httpx.Response(200, json={"object": "list", "data": []})
        return chat(request)

    return handler


def test_what_is_sent_and_what_comes_back(folder, caplog):
    caplog.set_level(logging.INFO)
    seen = []
    answers = ask(folder, server(lambda r: (seen.append(r), said(" no"))[1]), count=2, seed=3)
    body = json.loads(seen[0].content)
    assert body["model"] == "m"
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.0, 64, 3)
    image, text = body["messages"][0]["content"]
    assert text["text"].startswith("Is it")
    head, data = image["image_url"]["url"].split(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == (folder / "red.png").read_bytes()
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert [a.response for a in answers] == [" no", " no"]
    assert answers[0].usage["prompt_tokens"] == 10
    assert answers[0].finish_reason == "stop"
    assert "2 requests" in caplog.text
    assert "used 20 tokens of input and 2 of output" in caplog.text
    assert KEY not in (folder / "answers.jsonl").read_text() + caplog.text


def test_429_and_5xx_are_repeated(folder):
    calls, lock = [], threading.Lock()

    def chat(request):
        with lock:
            calls.append(1)
            if len(calls) <= 2:
                status = 429 if len(calls) == 1 else 503
                return httpx.Response(status, headers={"retry-after-ms": "1"}, json={})
        return said()

    answers = ask(folder, server(chat), count=1, retries=3)
    assert [a.response for a in answers] == ["Yes"]
    assert len(calls) == 3


def test_a_time_out_is_a_failure_that_is_asked_again(folder):
    def slow(request):
        raise httpx.ReadTimeout("too slow", request=request)

    [answer] = ask(folder, server(slow), count=1)
    assert answer.error
    assert answer.response == ""
    [answer] = ask(folder, server(lambda r: said()), count=1)
    assert answer.error is None


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [{}]}, {"error": "busy"}, ["?"]])
def test_json_that_is_no_reply_is_a_failure(folder, body):
    [answer] = ask(folder, server(lambda r: httpx.Response(200, json=body)), count=1)
    assert answer.error.startswith("no choices in the reply")
    assert answer.response == ""


def down(request):
    raise httpx.ConnectError("Connection refused", request=request)


def refuses(request):
    return httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}"}})


def html(request):
    return httpx.Response(200, headers={"content-type": "text/html"}, text="<html>Hello</html>")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (down, r"nothing answers at lvlm\.base_url=http://server/v1"),
        (refuses, "refuses the key in the environment variable OPENAI_API_KEY"),
        (html, "answers with a web page"),
        (server(refuses), "refuses the key"),
        (server(html), "answers with a web page"),
    ],
)
def test_a_server_that_cannot_answer_is_one_line(folder, caplog, handler, message):
    with pytest.raises(UserError, match=message) as caught:
        ask(folder, handler)
    assert "\n" not in str(caught.value)
    files = "".join(p.read_text() for p in folder.rglob("*.jsonl"))
    assert KEY not in f"{caught.value}{caplog.text}{files}"


def test_without_a_key_the_refusal_says_which_variable(folder, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="asks for a key: set the environment variable OPENAI_API"):
        ask(folder, refuses)


def test_a_key_that_a_server_repeats_is_kept_nowhere(folder, caplog):
    def repeats(request):
        return httpx.Response(400, json={"error": {"message": f"your key {KEY} is fine"}})

    answers = ask(folder, server(repeats))
    assert "***" in answers[0].error
    assert KEY not in (folder / "answers.jsonl").read_text() + caplog.text


@pytest.mark.parametrize("url", ["http://me:pass@server/v1", "http://server/v1?key=abc"])
def test_a_key_in_the_address_is_refused(url):
    with pytest.raises(UserError) as caught:
        OpenAIChat(model="m", base_url=url)
    assert "pass@" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_a_server_that_dies_ends_the_asking_and_loses_nothing(folder):
    calls = []

    def dies(request):
        calls.append(1)
        if len(calls) > 5:
            raise httpx.ConnectError("Connection refused", request=request)
        return said()

    with pytest.raises(UserError, match="3 requests in a row failed"):
        ask(folder, server(dies), count=40, concurrency=1, give_up_after=3)
    assert len(calls) < 20
    again = []  # a thread of the first server may still be at work
    answers = ask(folder, server(lambda r: (again.append(1), said())[1]), count=40)
    assert len(again) == 35
    assert all(a.error is None for a in answers)


def test_a_dry_run_counts_and_sends_nothing(folder):
    price = {"input": 1000.0, "output": 1000.0}
    with pytest.raises(UserError, match="nothing was sent; 3 requests") as caught:
        ask(folder, down, dry_run=True, price=price, image_tokens=100)
    assert "replies of up to 192 tokens" in str(caught.value)
    assert "a cost of up to about 0.50" in str(caught.value)


def test_no_more_requests_than_wished_are_under_way(folder):
    lock, running, most = threading.Lock(), [0], [0]
    gate = threading.Barrier(4, timeout=10)

    def chat(request):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait()
        with lock:
            running[0] -= 1
        return said()

    assert len(ask(folder, server(chat), count=16, concurrency=4)) == 16
    assert most[0] == 4


def test_large_images_are_made_smaller(folder):
    seen = []
    ask(folder, server(lambda r: (seen.append(r), said())[1]), count=1, max_pixels=200)
    url = json.loads(seen[0].content)["messages"][0]["content"][0]["image_url"]["url"]
    with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as image:
        assert image.size == (20, 10)

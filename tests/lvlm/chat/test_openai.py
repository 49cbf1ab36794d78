"""The client of OpenAI's protocol, without a socket: its transport is replaced."""

import base64
import io
import json
import logging
import math
import threading

import httpx
import pytest
from PIL import Image
from rich.console import Console

from ood_lab.common.errors import Stopped, UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore, answer_key, store_of
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.chat.openai import OpenAIChat, p_options_of, p_yes_of
from ood_lab.lvlm.questions.question_files import Question

KEY = "sk-a-secret-of-the-test"
AS_JSON = {"content-type": "application/json"}


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
    return answers_to(asked(count), folder, model, AnswerStore(folder / "answers.jsonl"))


def asked(count, **more):
    return [
        Question(f"q{i}", "yes_no", "red.png", f"Is it {i}?", "yes", **more) for i in range(count)
    ]


def said(text="Yes", reason="stop"):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    return httpx.Response(200, json={**body, "choices": [{**choice, "finish_reason": reason}]})


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


def test_a_time_out_is_repeated_once_and_a_failure_that_is_asked_again(folder, caplog):
    def slow(request):
        raise httpx.ReadTimeout("too slow", request=request)

    calls = []
    [answer] = ask(folder, server(lambda r: (calls.append(r), slow(r))), count=1, retries=5)
    assert len(calls) == 2
    assert "sent twice, and the server may charge for it twice" in answer.error
    assert "the server may charge twice (each time for 1 requests" in caplog.text
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
        (refuses, "rejects the key in the environment variable OPENAI_API_KEY"),
        (html, "answers with a web page"),
        (server(refuses), "rejects the key"),
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


@pytest.mark.parametrize("key", ["x", "EMPTY", KEY])
def test_a_reply_is_kept_as_it_came_whatever_the_key(folder, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    reply = rf"\boxed{{No}} EMPTY {KEY}"
    [answer] = ask(folder, server(lambda _: said(reply)), count=1)
    assert answer.response == reply


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("x", "*** is no extra_password, passwords are_***"),
        ("password", "x is no extra_***, ***s are_x"),
        ("EMPTY", "x is no extra_password, passwords are_x"),
    ],
)
def test_errors_hide_keys_of_any_length(folder, monkeypatch, key, hidden):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    error = {"error": {"message": "x is no extra_password, passwords are_x"}}
    [answer] = ask(folder, server(lambda _: httpx.Response(400, json=error)), count=1)
    assert hidden in answer.error


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
    with pytest.raises(Stopped, match=r"nothing was sent\. It would be 3 requests") as caught:
        ask(folder, down, dry_run=True, price=price, image_tokens=100)
    assert "replies of up to 192 tokens" in str(caught.value)
    # 8 bytes and a frame of 32 tokens each, an image of 100 and a reply of 64.
    assert "a cost of at most 0.62" in str(caught.value)


def test_no_more_requests_than_wished_are_under_way(folder):
    lock, running, most, first = threading.Lock(), [0], [0], []
    gate = threading.Barrier(4, timeout=10)

    def chat(request):
        with lock:
            first.append(1)
            if len(first) == 1:  # goes alone
                return said()
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait()
        with lock:
            running[0] -= 1
        return said()

    assert len(ask(folder, server(chat), count=17, concurrency=4)) == 17
    assert most[0] == 4


def test_large_images_are_made_smaller(folder):
    seen = []
    ask(folder, server(lambda r: (seen.append(r), said())[1]), count=1, max_pixels=200)
    url = json.loads(seen[0].content)["messages"][0]["content"][0]["image_url"]["url"]
    with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as image:
        assert image.size == (20, 10)


def test_a_content_in_parts_is_joined(folder):
    parts = [{"type": "text", "text": "Yes, "}, {"type": "text", "text": "there is"}]
    [answer] = ask(folder, server(lambda r: said(parts)), count=1)
    assert answer.response == "Yes, there is"


@pytest.mark.parametrize(
    ("parts", "response", "reasoning"),
    [
        ([{"type": "thinking", "thinking": "Yes?"}, {"type": "text", "text": "No"}], "No", "Yes?"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "Yes?"}]}], "", "Yes?"),
        ([{"type": "refusal", "refusal": "I may not."}], "", "I may not."),
    ],
)
def test_parts_that_are_thought_or_refusal_are_kept_and_not_asked_again(
    folder, parts, response, reasoning
):
    calls = []
    for _ in range(2):
        [answer] = ask(folder, server(lambda r: (calls.append(1), said(parts))[1]), count=1)
        assert (answer.error, answer.response, answer.reasoning) == (None, response, reasoning)
    assert len(calls) == 1


@pytest.mark.parametrize("content", [42, ["Yes"], [{"type": "image"}], {"a": 1}, "Yes \ud800"])
def test_a_content_that_is_no_text_is_a_failure_that_is_asked_again(folder, content):
    body = json.dumps(json.loads(said().content) | {"choices": [{"message": {"content": content}}]})
    [answer] = ask(
        folder, server(lambda r: httpx.Response(200, content=body, headers=AS_JSON)), count=1
    )
    assert answer.error.startswith("the content of the reply is not a text")
    assert answer.response == ""
    [answer] = ask(folder, server(lambda r: said()), count=1)
    assert answer.error is None


@pytest.mark.parametrize("response", [["Yes"], 42, "Yes \ud800"])
def test_a_reply_that_an_earlier_version_kept_and_nobody_can_read_is_asked_again(folder, response):
    ask(folder, server(lambda r: said()), count=1)
    file = folder / "answers.jsonl"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response": response}) + "\n")
    calls = []
    [answer] = ask(folder, server(lambda r: (calls.append(1), said())[1]), count=1)
    assert (len(calls), answer.response) == (1, "Yes")


def test_another_address_of_the_same_model_asks_nothing_again(folder, caplog):
    calls = []
    counted = server(lambda r: (calls.append(1), said())[1])
    ask(folder, counted)
    for url in ("http://server/v1/", "http://server:8001/v1"):
        assert [a.response for a in ask(folder, counted, base_url=url)] == ["Yes"] * 3
    assert len(calls) == 3
    assert "3 of the answers were given at http://server/v1" in caplog.text
    ask(folder, counted, base_url="http://server/v1/", by_server=True)
    assert len(calls) == 3
    ask(folder, counted, base_url="http://server:8001/v1", by_server=True)
    assert len(calls) == 6


def of_other_settings(answer):
    """An answer under another key, of settings that mean the same."""
    made_with = {**answer.made_with, "gen_kwargs": {"max_tokens": 64, "temperature": 0}}  # not 0.0
    key = answer_key(answer.messages_hash, made_with)
    return json.dumps({**vars(answer), "made_with": made_with, "key": key})


def test_what_was_paid_for_under_another_key_is_found(folder):
    chat = OpenAIChat("m", "http://server/v1")
    kept = store_of(chat.made_with, folder / "kept")
    answers = ask(folder, server(lambda r: said()))
    kept.path.parent.mkdir()
    other = kept.path.with_name("m-0123456789.jsonl")
    other.write_text("".join(f"{of_other_settings(answer)}\n" for answer in answers))
    found = answers_to(asked(3), folder, chat, store_of(chat.made_with, folder / "kept"))
    assert [a.response for a in found] == ["Yes"] * 3  # nobody listens at http://server/v1


def test_a_reply_that_ended_by_itself_is_that_of_a_longer_limit_too(folder):
    captions = asked(2, reply="text")

    def answers(chat, **settings):
        client = httpx.Client(transport=httpx.MockTransport(server(chat)))
        model = OpenAIChat("m", "http://server/v1", http_client=client, retries=0, **settings)
        return answers_to(captions, folder, model, AnswerStore(folder / "a.jsonl"))

    replies = iter([said("A dog."), said("A very", "length")])
    first = answers(lambda r: next(replies), max_tokens=64, concurrency=1)
    assert [a.finish_reason for a in first] == ["stop", "length"]
    calls = []
    second = answers(lambda r: (calls.append(json.loads(r.content)), said("A very long one."))[1])
    assert [a.response for a in second] == ["A dog.", "A very long one."]
    assert [body["max_tokens"] for body in calls] == [512]


@pytest.mark.parametrize(("form", "longest"), [("word", 64), ("steps", 1024), ("text", 512)])
def test_the_longest_reply_suits_the_question(form, longest):
    [question] = asked(1, reply=form)
    made_for = OpenAIChat("m").made_for(question)
    assert made_for["gen_kwargs"] == {"max_tokens": longest, "temperature": 0.0}


def test_reasoning_models_are_asked_with_what_they_take(folder):
    seen = []

    def chat(request):
        body = json.loads(request.content)
        seen.append(body)
        if "max_tokens" in body:
            error = {"message": "Unsupported parameter: 'max_tokens'.", "param": "max_tokens"}
            return httpx.Response(400, json={"error": error})
        return said()

    with pytest.raises(UserError, match=r"max_tokens=null lvlm\.max_completion_tokens=4096"):
        ask(folder, server(chat), count=30)
    assert len(seen) == 1
    extra = {"reasoning_effort": "low"}
    ask(folder, server(chat), count=1, max_completion_tokens=4096, extra_body=extra)
    assert seen[-1]["max_completion_tokens"] == 4096
    assert seen[-1]["reasoning_effort"] == "low"
    ask(folder, server(chat), count=2, max_tokens=None)
    assert not {"max_tokens", "max_completion_tokens"} & set(seen[-1])
    with pytest.raises(UserError, match="exclude each other"):
        OpenAIChat("m", max_tokens=64, max_completion_tokens=64)


REFUSALS = {
    "another model": (
        404,
        {"message": "The model `m` does not exist."},
        {},
        "does not know lvlm.model=m",
    ),
    "no quota": (429, {"code": "insufficient_quota"}, {}, "has no quota left"),
    "a long pause": (
        429,
        {"message": "slow"},
        {"retry-after": "600"},
        "no more requests for 10 min",
    ),
    "a setting": (400, {"message": "Unknown field: 'top'."}, {}, "rejects 'top'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_that_cannot_heal_ends_the_asking_at_once(folder, case):
    status, error, headers, message = REFUSALS[case]
    calls, first = [], status in (400, 404, 422)  # later ones are faults of their questions

    def chat(request):
        calls.append(1)
        if len(calls) == 1 and not first:
            return said()
        return httpx.Response(status, json={"error": error}, headers=headers)

    with pytest.raises(UserError, match=message):
        ask(folder, server(chat), count=60, concurrency=2, extra_body={"top": 1})
    assert len(calls) <= (1 if first else 1 + 2 * 2)


def test_a_prompt_that_is_too_long_fails_alone(folder):
    said_long = "This model's maximum context length is 4096: 'max_tokens' is too large."

    def chat(request):
        if b"Is it 1?" in request.content:
            return httpx.Response(400, json={"error": {"message": said_long}})
        return said()

    assert [a.error is None for a in ask(folder, server(chat))] == [True, False, True]


def test_the_estimate_says_what_it_leaves_out(folder):
    price = {"input": 1.0, "output": 1.0}
    with pytest.raises(Stopped, match=r"without the images: lvlm\.image_tokens is not given"):
        ask(folder, down, dry_run=True, price=price)
    with pytest.raises(Stopped, match=r"without the replies: lvlm\.max_tokens is null"):
        ask(folder, down, dry_run=True, price=price, max_tokens=None, image_tokens=9)
    with pytest.raises(UserError, match="both prices of a million tokens"):
        OpenAIChat("m", price={"in": 2})


@pytest.mark.parametrize(
    "name",
    [KEY + "1", "a1b2c3d4e5f6a7b8c9d0", "MY KEY", "abc", "A1B2", "sk-proj-0123456789abcdefghij"],
)
def test_a_key_in_place_of_the_name_of_its_variable_is_refused(name):
    with pytest.raises(UserError, match="no name of an environment variable") as caught:
        OpenAIChat("m", api_key_env=name)
    assert name not in str(caught.value)
    OpenAIChat("m", api_key_env="OPENAI_API_KEY_2")


def test_a_bar_shows_how_far_the_asking_is(folder, monkeypatch):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    monkeypatch.setattr("ood_lab.lvlm.answers.answer_requests.get_console", lambda: console)
    replies = iter([said(), said(), httpx.Response(500, json={})])
    price = {"input": 1e5, "output": 1e5}
    ask(folder, server(lambda r: next(replies)), concurrency=1, price=price)
    last = out.getvalue().split("asking")[-1]
    for part in ("3/3", "a second", "1 failed", "cost 2.20", "0:00:00"):
        assert part in last, (part, last)


def test_lines_where_there_is_no_terminal(folder, caplog):
    caplog.set_level(logging.INFO)
    ask(folder, server(lambda r: said()))
    assert "asked 3 of 3 questions" in caplog.text


def reply_of(message, logprobs=None):
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs}
    return httpx.Response(200, json={"id": "1", "choices": [choice]})


def token(word, *others):
    top = [{"token": w, "logprob": math.log(p)} for w, p in others]
    return {"token": word, "logprob": -0.1, "top_logprobs": top}


def test_p_yes_is_that_of_the_first_word(folder):
    tokens = [token("\n"), token(" Yes", ("Yes", 0.5), (" yes", 0.1), ("No", 0.2), ("Maybe", 0.2))]
    seen = []

    def chat(request):
        seen.append(json.loads(request.content))
        return reply_of({"role": "assistant", "content": "Yes"}, {"content": tokens})

    (answer,) = ask(folder, server(chat), count=1, logprobs=5)
    assert answer.p_yes == pytest.approx(0.6 / 0.8)
    assert (seen[-1]["logprobs"], seen[-1]["top_logprobs"]) == (True, 5)
    # The reply is the same with and without: nothing that was answered is asked again.
    asked_before = len(seen)
    (again,) = ask(folder, server(chat), count=1)
    assert (len(seen), again.p_yes) == (asked_before, answer.p_yes)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["**", "Yes", "**"], 0.8),
        (["<think>", "No", " car", "</think>", "\n", "yes"], 0.8),
        (["There", " is", " no", " lid", ".", " The", " answer", " is", " Yes"], 0.8),
        (["No", ",", " yes", "?"], None),
    ],
)
def test_p_yes_is_that_of_the_token_that_holds_the_answer(said, expected):
    """Each other token has all its probability on one side, as ``**`` in front of Yes has."""
    held = [n for n, word in enumerate(said) if word.strip().lower() == "yes"]
    both = (("Yes", 0.5), (" YES", 0.1), ("yes", 0.2), ("No", 0.15), (" no", 0.05))
    content = [token(w, *(both if n in held else (("Yes", 1.0),))) for n, w in enumerate(said)]
    assert p_yes_of({"content": content}) == (expected and pytest.approx(expected))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        {"content": None},
        {"content": [token("Well", ("Well", 0.9))]},
        {"content": [7]},
        {"content": [token("Yes", ("Yes", 0.9), ("The", 0.1))]},  # one side alone
    ],
)
def test_what_says_neither_yes_nor_no_has_no_p_yes(folder, logprobs):
    (answer,) = ask(
        folder, server(lambda _: reply_of({"content": "Well"}, logprobs)), count=1, logprobs=5
    )
    assert (answer.p_yes, answer.error) == (None, None)


@pytest.mark.parametrize(
    ("message", "reason", "error"),
    [
        ({"content": ""}, "stop", "the reply is blank"),
        ({"content": " \n"}, "stop", "the reply is blank"),
        ({}, "stop", "the reply is blank"),
        ({"content": "Yes"}, "error", "finish_reason=error"),
        ({}, "length", None),
        ({"content": ""}, "length", None),
    ],
)
def test_blank_and_failed_replies_are_asked_again_and_cut_ones_kept(folder, message, reason, error):
    calls, choice = [], {"message": message, "finish_reason": reason}

    def chat(_):
        calls.append(1)
        return httpx.Response(200, json={"choices": [choice]})

    for _ in range(2):
        [answer] = ask(folder, server(chat), count=1)
        assert (answer.error or "").startswith(error or "")
    assert (len(calls), answer.response) == (2 if error else 1, "")
    question = Question("q0", "yes_no", None, "Is it?", "yes", parser="pope")
    assert judge([question], {"q0": answer})["parsed"].tolist() == [None]


@pytest.mark.parametrize(
    ("tokens", "letter"),
    [
        (["A", " bronze", " lid", ".", " Answer", ":", " B"], "B"),  # "A" is an article
        (["B", ",", " since", " A", " is", " red"], "B"),
        (["[THINK]", "A", "?", "[/THINK]", " C"], "C"),
        (["None", " of", " them"], None),
        (["A", " or", " B"], None),
    ],
)
def test_the_probability_is_that_of_the_letter_that_the_reply_chooses(tokens, letter):
    content = [
        {"token": each, "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in chances]}
        for each in tokens
        for chances in [[(each, 0.6), ("D", 0.2)]]
    ]
    wanted = {letter: 0.75, "D": 0.25} if letter else {}
    assert p_options_of({"content": content}, 4) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_details"])
def test_reasoning_is_kept_apart_from_the_reply(folder, name):
    thought: object = "Yes? It could be. But no."
    thought = [{"type": "reasoning.text", "text": thought}] if "details" in name else thought
    message = {"role": "assistant", "content": "No", name: thought}
    (answer,) = ask(folder, server(lambda _: reply_of(message)), count=1)
    assert (answer.response, answer.reasoning) == ("No", "Yes? It could be. But no.")
    kept = [json.loads(x) for x in (folder / "answers.jsonl").read_text().splitlines()]
    assert kept[-1]["reasoning"] == answer.reasoning


@pytest.mark.parametrize("name", ["reasoning_content", "refusal"])
@pytest.mark.parametrize("parser", ["default", "pope"])
def test_a_reply_without_content_that_thought_or_refused_says_nothing(folder, name, parser):
    asked = []

    def chat(request):
        asked.append(request)
        return reply_of({"content": None, name: "Yes? I would rather not say."})

    for _ in range(2):  # the second call pays for nothing
        (answer,) = ask(folder, server(chat), count=1)
    assert (answer.response, answer.error, len(asked)) == ("", None, 1)
    question = Question(answer.question_id, "yes_no", None, "Is it?", "yes", parser=parser)
    assert judge([question], {answer.question_id: answer})["status"].tolist() == ["unparsed"]

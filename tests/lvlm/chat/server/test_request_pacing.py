"""The pace and the repetitions of requests: threads, servers that fail, and Retry-After."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from local_server import LocalServer
from tenacity import wait_exponential

from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.server import throttle
from ood_lab.lvlm.chat.server.throttle import FailedAttempt, Throttle, retry_after
from ood_lab.lvlm.questions.question_files import Question

YES = 200, {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}


@pytest.fixture
def quick(monkeypatch):
    """Pauses a tenth as long."""
    monkeypatch.setattr(throttle, "_BACKOFF", wait_exponential(multiplier=0.05, max=0.8))


def ask(folder, server, count, **settings):
    asked = [Question(f"q{i}", "yes_no", None, f"Is it {i}?", "yes") for i in range(count)]
    model = OpenAIChat("m", server.url, **settings)
    return answers_to(asked, folder, model, AnswerStore(folder / "answers.jsonl"))


def name_of(body):
    return body["messages"][-1]["content"][-1]["text"]


def seconds(attempt, count=240, most=8):
    """Of ``count`` requests with ``4 * most`` threads, as the pool has them."""
    pace, start = Throttle(most, retries=5), time.monotonic()
    with ThreadPoolExecutor(4 * most) as pool:
        jobs = [pool.submit(pace.answer, lambda n=n: attempt(n)) for n in range(count)]
        assert [job.result()[0] for job in jobs] == list(range(count))
    return time.monotonic() - start


@pytest.mark.slow
def test_a_flaky_server_takes_at_most_half_as_long_again_as_a_steady_one(quick):
    """A third of first requests fails, each in one of three ways."""
    seen, draw = Counter(), random.Random(0)

    def steady(n):
        time.sleep(0.05)
        return n

    def flaky(n):
        time.sleep(0.05)
        seen[n] += 1
        if seen[n] == 1 and draw.random() < 1 / 3:
            raise FailedAttempt("busy", rejected=draw.random() < 1 / 3)
        return n

    best = seconds(steady)
    assert seconds(flaky) <= 1.5 * best


def test_a_rate_limit_costs_no_answer_and_few_requests(quick):
    """Ten requests in each 50 ms are answered: each for itself they are rejected 230 times."""
    windows, lock, sent = Counter(), threading.Lock(), []

    def limited(n):
        time.sleep(0.01)
        with lock:
            sent.append(n)
            windows[int(time.monotonic() / 0.05)] += 1
            if windows[int(time.monotonic() / 0.05)] > 10:
                raise FailedAttempt("too many", rejected=True)
        return n

    seconds(limited, count=60, most=32)
    assert len(sent) < 180


@pytest.mark.slow
def test_sixty_answers_are_paid_once(tmp_path, quick):
    """Every third request is refused with 429, and every fifth with 500."""
    number, paid, lock = 0, Counter(), threading.Lock()

    def reply(_path, body):
        nonlocal number
        with lock:
            number += 1
            if number % 3 == 0 or number % 5 == 0:
                return (429 if number % 3 == 0 else 500), {"error": "busy"}
            paid[name_of(body)] += 1
        return YES

    with LocalServer(reply) as server:
        answers = ask(tmp_path, server, 60)
    assert [answer.error for answer in answers] == [None] * 60
    assert set(paid.values()) == {1}
    assert len(paid) == 60


@pytest.mark.slow
def test_a_server_that_is_down_sees_the_first_request_alone(tmp_path, quick):
    with LocalServer(lambda *_: (503, {"error": "down"})) as server:
        with pytest.raises(Exception, match="2 requests in a row failed"):
            ask(tmp_path, server, 50, concurrency=1, retries=2, give_up_after=2)
        assert len({name_of(body) for body in server.asked[:3]}) == 1
        assert len(server.asked) < 20


def test_a_pause_is_a_number_of_seconds_or_a_date():
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < retry_after({"Retry-After": in_a_minute}, 1.0) <= 60
    assert retry_after({"retry-after": "2.5"}, 1.0) == 2.5
    assert retry_after({"retry-after-ms": "20", "retry-after": "2"}, 1.0) == 0.02
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1.0) == 0.0
    assert retry_after({"retry-after": "soon"}, 1.5) == 1.5


@pytest.mark.slow
def test_a_real_server_is_obeyed(tmp_path):
    times: dict[str, list[float]] = {}

    def reply(_path, body):
        name = name_of(body)
        times.setdefault(name, []).append(time.monotonic())
        if name == "Is it 3?" and len(times[name]) == 1:
            return 429, {"error": "slow down"}, {"retry-after": "0.5"}
        return YES

    with LocalServer(reply) as server:
        answers = ask(tmp_path, server, 12, concurrency=2)
    assert [answer.retries for answer in answers] == [0, 0, 0, 1] + 8 * [0]
    first, again = times["Is it 3?"]
    assert again - first >= 0.5

"""The order and the time of requests, on virtual time; and Retry-After on a real server."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from local_server import LocalServer

from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.server.request_pool import Pacing
from ood_lab.lvlm.chat.server.server_connection import pause_before
from ood_lab.lvlm.questions.question_files import Question
from tests.benchmarks.request_pacing import flaky, limited, requests, simulate, undisturbed

COUNT = 1000


def run(server, count=COUNT, concurrency=8, retries=5):
    pacing = Pacing(requests(count), concurrency, retries)
    return *simulate(pacing, server), pacing


@pytest.mark.parametrize("header", [{}, {"retry-after": "1"}])
@pytest.mark.parametrize("seed", range(3))
def test_a_flaky_server_has_half_of_the_undisturbed_throughput(header, seed):
    best, *_ = run(undisturbed)
    seconds, sent, pacing = run(flaky(header, seed))
    assert pacing.answered == COUNT
    assert 1.25 * COUNT < len(sent) < 1.45 * COUNT  # a third is sent twice
    assert seconds <= 2 * best


def test_a_request_waits_as_long_as_its_server_asks_for():
    _, sent, _ = run(flaky({"retry-after": "3"}))
    times: dict[str, list[tuple[float, int]]] = {}
    for now, attempt, status in sent:
        times.setdefault(attempt.request.key, []).append((now, status))
    repeated = [each for each in times.values() if len(each) == 2 and each[0][1] == 429]
    assert len(repeated) > COUNT / 15
    assert all(again >= first + 3 for (first, _), (again, _) in repeated)


def test_an_overloaded_server_is_left_alone_as_long_as_it_asks_for():
    _, sent, pacing = run(limited(window_s=10.0, headers={"retry-after": "4"}), count=60)
    assert pacing.answered == 60
    row, ended, until = 0, 0.0, 0.0
    for now, _, status in sent:
        if row >= 3 and now > ended + 0.1 + 1e-9:  # those under way then had been sent
            assert now >= until - 1e-9
        row = row + 1 if status == 429 else 0
        if row >= 3:
            ended, until = now, now + 0.1 + 4


@pytest.mark.parametrize("header", [{}, {"retry-after": "0.2"}])
def test_a_rate_limit_costs_no_answer_and_few_requests(header):
    _, sent, pacing = run(limited(headers=header), count=60, concurrency=32)
    assert pacing.answered == 60
    # Each for itself they are rejected over 230 times.
    assert len(sent) - 60 < 120


def test_a_server_that_is_down_sees_no_more_than_what_waits():
    def down(attempt, now):
        return (200, {}) if now < 5 else (0, {})

    _, sent, pacing = run(down, count=2000)
    failed = {attempt.request.key for now, attempt, _ in sent if 5 <= now < 15}
    assert pacing.answered == pytest.approx(5 / 0.1 * 8, abs=10)
    assert len(failed) <= 16


def test_the_first_request_goes_first_until_it_has_ended():
    def busy(attempt, now):
        return (503, {}) if attempt.request.key == "0" and attempt.repeated < 2 else (200, {})

    _, sent, _ = run(busy, count=5)
    assert [attempt.request.key for _, attempt, _ in sent] == ["0", "0", "0", "1", "2", "3", "4"]


def test_a_pause_is_a_number_of_seconds_or_a_date():
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < pause_before(0, {"Retry-After": in_a_minute}) <= 60
    assert pause_before(0, {"retry-after": "2.5"}) == 2.5
    assert pause_before(0, {"retry-after-ms": "20", "retry-after": "2"}) == 0.02
    assert pause_before(0, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert [pause_before(n, {"retry-after": "soon"}) for n in (0, 1, 9)] == [0.5, 1.0, 8.0]


@pytest.mark.slow
def test_a_real_server_is_obeyed(tmp_path):
    times: dict[str, list[float]] = {}

    def reply(_path, body):
        name = body["messages"][-1]["content"][-1]["text"]
        times.setdefault(name, []).append(time.monotonic())
        if name == "Is it 3?" and len(times[name]) == 1:
            return 429, {"error": "slow down"}, {"retry-after": "0.5"}
        return 200, {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}

    asked = [Question(f"q{i}", "yes_no", None, f"Is it {i}?", "yes") for i in range(12)]
    with LocalServer(reply) as server:
        model = OpenAIChat("m", server.url, concurrency=2)
        answers = answers_to(asked, tmp_path, model, AnswerStore(tmp_path / "answers.jsonl"))
    assert [answer.retries for answer in answers] == [0, 0, 0, 1] + 8 * [0]
    first, again = times["Is it 3?"]
    assert again - first >= 0.5

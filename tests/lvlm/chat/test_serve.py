"""lvlm=openai against a real server: ``transformers serve`` with the tiny model."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from local_server import LocalServer

from ood_lab.builtin.scenes import ScenesDataset
from ood_lab.common.line_files import read_records
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question, write_questions

pytestmark = pytest.mark.slow
TEXTS = ("Is there a mug in the image?", "Does this image not contain a boat? (yes or no)")


@pytest.fixture(scope="module")
def model_copy(tmp_path_factory):
    return shutil.copytree(
        ModelFolder("shipped:tiny").path, tmp_path_factory.mktemp("models") / "tiny"
    )


@pytest.fixture(scope="module")
def server(model_copy, tmp_path_factory):
    """Address of a server that has the model, and knows no other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    program = shutil.which("transformers", path=os.path.dirname(sys.executable))
    command = [program, "serve", str(model_copy), "--device", "cpu", "--dtype", "float32"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_CACHE": str(log.parent), "HF_HUB_OFFLINE": "1"},
        )
    try:
        for _ in range(240):
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def front(server, spoil):
    """Passes requests on to a server; ``spoil`` makes a status of the number of some."""

    def reply(path, body):
        with lock:
            number = next(numbers)
        if status := spoil(number):
            return status, {}, {"retry-after-ms": "10"} if status == 429 else None
        passed = httpx.post(f"{server}{path}", json=body, timeout=60)
        return passed.status_code, passed.content

    lock, numbers = threading.Lock(), itertools.count(1)
    return LocalServer(reply, models=(404, {}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    scenes = ScenesDataset("test", 6, 0)
    for index in range(6):
        scenes.load_image(index).save(folder / f"{index}.png")
    return folder


QUESTIONS = [
    Question(f"{i}/{n}", "yes_no", f"{i}.png", text, "yes")
    for i in range(6)
    for n, text in enumerate(TEXTS)
]


def client(model_copy, url, **settings):
    return OpenAIChat(str(model_copy), url, max_tokens=8, **settings)


def test_the_server_says_what_the_model_says(server, model_copy, folder, tmp_path):
    through = client(model_copy, f"{server}/v1", concurrency=2)
    served = answers_to(QUESTIONS, folder, through, AnswerStore(tmp_path / "served.jsonl"))
    local = answers_to(
        QUESTIONS,
        folder,
        TransformersChat(str(model_copy), max_new_tokens=8),
        AnswerStore(tmp_path / "local.jsonl"),
    )
    assert [a.error for a in served] == [None] * len(QUESTIONS)
    assert [a.response.strip() for a in served] == [a.response for a in local]
    assert served[0].usage["prompt_tokens"] > 144


def test_429_and_503_in_front_are_waited_out(server, model_copy, folder, tmp_path):
    with front(server, lambda number: {1: 429, 3: 503}.get(number)) as between:
        asked = client(model_copy, between.url, concurrency=1, retries=3)
        answers = answers_to(QUESTIONS[:4], folder, asked, AnswerStore(tmp_path / "a.jsonl"))
        assert len(between.asked) == 6
    assert [a.error for a in answers] == [None] * 4


def test_a_server_that_hangs_is_a_failure_and_asked_again(server, model_copy, folder, tmp_path):
    path = tmp_path / "a.jsonl"
    slow = threading.Event()
    with front(server, lambda number: slow.wait(20) and None) as between:
        asked = client(model_copy, between.url, retries=0, timeout_s=1.0)
        answers = answers_to(QUESTIONS[:2], folder, asked, AnswerStore(path))
        slow.set()
    assert all("timed out" in a.error.lower() for a in answers)
    asked = client(model_copy, f"{server}/v1")
    # Failures are asked again, at whatever address.
    answers = answers_to(QUESTIONS[:2], folder, asked, AnswerStore(path))
    assert [a.error for a in answers] == [None] * 2


def test_a_killed_client_loses_and_repeats_nothing(server, model_copy, folder, tmp_path):
    write_questions(QUESTIONS, folder / "questions.jsonl")
    path = tmp_path / "answers.jsonl"
    with front(server, lambda number: time.sleep(0.3)) as between:
        code = (
            "import sys; from pathlib import Path\n"
            "from ood_lab.lvlm.answers.answer_files import AnswerStore\n"
            "from ood_lab.lvlm.answers.answer_requests import answers_to\n"
            "from ood_lab.lvlm.chat.openai import OpenAIChat\n"
            "from ood_lab.lvlm.questions.question_files import read_questions\n"
            "folder, path, model, url = sys.argv[1:]\n"
            "questions = read_questions(Path(folder, 'questions.jsonl'))\n"
            "chat = OpenAIChat(model, url, max_tokens=8, concurrency=1)\n"
            "answers_to(questions, Path(folder), chat, AnswerStore(Path(path)))\n"
        )
        command = [sys.executable, "-c", code, str(folder), str(path), str(model_copy), between.url]
        killed = subprocess.Popen(command)
        while not path.exists() or len(path.read_text().splitlines()) < 3:
            assert killed.poll() is None
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        time.sleep(1.0)  # what was under way reaches the front
        before, kept = len(between.asked), [r["key"] for r in read_records(path)]
        assert 3 <= len(kept) < len(QUESTIONS)
        subprocess.run(command, check=True)
        after = [r["key"] for r in read_records(path)]
        assert after[: len(kept)] == kept
        assert len(set(after)) == len(after) == len(QUESTIONS)
        assert len(between.asked) - before == len(QUESTIONS) - len(kept)

"""What it costs to ask through ``lvlm=transformers`` and ``lvlm=openai``.

Run by hand: ``python -m tests.benchmarks.asking``. Prints ratios, by the clock and by the processor
time of this process. What is compared runs in turns, and the median over the turns is printed, so
that other work on the machine weighs on both sides:

- asking through ``lvlm=transformers`` over a bare loop of ``generate`` in the same batches (at
  most 1.05);
- ``generate`` over ``first_token`` on yes/no questions (at least 3), for several lengths of reply;
- a further question about an image that was asked about over the first one (at most 0.5);
- the client at a concurrency of 32 over a loop of httpx in as many threads, against a server in
  another process that answers after 20 or 200 ms (at most 1.2).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NamedTuple

import httpx
import torch

from ood_lab.builtin.scenes import ScenesDataset
from ood_lab.lvlm.answers.answer_requests import messages_of
from ood_lab.lvlm.chat.base import Request
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.request_images import data_url, open_image
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.question_files import Question

BATCH = 16


class Seconds(NamedTuple):
    """How long something took."""

    clock: float
    cpu: float


def in_turns(repeats: int, **works: Callable[[], object]) -> dict[str, list[Seconds]]:
    """Runs each once to warm up, then all in turns; the seconds of each turn, by name."""
    found: dict[str, list[Seconds]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            clock, cpu = time.perf_counter(), time.process_time()
            work()
            seconds = Seconds(time.perf_counter() - clock, time.process_time() - cpu)
            if turn:
                found[name].append(seconds)
    return found


def show(what: str, limit: str, over: Sequence[Seconds], under: Sequence[Seconds]) -> None:
    """Prints the medians of the turns' ratios."""
    clock, cpu = (
        statistics.median(a[n] / b[n] for a, b in zip(over, under, strict=True)) for n in (0, 1)
    )
    times = " and ".join(f"{statistics.median(s.cpu for s in each):.2f}" for each in (over, under))
    print(f"{what}: {clock:.2f} by the clock, {cpu:.2f} of CPU ({times} s; {limit})", flush=True)


def requests(folder: Path, images: int, each: int) -> list[Request]:
    """Yes/no questions, ``each`` about every image."""
    made = []
    for image in range(images):
        for number in range(each):
            text = ("Is there a mug in the image?", "Can you see a boat in the image?")[number % 2]
            question = Question(f"{image}/{number}", "yes_no", f"{image}.png", text, "yes")
            made.append(Request(question.question_id, messages_of(question, folder), question))
    return made


def bare(chat: TransformersChat, asked: list[Request], folder: Path, tokens: int) -> None:
    """What a script without this package does."""
    model, processor = chat._vlm.model, chat._vlm.processor
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        texts = [
            processor.apply_chat_template(
                [
                    {
                        "role": "user",
                        "content": [{"type": "image"}, {"type": "text", "text": r.question.text}],
                    }
                ],
                add_generation_prompt=True,
            )
            for r in batch
        ]
        images = [[open_image(str(folder / r.question.image))] for r in batch]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt")
        with torch.inference_mode():
            out = model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
        processor.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


class Handler(BaseHTTPRequestHandler):
    """Answers every chat after so many seconds."""

    protocol_version = "HTTP/1.1"
    delay = 0.0

    def do_POST(self) -> None:
        """Reads the request, waits, says yes."""
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(self.delay)
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes"}}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choices = [{**choice, "finish_reason": "stop"}]
        content = json.dumps({**body, "choices": choices, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def raw_httpx(url: str, asked: list[Request], folder: Path) -> None:
    """The same requests, by hand."""
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
    with httpx.Client(limits=limits) as client, ThreadPoolExecutor(32) as pool:

        def one(request: Request) -> str:
            image = {"url": data_url(str(folder / request.question.image))}
            content = [
                {"type": "image_url", "image_url": image},
                {"type": "text", "text": request.question.text},
            ]
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            reply = client.post(f"{url}/chat/completions", json=body)
            return str(reply.json()["choices"][0]["message"]["content"])

        list(pool.map(one, asked))


def main() -> None:
    """Prints all ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--images", type=int, default=48)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        scenes = ScenesDataset("test", options.images, 0)
        for index in range(options.images):
            scenes.load_image(index).save(folder / f"{index}.png")
        client(folder, options.images, options.repeats)
        local(folder, options.images, options.repeats)


def talking(answer: Literal["generate", "first_token"], tokens: int) -> TransformersChat:
    """The tiny model, with replies of a fixed length: it never ends one by itself."""
    chat = TransformersChat("shipped:tiny", answer, batch_size=BATCH, max_new_tokens=tokens)
    chat.check()
    chat._vlm.model.generation_config.eos_token_id = None
    return chat


def local(folder: Path, images: int, repeats: int) -> None:
    """The ratios of ``lvlm=transformers``, on one thread."""
    torch.set_num_threads(1)
    quick = talking("first_token", 1)
    by_length = {tokens: talking("generate", tokens) for tokens in (2, 16, 64)}
    once, shared = requests(folder, images, 1), requests(folder, images, 8)
    works: dict[str, Callable[[], object]] = {
        f"generate {tokens}": partial(lambda chat: list(chat.ask(once)), chat)
        for tokens, chat in by_length.items()
    }
    works["bare"] = lambda: bare(by_length[16], once, folder, 16)
    works["first_token"] = lambda: list(quick.ask(once))
    works["eight"] = lambda: list(quick.ask(shared))
    took = in_turns(repeats, **works)
    first = took["first_token"]
    show("ask / bare generate loop", "at most 1.05", took["generate 16"], took["bare"])
    for tokens in by_length:
        what = f"generate of {tokens} tokens / first_token"
        show(what, "at least 3", took[f"generate {tokens}"], first)
    pairs = zip(took["eight"], first, strict=True)
    further = [Seconds((a.clock - b.clock) / 7, (a.cpu - b.cpu) / 7) for a, b in pairs]
    show("a further question / the first", "at most 0.5", further, first)


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as the clients open."""

    request_queue_size = 128


def serve(address: Connection, delay: float) -> None:
    """Tells its port, then answers for ever."""
    Handler.delay = delay
    server = Server(("127.0.0.1", 0), Handler)
    address.send(server.server_address[1])
    server.serve_forever()


def client(folder: Path, images: int, repeats: int) -> None:
    """The ratio of ``lvlm=openai``, for a server as quick as none is and one that might be."""
    asked = requests(folder, images, 16)
    for delay in (0.02, 0.2):
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve, args=(theirs, delay), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{ours.recv()}/v1"
        model = OpenAIChat("m", url, concurrency=32)
        took = in_turns(
            repeats,
            client=partial(lambda model: list(model.ask(asked)), model),
            raw=partial(raw_httpx, url, asked, folder),
        )
        server.terminate()
        what = f"client / raw httpx, {len(asked)} requests of {1000 * delay:.0f} ms"
        show(what, "at most 1.2", took["client"], took["raw"])


if __name__ == "__main__":
    main()

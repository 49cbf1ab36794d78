"""What it costs to ask through ``lvlm=transformers`` and ``lvlm=openai``.

Run by hand: ``python -m tests.benchmarks.asking``. Prints ratios of seconds, the best of several
repeats each:

- asking through ``lvlm=transformers`` over a bare loop of ``generate`` in the same batches (at
  most 1.05);
- ``generate`` over ``first_token`` on yes/no questions (at least 3, for replies of 16 tokens);
- a further question about an image that was asked about over the first one (at most 0.5);
- the client at a concurrency of 32 over a loop of httpx in as many threads, against a server that
  answers after 20 ms (at most 1.2).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import torch

from ood_lab.data.scenes import ScenesDataset
from ood_lab.lvlm.asking import messages_of
from ood_lab.lvlm.chat.base import Request
from ood_lab.lvlm.chat.images import data_url, open_image
from ood_lab.lvlm.chat.openai import OpenAIChat
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions import Question

BATCH = 16


def best(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of several repeats, after one that warms up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


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
    """Answers every chat after 20 ms."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Reads the request, waits, says yes."""
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(0.02)
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
    """Prints the four ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        scenes = ScenesDataset("test", options.images, 0)
        for index in range(options.images):
            scenes.load_image(index).save(folder / f"{index}.png")
        local(folder, options.images, options.repeats)
        client(folder, options.images, options.repeats)


def local(folder: Path, images: int, repeats: int) -> None:
    """The ratios of ``lvlm=transformers``."""
    # Replies of a fixed length: the model never ends one by itself.
    chat = TransformersChat("shipped:tiny", batch_size=BATCH, max_new_tokens=16)
    quick = TransformersChat("shipped:tiny", "first_token", batch_size=BATCH)
    for model in (chat, quick):
        model.check()
        model._vlm.model.generation_config.eos_token_id = None
    once, shared = requests(folder, images, 1), requests(folder, images, 8)
    through = best(lambda: list(chat.ask(once)), repeats)
    loop = best(lambda: bare(chat, once, folder, 16), repeats)
    print(f"ask / bare generate loop: {through / loop:.3f} ({through:.2f} s, {loop:.2f} s)")
    first = best(lambda: list(quick.ask(once)), repeats)
    print(f"generate / first_token: {through / first:.2f} ({through:.2f} s, {first:.2f} s)")
    eight = best(lambda: list(quick.ask(shared)), repeats)
    second = (eight - first) / 7
    print(f"a further question / the first: {second / first:.2f} ({second:.2f} s, {first:.2f} s)")


def client(folder: Path, images: int, repeats: int) -> None:
    """The ratio of ``lvlm=openai``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    asked = requests(folder, images, 16)
    model = OpenAIChat("m", url, concurrency=32)
    ours = best(lambda: list(model.ask(asked)), repeats)
    raw = best(lambda: raw_httpx(url, asked, folder), repeats)
    print(
        f"client / raw httpx: {ours / raw:.2f} ({ours:.2f} s, {raw:.2f} s, {len(asked)} requests)"
    )
    server.shutdown()


if __name__ == "__main__":
    main()

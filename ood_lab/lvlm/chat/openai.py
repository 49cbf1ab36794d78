"""Any server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, ``transformers serve``, ..."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ood_lab.errors import UserError
from ood_lab.lvlm.chat.base import Message, Reply, Request
from ood_lab.lvlm.chat.images import data_url, images_of, texts_of
from ood_lab.lvlm.chat.server import OpenAIServer

log = logging.getLogger(__name__)

Count = Annotated[int, Ge(1)]
Seconds = Annotated[float, Gt(0.0)]

#: Characters of a token, for estimates.
_CHARACTERS = 4


class OpenAIChat:
    """Asks a model behind ``base_url``, several requests at a time.

    Requests that fail for good, after the retries of
    :class:`~ood_lab.lvlm.chat.server.OpenAIServer`, come back as replies with ``error``.

    Args:
        model: name of the model, as the server knows it.
        base_url: of the server, usually ending in ``/v1``.
        api_key_env: name of the environment variable with the key.
        concurrency: requests under way at a time.
        retries: repetitions of a request.
        timeout_s: seconds that a request may take.
        max_tokens: longest reply.
        temperature: of the sampling; None = not sent.
        seed: of the sampling; None = not sent.
        max_pixels: larger images are made smaller before they are sent; None = sent as they are.
        extra_body: further fields of the request, as ``{"reasoning_effort": "low"}``.
        price: of a million tokens, ``{"input": 2.5, "output": 10.0}``; None = no cost is told.
        image_tokens: tokens of an image, for the estimate; None = images are counted apart.
        dry_run: tells what would be sent, and sends nothing.
        give_up_after: so many failures in a row end the asking.
        http_client: for tests; None = the client's own.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: Count = 8,
        retries: Annotated[int, Ge(0)] = 5,
        timeout_s: Seconds = 120.0,
        max_tokens: Count = 64,
        temperature: float | None = 0.0,
        seed: int | None = None,
        max_pixels: Count | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Mapping[str, float] | None = None,
        image_tokens: Count | None = None,
        dry_run: bool = False,
        give_up_after: Count = 50,
        http_client: Any = None,
    ) -> None:
        self.model = model
        self.concurrency = concurrency
        self.max_pixels = max_pixels
        self.price = dict(price) if price else None
        self.image_tokens = image_tokens
        self.dry_run = dry_run
        self.give_up_after = give_up_after
        self.max_tokens = max_tokens
        settings = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        self._settings = {k: v for k, v in settings.items() if v is not None}
        self._extra = dict(extra_body or {})
        self._server = OpenAIServer(
            "lvlm", base_url, api_key_env, concurrency, retries, timeout_s, http_client
        )

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Server, model and what is sent with every request; not the key."""
        return {
            "backend": "openai",
            "base_url": self._server.base_url,
            "model": self.model,
            "revision": None,
            "gen_kwargs": {**self._settings, **self._extra},
            "max_pixels": self.max_pixels,
        }

    def check(self) -> None:
        """Asks the server for its models; see :meth:`OpenAIServer.check`."""
        if not self.dry_run:
            self._server.check()

    def ask(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """Yields replies as they come, up to ``concurrency`` requests under way.

        Raises:
            UserError: the key or the request itself is refused, what answers is no such server,
                or ``give_up_after`` requests in a row failed; with ``dry_run``, what would be
                sent.
        """
        estimate = self._estimate(requests)
        if self.dry_run:
            raise UserError(f"lvlm.dry_run=true: nothing was sent; {estimate} would be")
        log.info("asking %s at %s: %s", self.model, self._server.base_url, estimate)
        used: Counter[str] = Counter()
        in_a_row = 0
        for reply in self._replies(requests):
            used.update({k: v for k, v in reply.usage.items() if v})
            in_a_row = in_a_row + 1 if reply.error else 0
            yield reply
            if in_a_row >= self.give_up_after:
                raise UserError(
                    f"{in_a_row} requests in a row failed, the last with: {reply.error}. Answers "
                    "that came before are kept; repeat the command when the server is well"
                )
        if used:
            log.info("%s", self._bill(used))

    def _replies(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """A window of requests over a pool of threads; the rest is cancelled at an error."""
        todo = iter(requests)
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="ask")
        running: set[Future[Reply]] = set()
        try:
            while True:
                for request in islice(todo, 2 * self.concurrency - len(running)):
                    running.add(pool.submit(self._one, request))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, request: Request) -> Reply:
        import openai

        start = time.monotonic()
        try:
            messages = [self._sendable(message) for message in request.messages]
            body = {"model": self.model, "messages": messages, **self._settings, **self._extra}
            # Not ``chat.completions.create``: that walks through request and reply by their types,
            # which takes longer than to send the one and read the other.
            answer = self._server.client.post("/chat/completions", body=body, cast_to=object)
        except openai.APIStatusError as error:
            self._server.stop_at(error)
            return Reply(request.key, "", error=self._server.cause(error))
        except (openai.OpenAIError, OSError, ValueError) as error:
            return Reply(request.key, "", error=self._server.cause(error))
        return self._reply(request.key, answer, time.monotonic() - start)

    def _reply(self, key: str, answer: Any, latency_s: float) -> Reply:
        try:  # a text where the server sent HTML, any JSON where it sent something else
            choice = answer["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError):
            return Reply(key, "", error=self._server.lacking("choices", answer))
        counts = ("prompt_tokens", "completion_tokens", "total_tokens")
        usage = answer.get("usage") or {}
        return Reply(
            key,
            text or "",
            finish_reason=choice.get("finish_reason"),
            usage={name: usage[name] for name in counts if name in usage},
            latency_s=round(latency_s, 4),
            # An empty content is an answer (of a model that only thought), a missing one is none.
            error="the reply has no text" if text is None else None,
        )

    def _sendable(self, message: Message) -> dict[str, Any]:
        content = message["content"]
        if isinstance(content, str):
            return dict(message)
        return {**message, "content": [self._part(part) for part in content]}

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        if part["type"] != "image_url":
            return dict(part)
        url = data_url(part["image_url"]["url"], self.max_pixels)
        return {"type": "image_url", "image_url": {"url": url}}

    def _estimate(self, requests: Sequence[Request]) -> str:
        texts = sum(len(text) for each in requests for text in texts_of(each.messages))
        images = sum(len(images_of(each.messages)) for each in requests)
        tokens = texts // _CHARACTERS + images * (self.image_tokens or 0)
        most = len(requests) * self.max_tokens
        parts = [f"{len(requests):,} requests", f"about {tokens:,} tokens"]
        if images:
            parts.append(f"{images:,} images{'' if self.image_tokens else ' (not in the tokens)'}")
        parts.append(f"replies of up to {most:,} tokens")
        if self.price:
            parts.append(f"a cost of up to about {self._cost(tokens, most):.2f}")
        return ", ".join(parts)

    def _bill(self, used: Mapping[str, int]) -> str:
        sent, received = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
        text = f"used {sent:,} tokens of input and {received:,} of output"
        return f"{text}, a cost of {self._cost(sent, received):.2f}" if self.price else text

    def _cost(self, sent: int, received: int) -> float:
        assert self.price is not None
        price = self.price
        return (sent * price.get("input", 0.0) + received * price.get("output", 0.0)) / 1e6

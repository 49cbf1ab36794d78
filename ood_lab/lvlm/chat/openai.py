"""Any server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, ``transformers serve``, ..."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval
from pydantic import ConfigDict
from typing_extensions import TypedDict

from ood_lab.common.arguments import Remedy
from ood_lab.common.errors import Stopped, UserError
from ood_lab.lvlm.answers.answer_files import is_text
from ood_lab.lvlm.answers.reply_text import without_reasoning
from ood_lab.lvlm.chat.base import Reply, Request
from ood_lab.lvlm.chat.batch_api import Batches
from ood_lab.lvlm.chat.request_images import images_of, sendable, texts_of
from ood_lab.lvlm.chat.server_connection import OpenAIServer
from ood_lab.lvlm.parsers import NO, PARSERS, YES
from ood_lab.lvlm.parsers.answer_words import plain, said_at_start
from ood_lab.lvlm.questions.question_files import Question, ReplyForm

log = logging.getLogger(__name__)

Count = Annotated[int, Ge(1)]
Seconds = Annotated[float, Gt(0.0)]

#: Longest reply to a question of each form, in tokens; ``max_tokens=auto``.
LONGEST: Mapping[ReplyForm, int] = {"word": 64, "steps": 1024, "text": 512}
#: Characters of a token, for estimates; most tokens that frame the messages of a request.
_CHARACTERS, _FRAME = 4, 32
_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")


class Price(TypedDict):
    """Of a million tokens."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    input: Annotated[float, Ge(0.0)]
    output: Annotated[float, Ge(0.0)]


#: What to give as a price.
_PRICE = "both prices of a million tokens, as {input: 2.5, output: 10}"


class OpenAIChat:
    """Asks a model behind ``base_url``, several requests at a time.

    Requests that fail for good, after the retries of
    :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`, come back as replies with ``error``.

    Args:
        model: name of the model, as the server knows it.
        base_url: of the server, usually ending in ``/v1``.
        api_key_env: name of the environment variable with the key.
        concurrency: requests under way at a time.
        retries: repetitions of a request.
        timeout_s: seconds that a request may take.
        max_tokens: longest reply, in tokens; ``auto`` = what suits the question, see
            :data:`LONGEST`; None = not sent.
        max_completion_tokens: the same as reasoning models call it, reasoning included; it takes
            the place of ``max_tokens``; None = not sent.
        temperature: of the sampling; None = not sent.
        seed: of the sampling; None = not sent.
        max_pixels: larger images are made smaller before they are sent; None = sent as they are.
        extra_body: further fields of the request, as ``{"reasoning_effort": "low"}``.
        by_server: answers belong to the address of the server, too; else to the model and its
            settings, wherever it is served.
        price: of a million tokens, ``{"input": 2.5, "output": 10.0}``; None = no cost is told.
        image_tokens: most tokens of an image, for the estimate; None = images are counted apart.
        dry_run: tells what would be sent, and sends nothing.
        logprobs: alternatives of the first token that are asked for with yes/no questions, for
            P(yes); None = none. Not every server gives them; the reply is the same.
        give_up_after: so many failures in a row end the asking.
        batch: send all requests through OpenAI's Batch API, see
            :mod:`ood_lab.lvlm.chat.batch_api`: ``wait`` until they are answered, or ``stop`` once
            they are sent; repeating the call picks the replies up. None = one by one.
        http_client: for tests; None = the client's own.

    Raises:
        UserError: two settings exclude each other; see
            :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: Count = 8,
        retries: Annotated[int, Ge(0)] = 5,
        timeout_s: Seconds = 120.0,
        max_tokens: Count | Literal["auto"] | None = "auto",
        max_completion_tokens: Count | None = None,
        temperature: float | None = 0.0,
        seed: int | None = None,
        max_pixels: Count | None = None,
        extra_body: Mapping[str, Any] | None = None,
        by_server: bool = False,
        price: Annotated[Price | None, Remedy(_PRICE)] = None,
        image_tokens: Count | None = None,
        dry_run: bool = False,
        logprobs: Annotated[int, Interval(ge=1, le=20)] | None = None,
        give_up_after: Count = 50,
        batch: Literal["wait", "stop"] | None = None,
        http_client: Any = None,
    ) -> None:
        self.model = model
        self.concurrency = concurrency
        self.max_pixels = max_pixels
        self.price = price
        self.image_tokens = image_tokens
        self.dry_run = dry_run
        self.logprobs = logprobs
        self.give_up_after = give_up_after
        self.by_server = by_server
        self.batch = batch
        self._beside: Path | None = None
        self.max_tokens = None if max_completion_tokens and max_tokens == "auto" else max_tokens
        if self.max_tokens is not None and max_completion_tokens is not None:
            raise UserError(
                f"lvlm.max_tokens={max_tokens} and lvlm.max_completion_tokens="
                f"{max_completion_tokens} exclude each other: set one of them to null"
            )
        if price is not None and set(price) != set(Price.__annotations__):
            raise UserError(f"lvlm.price={dict(price)}: give {_PRICE}")
        settings = {
            "max_completion_tokens": max_completion_tokens,
            "temperature": temperature,
            "seed": seed,
        }
        self._settings = {k: v for k, v in settings.items() if v is not None}
        self._extra = dict(extra_body or {})
        self._server = OpenAIServer(
            "lvlm", base_url, api_key_env, concurrency, retries, timeout_s, http_client
        )

    @property
    def server(self) -> str:
        """Address of the server."""
        return self._server.base_url

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Model and what is sent with every request; not the key."""
        return self._made_with(self.max_tokens)

    def made_for(self, question: Question) -> Mapping[str, Any]:
        """The same for a question, with the longest reply that it gets."""
        return self._made_with(self._longest(question))

    def _made_with(self, longest: int | str | None) -> dict[str, Any]:
        made_with = {
            "backend": "openai",
            "model": self.model,
            "revision": None,
            "gen_kwargs": self._fields(longest),
            "max_pixels": self.max_pixels,
        }
        return made_with | ({"server": self.server} if self.by_server else {})

    def _fields(self, longest: int | str | None) -> dict[str, Any]:
        """Fields of a request besides model and messages."""
        limit = {} if longest is None else {"max_tokens": longest}
        return {**limit, **self._settings, **self._extra}

    def _longest(self, question: Question | None) -> int | None:
        if self.max_tokens == "auto":
            return LONGEST[question.reply if question else "word"]
        return self.max_tokens

    def cost_of(self, usage: Mapping[str, int]) -> float | None:
        """Cost of the tokens of a reply; None where no price is given."""
        if not self.price:
            return None
        used = {kind: usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion")}
        return self._cost(used["prompt"], used["completion"])

    def check(self) -> None:
        """Asks the server for its models; see :meth:`OpenAIServer.check`."""
        if not self.dry_run:
            self._server.check()

    def keep_beside(self, answers: Path) -> None:
        """Is told the file of the answers: batches are remembered beside it."""
        self._beside = answers.with_suffix(".batches.jsonl")

    def ask(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """Yields replies as they come, up to ``concurrency`` requests under way.

        Raises:
            UserError: the key or what all requests have in common is refused, what answers is no
                such server, or ``give_up_after`` requests in a row failed.
            Stopped: with ``dry_run``; says what would be sent.
        """
        estimate = self._estimate(requests)
        if self.dry_run:
            raise Stopped(f"lvlm.dry_run=true: nothing was sent. It would be {estimate}")
        if self.batch is not None:
            yield from self._batched(requests)
            return
        log.info("asking %s at %s: %s", self.model, self.server, estimate)
        used: Counter[str] = Counter()
        in_a_row = 0
        for reply in self._replies(requests):
            used.update({k: v for k, v in reply.usage.items() if v})
            in_a_row = in_a_row + 1 if reply.error else 0
            yield reply
            if in_a_row >= self.give_up_after:
                raise UserError(
                    f"{in_a_row} requests in a row failed, the last with: {reply.error}. Answers "
                    "that came before are kept; repeat the command once the server responds again"
                )
        if used:
            log.info("%s", self._bill(used))

    def _replies(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """A window of requests over a pool of threads; the rest is cancelled at an error.

        The first request goes alone: what is wrong with all of them is then refused once.
        """
        todo, room = iter(requests), 1
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="ask")
        running: set[Future[Reply]] = set()
        try:
            while True:
                for request in islice(todo, room - len(running)):
                    running.add(pool.submit(self._one, request))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                room = 2 * self.concurrency
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _batched(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """Sends what is in no batch yet, and yields what the batches say.

        Raises:
            UserError: it is not known where to remember the batches; see
                :meth:`~ood_lab.lvlm.chat.batch_api.Batches.replies`.
            Stopped: see there.
        """
        if self._beside is None:
            raise UserError("lvlm.batch needs a file of answers: tell it by keep_beside(path)")
        batches = Batches(self._server, self._beside)
        sent = batches.sent()
        new = [request for request in requests if request.key not in sent]
        bodies, unreadable = {}, set()
        for request in new:
            try:
                bodies[request.key] = self._body(request)
            except (OSError, ValueError, UserError) as error:
                unreadable.add(request.key)
                yield Reply(request.key, "", error=self._server.cause(error))
        if new:
            log.info("a batch for %s at %s: %s", self.model, self.server, self._estimate(new))
            batches.send(bodies)
        keys = [request.key for request in requests if request.key not in unreadable]
        for said in batches.replies(keys, wait=self.batch == "wait"):
            if said.error:
                yield Reply(said.key, "", error=said.error)
            else:
                yield self._reply(said.key, said.body)

    def _body(self, request: Request) -> dict[str, Any]:
        body = {"model": self.model, **self._fields(self._longest(request.question))}
        if self.logprobs and request.question is not None and request.question.reply == "word":
            body |= {"logprobs": True, "top_logprobs": self.logprobs}
        return body | {"messages": [sendable(m, self.max_pixels) for m in request.messages]}

    def _one(self, request: Request) -> Reply:
        import openai

        start = time.monotonic()
        body: dict[str, Any] = {}
        try:
            body = self._body(request)
            # Not ``chat.completions.create``: that walks through request and reply by their types,
            # which takes longer than to send the one and read the other.
            answer = self._server.client.post("/chat/completions", body=body, cast_to=object)
        except openai.APIStatusError as error:
            self._server.stop_at(error, body)
            return Reply(request.key, "", error=self._server.cause(error))
        except (openai.OpenAIError, OSError, ValueError, UserError) as error:
            return Reply(request.key, "", error=self._server.cause(error))
        return self._reply(request.key, answer, time.monotonic() - start)

    def _reply(self, key: str, answer: Any, latency_s: float | None = None) -> Reply:
        try:  # a text where the server sent HTML, any JSON where it sent something else
            choice = answer["choices"][0]
            content, thought = choice["message"]["content"], self._reasoning(choice["message"])
        except (KeyError, IndexError, TypeError):
            return Reply(key, "", error=self._server.lacking("choices", answer))
        text = _text_of(content)
        # A model that only thought, or refused, has replied: to ask again would cost the same.
        error = "the reply has no text" if content is None and thought is None else None
        if content is not None and not is_text(text):
            error = self._server.safe(f"the content of the reply is not a text: {content!r}")
        usage = answer.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        reason = choice.get("finish_reason")
        return Reply(
            key,
            "" if error or text is None else self._server.without_key(text),
            finish_reason=reason if isinstance(reason, str) and is_text(reason) else None,
            usage={name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)},
            latency_s=None if latency_s is None else round(latency_s, 4),
            p_yes=None if error else p_yes_of(choice.get("logprobs")),
            error=error,
            reasoning=thought,
        )

    def _reasoning(self, message: Mapping[str, Any]) -> str | None:
        """What servers give apart from the reply: reasoning, under one of two names, or a refusal."""
        for name in ("reasoning_content", "reasoning", "refusal"):
            if isinstance(said := message.get(name), str) and said and is_text(said):
                return self._server.without_key(said)
        return None

    def _estimate(self, requests: Sequence[Request]) -> str:
        """What the requests come to: about, and, of tokens and cost, at most."""
        texts = [text for each in requests for text in texts_of(each.messages)]
        images = sum(len(images_of(each.messages)) for each in requests)
        seen = images * (self.image_tokens or 0)
        about = sum(map(len, texts)) // _CHARACTERS + seen
        # No tokeniser makes more tokens than a text has bytes.
        most = sum(len(text.encode()) for text in texts) + len(requests) * _FRAME + seen
        replies = self._most_of_replies(requests)
        parts = [f"{len(requests):,} requests", f"about {about:,} tokens"]
        if images:
            parts.append(f"{images:,} images{'' if self.image_tokens else ' (not in the tokens)'}")
        parts.append(
            "replies of any length" if replies is None else f"replies of up to {replies:,} tokens"
        )
        if self.price:
            cost = f"a cost of at most {_money(self._cost(most, replies or 0))}"
            left_out = [
                "the images: lvlm.image_tokens is not given" if images and not seen else "",
                "the replies: lvlm.max_tokens is null" if replies is None else "",
            ]
            without = " and ".join(filter(None, left_out))
            parts.append(f"{cost}, without {without}" if without else cost)
        return ", ".join(parts)

    def _most_of_replies(self, requests: Sequence[Request]) -> int | None:
        """Tokens of all replies at their longest; None where nothing bounds them."""
        total = 0
        for request in requests:
            fields = self._fields(self._longest(request.question))
            limits = [fields[k] for k in ("max_tokens", "max_completion_tokens") if k in fields]
            if not limits or not all(isinstance(limit, int) for limit in limits):
                return None
            several = fields.get("n", 1)
            total += max(limits) * (several if isinstance(several, int) else 1)
        return total

    def _bill(self, used: Mapping[str, int]) -> str:
        sent, received = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
        text = f"used {sent:,} tokens of input and {received:,} of output"
        cost = f", a cost of {_money(self._cost(sent, received))}" if self.price else ""
        return text + cost

    def _cost(self, sent: int, received: int) -> float:
        assert self.price is not None
        return (sent * self.price["input"] + received * self.price["output"]) / 1e6


def p_yes_of(logprobs: Any) -> float | None:
    """P(yes) of the token that holds a reply's answer, renormalised over yes and no.

    ``sum of p over alternatives that say yes / that say yes or no``, in all their spellings. The
    token is the first one, reasoning aside, that says what the reply says; ``**`` before it and
    "no" before a noun are none.

    Args:
        logprobs: of a choice, as OpenAI's servers give them; anything else has no P(yes), nor has
            a token of whose alternatives all say the same.
    """
    try:
        tokens = [(str(token["token"]), token["top_logprobs"]) for token in logprobs["content"]]
        read = PARSERS["default"](without_reasoning("".join(text for text, _ in tokens)))
        thought = [n for n, (text, _) in enumerate(tokens) if "</think" in text]
        held = (own for text, own in tokens[(thought or [-1])[-1] + 1 :] if _word(text) == read)
        said = {YES: 0.0, NO: 0.0}
        for other in next(held) if read else ():
            if word := _word(str(other["token"])):
                said[word] += math.exp(float(other["logprob"]))
    except (KeyError, TypeError, ValueError, StopIteration):
        return None
    return said[YES] / (said[YES] + said[NO]) if said[YES] > 0 and said[NO] > 0 else None


def _word(token: str) -> str | None:
    """What a token says by itself."""
    return None if token.strip().isdigit() else said_at_start(plain(token))


def _money(cost: float) -> str:
    """Two digits after the point, or, of small sums, two that say something; never rounded down."""
    digits = 2 if cost >= 1 or cost == 0 else 1 - math.floor(math.log10(cost))
    return f"{math.ceil(cost * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def _text_of(content: Any) -> str | None:
    """The text of a content: of a list of parts, their texts one after another; else None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return None

"""Any server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, ``transformers serve``, ..."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Ge, Interval
from pydantic import ConfigDict
from typing_extensions import TypedDict

from ood_lab.common.arguments import Count, Remedy
from ood_lab.common.errors import Stopped, UserError
from ood_lab.common.progress import duration
from ood_lab.lvlm.answers.answer_files import is_text
from ood_lab.lvlm.answers.reply_text import without_reasoning
from ood_lab.lvlm.chat.base import Reply, Request, Requests, longest_reply
from ood_lab.lvlm.chat.batch_api import Batches
from ood_lab.lvlm.chat.request_images import images_of, sendable, texts_of
from ood_lab.lvlm.chat.request_pacing import Attempt, Pacing, interruption, pause_before
from ood_lab.lvlm.chat.server_connection import LONGEST_PAUSE_S, OpenAIServer
from ood_lab.lvlm.parsers import PARSERS, YES
from ood_lab.lvlm.parsers.answer_words import plain, said_at_start
from ood_lab.lvlm.questions.question_files import ONE_WORD, SAMPLE, Question

if TYPE_CHECKING:
    import openai

log = logging.getLogger(__name__)

#: Seconds between looks at an interruption, and without a reply until that is said.
_LOOK_S, _SILENT_S = 0.5, 15.0

#: What a text says; None = nothing.
Reading = Callable[[str], str | None]
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


@dataclass(eq=False)
class OpenAIChat(OpenAIServer):
    """Asks a model behind ``base_url``, several requests at a time.

    Requests that fail for good, after the retries of
    :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`, come back as replies with ``error``.

    Args:
        model, base_url, api_key_env, concurrency, retries, timeout_s, http_client: see
            :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`.
        max_tokens: longest reply, in tokens; ``auto`` = what suits the question, see
            :data:`~ood_lab.lvlm.chat.base.LONGEST`; None = not sent.
        max_completion_tokens: the same as reasoning models call it, reasoning included; it takes
            the place of ``max_tokens``; None = not sent.
        temperature: of the sampling; None = not sent.
        seed: of the sampling; None = not sent.
        max_pixels: larger images are made smaller before they are sent; None = sent unchanged.
        extra_body: further fields of the request, as ``{"reasoning_effort": "low"}``.
        by_server: answers belong to the address of the server, too; else to the model and its
            settings, wherever it is served.
        price: of a million tokens, ``{"input": 2.5, "output": 10.0}``; None = no cost is shown.
        image_tokens: most tokens of an image, for the estimate; None = images are counted apart.
        dry_run: tells what would be sent, and sends nothing.
        logprobs: number of alternatives of a token, requested with yes/no questions, for P(yes);
            None = none. Not every server gives them; the reply is the same.
        give_up_after: so many failures in a row end the asking.
        batch: send all requests through OpenAI's Batch API, see
            :mod:`ood_lab.lvlm.chat.batch_api`: ``wait`` until they are answered, or ``stop`` once
            they are sent; repeating the call picks the replies up. None = one by one.
        samples: number of requests per question; the temperature must not be 0 then. A ``seed``
            grows by one each time.

    Raises:
        UserError: two settings exclude each other; see
            :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`.
    """

    max_tokens: Count | Literal["auto"] | None = "auto"
    max_completion_tokens: Count | None = None
    temperature: float | None = 0.0
    seed: int | None = None
    max_pixels: Count | None = None
    extra_body: Mapping[str, Any] | None = None
    by_server: bool = False
    price: Annotated[Price | None, Remedy(_PRICE)] = None
    image_tokens: Count | None = None
    dry_run: bool = False
    logprobs: Annotated[int, Interval(ge=1, le=20)] | None = None
    give_up_after: Count = 50
    batch: Literal["wait", "stop"] | None = None
    samples: Count = 1
    node: ClassVar[str] = "lvlm"

    def __post_init__(self) -> None:
        if self.samples > 1 and self.temperature == 0:
            raise UserError(
                f"lvlm.samples={self.samples} with lvlm.temperature=0 gives the same reply each "
                "time: give lvlm.temperature=1, for example"
            )
        if self.max_completion_tokens and self.max_tokens == "auto":
            self.max_tokens = None
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise UserError(
                f"lvlm.max_tokens={self.max_tokens} and lvlm.max_completion_tokens="
                f"{self.max_completion_tokens} exclude each other: set one of them to null"
            )
        if self.price is not None and set(self.price) != set(Price.__annotations__):
            raise UserError(f"lvlm.price={dict(self.price)}: give {_PRICE}")
        super().__post_init__()
        self._deadline = math.inf
        self._beside: Path | None = None

    @property
    def server(self) -> str:
        """Address of the server."""
        return self.base_url

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Model and what is sent with every request; not the key."""
        return self._made_with(self.max_tokens)

    def made_for(self, question: Question) -> Mapping[str, Any]:
        """The same for a question, with the longest reply that it gets."""
        longest = longest_reply(self.max_tokens, question)
        return self._made_with(longest, question.meta.get(SAMPLE, 1))

    def _made_with(self, longest: int | str | None, sample: int = 1) -> dict[str, Any]:
        made_with = {
            "backend": "openai",
            "model": self.model,
            "revision": None,
            "gen_kwargs": self._fields(longest, sample),
            "max_pixels": self.max_pixels,
        }
        made_with |= {"server": self.server} if self.by_server else {}
        return made_with | ({SAMPLE: sample} if sample > 1 else {})

    def _fields(self, longest: int | str | None, sample: int = 1) -> dict[str, Any]:
        """Fields of a request without model and messages."""
        limits = {"max_tokens": longest, "max_completion_tokens": self.max_completion_tokens}
        given = {**limits, "temperature": self.temperature, "seed": self.seed}
        fields = {k: v for k, v in given.items() if v is not None} | dict(self.extra_body or {})
        return fields | ({"seed": fields["seed"] + sample - 1} if "seed" in fields else {})

    def cost_of(self, usage: Mapping[str, int]) -> float | None:
        """Cost of the tokens of a reply; None where no price is given."""
        if not self.price:
            return None
        used = {kind: usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion")}
        return self._cost(used["prompt"], used["completion"])

    def check(self) -> None:
        """Asks the server for its models; see :meth:`OpenAIServer.check`."""
        if not self.dry_run:
            super().check()

    def keep_beside(self, answers: Path) -> None:
        """Receives the file of the answers: its folder has the batches."""
        self._beside = answers.with_suffix(".batches.jsonl")

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields replies as they come, up to ``concurrency`` requests under way.

        Raises:
            UserError: the key or what all requests have in common is rejected, what answers is no
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
        with interruption() as interrupted:
            for reply in self._replies(requests, interrupted):
                used.update({k: v for k, v in reply.usage.items() if v})
                yield reply
        if used:
            log.info("%s", self._bill(used))

    def _replies(self, requests: Requests, interrupted: threading.Event) -> Iterator[Reply]:
        """Requests over a pool of threads, in the order of :class:`Pacing`.

        At an error or an interruption nothing more is sent, and what is under way is kept for up to
        ``timeout_s`` seconds.
        """
        pacing = Pacing(requests, self.concurrency, self.retries)
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="ask")
        running: dict[Future[_Outcome], Attempt] = {}
        ended: list[Reply] = []
        stop: BaseException | None = None
        heard, in_a_row = time.monotonic(), 0
        try:
            while True:
                if stop is None and interrupted.is_set():
                    stop = self._stop(KeyboardInterrupt(), running)
                now = time.monotonic()
                while stop is None and (attempt := pacing.next(now)):
                    running[pool.submit(self._send, attempt, pacing)] = attempt
                yield from ended  # while others are under way
                ended.clear()
                pause = pacing.pause(time.monotonic())
                if stop and (not running or time.monotonic() > self._deadline):
                    raise stop
                if not running:
                    if pause == math.inf:
                        return
                    interrupted.wait(min(pause, _LOOK_S))
                    continue
                done, _ = wait(running, min(pause, _LOOK_S), return_when=FIRST_COMPLETED)
                heard = self._say_if_silent(heard, done, len(running))
                for future in done:
                    try:
                        reply = _end(future, running.pop(future), pacing, stop is None)
                    except CancelledError:
                        continue
                    except UserError as error:
                        stop = stop or self._stop(error, running)
                        continue
                    if reply is None:
                        continue
                    ended.append(reply)
                    in_a_row = in_a_row + 1 if reply.error else 0
                    if in_a_row >= self.give_up_after:
                        stop = stop or self._stop(self._given_up(in_a_row, reply), running)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _stop(self, reason: BaseException, running: Iterable[Future[_Outcome]]) -> BaseException:
        """Says what is waited for before nothing more is sent."""
        self._deadline = time.monotonic() + self.timeout_s
        under_way = sum(not future.cancel() for future in running)
        if under_way:
            log.warning(
                "stopping: %d requests are under way, and their replies are kept for up to %s%s",
                under_way,
                duration(self.timeout_s),
                "; Ctrl-C again ends at once" if isinstance(reason, KeyboardInterrupt) else "",
            )
        return reason

    @staticmethod
    def _given_up(in_a_row: int, reply: Reply) -> UserError:
        return UserError(
            f"{in_a_row} requests in a row failed, the last with: {reply.error}. Answers "
            "that came before are kept; repeat the command once the server responds again"
        )

    def _say_if_silent(self, heard: float, done: object, under_way: int) -> float:
        """When the server was last heard of, or last said to be silent."""
        now = time.monotonic()
        if done:
            return now
        if heard > 0 and now - heard > _SILENT_S:
            log.warning(
                "no reply from %s for %s, %d requests are under way: each ends after "
                "lvlm.timeout_s=%g seconds",
                self.server,
                duration(now - heard),
                under_way,
                self.timeout_s,
            )
            return 0.0  # said once, until it is heard again
        return heard

    def _batched(self, requests: Requests) -> Iterator[Reply]:
        """Sends what is in no batch yet, and yields what the batches say.

        Raises:
            UserError: it is not known where to remember the batches; see
                :meth:`~ood_lab.lvlm.chat.batch_api.Batches.replies`.
            Stopped: see there.
        """
        if self._beside is None:
            raise UserError("lvlm.batch needs a file of answers: tell it by keep_beside(path)")
        batches = Batches(self, self._beside)
        sent = batches.sent()
        new = [request for request in requests if request.key not in sent]
        bodies, unreadable = {}, set()
        for request in new:
            try:
                bodies[request.key] = self._body(request)
            except (OSError, ValueError, UserError) as error:
                unreadable.add(request.key)
                yield Reply(request.key, "", error=self.cause(error))
        if new:
            log.info("a batch for %s at %s: %s", self.model, self.server, self._estimate(new))
            batches.send(bodies)
        keys = [request.key for request in requests if request.key not in unreadable]
        options = {each.key: len(each.question.options) for each in requests}
        for said in batches.replies(keys, wait=self.batch == "wait"):
            if said.error:
                yield Reply(said.key, "", error=said.error)
            else:
                yield self._reply(said.key, said.body, options=options[said.key])

    def _body(self, request: Request) -> dict[str, Any]:
        question = request.question
        fields = self._fields(
            longest_reply(self.max_tokens, question), question.meta.get(SAMPLE, 1)
        )
        body = {"model": self.model, **fields}
        if self.logprobs and question.reply in ONE_WORD:
            body |= {"logprobs": True, "top_logprobs": self.logprobs}
        return body | {"messages": [sendable(m, self.max_pixels) for m in request.messages]}

    def _send(self, attempt: Attempt, pacing: Pacing) -> _Outcome:
        """What comes of one attempt.

        Raises:
            UserError: every other request would fail, too.
        """
        import openai

        request = attempt.request
        try:
            body = self._body(request)
        except (OSError, ValueError, UserError) as error:
            return _Outcome(Reply(request.key, "", error=self.cause(error)))
        start = time.monotonic()
        try:
            # Not ``chat.completions.create``: that walks through request and reply by their
            # types, which takes longer than to send the one and read the other.
            client = self.client.with_options(max_retries=0)
            answer = client.post("/chat/completions", body=body, cast_to=object)
            seconds, options = time.monotonic() - start, len(request.question.options)
            reply = self._reply(request.key, answer, seconds, options)
            good = isinstance(answer, Mapping) and "choices" in answer
            return _Outcome(reply, answered=good, again=not good)
        except openai.APIStatusError as error:
            self._stop_at(error, body, attempt.retries, pacing.answered > 0)
            reply = Reply(request.key, "", error=self.cause(error))
            rejected, again = error.status_code == 429, _heals(error.status_code)
            return _Outcome(reply, again=again, rejected=rejected, headers=error.response.headers)
        except (openai.OpenAIError, ValueError) as error:  # no connection, time-outs, broken JSON
            reply = Reply(request.key, "", error=self.cause(error))
            return _Outcome(reply, again=True)

    def _stop_at(
        self, error: openai.APIStatusError, body: Mapping[str, Any], retries: int, answered: bool
    ) -> None:
        """Raises where every other request would fail, too; see :meth:`OpenAIServer.stop_at`.

        Once a request was answered, one that is bad is a matter of its own question.
        """
        if error.status_code in (400, 422) and answered:
            return
        if error.status_code != 429 or retries >= self.retries or _long_pause(error):
            self.stop_at(error, body)

    def _reply(
        self, key: str, answer: Any, latency_s: float | None = None, options: int = 0
    ) -> Reply:
        try:  # a text where the server sent HTML, any JSON where it sent something else
            choice = answer["choices"][0]
            content, thought = choice["message"]["content"], self._reasoning(choice["message"])
        except (KeyError, IndexError, TypeError):
            return Reply(key, "", error=self.lacking("choices", answer))
        text = _text_of(content)
        # A model that only thought, or refused, has replied: to ask again would cost the same.
        error = "the reply has no text" if content is None and thought is None else None
        if content is not None and not is_text(text):
            error = self.safe(f"the content of the reply is not a text: {content!r}")
        usage = answer.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        reason = choice.get("finish_reason")
        return Reply(
            key,
            "" if error or text is None else text,
            finish_reason=reason if isinstance(reason, str) and is_text(reason) else None,
            usage={name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)},
            latency_s=None if latency_s is None else round(latency_s, 4),
            p_yes=None if error or options else p_yes_of(choice.get("logprobs")),
            p_options={} if error else p_options_of(choice.get("logprobs"), options),
            error=error,
            reasoning=thought,
        )

    @staticmethod
    def _reasoning(message: Mapping[str, Any]) -> str | None:
        """What servers give apart from the reply: reasoning (two names), or why it declined."""
        for name in ("reasoning_content", "reasoning", "refusal"):
            if isinstance(said := message.get(name), str) and said and is_text(said):
                return said
        return None

    def _estimate(self, requests: Requests) -> str:
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

    def _most_of_replies(self, requests: Requests) -> int | None:
        """Tokens of all replies at their longest; None where nothing bounds them."""
        total = 0
        for request in requests:
            fields = self._fields(longest_reply(self.max_tokens, request.question))
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


class _Outcome(NamedTuple):
    """What comes of one attempt.

    Attributes:
        reply: the answer, or why there is none.
        answered: whether the server gave one.
        again: whether a repetition may help.
        rejected: whether the server has too many requests.
        headers: of an error.
    """

    reply: Reply
    answered: bool = False
    again: bool = False
    rejected: bool = False
    headers: Mapping[str, str] | None = None


def _end(future: Future[_Outcome], attempt: Attempt, pacing: Pacing, repeats: bool) -> Reply | None:
    """The reply of an attempt that ended, with its retries; None where it is repeated."""
    said, repeated = future.result(), attempt.repeated
    if said.answered:
        pacing.succeeded()
    else:
        pause = pause_before(repeated, said.headers)
        if pacing.failed(attempt, time.monotonic(), pause, said.rejected, said.again and repeats):
            return None
    return replace(said.reply, retries=repeated)


def _heals(status: int) -> bool:
    """Whether a request with this status may be answered when it is repeated."""
    return status in (408, 409, 429) or status >= 500


def _long_pause(error: openai.APIStatusError) -> bool:
    """Whether a rejection will not heal within the pauses between retries."""
    quota = "insufficient_quota" in str(error.body)
    return quota or pause_before(0, error.response.headers) > LONGEST_PAUSE_S


def p_yes_of(logprobs: Any) -> float | None:
    """P(yes) of the token that holds a reply's answer, renormalised over yes and no.

    ``sum of p over alternatives that say yes / that say yes or no``, in all their spellings. The
    token is the first one, reasoning aside, that says what the reply says; ``**`` before it and
    "no" before a noun are none.

    Args:
        logprobs: of a choice, as OpenAI's servers give them; anything else has no P(yes), nor has
            a token of whose alternatives all say the same.
    """
    said = _chances(logprobs, _word, lambda reply: PARSERS["default"](without_reasoning(reply)))
    return said[YES] if len(said) == 2 else None


def p_options_of(logprobs: Any, options: int) -> dict[str, float]:
    """P(letter) of the token that holds a reply's option, renormalised over the letters.

    The token is the first that is a letter of an option, reasoning aside.

    Args:
        logprobs: as of :func:`p_yes_of`.
        options: how many there are; of 0, nothing is known.

    Returns:
        By letter; empty where no token is a letter.
    """
    letters = [*ascii_uppercase[:options]]

    def letter(token: str) -> str | None:
        said = token.strip(" \n\t.,:;()[]*'\"")
        return said if said in letters else None

    return _chances(logprobs, letter)


def _chances(logprobs: Any, says: Reading, whole: Reading | None = None) -> dict[str, float]:
    """Probabilities of what the alternatives of one token say, which sum to 1; empty: unknown.

    Args:
        logprobs: of a choice.
        says: what a token says; None = nothing.
        whole: what the reply says; None = the first token that says anything counts. Else the
            first one that says the same.
    """
    found: dict[str, float] = {}
    try:
        tokens = [(str(token["token"]), token["top_logprobs"]) for token in logprobs["content"]]
        thought = [n for n, (text, _) in enumerate(tokens) if "</think" in text]
        own = [(says(text), others) for text, others in tokens[(thought or [-1])[-1] + 1 :]]
        read = whole("".join(text for text, _ in tokens)) if whole else None
        held = (others for said, others in own if said and (whole is None or said == read))
        for other in next(held, ()):
            if said := says(str(other["token"])):
                found[said] = found.get(said, 0.0) + math.exp(float(other["logprob"]))
        return {said: p / sum(found.values()) for said, p in found.items() if p > 0}
    except (KeyError, TypeError, ValueError):
        return {}


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

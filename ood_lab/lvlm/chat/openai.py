"""Any server that speaks OpenAI's protocol: OpenAI, vLLM, SGLang, ``transformers serve``, ..."""

from __future__ import annotations

import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from string import ascii_uppercase
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval

from ood_lab.common.arguments import Count, Fields, NotNegative, Remedy, Settings
from ood_lab.common.errors import Stopped, UserError
from ood_lab.common.grouping import without_none
from ood_lab.lvlm.chat.base import (
    LIMITS,
    ChatModel,
    ReasoningTags,
    Reply,
    Request,
    Requests,
    longest_reply,
    one_address,
)
from ood_lab.lvlm.chat.request_images import images_of, sendable, texts_of
from ood_lab.lvlm.chat.server.request_pool import RequestPool, interruption
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer
from ood_lab.lvlm.chat.server.throttle import FailedAttempt
from ood_lab.lvlm.parsers import PARSERS, YES
from ood_lab.lvlm.parsers.answer_words import plain, said_at_start
from ood_lab.lvlm.parsers.choices import chosen_letter
from ood_lab.lvlm.parsers.reply_text import APART, is_cut, is_text, without_reasoning
from ood_lab.lvlm.questions.question_files import ONE_WORD, SAMPLE, Question

log = logging.getLogger(__name__)

_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
#: ``finish_reason`` of a request that failed.
_FAILED = "error"
#: Where a part of a thought has its words.
_THOUGHTS = ("thinking", "text", "reasoning", "summary", "refusal")


#: Characters of a token, for estimates; most tokens that frame the messages of a request.
_CHARACTERS, _FRAME = 4, 32


#: Of a million tokens, by ``input`` and ``output``; and what to give for it.
Price = Mapping[str, NotNegative]
PRICE = "both prices of a million tokens, as {input: 2.5, output: 10}"


@dataclass(eq=False)
class OpenAIChat(OpenAIServer, ChatModel):
    """Asks a model behind ``base_url``, several requests at a time.

    Requests that fail for good, after the retries of
    :class:`~ood_lab.lvlm.chat.server.server_connection.OpenAIServer`, come back as replies with
    ``error``. What gets no reply in time is sent once more only: the server may charge for both.

    Args:
        model, base_url, api_key_env, concurrency, retries, timeout_s, http_client: see
            :class:`~ood_lab.lvlm.chat.server.server_connection.OpenAIServer`.
        max_tokens: longest reply, in tokens; ``auto`` = what suits the question, see
            :data:`~ood_lab.lvlm.questions.question_files.LONGEST`; None = not sent.
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
        samples: number of requests per question; the temperature must not be 0 then. A ``seed``
            grows by one each time.
        reasoning_tags: further pairs of tags, begin and end, around thoughts in replies; see
            :func:`ood_lab.lvlm.parsers.reply_text.with_known_tags`.

    Raises:
        UserError: two settings exclude each other; see
            :class:`~ood_lab.lvlm.chat.server.server_connection.OpenAIServer`.
    """

    max_tokens: Count | Literal["auto"] | None = "auto"
    max_completion_tokens: Count | None = None
    temperature: float | None = 0.0
    seed: int | None = None
    max_pixels: Count | None = None
    extra_body: Settings | None = None
    by_server: bool = False
    price: Annotated[Price | None, Remedy(PRICE)] = None
    image_tokens: Count | None = None
    dry_run: bool = False
    logprobs: Annotated[int, Interval(ge=1, le=20)] | None = None
    give_up_after: Count = 50
    samples: Count = 1
    reasoning_tags: ReasoningTags = ()
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
        if self.price is not None and set(self.price) != {"input", "output"}:
            raise UserError(f"lvlm.price={dict(self.price)}: give {PRICE}")
        super().__post_init__()
        self._pool: RequestPool | None = None

    @property
    def server(self) -> str:
        """Address of the server, in one form."""
        return one_address(self.base_url)

    @property
    def made_with(self) -> Settings:
        """Model and what is sent with every request; not the key."""
        made_with = {
            "backend": "openai",
            "model": self.model,
            "revision": None,
            "gen_kwargs": self._fields(self.max_tokens),
            "max_pixels": self.max_pixels,
        }
        return made_with | ({"server": self.server} if self.by_server else {})

    def made_for(self, question: Question) -> Settings:
        """The same for a question, with the longest reply that it gets."""
        made_with = {**self.made_with, "gen_kwargs": self._fields_for(question)}
        sample = question.meta.get(SAMPLE, 1)
        return made_with | ({SAMPLE: sample} if sample > 1 else {})

    def _fields_for(self, question: Question) -> Fields:
        return self._fields(longest_reply(self.max_tokens, question), question.meta.get(SAMPLE, 1))

    def _fields(self, longest: int | str | None, sample: int = 1) -> Fields:
        """Fields of a request without model and messages."""
        limits = {"max_tokens": longest, "max_completion_tokens": self.max_completion_tokens}
        settings: Fields = {**limits, "temperature": self.temperature, "seed": self.seed}
        fields = without_none(settings) | dict(self.extra_body or {})
        return fields | ({"seed": fields["seed"] + sample - 1} if "seed" in fields else {})

    def cost_of(self, usage: Mapping[str, int]) -> float | None:
        """Cost of the tokens of a reply; None where no price is given."""
        if not self.price:
            return None
        sent, received = (usage.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion"))
        return (sent * self.price["input"] + received * self.price["output"]) / 1e6

    def check(self) -> None:
        """Asks the server for its models; see :meth:`OpenAIServer.check`."""
        if not self.dry_run:
            super().check()

    def stop(self, reason: UserError) -> None:
        """Sends nothing more: :meth:`ask` yields what is under way, then raises ``reason``."""
        if self._pool is not None:
            self._pool.reason = reason

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields replies as they come, up to ``concurrency`` requests under way.

        Raises:
            UserError: the key or what all requests have in common is rejected, what answers is no
                such server, or ``give_up_after`` requests in a row failed.
            Stopped: with ``dry_run``; says what would be sent.
        """
        size = self._estimate(requests)
        if self.dry_run:
            raise Stopped(f"lvlm.dry_run=true: nothing was sent. It would be {size}")
        log.info("asking %s at %s: %s", self.model, self.server, size)
        used: Counter[str] = Counter()
        with interruption() as interrupted:
            self._pool = RequestPool(self, self._send, self.give_up_after)
            for reply in self._pool.replies(requests, interrupted):
                used.update({k: v for k, v in reply.usage.items() if v})
                yield reply
        if used:
            sent, received = used["prompt_tokens"], used["completion_tokens"]
            text = f"used {sent:,} tokens of input and {received:,} of output"
            if (cost := self.cost_of(used)) is not None:
                text += f", a cost of {_money(cost)}"
            log.info("%s", text)

    def _estimate(self, requests: Requests) -> str:
        """What the requests come to: about, and, of tokens and cost, at most."""
        texts = [text for item in requests for text in texts_of(item.messages)]
        images = sum(len(images_of(item.messages)) for item in requests)
        seen = images * (self.image_tokens or 0)
        about = sum(map(len, texts)) // _CHARACTERS + seen
        # No tokeniser makes more tokens than a text has bytes.
        most = sum(len(text.encode()) for text in texts) + len(requests) * _FRAME + seen
        fields = [self._fields_for(request.question) for request in requests]
        limits = [[item[name] for name in LIMITS if name in item] for item in fields]
        # Where one has no limit, nothing bounds all of them.
        replies = sum(map(max, limits)) if all(limits) else None
        parts = [f"{len(requests):,} requests", f"about {about:,} tokens"]
        if images:
            parts.append(f"{images:,} images{'' if seen else ' (not in the tokens)'}")
        length = "any length" if replies is None else f"up to {replies:,} tokens"
        parts.append(f"replies of {length}")
        cost = self.cost_of({"prompt_tokens": most, "completion_tokens": replies or 0})
        if cost is not None:
            left_out = [
                "the images: lvlm.image_tokens is not given" if images and not seen else "",
                "the replies: lvlm.max_tokens is null" if replies is None else "",
            ]
            without = " and ".join(filter(None, left_out))
            parts.append(f"a cost of at most {_money(cost)}")
            parts += [f"without {without}"] if without else []
        return ", ".join(parts)

    def _body(self, request: Request) -> Fields:
        body = {"model": self.model, **self._fields_for(request.question)}
        if self.logprobs and request.question.reply in ONE_WORD:
            body |= {"logprobs": True, "top_logprobs": self.logprobs}
        return body | {"messages": [sendable(m, self.max_pixels) for m in request.messages]}

    def _send(self, request: Request) -> Reply:
        """The reply to a request, or why there is none.

        Raises:
            UserError: every other request would fail, too.
        """
        start = 0.0

        def body() -> Fields:
            nonlocal start
            try:
                sent = self._body(request)
            except (OSError, ValueError, UserError) as error:  # of its image
                raise FailedAttempt(self.cause(error), again=False) from error
            start = time.monotonic()
            return sent

        def read(answer: Any) -> Reply:
            seconds, options = time.monotonic() - start, len(request.question.options)
            reply = self._reply(request.key, answer, seconds, options)
            has_choices = isinstance(answer, Mapping) and "choices" in answer
            if not has_choices or reply.finish_reason == _FAILED:
                raise FailedAttempt(str(reply.error))
            return reply

        try:
            reply, retries = self.answer(
                "/chat/completions", body, read, lambda: self._estimate([request])
            )
        except FailedAttempt as error:
            return Reply(request.key, "", error=error.message, retries=error.retries)
        return replace(reply, retries=retries)

    def _reply(self, key: str, answer: Any, latency_s: float, options: int) -> Reply:
        try:  # a text where the server sent HTML, any JSON where it sent something else
            choice = answer["choices"][0]
            message, reason = choice["message"], choice.get("finish_reason")
            content = message.get("content")
            parts = content if isinstance(content, list) else []
            # What servers give apart from the reply: what it thought, or why it declined.
            apart = [*map(message.get, APART), [part for part in parts if _is_thought(part)]]
            thought = next(filter(None, map(_thought_of, apart)), None)
        except (AttributeError, KeyError, IndexError, TypeError):
            return Reply(key, "", error=self.lacking("choices", answer))
        text, error = _text_of(content), None
        if content is not None and not is_text(text):
            error = f"the content of the reply is not a text: {content!r}"
        elif reason == _FAILED:
            error = f"finish_reason=error: {choice.get('error') or content}"
        # A model that only thought, was cut, or refused has replied: again it would do the same.
        elif not (text or "").strip() and thought is None and not is_cut(reason):
            error = "the reply is blank"
        error = error and self.safe(error)
        usage = answer.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        return Reply(
            key,
            "" if error or text is None else text,
            finish_reason=reason if isinstance(reason, str) and is_text(reason) else None,
            usage={name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)},
            latency_s=round(latency_s, 4),
            p_yes=None if error or options else p_yes_of(choice.get("logprobs")),
            p_options={} if error else p_options_of(choice.get("logprobs"), options),
            error=error,
            reasoning=thought,
        )


def _text_of(content: Any) -> str | None:
    """The text of a content: of a list of parts, their texts without thoughts; else None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        texts = [
            part.get("text") if isinstance(part, Mapping) else None
            for part in content
            if not _is_thought(part)
        ]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return None


def _is_thought(part: Any) -> bool:
    """Whether a part of a content is a thought, or says why the model declined."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and any(item in kind for item in ("thinking", "reason", "refusal"))


def _thought_of(node: Any) -> str:
    """All words of a thought: a text, a part with one, or a list of parts."""
    if isinstance(node, list):
        return "".join(map(_thought_of, node))
    if isinstance(node, Mapping):
        return next((_thought_of(node[key]) for key in _THOUGHTS if node.get(key)), "")
    return node if is_text(node) else ""


def _money(cost: float) -> str:
    """Two digits after the point, or, of small sums, two that say something; never rounded down."""
    digits = 2 if cost >= 1 or cost == 0 else 1 - math.floor(math.log10(cost))
    return f"{math.ceil(cost * 10**digits - 1e-9) / 10**digits:.{digits}f}"


#: What a text says; None = nothing.
Reading = Callable[[str], str | None]


def p_yes_of(logprobs: Any) -> float | None:
    """P(yes) of the token that holds a reply's answer, renormalised over yes and no.

    ``sum of p over alternatives that say yes / that say yes or no``, in all their spellings. The
    token is the first one, reasoning aside, that says what the reply says; ``**`` before it and
    "no" before a noun are none.

    Args:
        logprobs: of a choice, as OpenAI's servers give them; anything else has no P(yes), nor has
            a token of whose alternatives all say the same.
    """
    reply = _chances(logprobs, _word, PARSERS["default"])
    return reply[YES] if len(reply) == 2 else None


def p_options_of(logprobs: Any, options: int) -> dict[str, float]:
    """P(letter) of the token that holds a reply's option, renormalised over the letters.

    The reply is read by its letters (:func:`~ood_lab.lvlm.parsers.choices.chosen_letter`): of
    "A bronze lid. Answer: B" the token is the last one. A reply that begins with its letter has it
    in the first token that is this letter, reasoning aside.

    Args:
        logprobs: as of :func:`p_yes_of`.
        options: how many there are; of 0, nothing is known.

    Returns:
        By letter; empty where the reply chooses none by its letter.
    """
    letters = dict.fromkeys(ascii_uppercase[:options], "")

    def letter(token: str) -> str | None:
        reply = token.strip(" \n\t.,:;()[]*'\"")
        return reply if reply in letters else None

    return _chances(logprobs, letter, partial(chosen_letter, options=letters), last=True)


def _chances(logprobs: Any, says: Reading, whole: Reading, last: bool = False) -> dict[str, float]:
    """Probabilities of what the alternatives of one token say, which sum to 1; empty: unknown.

    Args:
        logprobs: of a choice.
        says: what a token says; None = nothing.
        whole: what the reply says without its thoughts; the first token that says the same counts.
        last: the last one does, unless the reply begins with it.
    """
    chances: dict[str, float] = {}
    try:
        tokens = [(str(token["token"]), token["top_logprobs"]) for token in logprobs["content"]]
        ends = [*accumulate(len(text) for text, _ in tokens)]
        reply = without_reasoning("".join(text for text, _ in tokens))
        if (answer := whole(reply)) is None:
            return {}
        texts = [
            item for item, end in zip(tokens, ends, strict=True) if end > ends[-1] - len(reply)
        ]
        holders = [place for place, (text, _) in enumerate(texts) if says(text) == answer]
        begins = whole(re.split(r"[.,:;)\n]|\s", reply.strip("*( "), maxsplit=1)[0]) == answer
        place = holders[-1 if last and not begins else 0]
        for other in texts[place][1]:
            if word := says(str(other["token"])):
                chances[word] = chances.get(word, 0.0) + math.exp(float(other["logprob"]))
        return {word: p / sum(chances.values()) for word, p in chances.items() if p > 0}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}


def _word(token: str) -> str | None:
    """What a token says by itself."""
    return None if token.strip().isdigit() else said_at_start(plain(token))

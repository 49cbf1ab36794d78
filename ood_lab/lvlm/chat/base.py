"""A vision-language model: requests in, replies out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ood_lab.common.arguments import Remedy, Settings
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys
from ood_lab.lvlm.questions.question_files import LONGEST, Question

Message = Mapping[str, Any]
"""A message in OpenAI's form: ``{"role": ..., "content": text or list of parts}``.

A part is ``{"type": "text", "text": ...}`` or ``{"type": "image_url", "image_url": {"url": ...}}``,
where the url is the path of a local file; a client turns it into what its server takes.
"""


#: Further pairs of tags around thoughts in replies, see
#: :func:`ood_lab.lvlm.parsers.reply_text.with_known_tags`.
ReasoningTags = Annotated[
    Sequence[tuple[str, str]], Remedy("pairs of begin and end: [['<plan>','</plan>']]")
]
_Limit = TypeVar("_Limit", int, int | None)


@dataclass(frozen=True)
class Request:
    """One request.

    Args:
        key: names it among those of a call.
        messages: what is sent.
        question: what the messages ask, for models that answer without reading them (``oracle``,
            ``replay``) and for those that treat yes/no questions apart; never sent.
        messages_hash: of the messages, with the content of images in place of their paths.
        made_with: everything that can change the reply, see :meth:`ChatModel.made_for`.
    """

    key: str
    messages: Sequence[Message]
    question: Question
    messages_hash: str = ""
    made_with: Settings = field(default_factory=dict)


Requests = Sequence[Request]


class Batch(NamedTuple):
    """Requests that go through a local model together.

    Args:
        requests: ordered by image.
        tokens: longest reply.
        shared: whether several requests, of this batch or others, are about one image.
    """

    requests: Requests
    tokens: int
    shared: bool


@dataclass(frozen=True)
class Reply:
    """What came back for a request.

    Args:
        key: of the request.
        response: the reply as it came, reasoning included; ``""`` where ``error`` is set.
        p_yes: P(first token means yes), renormalised over yes and no; None if unknown.
        finish_reason: ``stop``, ``length``, ...
        usage: token counts, as OpenAI's client names them.
        latency_s: seconds.
        error: why there is no reply; such a reply is never parsed.
        reasoning: what the model thought before, or why it declined, where that is given apart from
            the reply.
        retries: how often the request was repeated before.
        p_options: P(letter) of the options of multiple choice, renormalised over those known.
    """

    key: str
    response: str
    p_yes: float | None = None
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    latency_s: float | None = None
    error: str | None = None
    reasoning: str | None = None
    retries: int = 0
    p_options: Mapping[str, float] = field(default_factory=dict)


class ChatModel:
    """A model that answers messages about images; what a model does not say has a default.

    Attributes:
        samples: requests per question.
        reasoning_tags: further tags around thoughts in replies.
        logprobs: alternatives of a token that are requested for P(yes); None = none.
    """

    samples: int = 1
    reasoning_tags: ReasoningTags = ()
    logprobs: int | None = None

    @property
    def made_with(self) -> Settings:
        """Everything that can change a reply: model, revision, weights, generation settings."""
        raise NotImplementedError

    def made_for(self, question: Question) -> Settings:
        """The same for this question, where a model treats questions differently."""
        return self.made_with

    @property
    def server(self) -> str | None:
        """Address of the server; None = the model is in this process."""
        return None

    @property
    def knows(self) -> str | None:
        """What it was trained on, where that is not the world at large."""
        return None

    def check(self) -> None:
        """Raises a UserError where the model cannot answer, before the first question."""

    def expect(self, requests: Requests) -> None:
        """Receives all requests, answered before or not."""

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields one reply for each request, in any order, each at once."""
        raise NotImplementedError

    def stop(self, reason: UserError) -> None:
        """Raises the reason; with several requests under way, :meth:`ask` does when they ended."""
        raise reason

    def cost_of(self, usage: Mapping[str, int]) -> float | None:
        """Cost of the tokens of a reply; None = unknown."""
        return None


def longest_reply(limit: _Limit | Literal["auto"], question: Question) -> _Limit | int:
    """The longest reply to a question, in tokens: as given, or, of ``auto``, what suits it."""
    return LONGEST[question.reply] if limit == "auto" else limit


#: What chat models call the longest length of a reply, among their ``gen_kwargs``.
LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens")


def model_of(made_with: Settings) -> str:
    """What made a reply, as text: all of it but the address and the longest length."""
    core = without_keys(made_with, ("server",))
    core["gen_kwargs"] = without_keys(core.get("gen_kwargs") or {}, LIMITS)
    # 0 and 0.0 are the same temperature.
    return json.dumps(json.loads(json.dumps(core), parse_int=float), sort_keys=True)


#: Hosts of an address that are this machine, and ports that an address need not name.
_HERE, _PORTS = ("127.0.0.1", "::1", "0.0.0.0"), {"http": 80, "https": 443}


def one_address(url: str) -> str:
    """The address of a server in one form: all names of this machine are ``localhost``."""
    parts = urlsplit(url.rstrip("/"))
    host = "localhost" if parts.hostname in _HERE else parts.hostname or ""
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return parts._replace(netloc=host + port).geturl()


#: Cost of the tokens of a reply; None where it is unknown.
CostOf = Callable[[Mapping[str, int]], float | None]

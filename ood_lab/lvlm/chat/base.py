"""A vision-language model: requests in, replies out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

from ood_lab.common.arguments import Remedy
from ood_lab.lvlm.questions.question_files import Question, ReplyForm

Message = Mapping[str, Any]
"""A message in OpenAI's form: ``{"role": ..., "content": text or list of parts}``.

A part is ``{"type": "text", "text": ...}`` or ``{"type": "image_url", "image_url": {"url": ...}}``,
where the url is the path of a local file; a client turns it into what its server takes.
"""


#: Further pairs of tags around thoughts in replies, see
#: :func:`ood_lab.lvlm.answers.reply_text.with_known_tags`.
ReasoningTags = Annotated[
    Sequence[tuple[str, str]], Remedy("pairs of begin and end: [['<plan>','</plan>']]")
]
_Limit = TypeVar("_Limit", int, int | None)
#: Longest reply to a question of each form, in tokens, where it is ``auto``.
LONGEST: Mapping[ReplyForm, int] = {"word": 64, "open": 1024, "steps": 1024, "text": 512}


@dataclass(frozen=True)
class Request:
    """One request.

    Args:
        key: names it among those of a call.
        messages: what is sent.
        question: what the messages ask, for models that answer without reading them (``oracle``,
            ``replay``) and for those that treat yes/no questions apart; never sent.
        messages_hash: of the messages, with the content of images in place of their paths.
        made_with: everything that can change the reply, see :func:`made_for`.
    """

    key: str
    messages: Sequence[Message]
    question: Question
    messages_hash: str = ""
    made_with: Mapping[str, Any] = field(default_factory=dict)


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
        text: the reply, or ``""`` where ``error`` is set.
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
    text: str
    p_yes: float | None = None
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    latency_s: float | None = None
    error: str | None = None
    reasoning: str | None = None
    retries: int = 0
    p_options: Mapping[str, float] = field(default_factory=dict)


class ChatModel(Protocol):
    """A model that answers messages about images.

    One that treats questions differently says so in ``made_for(question)``, which then stands for
    ``made_with`` (see :func:`made_for`); one that costs money says how much in ``cost_of(usage)``,
    and one behind a server its address in ``server``. ``expect(requests)`` gives all requests,
    answered before or not; ``keep_beside(path)`` gives the file of the answers. One with several
    requests under way stops at ``stop(reason)``: ``ask`` yields what still comes, then raises it.
    """

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Everything that can change a reply: model, revision, weights, generation settings."""

    def check(self) -> None:
        """Raises a UserError where the model cannot answer, before the first question."""

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields one reply for each request, in any order, each at once."""


class CopiedModel(Protocol):
    """A local model of which several processes have a copy each.

    Attributes:
        device: that of the copy, ``cuda:1`` for example.
        devices: how many copies there are.
    """

    device: str
    devices: int

    @property
    def device_type(self) -> str:
        """``cpu``, ``cuda``, ..."""

    def check(self) -> None:
        """Loads the copy."""

    def replies(self, batch: Batch) -> list[Reply]:
        """Replies to requests that go through the model together, in their order."""


def longest_reply(given: _Limit | Literal["auto"], question: Question) -> _Limit | int:
    """The longest reply to a question, in tokens: as given, or, of ``auto``, what suits it."""
    return LONGEST[question.reply] if given == "auto" else given


def made_for(model: ChatModel, question: Question) -> Mapping[str, Any]:
    """Everything that can change the reply to this question."""
    own = getattr(model, "made_for", None)
    found: Mapping[str, Any] = model.made_with if own is None else own(question)
    return found

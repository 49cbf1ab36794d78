"""Models that check a benchmark instead of answering it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ood_lab.common.arguments import Settings, Share
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256
from ood_lab.lvlm.chat.base import ChatModel, ReasoningTags, Reply, Request, Requests
from ood_lab.lvlm.chat.recorded_replies import matcher


class _Rule(ChatModel):
    """Replies to each request by itself, by a rule.

    Attributes:
        name: of the rule.
    """

    name: ClassVar[str]

    @property
    def made_with(self) -> Settings:
        """The rule and its settings."""
        return {"backend": self.name, "model": self.name, **vars(self)}

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """One reply for each request."""
        return map(self._reply, requests)

    def _reply(self, request: Request) -> Reply:
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(_Rule):
    """Always the same reply: what a benchmark gives to a model that never looks.

    Args:
        text: the reply.
    """

    text: str = "Yes"
    name: ClassVar[str] = "constant"

    def _reply(self, request: Request) -> Reply:
        return Reply(request.key, self.text, finish_reason="stop")


@dataclass(frozen=True)
class RandomModel(_Rule):
    """Yes or no by chance, the same for the same question and seed.

    Args:
        p_yes: chance of a yes.
        seed: of the draws.
    """

    p_yes: Share = 0.5
    seed: int = 0
    name: ClassVar[str] = "random"

    def _reply(self, request: Request) -> Reply:
        draw = random.Random(f"{self.seed}/{request.key}").random()
        text = "Yes" if draw < self.p_yes else "No"
        return Reply(request.key, text, p_yes=self.p_yes, finish_reason="stop")


@dataclass(frozen=True)
class Oracle(_Rule):
    """Knows the right answer, and says it, or its opposite, as often as wished.

    It fails where nothing is known to be right.

    Args:
        accuracy: share of questions for yes, no or a number that are answered rightly; a wrong
            number is one too many. All other questions are always answered rightly.
        seed: of the draws.
    """

    accuracy: Share = 1.0
    seed: int = 0
    name: ClassVar[str] = "oracle"

    def _reply(self, request: Request) -> Reply:
        answer = request.question.answer
        if not answer:
            return Reply(request.key, "", error="no right answer is known to the oracle")
        draw = random.Random(f"{self.seed}/{request.key}").random()
        text = answer if draw < self.accuracy else _wrong(answer)
        return Reply(request.key, text, finish_reason="stop")


def _wrong(answer: str) -> str:
    if answer.isdecimal():
        return str(int(answer) + 1)
    return {"yes": "no", "no": "yes"}.get(answer.lower(), answer)


class Replay(ChatModel):
    """Says again what is in a file of answers, to the same questions about the same images.

    Args:
        path: ``answers.jsonl`` of a run, or any file with ``question_id`` and ``response`` (or
            ``answer`` or ``text``, as POPE and LLaVA have it) a line; or samples of lmms-eval or
            predictions of VLMEvalKit; see
            :func:`ood_lab.lvlm.chat.recorded_replies.matcher`.
        reasoning_tags: see :class:`~ood_lab.lvlm.chat.openai.OpenAIChat`.
    """

    def __init__(self, path: str, reasoning_tags: ReasoningTags = ()) -> None:
        self.path, self.reasoning_tags = Path(path), reasoning_tags
        self._expected: Requests = ()

    @cached_property
    def made_with(self) -> Settings:
        """The content of the file, and how its lines are matched."""
        self.check()
        digest = file_sha256(self.path)[:32]
        return {"backend": "replay", "model": self.path.stem, "sha256": digest}

    def check(self) -> None:
        """Raises a UserError where there is no such file."""
        if not self.path.is_file():
            raise UserError(
                f"lvlm.path={self.path} is not a file: name a file of answers to replay"
            )

    def expect(self, requests: Requests) -> None:
        """Takes all requests, of which a file that says little must have every one."""
        self._expected = requests

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """One reply for each request; a failure where the file has none.

        Raises:
            UserError: the file holds replies to other questions, or none.
        """
        expected = [(r.question, r.messages_hash) for r in self._expected or requests]
        results = matcher(expected, self.path)
        for request in requests:
            recorded = results(request.question, request.messages_hash)
            if recorded is None:
                yield Reply(request.key, "", error=f"{self.path} has no answer to it")
            else:
                yield replace(recorded.reply, key=request.key)

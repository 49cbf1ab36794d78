"""What all vision-language models in a folder have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ood_lab.common.arguments import Count
from ood_lab.lvlm.chat.base import ReasoningTags, longest_reply
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.questions.question_files import Question


@dataclass(eq=False)
class LocalChat:
    """A model in a folder.

    Args:
        path: folder of the model and its processor (``shipped:NAME`` = of this package), or its
            id on the hub.
        max_new_tokens: longest reply; ``auto`` = what suits the question, see
            :data:`~ood_lab.lvlm.chat.base.LONGEST`.
        dtype: ``float32``, ``bfloat16``, ``float16``; None = that of the weights.
        max_pixels: larger images are made smaller first; None = left to the processor.
        trust_remote_code: run code that is next to the weights.
        download: fetch a model that is named by its id and not here yet.
        reasoning_tags: see :class:`~ood_lab.lvlm.chat.openai.OpenAIChat`.
    """

    path: str
    max_new_tokens: Count | Literal["auto"] = field(default="auto", kw_only=True)
    dtype: Literal["float32", "bfloat16", "float16"] | None = field(default=None, kw_only=True)
    max_pixels: Count | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)
    download: bool = field(default=False, kw_only=True)
    reasoning_tags: ReasoningTags = field(default=(), kw_only=True)

    @cached_property
    def folder(self) -> ModelFolder:
        """The folder of the model."""
        return ModelFolder(str(self.path), "lvlm.path", self.trust_remote_code, self.download)

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Content of the folder and everything that changes a reply."""
        return self._made_with(self.max_new_tokens)

    def made_for(self, question: Question) -> Mapping[str, Any]:
        """The same with the longest reply to this question."""
        return self._made_with(longest_reply(self.max_new_tokens, question))

    @property
    def _about(self) -> dict[str, Any]:
        known = {"model": self.folder.name, "revision": self.folder.revision}
        return {**known, "max_pixels": self.max_pixels}

    def _made_with(self, longest: int | str) -> Mapping[str, Any]:
        raise NotImplementedError

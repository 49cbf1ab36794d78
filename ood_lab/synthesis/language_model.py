"""Yes-or-no questions to a local language model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from ood_lab.synthesis.model_loading import load_transformers

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ANSWER = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def parse_answer(text: str) -> bool | None:
    """The first ``yes`` or ``no`` of an answer, after its thoughts; None without any."""
    match = _ANSWER.search(_THOUGHT.sub("", text))
    return None if match is None else match[1].lower() == "yes"


class LanguageModel:
    """The most likely answer to each question, without sampling.

    A model that was tuned for chats (its tokenizer has a chat template) is prompted with it.

    Args:
        folder: of a causal language model of transformers.
        device: where to run.
        max_new_tokens: length of an answer.
    """

    def __init__(self, folder: str, device: torch.device, max_new_tokens: int) -> None:
        from transformers import GenerationConfig

        self.model = load_transformers("text-generation", "task.llm", folder, device)
        tokenizer = self.model.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Answers continue at the right end of every question of a batch.
        tokenizer.padding_side = "left"
        self.generation = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )

    def __call__(self, questions: Sequence[str]) -> list[str]:
        """The answers, in order."""
        chat = bool(getattr(self.model.tokenizer, "chat_template", None))
        inputs = [[{"role": "user", "content": q}] if chat else q for q in questions]
        outputs = self.model(
            inputs,
            batch_size=len(inputs),
            return_full_text=False,
            generation_config=self.generation,
        )
        return [str(output[0]["generated_text"]).strip() for output in outputs]

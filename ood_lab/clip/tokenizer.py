"""A tokenizer of whole words, for a CLIP with a small vocabulary of its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ood_lab.common.errors import UserError

#: Words with their hyphens, or one other character.
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*|\S")
_ARTICLES = {"an": "a"}
#: Marks the tokens that spell unknown words.
_LETTER = "+"
_UNKNOWN, _START, _END = "<unknown>", "<start>", "<end>"


class WordTokenizer:
    """Maps texts to ids as the tokenizers of open_clip do: ``<start> words <end> 0 0 ...``.

    One id a known word; an unknown word is spelled, one id a letter or digit, and any other
    character becomes ``<unknown>``: every text can be encoded, but spelled words mean nothing to
    a model that was trained on known ones. Case and accents are dropped, ``an`` is read as ``a``.
    The end has the largest id, so that pooling at ``ids.argmax`` finds it.

    Args:
        vocabulary: the tokens in the order of their ids, which start at 1 (0 = padding);
            ``<unknown>``, ``+a`` ... (letters) and words; ``<start>`` and ``<end>`` come last.
        context_length: length of the ids of a text.
    """

    def __init__(self, vocabulary: Sequence[str], context_length: int) -> None:
        if tuple(vocabulary[-2:]) != (_START, _END) or _UNKNOWN not in vocabulary:
            raise UserError(
                f"a vocabulary must hold {_UNKNOWN} and end with the lines {_START} and {_END}"
            )
        self.tokens = list(vocabulary)
        self.ids = {token: i for i, token in enumerate(self.tokens, start=1)}
        self.context_length = context_length
        self.vocab_size = len(self.tokens) + 1
        self.sot_token_id = self.ids[_START]
        self.eot_token_id = self.ids[_END]

    @classmethod
    def load(cls, path: Path, context_length: int) -> WordTokenizer:
        """Reads a vocabulary file: one token per line."""
        return cls(path.read_text(encoding="utf-8").split(), context_length)

    def knows(self, text: str) -> bool:
        """True when no word of ``text`` has to be spelled."""
        spelled = (_LETTER, _UNKNOWN)
        return not any(self.tokens[i - 1].startswith(spelled) for i in self.encode(text))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without start, end and padding."""
        plain = unicodedata.normalize("NFKD", text.lower())
        plain = "".join(c for c in plain if not unicodedata.combining(c))
        return [i for word in _WORD.findall(plain) for i in self._word(word)]

    def _word(self, word: str) -> list[int]:
        word = _ARTICLES.get(word, word)
        if word in self.ids:
            return [self.ids[word]]
        if "-" in word:
            return [i for part in word.split("-") if part for i in self._word(part)]
        return [self.ids.get(_LETTER + c, self.ids[_UNKNOWN]) for c in word]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; spelled words come back as one word."""
        words: list[str] = []
        spelling = False
        for i in ids:
            if i in (0, self.sot_token_id, self.eot_token_id):
                continue
            token = self.tokens[int(i) - 1]
            letter = token.startswith(_LETTER)
            if letter and spelling:
                words[-1] += token[1:]
            else:
                words.append(token.removeprefix(_LETTER))
            spelling = letter
        return " ".join(words)

    def __call__(self, texts: str | Sequence[str], context_length: int | None = None) -> Tensor:
        """Ids ``[N, context_length] int64``; longer texts are cut, and still end with the end."""
        length = context_length or self.context_length
        texts = [texts] if isinstance(texts, str) else texts
        result = torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in zip(result, texts, strict=True):
            ids = [self.sot_token_id, *self.encode(text)[: length - 2], self.eot_token_id]
            row[: len(ids)] = torch.tensor(ids)
        return result

"""Reinforcement fine-tuning of vision-language models on ORIC's training questions.

TRL's GRPOTrainer trains such models too, but none of its losses is the released one (a ratio to
the reference, without clipping), and it brings its own loop, checkpoints and logs, unlike every
other training here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import Count, Fields, NotNegative
from ood_lab.common.tensor_file import Tensors
from ood_lab.lvlm.chat.image_features import PIXELS, features_of, joined, same_scores
from ood_lab.lvlm.chat.loaded_model import encoded, image_inputs, rendered
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.training.examples import Prompt, conversation
from ood_lab.lvlm.training.tuning_module import VlmTuning

Ratio = Literal["policy", "reference"]
_MOST = 100.0
_LEAST_SPREAD = 1e-4


def advantages(rewards: Tensor) -> Tensor:
    """``(r - mean) / max(std, 1e-4)`` within a group, ``[G] -> [G]``; 0 for a group of one."""
    spread = rewards.std() if len(rewards) > 1 else rewards.new_zeros(())
    return (rewards - rewards.mean()) / spread.clamp_min(_LEAST_SPREAD)


def k3(log_pi: Tensor, log_ref: Tensor) -> Tensor:
    """``e^d - d - 1`` with ``d = log pi_ref - log pi``, of every token."""
    difference = log_ref - log_pi
    return difference.exp() - difference - 1


def grpo_loss(
    log_pi: Tensor, log_ref: Tensor, advantage: Tensor, mask: Tensor, beta: float, ratio: Ratio
) -> Tensor:
    """The loss of one group.

    Args:
        log_pi: log-probabilities of the tokens of G replies, ``[G, L]``, with gradients.
        log_ref: the same of the reference, ``[G, L]``.
        advantage: ``[G]``.
        mask: ``[G, L] bool``, tokens of the replies up to and with their end.
        beta: weight of the KL.
        ratio: see the module.
    """
    if ratio == "reference":
        factor = (log_pi - log_ref).exp().clamp_max(_MOST)
    else:
        factor = (log_pi - log_pi.detach()).exp()
    gain = _token_mean(factor, mask) * advantage
    return (-gain + beta * _token_mean(k3(log_pi, log_ref), mask)).mean()


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """``log p`` of each token, ``[G, L, V], [G, L] -> [G, L]``, in float32."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    return log_probs.gather(-1, tokens[..., None]).squeeze(-1)


def _token_mean(values: Tensor, mask: Tensor) -> Tensor:
    kept = mask.to(values.dtype)
    return (values * kept).sum(dim=1) / kept.sum(dim=1).clamp_min(1.0)


#: Maps a reply and the right answer (yes or no, or ``<SOLUTION>yes</SOLUTION>``) to 0 or 1.
Reward = Callable[[str, str], float]

_WHOLE = re.compile(
    r"\s*<REASONING>(?:(?!</REASONING>).)*</REASONING>\s*"
    r"<SOLUTION>(?:(?!</SOLUTION>).)*</SOLUTION>\s*",
    re.DOTALL,
)
_SOLUTION = re.compile(r"<SOLUTION>(.*?)</SOLUTION>", re.DOTALL | re.IGNORECASE)
_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def format_reward(reply: str, truth: str) -> float:
    """1 where the whole reply is ``<REASONING>...</REASONING> <SOLUTION>...</SOLUTION>``.

    White space around it does not matter; each closing tag may occur once.

    Args:
        reply: of the model.
        truth: not looked at.
    """
    closed = all(reply.count(tag) == 1 for tag in ("</REASONING>", "</SOLUTION>"))
    return float(closed and _WHOLE.fullmatch(reply) is not None)


def accuracy_reward(reply: str, truth: str) -> float:
    """1 where the reply's answer is right.

    The answer is the text in ``<SOLUTION>`` if there is one, else the last whole word that is yes
    or no; case does not matter, nor do spaces and underscores in the tag.
    """
    return float(solution_of(reply) == solution_of(truth))


def solution_of(text: str) -> str | None:
    """What a reply, or the solution of a training file, answers; None where it is not yes or no."""
    tagged = _SOLUTION.search(text)
    if tagged is not None:
        answer = tagged[1].strip().replace(" ", "").replace("_", "").lower()
        return answer if answer in (YES, NO) else None
    results = _YES_NO.findall(text)
    return results[-1].lower() if results else None


class _Replies(NamedTuple):
    """G replies to one prompt.

    Attributes:
        inputs: of the model, prompt and reply together.
        pixels: of the image, where the model takes its features apart.
        start: tokens of the prompt.
        tokens: of the replies, ``[G, L]``.
        mask: ``[G, L] bool``, up to and with the end of each.
        texts: the replies.
    """

    inputs: Tensors
    pixels: Tensors
    start: int
    tokens: Tensor
    mask: Tensor
    texts: list[str]


class VlmGrpo(VlmTuning):
    """See :mod:`ood_lab.lvlm.training.grpo`; one prompt at a time, so that none is padded.

    ``val/acc`` is the share of right answers to held-out training questions, without sampling.

    Args:
        model: loaded; a copy of it is the reference.
        processor: its processor.
        optimizer: see :class:`VlmTuning`.
        scheduler: see :class:`VlmTuning`.
        train: see :class:`VlmTuning`.
        lora: see :class:`VlmTuning`.
        rewards: are added up.
        group: replies to a prompt, G.
        beta: weight of the KL.
        ratio: see :mod:`ood_lab.lvlm.training.grpo`.
        temperature: of sampling.
        max_new_tokens: longest reply.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        optimizer: Callable[..., torch.optim.Optimizer],
        rewards: Sequence[Reward],
        scheduler: Callable[..., Any] | None = None,
        train: Any = "all",
        lora: Any = None,
        group: Annotated[int, Ge(2)] = 8,
        beta: NotNegative = 0.04,
        ratio: Ratio = "policy",
        temperature: float = 1.0,
        max_new_tokens: Count = 1024,
    ) -> None:
        # Not a part of this module: it is neither trained nor saved.
        self._reference = [copy.deepcopy(model).requires_grad_(False).eval()]
        super().__init__(model, processor, optimizer, scheduler, train, lora)
        self.rewards = tuple(rewards)
        self._features_fit: bool | None = None  # asked of the first prompt
        self.group = group
        self.beta = beta
        self.ratio = ratio
        self.temperature = temperature
        self.max_new_tokens = max_new_tokens

    def on_fit_start(self) -> None:
        """The reference goes where the model is."""
        self._reference[0].to(self.device)

    def on_train_epoch_start(self) -> None:
        """Without dropout, and with the statistics of the pretraining: pi must be what sampled."""
        self.model.eval()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of the replies to a prompt."""
        prompt: Prompt = batch
        replies = self._sampled(prompt, self.group, sample=True)
        rewards = torch.tensor(
            [sum(reward(t, prompt.truth) for reward in self.rewards) for t in replies.texts],
            device=self.device,
        )
        log_pi = self._log_probs(self.model, replies)
        with torch.no_grad():
            log_ref = self._log_probs(self._reference[0], replies)
        options: Fields = {"on_step": False, "on_epoch": True, "batch_size": 1}
        self.log("train/reward", rewards.mean(), prog_bar=True, **options)
        self.log("train/reward_std", rewards.std(), **options)
        right = [accuracy_reward(text, prompt.truth) for text in replies.texts]
        self.log("train/acc", sum(right) / len(right), **options)
        self.log("train/length", replies.mask.sum(dim=1).float().mean(), **options)
        return grpo_loss(log_pi, log_ref, advantages(rewards), replies.mask, self.beta, self.ratio)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs ``val/acc``."""
        prompt: Prompt = batch
        (text,) = self._sampled(prompt, 1, sample=False).texts
        right = accuracy_reward(text, prompt.truth)
        self.log("val/acc", right, batch_size=1, on_epoch=True, prog_bar=True, sync_dist=True)

    @torch.no_grad()
    def _sampled(self, prompt: Prompt, count: int, sample: bool) -> _Replies:
        text = rendered(self.processor, conversation(prompt.text, "")[:-1])
        inputs, pixels = self._encoded(text, prompt.image, count)
        options: Fields = {"do_sample": sample, "max_new_tokens": self.max_new_tokens}
        if sample:
            options |= {"temperature": self.temperature, "top_k": 0, "top_p": 1.0}
        if (image := getattr(self.model.config, "image_token_id", None)) is not None:
            options["suppress_tokens"] = [image]  # in a reply, it would want another image
        sequences = self.model.generate(**inputs, **_features(self.model, pixels, count), **options)
        start = inputs["input_ids"].shape[1]
        tokens = sequences[:, start:]
        ends = self.model.generation_config.eos_token_id
        mask = _until_end(tokens, ends if isinstance(ends, list) else [ends])
        texts = self.processor.batch_decode(
            [row[kept] for row, kept in zip(tokens, mask, strict=True)], skip_special_tokens=True
        )
        attended = torch.cat([inputs["attention_mask"], mask.long()], dim=1)
        row_inputs = {**inputs, "input_ids": sequences, "attention_mask": attended}
        for name in ("token_type_ids", "mm_token_type_ids"):  # 0: text
            if name in row_inputs:
                new = row_inputs[name].new_zeros(tokens.shape)
                row_inputs[name] = torch.cat([row_inputs[name], new], dim=1)
        return _Replies(row_inputs, pixels, start, tokens, mask, texts)

    def _encoded(self, text: str, image: Image.Image, count: int) -> tuple[Tensors, Tensors]:
        """See :func:`_repeated`; without such features, each row has pixels of its own."""
        one = dict(encoded(self.processor, [text], [[image]]).to(self.device))
        one.pop("labels", None)
        if self._features_fit is None:
            self._features_fit = _features_fit(self.model, one)
        if not self._features_fit:
            rows_apart = encoded(self.processor, [text] * count, [[image]] * count).to(self.device)
            rows_apart.pop("labels", None)
            return dict(rows_apart), {}
        return _repeated(self.model, one, count)

    def _log_probs(self, model: Any, replies: _Replies) -> Tensor:
        image = _features(model, replies.pixels, len(replies.tokens))
        logits = model(**replies.inputs, **image).logits[:, replies.start - 1 : -1]
        return token_log_probs(logits / self.temperature, replies.tokens)  # as they were drawn


def _features(model: Any, pixels: Tensors, count: int) -> Fields:
    """The features of the image for ``count`` rows, computed once; nothing without ``pixels``."""
    if not pixels:
        return {}
    parts = features_of(model, pixels, 1)
    assert parts is not None  # of one image they need not be told apart
    return {"mm_encoder_outputs": {"image": joined(parts * count)}}


def _repeated(model: Any, one: Tensors, count: int) -> tuple[Tensors, Tensors]:
    """Inputs of ``count`` equal rows, and what the features of the image are made of, once."""
    rows = {k: torch.cat([v] * count) for k, v in one.items() if k not in PIXELS}
    return rows, {name: one[name] for name in image_inputs(model) if name in one}


def _features_fit(model: Any, one: Tensors) -> bool:
    """Whether a model says the same with an image's features in its place, two rows at a time."""
    rows, image_only = _repeated(model, one, 2)
    if not image_only:
        return False
    plain = model(**one).logits[0, -1]
    try:
        again = model(**rows, **_features(model, image_only, 2)).logits[1, -1]
    except Exception:  # families fail in ways of their own: then without
        return False
    return same_scores(plain, again, plain.dtype)


def _until_end(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    """``[G, L] bool``: tokens up to and with the first that ends a reply."""
    ended = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
    before = ended.long().cumsum(dim=1) - ended.long()
    return before == 0

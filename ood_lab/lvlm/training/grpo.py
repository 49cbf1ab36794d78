"""Reinforcement fine-tuning of vision-language models on ORIC's training questions.

TRL's GRPOTrainer trains such models too, but none of its losses is the released one (a ratio to
the reference, without clipping), and it brings its own loop, checkpoints and logs beside those of
every other training here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from PIL import Image
from torch import Tensor

from ood_lab.arguments import Count
from ood_lab.lvlm.chat.model import image_inputs, pooled
from ood_lab.lvlm.training.grpo_loss import Ratio, advantages, grpo_loss, token_log_probs
from ood_lab.lvlm.training.module import VlmTuning
from ood_lab.lvlm.training.oric_data import Prompt
from ood_lab.lvlm.training.rewards import Reward, accuracy_reward


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

    inputs: dict[str, Tensor]
    pixels: dict[str, Tensor]
    start: int
    tokens: Tensor
    mask: Tensor
    texts: list[str]


class VlmGrpo(VlmTuning):
    """See :mod:`ood_lab.lvlm.training.grpo_loss`; one prompt at a time, so that none is padded.

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
        ratio: see :mod:`ood_lab.lvlm.training.grpo_loss`.
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
        beta: Annotated[float, Ge(0)] = 0.04,
        ratio: Ratio = "policy",
        temperature: float = 1.0,
        max_new_tokens: Count = 1024,
    ) -> None:
        # Not a part of this module: it is neither trained nor saved.
        self._reference = [copy.deepcopy(model).requires_grad_(False).eval()]
        super().__init__(model, processor, optimizer, scheduler, train, lora)
        self.rewards = tuple(rewards)
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
        loss = grpo_loss(log_pi, log_ref, advantages(rewards), replies.mask, self.beta, self.ratio)
        self._tell(rewards, replies, prompt)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs ``val/acc``."""
        prompt: Prompt = batch
        (text,) = self._sampled(prompt, 1, sample=False).texts
        right = accuracy_reward(text, prompt.truth)
        self.log("val/acc", right, batch_size=1, on_epoch=True, prog_bar=True, sync_dist=True)

    def _tell(self, rewards: Tensor, replies: _Replies, prompt: Prompt) -> None:
        told: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
        self.log("train/reward", rewards.mean(), prog_bar=True, **told)
        self.log("train/reward_std", rewards.std(), **told)
        right = [accuracy_reward(text, prompt.truth) for text in replies.texts]
        self.log("train/acc", sum(right) / len(right), **told)
        self.log("train/length", replies.mask.sum(dim=1).float().mean(), **told)

    @torch.no_grad()
    def _sampled(self, prompt: Prompt, count: int, sample: bool) -> _Replies:
        messages = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt.text}]}
        ]
        text = self.processor.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        inputs, pixels = self._encoded(text, prompt.image, count)
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": self.max_new_tokens}
        if sample:
            options |= {
                "do_sample": True,
                "temperature": self.temperature,
                "top_k": 0,
                "top_p": 1.0,
            }
        if (image := getattr(self.model.config, "image_token_id", None)) is not None:
            options["suppress_tokens"] = [image]  # in a reply, it would want another image
        whole = self.model.generate(**inputs, **_features(self.model, pixels, count), **options)
        start = inputs["input_ids"].shape[1]
        tokens = whole[:, start:]
        mask = _until_end(tokens, self._ends)
        texts = self.processor.batch_decode(
            [row[kept] for row, kept in zip(tokens, mask, strict=True)], skip_special_tokens=True
        )
        attended = torch.cat([inputs["attention_mask"], mask.long()], dim=1)
        given = {**inputs, "input_ids": whole, "attention_mask": attended}
        for name in ("token_type_ids", "mm_token_type_ids"):  # 0: text
            if name in given:
                new = given[name].new_zeros(tokens.shape)
                given[name] = torch.cat([given[name], new], dim=1)
        return _Replies(given, pixels, start, tokens, mask, texts)

    def _encoded(
        self, text: str, image: Image.Image, count: int
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Inputs of ``count`` equal rows, and what the features of the image are made of, once."""
        named = image_inputs(self.model)
        rows = 1 if named else count
        made = self.processor(text=[text] * rows, images=[[image]] * rows, return_tensors="pt")
        inputs = dict(made.to(self.device))
        pixels = {name: inputs.pop(name) for name in named if name in inputs}
        return {k: v.repeat(count // rows, 1) if named else v for k, v in inputs.items()}, pixels

    @property
    def _ends(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    def _log_probs(self, model: Any, replies: _Replies) -> Tensor:
        image = _features(model, replies.pixels, len(replies.tokens))
        logits = model(**replies.inputs, **image).logits[:, replies.start - 1 : -1]
        return token_log_probs(logits / self.temperature, replies.tokens)  # as they were drawn


def _features(model: Any, pixels: dict[str, Tensor], count: int) -> dict[str, Any]:
    """The features of the image for ``count`` rows, computed once; nothing without ``pixels``."""
    if not pixels:
        return {}
    features = model.get_image_features(**pixels, return_dict=True).pooler_output
    return {"mm_encoder_outputs": {"image": pooled([features[0]] * count)}}


def _until_end(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    """``[G, L] bool``: tokens up to and with the first that ends a reply."""
    ended = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
    before = ended.long().cumsum(dim=1) - ended.long()
    return before == 0

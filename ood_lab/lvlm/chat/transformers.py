"""Any local vision-language model of transformers."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge
from PIL import Image
from torch import Tensor

from ood_lab.errors import UserError
from ood_lab.lvlm.chat.base import Reply, Request
from ood_lab.lvlm.chat.images import images_of, open_image
from ood_lab.lvlm.chat.model import LoadedModel, ModelFolder, described, pooled
from ood_lab.lvlm.image_text.base import chosen_device

Count = Annotated[int, Ge(1)]

#: How a first token may say yes or no.
_YES, _NO = ("yes", "Yes", "YES", " yes", " Yes"), ("no", "No", "NO", " no", " No")
#: Images whose features are remembered: requests about one image follow one another.
_REMEMBERED = 8


class TransformersChat:
    """Asks an ``AutoModelForImageTextToText`` with its ``AutoProcessor``, without sampling.

    Requests about the same image are asked one after another, and its visual features are computed
    once, where the model takes them apart (all that have ``mm_encoder_outputs``).

    ``P(yes)`` is kept of every reply: the probability that the first token says yes, in any
    writing, over that of yes or no.

    Args:
        path: folder of the model and its processor (``shipped:NAME`` = of this package).
        answer: ``generate``, or ``first_token``: yes/no questions are answered by the more
            probable of the two first tokens, in one forward pass; others are generated.
        batch_size: requests at a time.
        max_new_tokens: longest reply.
        dtype: ``float32``, ``bfloat16``, ``float16``; None = float32 on a CPU, else the weights'.
        device: ``auto`` = a GPU if there is one.
        devices: how many of them; more than one = as many processes, each with a copy of the model
            (:mod:`ood_lab.lvlm.chat.processes`).
        device_map: of accelerate, to spread a large model; None = all on ``device``.
        max_pixels: larger images are made smaller first; None = left to the processor.
        trust_remote_code: run code that lies beside the weights.

    Raises:
        UserError: there is no such device, or several are wanted with what only one process can
            have.
    """

    def __init__(
        self,
        path: str,
        answer: Literal["generate", "first_token"] = "generate",
        batch_size: Count = 16,
        max_new_tokens: Count = 64,
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
        device: str = "auto",
        devices: Count = 1,
        device_map: str | None = None,
        max_pixels: Count | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.folder = ModelFolder(str(path), trust_remote_code=trust_remote_code)
        self.name = path
        self.answer = answer
        self.batch_size = batch_size
        self.max_new_tokens = max_new_tokens
        self.dtype = dtype
        self.device = device
        self.devices = devices
        self.device_map = device_map
        self.max_pixels = max_pixels
        self._features: OrderedDict[str, Any] = OrderedDict()
        self._check_devices()

    def _check_devices(self) -> None:
        _ = self._device
        if self.devices == 1:
            return
        if self.device_map or ":" in self.device:
            raise UserError(
                f"lvlm.devices={self.devices} puts a copy of the model on each device: leave out "
                "lvlm.device_map, and the number in lvlm.device"
            )
        on_cpu = self.device_type == "cpu"
        there = os.cpu_count() or 1 if on_cpu else torch.cuda.device_count()
        if self.devices > there:
            raise UserError(
                f"lvlm.devices={self.devices}: this machine has {there} "
                f"{'CPU core' if on_cpu else 'GPU'}(s)"
            )

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to load its own copy: no model, no processor."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_vlm", "_processor")}

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Content of the folder and everything that changes a reply."""
        return {
            "backend": "transformers",
            "model": self.folder.path.name,
            "revision": self.folder.revision,
            "gen_kwargs": {"max_new_tokens": self.max_new_tokens, "do_sample": False},
            "answer": self.answer,
            "dtype": self._dtype,
            "max_pixels": self.max_pixels,
        }

    def check(self) -> None:
        """Loads the model; with several ``devices``, only what reads texts and images.

        Raises:
            UserError: the folder is missing or holds no such model, it has no image processor or
                chat template, or none of its tokens says yes or no where one must.
        """
        _ = self._processor if self._is_spread else self._vlm
        if self.answer == "first_token" and not all(self._yes_no_ids):
            raise UserError(
                f"lvlm.path={self.name}: no single token of this model says yes or no; use "
                "lvlm.answer=generate"
            )

    def ask(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """Yields replies batch by batch, ordered by image."""
        self.check()
        batches = self._batches(requests)
        if self._is_spread and len(batches) > 1:
            from ood_lab.lvlm.chat.processes import replies_of_processes

            yield from replies_of_processes(self, batches)
            return
        for batch in batches:
            yield from self.replies(batch)
        self._features.clear()

    def replies(self, batch: Batch) -> list[Reply]:
        """Replies to requests that go through the model together, in their order."""
        return self._replies(batch.requests, batch.tokens, batch.shared)

    @property
    def _is_spread(self) -> bool:
        return self.devices > 1

    def _batches(self, requests: Sequence[Request]) -> list[Batch]:
        images = {request.key: tuple(images_of(request.messages)) for request in requests}
        ordered = sorted(requests, key=lambda request: images[request.key])
        shared = len(set(images.values())) < len(images)
        quick = [r for r in ordered if self._is_quick(r)]
        slow = [r for r in ordered if not self._is_quick(r)]
        return [
            Batch(group[start : start + self.batch_size], tokens, shared)
            for group, tokens in ((quick, 1), (slow, self.max_new_tokens))
            for start in range(0, len(group), self.batch_size)
        ]

    def _is_quick(self, request: Request) -> bool:
        yes_no = request.question is not None and request.question.answer in ("yes", "no")
        return self.answer == "first_token" and yes_no

    @torch.inference_mode()
    def _replies(self, batch: Sequence[Request], tokens: int, shared: bool) -> list[Reply]:
        start = time.monotonic()
        inputs = self._inputs(batch, shared)
        first = _FirstScores()
        length = inputs["input_ids"].shape[1]
        sequences = self._vlm.model.generate(
            **inputs,
            max_new_tokens=tokens,
            do_sample=False,
            logits_processor=[first],
            pad_token_id=self._vlm.pad,
        )
        assert first.scores is not None
        chances = self._p_yes(first.scores)
        seconds = round((time.monotonic() - start) / len(batch), 4)
        prompts = inputs["attention_mask"].sum(1).tolist()
        replies = []
        for row, request in enumerate(batch):
            ids = _until(sequences[row, length:].tolist(), self._vlm.ends)
            text = self._vlm.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()
            reason = "length" if len(ids) == tokens else "stop"
            if self._is_quick(request):
                assert chances is not None
                text, reason = ("Yes" if chances[row] >= 0.5 else "No"), "first_token"
            usage = {"prompt_tokens": prompts[row], "completion_tokens": len(ids)}
            p_yes = chances[row] if chances else None
            replies.append(Reply(request.key, text, p_yes, reason, usage, seconds))
        return replies

    def _inputs(self, batch: Sequence[Request], shared: bool) -> dict[str, Any]:
        vlm = self._vlm
        texts = [vlm.rendered(request.messages) for request in batch]
        paths = [images_of(request.messages) for request in batch]
        opened = {p: open_image(p, self.max_pixels) for own in paths for p in own}
        images = [[opened[p] for p in own] for own in paths]
        inputs = vlm.encode(texts, images if opened else None).to(vlm.model.device)
        inputs = {k: _cast(v, vlm.model.dtype) for k, v in inputs.items()}
        if shared and opened and vlm.encodes_apart and all(len(own) == 1 for own in paths):
            pixels = {k: inputs.pop(k) for k in vlm.image_inputs if k in inputs}
            first_rows = {own[0]: row for row, own in reversed(list(enumerate(paths)))}
            self._remember(first_rows, texts, images, pixels)
            features = [self._features[own[0]] for own in paths]
            inputs["mm_encoder_outputs"] = {"image": pooled(features)}
            while len(self._features) > _REMEMBERED:
                self._features.popitem(last=False)
        return inputs

    def _remember(
        self,
        rows: Mapping[str, int],
        texts: Sequence[str],
        images: Sequence[Sequence[Image.Image]],
        pixels: Mapping[str, Tensor],
    ) -> None:
        """Computes the features of images that are not remembered, all at once."""
        vlm = self._vlm
        new = {path: row for path, row in rows.items() if path not in self._features}
        if not new:
            return
        chosen = sorted(new.values())
        if all(len(each) == len(texts) for each in pixels.values()):
            pixels = {name: each[chosen] for name, each in pixels.items()}
        elif len(new) < len(texts):  # which rows are whose is the processor's secret
            made = vlm.encode([texts[r] for r in chosen], [list(images[r]) for r in chosen])
            made = made.to(vlm.model.device)
            pixels = {k: _cast(made[k], vlm.model.dtype) for k in vlm.image_inputs if k in made}
        features = vlm.model.get_image_features(**pixels, return_dict=True).pooler_output
        for path, feature in zip(sorted(new, key=new.__getitem__), features, strict=True):
            self._features[path] = feature

    def _p_yes(self, scores: Tensor) -> list[float] | None:
        yes, no = self._yes_no_ids
        if not (yes and no):
            return None
        chances = scores.float().log_softmax(-1)
        both = torch.stack([chances[:, ids].logsumexp(-1) for ids in (yes, no)], -1)
        return [round(p, 6) for p in both.softmax(-1)[:, 0].tolist()]

    @cached_property
    def _yes_no_ids(self) -> tuple[list[int], list[int]]:
        tokenizer = self._processor.tokenizer
        found = []
        for words in (_YES, _NO):
            ids = [tokenizer.encode(word, add_special_tokens=False) for word in words]
            found.append(sorted({each[0] for each in ids if len(each) == 1}))
        return found[0], found[1]

    @cached_property
    def _processor(self) -> Any:
        return self.folder.load_processor()

    @cached_property
    def _vlm(self) -> LoadedModel:
        processor = self._processor
        model = self.folder.load_model(self._dtype, self.device_map)
        if not self.device_map:
            torch.nn.Module.to(model, self._device)
            if self.device_type == "cpu":  # 1.4 times as fast for the tiny model's convolutions
                torch.nn.Module.to(model, memory_format=torch.channels_last)
        return described(model, processor)

    @property
    def device_type(self) -> str:
        """``cpu``, ``cuda``, ..."""
        return self._device.partition(":")[0]

    @property
    def _device(self) -> str:
        return str(chosen_device(None if self.device == "auto" else self.device))

    @property
    def _dtype(self) -> str:
        return self.dtype or ("float32" if self.device_type == "cpu" else "auto")


class Batch(NamedTuple):
    """Requests that go through a model together.

    Args:
        requests: ordered by image.
        tokens: longest reply.
        shared: whether several requests, of this batch or others, are about one image.
    """

    requests: Sequence[Request]
    tokens: int
    shared: bool


class _FirstScores:
    """Keeps the scores of the first token; a ``LogitsProcessor`` that changes nothing."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.scores is None:
            self.scores = scores
        return scores


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value


def _until(ids: list[int], ends: frozenset[int]) -> list[int]:
    """A reply up to where it ends; what follows is padding."""
    for position, each in enumerate(ids):
        if each in ends:
            return ids[:position]
    return ids

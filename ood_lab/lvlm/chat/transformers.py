"""Any local vision-language model of transformers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ood_lab.common.arguments import Count, Fields, Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.grouping import grouped, with_keys, without_keys
from ood_lab.lvlm.chat.base import (
    Batch,
    ChatModel,
    ReasoningTags,
    Reply,
    Request,
    Requests,
    longest_reply,
)
from ood_lab.lvlm.chat.image_features import (
    PIXELS,
    BatchKind,
    InferenceMode,
    features_of,
    joined,
    same_scores,
)
from ood_lab.lvlm.chat.loaded_model import LoadedModel, ModelRequest, described
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.request_images import images_of
from ood_lab.lvlm.parsers.reply_text import without_reasoning
from ood_lab.lvlm.questions.question_files import Question

#: The copy of this process, which its first batch loads.
_copy: TransformersChat


def replies_of_processes(chat: TransformersChat, batches: Sequence[Batch]) -> Iterator[Reply]:
    """Yields the replies to all batches, each batch as soon as one of the processes has them.

    Args:
        chat: the model, which is not loaded here; each process loads a copy.
        batches: the requests.

    Raises:
        UserError: a process cannot load the model, or ended before it had answered.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share what CUDA has open
    numbers = context.SimpleQueue()
    for number in range(chat.devices):
        numbers.put(number)
    pool = ProcessPoolExecutor(chat.devices, context, _begin, (chat, numbers))
    problem = (
        "the processes of lvlm.devices ended before they had answered ({reason}): answers that "
        "came before are kept; repeat the command"
    )
    try:
        with reported_as(problem, BrokenExecutor):
            for answered in as_completed([pool.submit(_replies, batch) for batch in batches]):
                yield from answered.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(chat: TransformersChat, numbers: Any) -> None:
    """Takes a device for the copy of this process, which ends with the one that asks."""
    global _copy
    kind, devices = chat.device_type, chat.devices
    chat.device = kind if kind == "cpu" else f"{kind}:{numbers.get()}"
    chat.devices, _copy = 1, chat
    if kind == "cpu":
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // devices))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _replies(batch: Batch) -> list[Reply]:
    _copy.check()
    return _copy.replies(batch)


log = logging.getLogger(__name__)


#: How a first token may say yes or no.
_YES, _NO = ("yes", "Yes", "YES", " yes", " Yes"), ("no", "No", "NO", " no", " No")
#: Images whose features are remembered: requests about one image follow one another.
_REMEMBERED = 8


@dataclass(eq=False)
class TransformersChat(ChatModel):
    """Asks an ``AutoModelForImageTextToText`` with its ``AutoProcessor``, without sampling.

    Requests about the same image are sent one after another, and its visual features are computed
    once, where the model takes features in the place of images.

    Batches and features that are used again are only for speed. Before either is trusted, up to
    four requests of the first batch of each kind are repeated one by one, with their image. Where
    the scores of the first token differ by more than rounding, that kind uses the next slower
    way (:class:`~ood_lab.lvlm.chat.image_features.InferenceMode`), and a line says so.

    ``P(yes)`` is kept of every reply: the probability that the first token says yes, in any
    writing, over that of yes or no.

    Args:
        path: folder of the model and its processor (``shipped:NAME`` = of this package), or its
            id on the hub.
        answer: ``generate``, or ``first_token``: yes/no questions are answered by the more
            probable of the two first tokens, in one forward pass; others are generated.
        batch_size: requests at a time.
        device: ``auto`` = a GPU if there is one.
        devices: how many of them; more than one = as many processes, each with a copy of the model
            (:func:`replies_of_processes`).
        device_map: of accelerate, to spread a large model; None = all on ``device``.
        max_new_tokens: longest reply; ``auto`` = what suits the question, see
            :data:`~ood_lab.lvlm.questions.question_files.LONGEST`.
        dtype: ``float32``, ``bfloat16``, ``float16``; None = float32 on a CPU, else that of the
            weights.
        max_pixels: larger images are made smaller first; None = left to the processor.
        trust_remote_code: run code that is next to the weights.
        download: fetch a model that is named by its id and not here yet.
        reasoning_tags: see :class:`~ood_lab.lvlm.chat.openai.OpenAIChat`.

    Raises:
        UserError: there is no such device, or several are wanted with what only one process can
            have.
    """

    path: str
    answer: Literal["generate", "first_token"] = "generate"
    batch_size: Count = 16
    device: str = "auto"
    devices: Count = 1
    device_map: str | None = None
    max_new_tokens: Count | Literal["auto"] = "auto"
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    max_pixels: Count | None = None
    trust_remote_code: bool = False
    download: bool = False
    reasoning_tags: ReasoningTags = ()

    def __post_init__(self) -> None:
        self._features: OrderedDict[str, Any] = OrderedDict()
        self._trusted: dict[BatchKind, bool] = {}
        _ = self._device  # raises where there is none
        if self.devices == 1:
            return
        if self.device_map or ":" in self.device:
            raise UserError(
                f"lvlm.devices={self.devices} puts a copy of the model on each device: remove "
                "lvlm.device_map, and the number in lvlm.device"
            )
        on_cpu = self.device_type == "cpu"
        there = os.cpu_count() or 1 if on_cpu else torch.cuda.device_count()
        if self.devices > there:
            raise UserError(
                f"lvlm.devices={self.devices}: this machine has {there} "
                f"{'CPU core' if on_cpu else 'GPU'}(s)"
            )

    def __getstate__(self) -> Fields:
        """What another process needs to load its own copy: no model, no processor."""
        return without_keys(self.__dict__, ("_vlm", "_processor"))

    @cached_property
    def folder(self) -> ModelFolder:
        """The folder of the model."""
        return ModelFolder(self.path, "lvlm.path", self.trust_remote_code, self.download)

    @property
    def made_with(self) -> Settings:
        """Content of the folder and everything that changes a reply."""
        return {
            "backend": "transformers",
            "model": self.folder.name,
            "revision": self.folder.revision,
            "max_pixels": self.max_pixels,
            "gen_kwargs": {"max_new_tokens": self.max_new_tokens, "do_sample": False},
            "answer": self.answer,
            "dtype": self._dtype,
        }

    def made_for(self, question: Question) -> Settings:
        """The same with the longest reply to this question."""
        longest = longest_reply(self.max_new_tokens, question)
        return {**self.made_with, "gen_kwargs": {"max_new_tokens": longest, "do_sample": False}}

    @property
    def knows(self) -> str | None:
        """See :attr:`ModelFolder.knows`."""
        return self.folder.knows

    def check(self) -> None:
        """Loads the model; with several ``devices``, only what reads texts and images.

        Raises:
            UserError: the folder is missing or holds no such model, it has no image processor or
                chat template, or none of its tokens says yes or no where one must.
        """
        _ = self._processor if self.devices > 1 else self._vlm
        if self.answer == "first_token" and not all(self._yes_no_ids):
            raise UserError(
                f"lvlm.path={self.path}: no single token of this model says yes or no; use "
                "lvlm.answer=generate"
            )

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields replies batch by batch, ordered by image."""
        self.check()
        batches = self._batches(requests)
        if self.devices > 1 and len(batches) > 1:
            yield from replies_of_processes(self, batches)
            return
        for batch in batches:
            yield from self.replies(batch)
        self._features.clear()

    def _batches(self, requests: Requests) -> list[Batch]:
        images = {request.key: tuple(images_of(request.messages)) for request in requests}
        # What has no image or several goes apart: processors want as many for each text.
        ordered = sorted(requests, key=lambda r: (len(images[r.key]), images[r.key]))
        shared = len(set(images.values())) < len(images)
        groups = grouped(((self._tokens(r), len(images[r.key])), r) for r in ordered)
        return [
            Batch(groups[key][start : start + self.batch_size], key[0], shared)
            for key in sorted(groups)
            for start in range(0, len(groups[key]), self.batch_size)
        ]

    def _tokens(self, request: Request) -> int:
        """The longest reply to a request."""
        longest = longest_reply(self.max_new_tokens, request.question)
        return 1 if self._is_quick(request) else longest

    def _is_quick(self, request: Request) -> bool:
        question = request.question  # of a division, no answer is known to be right
        answers = ("yes", "no", "") if question.task == "yes_no" else ("yes", "no")
        return self.answer == "first_token" and question.answer in answers

    @torch.inference_mode()
    def replies(self, batch: Batch) -> list[Reply]:
        """Replies to requests that go through the model together, in their order."""
        start, (requests, tokens, shared) = time.monotonic(), batch
        reply = self._said(ModelRequest.of(requests, self._vlm, self.max_pixels), tokens, shared)
        seconds = round((time.monotonic() - start) / len(requests), 4)
        replies = []
        for request, item in zip(requests, reply, strict=True):
            if isinstance(item, str):
                replies.append(Reply(request.key, "", latency_s=seconds, error=item))
                continue
            ids, scores, prompt = item
            chance = self._p_yes(scores)
            text = self._text_of(ids)
            reason = "length" if len(ids) == tokens else "stop"
            if self._is_quick(request):
                assert chance is not None
                text, reason = ("Yes" if chance >= 0.5 else "No"), "first_token"
            usage = {"prompt_tokens": prompt, "completion_tokens": len(ids)}
            replies.append(Reply(request.key, text, chance, reason, usage, seconds))
        return replies

    def _text_of(self, ids: Sequence[int]) -> str:
        """The words of a reply. Special tokens are skipped, unless they mark a thought."""
        tokenizer = self._vlm.processor.tokenizer
        text = str(tokenizer.decode(ids, skip_special_tokens=True)).strip()
        unskipped = str(tokenizer.decode(ids))
        if without_reasoning(text) != text or without_reasoning(unskipped) == unskipped:
            return text
        for token in filter(None, (tokenizer.eos_token, tokenizer.pad_token)):
            unskipped = unskipped.replace(token, "")
        return unskipped.strip()

    def _said(
        self, prompts: ModelRequest, tokens: int, shared: bool
    ) -> Sequence[_ModelReply | str]:
        """What the model says in the quickest way that it is trusted with, or why it does not."""
        ways = [InferenceMode.TOGETHER] if len(prompts.texts) > 1 else []
        if shared and prompts.images_each == 1 and self._vlm.image_inputs:
            ways.insert(0, InferenceMode.FEATURES)
        failed: list[tuple[BatchKind, str]] = []
        for way in ways:
            kind = BatchKind(way, prompts.images_each, prompts.is_mixed, padded=True)
            try:
                kind = kind._replace(padded=prompts.is_padded)
                if not self._trusted.get(kind, True):
                    continue
                reply = self._generated(self._inputs(prompts, way), tokens)
            except Exception as error:  # families fail in ways of their own
                failed.append((kind, _reason(error)))
                continue
            if kind in self._trusted or self._is_as_alone(prompts, reply):
                self._trusted[kind] = True
                self._distrust(failed)
                return reply
            failed.append((kind, "its replies differ from those one by one"))
        alone = [self._alone(prompts.only([row]), tokens) for row in range(len(prompts.texts))]
        if not all(isinstance(item, str) for item in alone):  # else it was not the way
            self._distrust(failed)
        return alone

    def _alone(self, prompts: ModelRequest, tokens: int) -> _ModelReply | str:
        try:
            return self._generated(self._inputs(prompts, InferenceMode.ALONE), tokens)[0]
        except Exception as error:  # some need an image, or cannot take two
            return f"the model fails with {_reason(error)}"

    def _is_as_alone(self, prompts: ModelRequest, reply: Sequence[_ModelReply]) -> bool:
        """Whether some rows say what they say one by one: shortest, longest, second and last."""
        lengths = [item.prompt for item in reply]
        rows = {lengths.index(min(lengths)), lengths.index(max(lengths)), len(reply) - 1}
        if len(reply) > 1:
            rows.add(1)
        for row in rows:
            alone = self._alone(prompts.only([row]), 1)
            if isinstance(alone, str) or not same_scores(
                alone.scores, reply[row].scores, self._vlm.model.dtype
            ):
                return False
        return True

    def _distrust(self, failed: Sequence[tuple[BatchKind, str]]) -> None:
        for kind, reason in failed:
            self._trusted[kind] = False
            if kind.way is InferenceMode.FEATURES:
                log.info("%s: features of images are not used again (%s)", self.path, reason)
            else:
                log.warning(
                    "%s cannot answer several such questions at a time (%s): it answers one "
                    "by one, which takes longer",
                    self.path,
                    reason,
                )

    def _generated(self, inputs: Fields, tokens: int) -> list[_ModelReply]:
        first, vlm = _FirstScores(), self._vlm
        settings: Fields = {"do_sample": False, "pad_token_id": vlm.pad}
        sequences = vlm.model.generate(
            **inputs, **settings, max_new_tokens=tokens, logits_processor=[first]
        )
        scores = first.scores
        if scores is None:  # Janus passes no processors on
            settings |= {"output_scores": True, "return_dict_in_generate": True}
            scores = vlm.model.generate(**inputs, **settings, max_new_tokens=1).scores[0]
        new = vlm.generated(sequences, inputs["input_ids"])
        prompts = inputs["attention_mask"].sum(1).tolist()
        return [
            # What follows an end is padding.
            _ModelReply([*takewhile(lambda token: token not in vlm.ends, ids)], mine, prompt)
            for ids, mine, prompt in zip(new.tolist(), scores, prompts, strict=True)
        ]

    def _inputs(self, prompts: ModelRequest, way: InferenceMode) -> Fields:
        vlm = self._vlm
        inputs = dict(prompts.encoded)
        if way is InferenceMode.FEATURES:
            image_inputs = {k: inputs[k] for k in vlm.image_inputs if k in inputs}
            for name in PIXELS:
                inputs.pop(name, None)
            paths = [path for (path,) in prompts.paths]
            self._remember(prompts, paths, image_inputs)
            image = joined([self._features[path] for path in paths])
            inputs["mm_encoder_outputs"] = {"image": image}
            while len(self._features) > _REMEMBERED:
                self._features.popitem(last=False)
        return inputs

    def _remember(
        self, prompts: ModelRequest, paths: Sequence[str], image_inputs: Mapping[str, Tensor]
    ) -> None:
        """Computes the features of images that are not remembered, all at once where that can be.

        Raises:
            UserError: they depend on more than the image.
        """
        vlm = self._vlm
        if not set(image_inputs) <= set(vlm.processor.image_processor.model_input_names):
            raise UserError("they depend on the question")
        unknown = set(paths).difference(self._features)
        new = sorted(map(paths.index, unknown))
        if not new:
            return
        if len(new) < len(paths):
            image_inputs = with_keys(prompts.only(new).encoded, image_inputs)
        parts = features_of(vlm.model, image_inputs, len(new))
        if parts is None:  # tiles of several images, which are told apart by asking for each
            parts = []
            for row in new:
                single = with_keys(prompts.only([row]).encoded, image_inputs)
                parts += features_of(vlm.model, single, 1) or []
        self._features.update({paths[row]: part for row, part in zip(new, parts, strict=True)})

    def _p_yes(self, scores: Tensor) -> float | None:
        yes, no = self._yes_no_ids
        if not (yes and no):
            return None
        chances = scores.float().log_softmax(-1)
        both = torch.stack([chances[ids].logsumexp(-1) for ids in (yes, no)])
        return round(float(both.softmax(-1)[0]), 6)

    @cached_property
    def _yes_no_ids(self) -> tuple[list[int], list[int]]:
        tokenizer = self._processor.tokenizer
        results = []
        for words in (_YES, _NO):
            ids = [tokenizer.encode(word, add_special_tokens=False) for word in words]
            results.append(sorted({item[0] for item in ids if len(item) == 1}))
        return results[0], results[1]

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
                for module in model.modules():
                    if isinstance(module, torch.nn.Conv2d):
                        module.to(memory_format=torch.channels_last)
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


class _FirstScores:
    """Keeps the scores of the first token; a ``LogitsProcessor`` that changes nothing."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.scores is None:
            self.scores = scores
        return scores


class _ModelReply(NamedTuple):
    """Tokens of a reply, scores ``[V]`` of its first token, and the length of the prompt."""

    ids: list[int]
    scores: Tensor
    prompt: int


def _reason(error: Exception) -> str:
    """An error in one line.

    Raises:
        OutOfMemoryError: that is what it is: a smaller batch helps, another way does not.
    """
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    return f"{type(error).__name__}: {one_line(error)[:200]}"

"""vLLM in this process, where it is installed.

Written after its documented interface (``LLM.chat``, ``SamplingParams``) and tested only
against a substitute: no machine with vLLM was available.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Interval

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.lvlm.chat.base import Reply, Requests, longest_reply
from ood_lab.lvlm.chat.model_folder import LocalChat
from ood_lab.lvlm.chat.request_images import sendable
from ood_lab.lvlm.chat.server.answer_probabilities import p_yes_of

#: Alternatives of each token that are asked for, for P(yes).
_LOGPROBS = 20


@dataclass(eq=False)
class VllmChat(LocalChat):
    """Asks a model that vLLM runs, without sampling.

    Args:
        path, max_new_tokens, dtype, max_pixels, trust_remote_code, download: see
            :class:`~ood_lab.lvlm.chat.model_folder.LocalChat`.
        batch_size: requests that vLLM is given at a time; it makes its own batches of them.
        devices: GPUs that the model is spread over (``tensor_parallel_size``).
        max_length: longest prompt and reply together (``max_model_len``); None = the model's.
        memory: share of a GPU's memory that may be used (``gpu_memory_utilization``).
    """

    batch_size: Count = 256
    devices: Count = 1
    max_length: Count | None = None
    memory: Annotated[float, Interval(gt=0, le=1)] = 0.9

    def _made_with(self, longest: int | str) -> Mapping[str, Any]:
        settings = {"max_tokens": longest, "temperature": 0}
        return {"backend": "vllm", **self._about, "gen_kwargs": settings, "dtype": self.dtype}

    def check(self) -> None:
        """Loads the model.

        Raises:
            UserError: vLLM is not installed, or cannot load it.
        """
        _ = self._llm

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """Yields replies batch by batch."""
        for start in range(0, len(requests), self.batch_size):
            yield from self._replies(requests[start : start + self.batch_size])

    def _replies(self, batch: Requests) -> list[Reply]:
        import vllm

        settings = {"temperature": 0.0, "logprobs": _LOGPROBS}
        limits = [longest_reply(self.max_new_tokens, request.question) for request in batch]
        params = [vllm.SamplingParams(**settings, max_tokens=limit) for limit in limits]
        try:
            asked = [[sendable(m, self.max_pixels) for m in item.messages] for item in batch]
            said = self._llm.chat(asked, params, use_tqdm=False)
        except (OSError, ValueError, UserError) as error:
            if len(batch) > 1:  # one of them is at fault
                return [reply for request in batch for reply in self._replies([request])]
            return [Reply(batch[0].key, "", error=" ".join(str(error).split())[:300])]
        return [_reply(request.key, item) for request, item in zip(batch, said, strict=True)]

    @cached_property
    def _llm(self) -> Any:
        try:
            import vllm
        except ImportError as error:
            raise UserError(
                "lvlm=vllm needs vLLM in this environment: install vllm, or have it serve the "
                "model and ask with lvlm=openai lvlm.base_url=URL"
            ) from error
        if not self.folder.path.is_dir():
            raise UserError(f"{self.folder.named} is not a directory: name that of a local model")
        try:
            return vllm.LLM(
                model=os.fspath(self.folder.path),
                seed=0,
                dtype=self.dtype or "auto",
                tensor_parallel_size=self.devices,
                max_model_len=self.max_length,
                gpu_memory_utilization=self.memory,
                trust_remote_code=self.trust_remote_code,
            )
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{self.folder.named} cannot be loaded by vLLM: {reason}") from error


def _reply(key: str, reply: Any) -> Reply:
    """One of vLLM's ``RequestOutput`` as a reply."""
    own = reply.outputs[0]
    tokens = [
        {
            "token": alternatives[token].decoded_token,
            "top_logprobs": [
                {"token": item.decoded_token, "logprob": item.logprob}
                for item in alternatives.values()
            ],
        }
        for token, alternatives in zip(own.token_ids, own.logprobs or (), strict=False)
    ]
    sent, received = len(reply.prompt_token_ids or ()), len(own.token_ids)
    return Reply(
        key,
        own.text,
        p_yes=p_yes_of({"content": tokens}),
        finish_reason=own.finish_reason,
        usage={"prompt_tokens": sent, "completion_tokens": received},
    )

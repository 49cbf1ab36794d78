"""Any image endpoint of OpenAI's protocol as a generator."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from PIL import Image, UnidentifiedImageError

from ood_lab.common.arguments import Count, Positive, Settings
from ood_lab.common.errors import UserError
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer
from ood_lab.lvlm.chat.server.throttle import FailedAttempt
from ood_lab.lvlm.image_generation.compositions import Order, Orders
from ood_lab.lvlm.image_generation.prompt_generator import PromptGenerator

#: What a server calls the refusal of a prompt for its content.
_WITHHELD = ("content_policy_violation", "moderation_blocked", "content_filter")


@dataclass(eq=False)
class EndpointGenerator(OpenAIServer, PromptGenerator):
    """Images of prompts from ``<base_url>/images/generations``.

    The protocol has neither a seed nor a negative prompt, so that no image can be made again. An
    image is skipped if the server rejects its prompt for its content. Where a request fails
    for good, the other images of its batch are kept, and the run ends.

    Args:
        model, base_url, api_key_env, concurrency, retries, timeout_s, http_client: see
            :class:`~ood_lab.lvlm.chat.server.server_connection.OpenAIServer`.
        form, per_composition, seeds, variants: see
            :class:`~ood_lab.lvlm.image_generation.prompt_generator.PromptGenerator`.
        arguments: further fields of every request, such as ``size``.

    Raises:
        UserError: see :class:`~ood_lab.lvlm.chat.server.server_connection.OpenAIServer`.
    """

    concurrency: Count = 4
    timeout_s: Positive = 300.0
    arguments: Settings = field(default_factory=dict)
    node: ClassVar[str] = "generator"

    @property
    def made_with(self) -> Settings:
        """Server, model and what is sent with every request; not the key."""
        return {
            "generator": "openai",
            "base_url": self.base_url,
            "model": self.model,
            "form": self.form,
            "arguments": dict(self.arguments),
        }

    def images(self, orders: Orders) -> Iterator[Image.Image | None]:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`.

        Raises:
            UserError: the key is rejected, or, once the other images are out, a request failed.
        """
        failed = []
        for results in self._pool.map(self._one, orders):
            if isinstance(results, str):
                failed.append(results)
                yield None
            else:
                yield results
        if failed:
            raise UserError(
                f"{len(failed)} of {len(orders)} images could not be made ({failed[0]}): those "
                "that were made are kept; repeat the command once the server responds again"
            )

    def _one(self, order: Order) -> Image.Image | str | None:
        """The image, None where it is withheld, or why there is none."""
        body = {"model": self.model, "prompt": order.prompt, "n": 1}
        body |= {**self.arguments, **order.settings}
        try:
            return self.answer(
                "/images/generations", lambda: body, self._image, lambda: "an image"
            )[0]
        except FailedAttempt as error:
            return None if any(word in error.body for word in _WITHHELD) else error.message

    def _refused(self, error: Any, body: Settings) -> str | None:
        return super()._refused(error, {"model": self.model})  # other fields may be of one image

    def _image(self, answer: Any) -> Image.Image:
        try:
            data = answer["data"][0]
        except (KeyError, IndexError, TypeError):
            raise FailedAttempt(self.lacking("image", answer), again=False) from None
        if not data.get("b64_json"):
            raise UserError(
                f"{self.base_url} sends the address of an image, not the image: add "
                "+generator.arguments.response_format=b64_json"
            )
        try:
            return Image.open(io.BytesIO(base64.b64decode(data["b64_json"]))).convert("RGB")
        except (UnidentifiedImageError, OSError, ValueError) as error:
            problem = self.safe(f"the reply holds no image: {error}")
            raise FailedAttempt(problem, again=False) from None

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.concurrency, thread_name_prefix="image")

"""Any image endpoint of OpenAI's protocol as a generator."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Annotated, Any

import networkx as nx
from annotated_types import Ge, Gt
from PIL import Image, UnidentifiedImageError

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.construction.compositions import Composition, PromptForm
from ood_lab.lvlm.benchmarks.ode.construction.criteria import Kind
from ood_lab.lvlm.benchmarks.ode.generators.base import Order
from ood_lab.lvlm.benchmarks.ode.generators.prompt_generator import Prompts, Variant
from ood_lab.lvlm.chat.server_connection import OpenAIServer

#: What a server calls the refusal of a prompt for its content.
_WITHHELD = ("content_policy_violation", "moderation_blocked", "content_filter")

Count = Annotated[int, Ge(1)]


class EndpointGenerator:
    """Images of prompts from ``<base_url>/images/generations``.

    An image is skipped if the server rejects its prompt for its content. Where a request fails
    for good, the other images of its batch are kept, and the run ends.

    Args:
        model: name of the model, as the server knows it.
        base_url: of the server, usually ending in ``/v1``.
        api_key_env: name of the environment variable with the key.
        form: of the prompt, see
            :class:`~ood_lab.lvlm.benchmarks.ode.construction.compositions.Composition`.
        per_composition: images of every composition.
        seeds: of the first images of every composition; those of further ones are drawn.
        variants: by the kind of the pair; image ``i`` takes variant ``i mod n``.
        arguments: further fields of every request, such as ``size``.
        seed_field: of the request, for the seed; None = not sent, so that no image can be made
            again.
        negative_field: of the request, for the negative prompt; None = not sent.
        concurrency: requests under way at a time.
        retries: repetitions of a request.
        timeout_s: seconds that a request may take.
        http_client: for tests; None = the client's own.

    Raises:
        UserError: see :class:`~ood_lab.lvlm.chat.server_connection.OpenAIServer`.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str = "OPENAI_API_KEY",
        form: PromptForm = "paper",
        per_composition: Count = 2,
        seeds: Sequence[int] = (),
        variants: Mapping[Kind, Sequence[Variant]] | None = None,
        arguments: Mapping[str, Any] | None = None,
        seed_field: str | None = None,
        negative_field: str | None = None,
        concurrency: Count = 4,
        retries: Annotated[int, Ge(0)] = 5,
        timeout_s: Annotated[float, Gt(0.0)] = 300.0,
        http_client: Any = None,
    ) -> None:
        self.model = model
        self._prompts = Prompts(form, per_composition, seeds, variants or {})
        self.arguments = dict(arguments or {})
        self.seed_field = seed_field
        self.negative_field = negative_field
        self._server = OpenAIServer(
            "generator", base_url, api_key_env, concurrency, retries, timeout_s, http_client
        )

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Server, model and what is sent with every request; not the key."""
        return {
            "generator": "openai",
            "base_url": self._server.base_url,
            "model": self.model,
            "form": self._prompts.form,
            "arguments": self.arguments,
            "seed_field": self.seed_field,
            "negative_field": self.negative_field,
        }

    def check(self) -> None:
        """Asks the server for its models; see :meth:`OpenAIServer.check`."""
        self._server.check()

    def drawable(self, graph: nx.Graph) -> nx.Graph:
        """Everything: a prompt can name anything."""
        return graph

    def plan(self, compositions: Sequence[Composition], seed: int) -> list[Order]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.generators.base.Generator`."""
        return self._prompts.plan(compositions, seed)

    def images(self, orders: Sequence[Order]) -> Iterator[Image.Image | None]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.generators.base.Generator`.

        Raises:
            UserError: the key is rejected, or, once the other images are out, a request failed.
        """
        failed = []
        for found in self._pool.map(self._one, orders):
            if isinstance(found, str):
                failed.append(found)
                yield None
            else:
                yield found
        if failed:
            raise UserError(
                f"{len(failed)} of {len(orders)} images could not be made ({failed[0]}): those "
                "that were made are kept; repeat the command once the server responds again"
            )

    def _one(self, order: Order) -> Image.Image | str | None:
        """The image, None where it is withheld, or why there is none."""
        import openai

        body = {"model": self.model, "prompt": order.prompt, "n": 1}
        body |= {**self.arguments, **order.settings}
        fields = {self.seed_field: order.seed, self.negative_field: order.negative_prompt}
        body |= {name: value for name, value in fields.items() if name}
        try:
            answer = self._server.client.post("/images/generations", body=body, cast_to=object)
        except openai.APIStatusError as error:
            if any(word in str(error.body) for word in _WITHHELD):
                return None
            self._server.stop_at(error, {"model": self.model})
            return self._server.cause(error)
        except (openai.OpenAIError, OSError, ValueError) as error:
            return self._server.cause(error)
        return self._image(answer)

    def _image(self, answer: Any) -> Image.Image | str:
        try:
            data = answer["data"][0]
        except (KeyError, IndexError, TypeError):
            return self._server.lacking("image", answer)
        if not data.get("b64_json"):
            raise UserError(
                f"{self._server.base_url} sends the address of an image, not the image: add "
                "+generator.arguments.response_format=b64_json"
            )
        try:
            return Image.open(io.BytesIO(base64.b64decode(data["b64_json"]))).convert("RGB")
        except (UnidentifiedImageError, OSError, ValueError) as error:
            return self._server.safe(f"the reply holds no image: {error}")

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="image")

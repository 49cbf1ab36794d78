"""A baseline that answers yes/no questions by the cosine of a CLIP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from annotated_types import Interval
from PIL import Image

from ood_lab.clip import ClipModel
from ood_lab.common.arguments import Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.lvlm.chat.base import ChatModel, Reply, Requests
from ood_lab.lvlm.image_text.base import encoded_images
from ood_lab.lvlm.image_text.clip import label_features, template_of
from ood_lab.lvlm.image_text.object_detectors import BestScores, by_image


@dataclass(eq=False)
class ClipThreshold(ChatModel):
    """Yes, where ``cos(f_x, g_o) >= threshold`` for image ``x`` and the text of object ``o``.

    Args:
        clip: the model.
        threshold: of the cosine.
        template: text with ``{}`` for the object; None = see
            :func:`ood_lab.lvlm.image_text.clip.template_of`.
        device: None = the first GPU, else the CPU.
    """

    clip: ClipModel
    threshold: Annotated[float, Interval(ge=-1, le=1)] = 0.25
    template: str | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        self.clip = self.clip.to(chosen_device(self.device))
        self.template = template_of(self.clip, self.template)

    @cached_property
    def made_with(self) -> Settings:
        """Weights, threshold and template."""
        identity = self.clip.identity
        settings = {"threshold": self.threshold, "template": self.template}
        return {"backend": "clip", "model": identity["name"], **identity, **settings}

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """One reply for each request, image by image; ``p_yes`` is left open."""
        for reply in by_image(requests, lambda _: None, self._found, self.threshold):
            yield Reply(reply.key, reply.text, finish_reason=reply.finish_reason)

    @torch.inference_mode()
    def _found(self, image: Image.Image, objects: Sequence[str]) -> BestScores:
        texts = torch.from_numpy(label_features(self.clip, objects, self.template))
        cosines = (encoded_images(self.clip, [image]).cpu() @ texts.T)[0]
        return dict(zip(objects, cosines.tolist(), strict=True))

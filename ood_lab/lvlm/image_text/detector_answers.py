"""Object detectors that answer yes/no questions: is a box of it found?

They act as models that read no text: the object is ``meta["category"]`` of the question. All
objects of an image's questions go into one call, and all wordings of a question get the
answer of that call. The reply is "Yes" where some box of the object scores ``threshold`` or more;
``p_yes`` is the best score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image

from ood_lab.common.arguments import Share
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.common.hints import suggestion
from ood_lab.lvlm.chat.base import ChatModel, Reply, Request, Requests
from ood_lab.lvlm.image_text.base import open_images
from ood_lab.lvlm.image_text.object_proposals import detected
from ood_lab.lvlm.image_text.transformers import load_pretrained
from ood_lab.models.weights import weights_sha256

#: Best score of each object in an image.
Found = Mapping[str, float]


@dataclass(eq=False)
class _Detector(ChatModel):
    """What all detectors share; ``_found`` is what they differ in.

    Args:
        path: folder of a model of transformers; nothing is downloaded.
        threshold: least score of a box that counts.
        device: None = the first GPU, else the CPU.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    path: str
    threshold: Share = 0.25
    device: str | None = None
    #: Classes of transformers for the model and for what makes its inputs, and a name for both.
    auto: ClassVar[str]
    reads: ClassVar[str] = "AutoProcessor"
    backend: ClassVar[str]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        processor, model = load_pretrained("lvlm.path", self.path, self.reads, self.auto)
        return processor, model.to(chosen_device(self.device)).eval()

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Weights, threshold, and how objects are put to the model."""
        return {
            "backend": self.backend,
            "model": Path(self.path).name,
            "weights_sha256": self._sha256,
            "threshold": self.threshold,
            **self._wording,
        }

    @cached_property
    def _sha256(self) -> str:
        return weights_sha256(self._loaded[1])

    @property
    def _wording(self) -> Mapping[str, Any]:
        return {}

    def check(self) -> None:
        """Raises a UserError where the model cannot be loaded."""
        _ = self._loaded

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """One reply for each request, image by image.

        Raises:
            UserError: a question names no object, or one that the model does not know.
        """
        yield from by_image(requests, self._checked, self._found, self.threshold)

    def _checked(self, objects: Sequence[str]) -> None:
        """Raises a UserError where the model cannot be asked about one of them."""

    @torch.inference_mode()
    def _found(self, image: Image.Image, objects: Sequence[str]) -> Found:
        raise NotImplementedError


@dataclass(eq=False)
class Owl(_Detector):
    """OWL-ViT and OWLv2 (arXiv 2205.06230, 2306.09683): each object is a text of its own.

    Args:
        path, threshold, device: see :class:`_Detector`.
        template: text with ``{}`` for the object.
    """

    template: str = "an image of {}"
    auto: ClassVar[str] = "AutoModelForZeroShotObjectDetection"
    backend: ClassVar[str] = "owl"

    @property
    def _wording(self) -> Mapping[str, Any]:
        return {"template": self.template}

    @torch.inference_mode()
    def _found(self, image: Image.Image, objects: Sequence[str]) -> Found:
        processor, model = self._loaded
        texts = [self.template.format(name) for name in objects]
        inputs = processor(text=[texts], images=image, return_tensors="pt").to(model.device)
        best = model(**inputs).logits[0].sigmoid().amax(dim=0)
        return dict(zip(objects, best.tolist(), strict=True))


class GroundingDino(_Detector):
    """Grounding DINO (arXiv 2303.05499): one text of all objects, ``cat . dog .``.

    The score of an object in a box is the greatest of those of its tokens. The objects of a call
    are read together, so that a score depends a little on the other questions.
    """

    auto, backend = "AutoModelForZeroShotObjectDetection", "grounding_dino"

    @torch.inference_mode()
    def _found(self, image: Image.Image, objects: Sequence[str]) -> Found:
        processor, model = self._loaded
        text = " . ".join(name.lower() for name in objects) + " ."
        inputs = processor(text=text, images=image, return_tensors="pt").to(model.device)
        scores = model(**inputs).logits[0].sigmoid()  # [boxes, tokens]
        offsets = processor.tokenizer(text, return_offsets_mapping=True, truncation=True)
        spans = offsets["offset_mapping"][: scores.shape[1]]
        found, start = {}, 0
        for name in objects:
            end = start + len(name)
            tokens = [k for k, (a, b) in enumerate(spans) if start <= a < b <= end]
            if not tokens:
                raise UserError(
                    f"{self.path} reads no more than {len(spans)} tokens: ask about fewer objects "
                    "of an image"
                )
            found[name] = float(scores[:, tokens].max())
            start = end + len(" . ")
        return found


class ClosedVocabulary(_Detector):
    """Detectors of fixed classes (DETR, YOLOS, RT-DETR, ...) that know the objects by name.

    The score of a class in a box is what the model's own post-processing gives it.
    """

    auto, backend, reads = "AutoModelForObjectDetection", "detector", "AutoImageProcessor"

    def _checked(self, objects: Sequence[str]) -> None:
        labels = self._loaded[1].config.id2label.values()
        known = sorted({str(label).lower() for label in labels})
        for name in objects:
            if name.lower() not in known:
                raise UserError(
                    f"{self.path} does not detect '{name}': {suggestion(name, known)}; an "
                    "open-vocabulary detector does (lvlm=owlv2, lvlm=grounding_dino)"
                )

    @torch.inference_mode()
    def _found(self, image: Image.Image, objects: Sequence[str]) -> Found:
        best: dict[str, float] = {}
        for name, score in next(detected(*self._loaded, [image], threshold=0.0)):
            best[name.lower()] = max(best.get(name.lower(), 0.0), score)
        return {name: best.get(name.lower(), 0.0) for name in objects}


def by_image(
    requests: Requests,
    check: Callable[[Sequence[str]], None],
    find: Callable[[Image.Image, Sequence[str]], Found],
    threshold: float,
) -> Iterator[Reply]:
    """Replies from one look at each image.

    Args:
        requests: about objects in images.
        check: raises an error for objects that cannot be asked about.
        find: best score of each object in an image.
        threshold: of a yes.

    Raises:
        UserError: a question has no image or names no object; an image cannot be read.
    """
    images: dict[str, list[tuple[Request, str]]] = {}
    for request in requests:
        path, name = _asked(request)
        images.setdefault(path, []).append((request, name))
    check(sorted({name for asked in images.values() for _, name in asked}))
    for path, asked in images.items():
        objects = list(dict.fromkeys(name for _, name in asked))
        found = find(open_images([Path(path)])[0], objects)
        for request, name in asked:
            yield _reply(request, found[name], threshold)


def _asked(request: Request) -> tuple[str, str]:
    """Path of the image and name of the object."""
    for message in request.messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url" and (name := request.question.meta.get("category")):
                return str(part["image_url"]["url"]), str(name)
    raise UserError(
        "a detector answers questions about one object in an image only; the question "
        f"'{request.question.text}' names none; choose an "
        "lvlm that reads text, or skip such questions (OODBench: task.bap_per_image=0)"
    )


def _reply(request: Request, score: float, threshold: float) -> Reply:
    seen = score >= threshold
    # OODBench also asks whether an image does not contain something.
    says_yes = seen != (request.question.meta.get("form", "affirmative") == "negative")
    p_yes = score if says_yes == seen else 1 - score
    return Reply(request.key, "Yes" if says_yes else "No", p_yes=p_yes, finish_reason="stop")

"""Images of requests: opened, made smaller, and put into messages."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ood_lab.common.arguments import Fields
from ood_lab.data.sources.image_files import is_upright, load_rgb
from ood_lab.lvlm.chat.base import Message

#: What every server takes as it is.
_SENT_AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg"}


def open_image(path: str, max_pixels: int | None = None) -> Image.Image:
    """An RGB image of at most ``max_pixels`` pixels, upright, its proportions kept.

    Raises:
        UserError: it cannot be read.
    """
    image = load_rgb(path)
    pixels = image.width * image.height
    if max_pixels is None or pixels <= max_pixels:
        return image
    factor = math.sqrt(max_pixels / pixels)
    size = max(1, int(image.width * factor)), max(1, int(image.height * factor))
    return image.resize(size, Image.Resampling.BICUBIC)


def data_url(path: str, max_pixels: int | None = None) -> str:
    """An image as ``data:image/...;base64,...``: the file itself where it can be sent unchanged.

    What its EXIF data turn is sent upright: few servers look there.

    Raises:
        UserError: it has to be made smaller or turned, and cannot be read.
    """
    content = Path(path).read_bytes()
    with Image.open(io.BytesIO(content)) as file:
        fits = max_pixels is None or file.width * file.height <= max_pixels
        mime = _SENT_AS_IS.get(file.format or "")
        upright = is_upright(file)
    if not (fits and mime and upright):
        buffer, mime = io.BytesIO(), "image/png"
        open_image(path, max_pixels).save(buffer, "PNG")
        content = buffer.getvalue()
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


def sendable(message: Message, max_pixels: int | None) -> Fields:
    """A message with the content of its images in place of their paths.

    Raises:
        UserError: see :func:`data_url`.
        OSError: an image is missing.
    """
    content = message["content"]
    if isinstance(content, str):
        return dict(message)
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(part["image_url"]["url"], max_pixels)}}
        if part["type"] == "image_url"
        else dict(part)
        for part in content
    ]
    return {**message, "content": parts}


def images_of(messages: Sequence[Message]) -> list[str]:
    """Paths of all images of a request, in order."""
    return [part["image_url"]["url"] for part in _parts(messages) if part["type"] == "image_url"]


def texts_of(messages: Sequence[Message]) -> list[str]:
    """All texts of a request, in order."""
    return [part["text"] for part in _parts(messages) if part["type"] == "text"]


def _parts(messages: Sequence[Message]) -> list[Fields]:
    """All parts of all messages; a content that is a text is one part."""
    parts: list[Fields] = []
    for message in messages:
        content = message["content"]
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts

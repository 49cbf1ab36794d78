"""What requests come to: tokens and cost, before they are sent and after."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import ConfigDict
from typing_extensions import TypedDict

from ood_lab.lvlm.chat.base import Requests
from ood_lab.lvlm.chat.request_images import images_of, texts_of

#: Characters of a token, for estimates; most tokens that frame the messages of a request.
_CHARACTERS, _FRAME = 4, 32


class Price(TypedDict):
    """Of a million tokens."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    input: Annotated[float, Ge(0.0)]
    output: Annotated[float, Ge(0.0)]


#: What to give as a price.
PRICE = "both prices of a million tokens, as {input: 2.5, output: 10}"


def estimate(
    requests: Requests,
    fields: Iterable[Mapping[str, Any]],
    image_tokens: int | None,
    price: Price | None,
) -> str:
    """What the requests come to: about, and, of tokens and cost, at most.

    Args:
        requests: that would be sent.
        fields: of each, without model and messages.
        image_tokens: most tokens of an image; None = images are counted apart.
        price: None = no cost is shown.
    """
    texts = [text for item in requests for text in texts_of(item.messages)]
    images = sum(len(images_of(item.messages)) for item in requests)
    seen = images * (image_tokens or 0)
    about = sum(map(len, texts)) // _CHARACTERS + seen
    # No tokeniser makes more tokens than a text has bytes.
    most = sum(len(text.encode()) for text in texts) + len(requests) * _FRAME + seen
    replies = _most_of_replies(fields)
    parts = [f"{len(requests):,} requests", f"about {about:,} tokens"]
    if images:
        parts.append(f"{images:,} images{'' if image_tokens else ' (not in the tokens)'}")
    parts.append(
        "replies of any length" if replies is None else f"replies of up to {replies:,} tokens"
    )
    if price is not None:
        cost = f"a cost of at most {_money(cost_of(price, most, replies or 0))}"
        left_out = [
            "the images: lvlm.image_tokens is not given" if images and not seen else "",
            "the replies: lvlm.max_tokens is null" if replies is None else "",
        ]
        without = " and ".join(filter(None, left_out))
        parts.append(f"{cost}, without {without}" if without else cost)
    return ", ".join(parts)


def _most_of_replies(requests: Iterable[Mapping[str, Any]]) -> int | None:
    """Tokens of all replies at their longest; None where nothing bounds them."""
    total = 0
    for fields in requests:
        limits = [fields[k] for k in ("max_tokens", "max_completion_tokens") if k in fields]
        if not limits or not all(isinstance(limit, int) for limit in limits):
            return None
        several = fields.get("n", 1)
        total += max(limits) * (several if isinstance(several, int) else 1)
    return total


def bill(used: Mapping[str, int], price: Price | None) -> str:
    """Tokens that were used, and their cost."""
    sent, received = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
    text = f"used {sent:,} tokens of input and {received:,} of output"
    return text + (f", a cost of {_money(cost_of(price, sent, received))}" if price else "")


def cost_of(price: Price, sent: int, received: int) -> float:
    """Cost of tokens that were sent and received."""
    return (sent * price["input"] + received * price["output"]) / 1e6


def _money(cost: float) -> str:
    """Two digits after the point, or, of small sums, two that say something; never rounded down."""
    digits = 2 if cost >= 1 or cost == 0 else 1 - math.floor(math.log10(cost))
    return f"{math.ceil(cost * 10**digits - 1e-9) / 10**digits:.{digits}f}"

"""The identity of a run: the part of its configuration that can change a number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ood_lab.common.files import packaged_table

_TABLE = packaged_table("ood_lab.run.job", "hashed_settings.yaml")
#: Keys that change no number; everything else is hashed.
NEUTRAL = frozenset(_TABLE["neutral"])
#: Keys that came later, and the values that change nothing: earlier runs keep their hash.
LATER: dict[str, Any] = _TABLE["later"]
#: The same of ``model`` and ``model.backbone`` by what builds the network; null changes nothing.
LATER_OF: dict[str, list[str]] = _TABLE["later_of"]

#: Classes that were moved, and where they were: a move changes no hash.
FORMER: dict[str, str] = _TABLE["former"]


def telling(
    config: Mapping[str, Any], prefix: str = "", later: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration without what :data:`NEUTRAL` names and :data:`LATER` has."""
    if later is None:
        later = LATER | dict.fromkeys(_later_of(config))
    return {
        str(key): telling(value, f"{prefix}{key}.", later) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if f"{prefix}{key}" not in NEUTRAL
        and later.get(f"{prefix}{key}", telling) != value
        and not (key == "download" and prefix[:5] == "data.")
    }


def _later_of(config: Mapping[str, Any]) -> list[str]:
    model = config.get("model")
    backbone = model.get("backbone") if isinstance(model, Mapping) else None
    target = backbone.get("_target_") if isinstance(backbone, Mapping) else None
    keys = LATER_OF.get(str(target), ())
    return [f"{place}.{key}" for place in ("model", "model.backbone") for key in keys]


def config_hash(config: Mapping[str, Any]) -> str:
    """First 10 hex digits of the SHA-256 of everything in ``config`` that can change a number."""
    text = json.dumps(telling(config), sort_keys=True, default=str)
    for now, before in FORMER.items():
        text = text.replace(f'"_target_": "{now}', f'"_target_": "{before}')
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``(dotted key, value)`` for every leaf of nested settings."""
    parts = node.items() if isinstance(node, Mapping) else enumerate(node)
    for key, value in parts:
        if isinstance(value, (Mapping, list)) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

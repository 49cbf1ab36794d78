"""The identity of a run: the part of its configuration that can change a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ood_lab.common.arguments import Settings
from ood_lab.common.file_records import json_sha256
from ood_lab.common.files import packaged_table

#: Keys that change no number; everything else is hashed.
NEUTRAL = frozenset(packaged_table("ood_lab.run.job", "neutral_settings.yaml"))


def telling(config: Settings, prefix: str = "") -> dict[str, Any]:
    """The configuration without what :data:`NEUTRAL` names."""
    return {
        str(key): telling(value, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in config.items()
        if f"{prefix}{key}" not in NEUTRAL and not (key == "download" and prefix[:5] == "data.")
    }


def config_hash(config: Settings) -> str:
    """First 10 hex digits of the SHA-256 of everything in ``config`` that can change a number."""
    return json_sha256(telling(config))[:10]

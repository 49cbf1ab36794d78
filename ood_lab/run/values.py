"""How overrides are written, and what one of a sweep expands to."""

from __future__ import annotations

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException


def values_of(override: Override) -> list[str]:
    """The override as one or, for a sweep, several plain overrides."""
    if override.is_sweep_override() and not override.is_delete():
        prefix = str(override.input_line).split("=", 1)[0]
        return [f"{prefix}={value}" for value in override.sweep_string_iterator()]
    return [str(override.input_line)]


def quoted(override: str) -> str:
    """Quotes values that Hydra's grammar cannot read bare, such as a path with ``seed=0`` in it."""
    key, equals, value = override.partition("=")
    if not equals or value[:1] in ("'", '"', "[", "{") or _reads(override):
        return override
    parts = [
        v if _reads(f"{key}={v}") else "'" + v.replace("'", "\\'") + "'" for v in value.split(",")
    ]
    return f"{key}={','.join(parts)}"


def _reads(override: str) -> bool:
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True

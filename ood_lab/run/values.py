"""Where the configuration lies, and what one override of a sweep expands to."""

from __future__ import annotations

from pathlib import Path

from hydra.core.override_parser.types import Override

CONF = Path(__file__).resolve().parents[2] / "conf"


def values_of(override: Override) -> list[str]:
    """The override as one or, for a sweep, several plain overrides."""
    if override.is_sweep_override() and not override.is_delete():
        prefix = str(override.input_line).split("=", 1)[0]
        return [f"{prefix}={value}" for value in override.sweep_string_iterator()]
    return [str(override.input_line)]

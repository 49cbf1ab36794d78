"""Definitions on the pages of benchmarks, which ``definitions.yaml`` has."""

from __future__ import annotations

from ood_lab.common.files import packaged_table

_DEFINITIONS: dict[str, dict[str, str]] = packaged_table(__package__, "definitions.yaml")


def defined(*names: str) -> list[tuple[str, str]]:
    """Terms and their meanings, of these kinds of questions and benchmarks, in this order."""
    return [pair for name in names for pair in _DEFINITIONS[name].items()]

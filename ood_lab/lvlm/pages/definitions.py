"""Definitions on the pages of benchmarks, which ``definitions.yaml`` has."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml


def defined(*names: str) -> list[tuple[str, str]]:
    """Terms and their meanings, of these kinds of questions and benchmarks, in this order."""
    return [pair for name in names for pair in _definitions()[name].items()]


@cache
def _definitions() -> dict[str, dict[str, str]]:
    content = files(__package__).joinpath("definitions.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(content))

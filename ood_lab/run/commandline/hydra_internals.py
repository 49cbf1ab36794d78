"""Workarounds where Hydra has no public function: the only module that uses its internals."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig


def flag_parser() -> ArgumentParser:
    """The parser of Hydra's own flags, whose ``overrides`` are the other arguments."""
    return get_args_parser()


def apply(cfg: DictConfig, values: Sequence[Override]) -> None:
    """Sets keys of a configuration, as Hydra does after it has composed the groups.

    Raises:
        HydraException: a key does not exist, or cannot hold the value.
    """
    ConfigLoaderImpl._apply_overrides_to_config(list(values), cfg)

"""Nodes of a configuration: their values are checked, then they are built as objects."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.errors import HydraException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, one_line
from ood_lab.run.commandline.composition import leaves, target_name

#: What Hydra raises where no class or function has the name of a ``_target_``.
UNKNOWN = (HydraException, ImportError, ValueError)


def build(cfg: DictConfig, key: str, **arguments: Any) -> Any:
    """Instantiates the configuration node ``key``; ``arguments`` override its own.

    Raises:
        UserError: the node cannot be built; the message names it.
    """
    node = OmegaConf.select(cfg, key)
    try:
        return instantiate(node, **arguments, _convert_="all")
    except HydraException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from error
        reason = one_line(error.__cause__ or error)
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", reason):
            raise UserError(
                f"{target_name(node)} has no option '{key}.{unknown[1]}': remove it, or choose "
                f"another {key.split('.')[0]}=..."
            ) from error
        raise UserError(f"cannot build '{key}': {reason}") from error


def target(node: Any) -> Any:
    """The class or function from which a node is built; None where it is no object to build.

    Raises:
        HydraException, ImportError, ValueError: there is none of that name.
    """
    name = target_name(node)
    return None if name is None else get_object(name)


def own_score(cfg: DictConfig) -> str:
    """The detector that reads what ``loss`` adds to a network; empty = there is none."""
    from ood_lab.models.backbone import AddedLayers

    try:
        objective = target(cfg.loss)
    except UNKNOWN:  # told where the loss is built
        return ""
    own = isinstance(objective, type) and issubclass(objective, AddedLayers)
    return objective.own_score if own else ""


def left_to_data(groups: Settings) -> dict[str, dict[str, Any]]:
    """Arguments of :func:`build` that leave the making of data sets to the DataModule.

    What cannot be made is then told as any other source that cannot be read.

    Args:
        groups: nodes of ``data`` whose values are sources, by name.
    """
    late = {"_partial_": True}
    return {
        group: {
            name: late if target_name(source) else {"dataset": late}
            for name, source in sources.items()
            if isinstance(source, Mapping)
            and (target_name(source) or target_name(source.get("dataset")))
        }
        for group, sources in groups.items()
        if isinstance(sources, Mapping)
    }


def check_finite(settings: Settings) -> None:
    """Raises :class:`UserError`, naming the key, for any NaN or infinity in a configuration."""
    for key, value in leaves(settings):
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: give a finite number")


def check_nodes(settings: Any, key: str = "") -> None:
    """Checks the values of every node with a ``_target_`` against what that target accepts.

    The settings are resolved; if they are only a part, ``key`` says where it belongs.

    Raises:
        UserError: see :func:`~ood_lab.common.arguments.check_values`; or a ``_target_`` is not a
            name.
    """
    for place, node in _objects(settings, key):
        if not isinstance(name := target_name(node), str):
            raise UserError(f"{place}._target_={name}: give the name of a class or function")
        try:
            function = target(node)
        except UNKNOWN:  # reported when it is built
            continue
        from ood_lab.common.arguments import check_values  # pydantic takes its time

        # Values that are filled in later are null until then.
        left_open = bool(node.get("_partial_"))
        values = {
            name: value
            for name, value in node.items()
            if not (name.startswith("_") or any(_objects(value)) or (value is None and left_open))
        }
        check_values(function, values, place)


def _objects(node: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Parts with a ``_target_``, and their keys; inner ones come first."""
    if isinstance(node, list):
        for position, part in enumerate(node):
            yield from _objects(part, f"{key}[{position}]")
    elif isinstance(node, dict):
        for name, part in node.items():
            yield from _objects(part, f"{key}.{name}" if key else name)
        if target_name(node) is not None:
            yield key, node

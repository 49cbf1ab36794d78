"""Nodes of a configuration: their values are checked, then they are built as objects."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.errors import HydraException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from ood_lab.common.errors import UserError
from ood_lab.run.commandline.composition import leaves


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
        reason = " ".join(str(error.__cause__ or error).split())
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", reason):
            raise UserError(
                f"{node['_target_']} has no option '{key}.{unknown[1]}': remove it, or choose "
                f"another {key.split('.')[0]}=..."
            ) from error
        raise UserError(f"cannot build '{key}': {reason}") from error


def own_score(cfg: DictConfig) -> str:
    """The detector that reads what ``loss`` adds to a network; empty = there is none."""
    from ood_lab.models.backbone import AddedLayers

    try:
        target = get_object(str(cfg.loss.get("_target_")))
    except (HydraException, ImportError, ValueError):  # told where the loss is built
        return ""
    own = isinstance(target, type) and issubclass(target, AddedLayers)
    return target.own_score if own else ""


def left_to_data(groups: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arguments of :func:`build` that leave the making of data sets to the DataModule.

    What cannot be made is then told as any other source that cannot be read.

    Args:
        groups: nodes of ``data`` whose values are sources, by name.
    """
    late = {"_partial_": True}
    return {
        group: {
            name: late if "_target_" in source else {"dataset": late}
            for name, source in sources.items()
            if isinstance(source, Mapping) and ("_target_" in source or _made(source))
        }
        for group, sources in groups.items()
        if isinstance(sources, Mapping)
    }


def _made(source: Mapping[str, Any]) -> bool:
    inner = source.get("dataset")
    return isinstance(inner, Mapping) and "_target_" in inner


def check_finite(settings: Mapping[str, Any]) -> None:
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
        name = node["_target_"]
        if not isinstance(name, str):
            raise UserError(f"{place}._target_={name}: give the name of a class or function")
        try:
            target = get_object(name)
        except (HydraException, ImportError):  # reported when it is built
            continue
        from ood_lab.common.arguments import check_values  # pydantic takes its time

        # Values that are filled in later are null until then.
        left_open = bool(node.get("_partial_"))
        values = {
            name: value
            for name, value in node.items()
            if not (name.startswith("_") or any(_objects(value)) or (value is None and left_open))
        }
        check_values(target, values, place)


def _objects(node: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Parts with a ``_target_``, and their keys; inner ones come first."""
    if isinstance(node, list):
        for position, part in enumerate(node):
            yield from _objects(part, f"{key}[{position}]")
    elif isinstance(node, dict):
        for name, part in node.items():
            yield from _objects(part, f"{key}.{name}" if key else name)
        if "_target_" in node:
            yield key, node

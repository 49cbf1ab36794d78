"""A composed configuration, and its nodes as objects or plain Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.utils import get_object, instantiate
from lightning.fabric.utilities.rank_zero import _get_rank
from omegaconf import DictConfig, OmegaConf

from ood_lab.arguments import check_values
from ood_lab.errors import UserError
from ood_lab.run.folder import RunFolder, environment


class Configured:
    """What is known of a job before anything is built.

    Args:
        cfg: the composed configuration.
        folder: the run folder, open and locked on the main process.

    Attributes:
        manifest: filled by those who work with what made the numbers.
    """

    def __init__(self, cfg: DictConfig, folder: RunFolder) -> None:
        self.cfg = cfg
        self.run_folder = folder
        self.manifest: dict[str, Any] = {"config_hash": folder.path.parent.name, **environment()}

    @property
    def code(self) -> str:
        """Version and commit of this package."""
        return f"{self.manifest['versions']['ood_lab']} {self.manifest['git']}"

    @property
    def is_main(self) -> bool:
        """True on the process that writes (rank 0)."""
        return not _get_rank()

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return int(self.cfg.seed)

    @property
    def features_root(self) -> Path:
        """Folder of all feature banks."""
        return Path(self.cfg.paths.features)

    @property
    def model(self) -> dict[str, Any]:
        """The resolved ``model`` node."""
        return dict(self.settings["model"])

    @property
    def metrics(self) -> dict[str, Any]:
        """The resolved ``metrics`` node."""
        return dict(self.settings["metrics"])

    @property
    def shift(self) -> dict[str, Any]:
        """The resolved ``shift`` node."""
        return dict(self.settings["shift"])

    @property
    def folder(self) -> Path:
        """The run folder's path."""
        return self.run_folder.path

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration as plain Python."""
        settings = OmegaConf.to_container(self.cfg, resolve=True)
        assert isinstance(settings, dict)
        return {str(key): value for key, value in settings.items()}

    def build(self, key: str, **arguments: Any) -> Any:
        """Instantiates the configuration node ``key``; errors name the node."""
        node = OmegaConf.select(self.cfg, key)
        try:
            return instantiate(node, **arguments, _convert_="all")
        except HydraException as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from error
            reason = " ".join(str(error.__cause__ or error).split())
            if unknown := re.search(r"unexpected keyword argument '(\w+)'", reason):
                raise UserError(
                    f"'{key}.{unknown[1]}' is nothing that {node['_target_']} takes: leave it out, "
                    f"or choose another {key.split('.')[0]}=..."
                ) from error
            raise UserError(f"cannot build '{key}': {reason}") from error


def check_nodes(node: Any, key: str = "") -> None:
    """Checks the values of every node with a ``_target_`` as this target would have them.

    Args:
        node: a resolved configuration, or a part of one.
        key: of the part, for messages.

    Raises:
        UserError: see :func:`~ood_lab.arguments.check_values`; or a ``_target_`` is no name.
    """
    if isinstance(node, list):
        for position, part in enumerate(node):
            check_nodes(part, f"{key}[{position}]")
    if not isinstance(node, dict):
        return
    for name, part in node.items():
        check_nodes(part, f"{key}.{name}" if key else name)
    if "_target_" not in node:
        return
    if not isinstance(node["_target_"], str):
        raise UserError(f"{key}._target_={node['_target_']}: give the name of a class or function")
    # What is filled in later is null until then.
    left_open = bool(node.get("_partial_"))
    values = {
        name: value
        for name, value in node.items()
        if not name.startswith("_")
        and not _holds_nodes(value)
        and not (value is None and left_open)
    }
    try:
        target = get_object(node["_target_"])
    except (HydraException, ImportError):  # said when it is built
        return
    check_values(target, values, key)


def _holds_nodes(value: Any) -> bool:
    if isinstance(value, dict):
        return "_target_" in value or any(map(_holds_nodes, value.values()))
    return isinstance(value, list) and any(map(_holds_nodes, value))

"""OOD datasets that a job makes of ID test because it was given none."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from ood_lab.common.arguments import Settings
from ood_lab.scripts import CONF

#: What is said where they are made; the file of ``conf/synthetic_ood`` is named.
MADE = (
    "No OOD dataset was given: synthetic ones are made by corrupting your ID test images "
    "(synthetic_ood={}); add data.ood.NAME=DIR for your own."
)


def chosen_unasked(settings: Settings) -> str | None:
    """The file of ``conf/synthetic_ood`` that the task takes by itself; None where it takes none.

    The task names the file. It is taken where ``data`` has sources, none of them of an OOD
    dataset, and nothing was chosen for ``synthetic_ood`` (``none`` is a choice).

    Args:
        settings: the resolved configuration.
    """
    data = settings.get("data") or {}
    given = any((data.get("ood") or {}).values())
    if settings.get("synthetic_ood") is not None or given or not {"id", "ood"} <= set(data):
        return None
    name: str | None = settings["task"].get("synthetic_ood")
    return name


def graded_of(settings: Settings) -> DictConfig | None:
    """The node ``synthetic_ood`` of a job: the chosen one, or that of :func:`chosen_unasked`."""
    name = chosen_unasked(settings)
    if name is not None:
        node = OmegaConf.load(CONF / "synthetic_ood" / f"{name}.yaml")
    else:
        node = OmegaConf.create(settings.get("synthetic_ood") or {})
    return node if isinstance(node, DictConfig) and len(node) else None

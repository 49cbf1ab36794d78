"""Which groups of the configuration a task reads: those of the members of the workspace it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, TypeVar

from ood_lab.common.errors import UserError

Built = TypeVar("Built")

#: Members of the workspace that a task may use, and the groups of the configuration from which
#: each is made; :func:`made_of` fills it.
GROUPS: dict[str, tuple[str, ...]] = {}
#: Groups that only other settings and the training of a network read.
OF_TRAINING = ("preset", "detector_preset", "auto_length")


def made_of(*groups: str) -> Callable[[Callable[[Any], Built]], cached_property[Built]]:
    """Declares a member of the workspace that a task may use, built when first asked for.

    The workspace is handed on untyped, as its file imports this one.
    """

    def member(build: Callable[[Any], Built]) -> cached_property[Built]:
        name = build.__name__
        GROUPS[name] = groups

        @wraps(build)
        def build_if_declared(ws: Any) -> Built:
            if not ws.trains and set(groups) & ignored_groups(ws.settings["task"]):
                raise UserError(
                    f"{ws.cfg.task._target_} asks for the {name} of the workspace: add {name} to "
                    "_uses_ in the YAML file of the task"
                )
            return build(ws)

        return cached_property(build_if_declared)

    return member


def uses_of(task: Mapping[str, Any]) -> frozenset[str]:
    """The members a task uses, from ``_uses_`` in its YAML; all of :data:`GROUPS` by default.

    ``_may_use_`` names those that it came to use where they are chosen, ``_uses_with_`` those that
    it uses where a setting of its own is true: no hash depends on them.

    Raises:
        UserError: it names something that the workspace does not have.
    """
    names = task.get("_uses_")
    if names is None:
        return frozenset(GROUPS)
    with_settings = task.get("_uses_with_", {}).items()
    further = [name for key, members in with_settings if task[key] for name in members]
    names = [*names, *task.get("_may_use_", ()), *further]
    if wrong := [name for name in names if name not in GROUPS]:
        raise UserError(
            f"{task['_target_']}: _uses_ names '{wrong[0]}'. Choose among {', '.join(GROUPS)}"
        )
    return frozenset(names)


def ignored_groups(task: Mapping[str, Any]) -> frozenset[str]:
    """Groups of the configuration that a task never reads, derived from the members it uses."""
    read = {group for name in uses_of(task) for group in GROUPS[name]}
    groups = {group for groups in GROUPS.values() for group in groups}
    return frozenset(groups - read) | frozenset(OF_TRAINING)

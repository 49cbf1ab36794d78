"""Groups of OOD sets, such as near and far."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known

#: A group's name becomes a part of the name of a metric: ``mean_near_auroc``.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def check_groups(groups: Mapping[str, Sequence[str]], ood: Sequence[str]) -> None:
    """Raises :class:`UserError` unless every group is made of OOD sets, each in only one group."""
    seen: dict[str, str] = {}
    for group, names in groups.items():
        if not _NAME.fullmatch(group):
            raise UserError(f"data.ood_groups.{group}: a group's name has letters, digits, _ and -")
        if isinstance(names, str):
            raise UserError(f"data.ood_groups.{group}={names}: give a list, [{names}]")
        wrong = f"data.ood_groups.{group} names '{{name}}', which is not an OOD set"
        check_known(names, ood, wrong)
        for name in names:
            if name in seen:
                raise UserError(f"data.ood_groups: '{name}' is in both {seen[name]} and {group}")
            seen[name] = group

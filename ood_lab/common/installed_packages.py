"""Which packages are installed, and their versions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from ood_lab.common.errors import UserError


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed versions by package, for the record."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def need(package: str, extra: str, what: str) -> None:
    """Rejects work for which an optional package is missing.

    Raises:
        UserError: with the command that installs it.
    """
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{what} needs the package {package}: pip install 'ood_lab[{extra}]'")

"""Puts the scripts and the configuration, which lie beside the package, into a wheel.

Everything else about the build stands in ``pyproject.toml``. An editable installation needs no
copies: there, ``ood_lab.scripts`` finds them in the clone.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Scripts(BuildHookInterface[Any]):
    """``train.py``, ``eval.py`` and ``conf/`` become part of ``ood_lab/scripts``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling; ``version`` is ``standard`` or ``editable``."""
        if version == "standard":
            for name in ("train.py", "eval.py", "conf"):
                build_data["force_include"][name] = f"ood_lab/scripts/{name}"

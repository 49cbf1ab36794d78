"""Names that are not ours: those of other packages and tools, and former ones."""

from __future__ import annotations

import re

from ood_lab.common.errors import UserError
from ood_lab.common.files import packaged_table

_TABLE: dict[str, dict[str, str]] = packaged_table("ood_lab.run.commandline", "other_names.yaml")
#: Another package's name of a detector -> ours.
ALIASES = _TABLE["detectors"]
#: Names that other tools use for a key, where the spelling would not lead to ours.
SYNONYMS = _TABLE["keys"]
#: ``key=choice`` or the beginning of a key, as it was -> as it is.
RENAMED = _TABLE["renamed"]
#: Keys whose values have changed too, or that a user's own YAML file may hold.
RENAMED_KEYS = _TABLE["renamed_keys"]
_LINE = re.compile(
    r"(?P<group>detector=)(?P<names>.*)|(?P<node>detector\.)(?P<name>\w+)(?P<rest>.*)"
)
_WORD = re.compile(r"\w+")


def own_name(name: str) -> str:
    """Our name of a detector."""
    return ALIASES.get(name.lower(), name)


def with_own_names(override: str) -> str:
    """``detector=[energy,knn]`` and ``detector.energy.t=2`` with our names."""
    match = _LINE.fullmatch(override)
    if match is None:
        return override
    if match["group"]:
        return match["group"] + _WORD.sub(lambda word: own_name(word[0]), match["names"])
    return f"{match['node']}{own_name(match['name'])}{match['rest']}"


def check_present_name(override: str) -> None:
    """Raises :class:`UserError` for a former name; the message has the present one."""
    for old, new in RENAMED.items():
        rest = override.lstrip("+~").removeprefix(old)
        if rest != override.lstrip("+~") and (not rest or rest[0] in "=.,"):
            raise UserError(f"{old} is now {new}: write {new}{rest}")

"""Names of other packages and tools, and ours."""

from __future__ import annotations

import re

from ood_lab.common.files import packaged_table

_TABLE: dict[str, dict[str, str]] = packaged_table("ood_lab.run.commandline", "other_names.yaml")
#: Another package's name of a detector -> ours.
ALIASES = _TABLE["detectors"]
#: Names that other tools use for a key, where the spelling would not lead to ours.
SYNONYMS = _TABLE["keys"]
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

"""Names of detectors in other packages (OpenOOD, pytorch-ood), which are accepted here."""

from __future__ import annotations

import re

#: Another package's name -> ours.
ALIASES = {
    "energy": "ebo",
    "energy_based": "ebo",
    "mahalanobis": "mds",
    "maxlogit": "mls",
    "max_logit": "mls",
    "softmax": "msp",
    "maxsoftmax": "msp",
    "max_softmax": "msp",
    "kl_matching": "klm",
    "klmatching": "klm",
    "relative_mahalanobis": "rmds",
    "rmd": "rmds",
    "mahalanobis_ensemble": "mds_ensemble",
    "temperature_scaling": "temp_scaling",
    "tempscale": "temp_scaling",
    "nac_ue": "nac",
}
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

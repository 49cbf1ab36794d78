"""Suggestions for a mistyped key of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ood_lab.common.hints import nearest as nearest_names
from ood_lab.run.commandline.other_names import SYNONYMS
from ood_lab.scripts import conf_files

#: Below these, users invent the names: those of sets (`data.ood.mine=DIR`) ...
OF_SETS = ("data.ood.", "data.ood_val.", "data.csid.")
#: ... and others.
OPEN_KEYS = (
    *(*OF_SETS, "data.ood_groups.", "model.net.", "model.kwargs."),
    *("lvlm.extra_body", "judge.extra_body", "reader.extra_body"),
)
#: Most options that a message lists.
_SHOWN = 60


def advice(key: str, cfg: DictConfig) -> str:
    """Suggests what a key that is not in the chosen configuration may have meant."""
    if elsewhere := _choices_with(key):
        general = [e for e in elsewhere if e.endswith("=folder")]  # the one for the user's own data
        named = " and ".join((general or elsewhere)[:3])
        return f"It belongs to {named}, which this line does not choose."
    if near := _near_keys(key, all_keys(cfg)):
        return f"Did you mean {' or '.join(near)}?"
    return nearest(key, _siblings(key, cfg))


def nearest(word: str, options: Sequence[str]) -> str:
    """``Did you mean ...?`` for the options that are close to ``word``, or else the valid ones."""
    if close := nearest_names(word, options):
        return f"Did you mean {' or '.join(close)}?"
    shown, more = sorted(options), ""
    if len(shown) > _SHOWN:
        shown, more = shown[:_SHOWN], f", ... ({len(shown)} in all)"
    return f"Valid: {', '.join(shown)}{more}."


def parent_of(cfg: Any, key: str) -> Any:
    """The node that would contain a dotted key; None if there is none."""
    parent = key.rpartition(".")[0]
    return OmegaConf.select(cfg, parent, throw_on_resolution_failure=False) if parent else cfg


def has(cfg: Any, key: str) -> bool:
    """True if a configuration has this dotted key, even with its value still missing (``???``)."""
    parent = parent_of(cfg, key)
    return isinstance(parent, DictConfig) and _leaf(key) in parent.keys()  # noqa: SIM118


def all_keys(cfg: DictConfig, prefix: str = "") -> list[str]:
    """All dotted keys of a configuration, parents before children."""
    keys = []
    for key in map(str, cfg):
        keys.append(prefix + key)
        node = cfg._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
            keys += all_keys(node, f"{prefix}{key}.")
    return keys


def _near_keys(key: str, keys: Sequence[str]) -> list[str]:
    """Up to three keys with the same name, with a similar name, or similar as a whole."""
    *parents, leaf = key.split(".")
    leaf = SYNONYMS.get(leaf, leaf)
    same = [k for k in keys if _leaf(k) == leaf]
    if not parents and same:
        return _highest(same)
    names = nearest_names(leaf, {_leaf(k) for k in keys}, 3, 0.6)
    # A word of a longer name matches as well: epochs, in max_epochs.
    names += sorted({_leaf(k) for k in keys if leaf in _leaf(k).split("_")})
    similar = [k for name in dict.fromkeys(names) for k in keys if _leaf(k) == name]
    if not parents:
        return _highest(similar)
    whole = nearest_names(key, keys, 3, 0.6)
    inside = [k for k in similar if k.rpartition(".")[0] == ".".join(parents)]
    return list(dict.fromkeys([*inside, *whole, *_highest(same)]))[:3]


def _highest(keys: Sequence[str]) -> list[str]:
    """Those with the fewest dots, at most three."""
    least = min((k.count(".") for k in keys), default=0)
    return [k for k in keys if k.count(".") == least][:3]


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _siblings(key: str, cfg: DictConfig) -> list[str]:
    parent, node = key.rpartition(".")[0], parent_of(cfg, key)
    if not isinstance(node, DictConfig):
        parent, node = "", cfg
    return [f"{parent}.{name}" if parent else name for name in map(str, node)]


@lru_cache(maxsize=64)
def _choices_with(key: str) -> tuple[str, ...]:
    """``group=choice`` of the files that contain a key, whose first part is the group."""
    group, _, rest = key.partition(".")
    found = []
    for path in conf_files(group) if rest else []:
        file = OmegaConf.load(path)
        if has(file, rest) or has(file, key):  # the second in files of the whole configuration
            found.append(f"{group}={path.stem}")
    return tuple(found)

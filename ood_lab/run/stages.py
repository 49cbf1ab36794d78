"""Staged experiments: several command lines, run one after another by a single one.

An experiment's YAML may have a list ``stages``. Each of them is a command line that could be typed
as well, so finished runs are skipped and the same command goes on where it was stopped:

    stages:
      - name: akg              # shown, and named by later stages
        script: train          # train.py or eval.py
        overrides: [...]       # may sweep; an item may be a list, as in "${study.trunk}"
        takes: [paths]         # keys of the user's own overrides that are passed on; all if absent
        best_of: [akg, nts]    # ckpt=<the run of these stages with the best validation accuracy>
        runs_of: [akg, nts]    # runs=[<the finished runs of these stages>]

``study:`` beside it holds what the overrides share; ``skip: [NAME]`` leaves stages out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from ood_lab.errors import UserError
from ood_lab.run.values import quoted, values_of

SCRIPTS = ("train", "eval")
_KEYS = ("name", "script", "overrides", "takes", "best_of", "runs_of")


@dataclass(frozen=True)
class Stage:
    """One command line of a staged experiment.

    Attributes:
        name: what other stages call it.
        script: ``train`` or ``eval``.
        overrides: its command line, the user's overrides at the end.
        best_of: stages; the run with the best validation accuracy among theirs becomes ``ckpt``.
        runs_of: stages; their finished runs become ``runs``.
    """

    name: str
    script: str
    overrides: tuple[str, ...]
    best_of: tuple[str, ...] = ()
    runs_of: tuple[str, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The stages whose results it is made of."""
        return self.best_of + self.runs_of

    def line(self, *more: str) -> list[str]:
        """Its command line, with ``-m`` where it is a sweep."""
        overrides = [*self.overrides, *more]
        parsed = OverridesParser.create().parse_overrides(overrides)
        return ["-m"] * any(o.is_sweep_override() for o in parsed) + overrides


def own_overrides(overrides: Sequence[str]) -> list[str]:
    """Those that choose and describe a staged experiment, not its stages."""
    return [o for o in overrides if _key(o) in ("experiment", "skip") or _within(o, ["study"])]


def is_one_experiment(overrides: Sequence[str]) -> bool:
    """Whether the command line names an experiment, and one alone."""
    chosen = [o for o in overrides if _key(o) == "experiment"]
    parsed = OverridesParser.create().parse_overrides(chosen)
    return len(chosen) == 1 and len(values_of(parsed[0])) == 1


def read_stages(cfg: DictConfig, overrides: Sequence[str]) -> list[Stage]:
    """The stages of a composed experiment; none where it has none.

    The user's overrides go to the end of every command line, and replace what the stage says of
    the same key.

    Args:
        cfg: composed with :func:`own_overrides` of the command line.
        overrides: the whole command line.

    Raises:
        UserError: a value is missing, the list of stages is not one, or ``debug=true``.
    """
    if not cfg.get("stages"):
        return []
    if any(_key(o) == "debug" and not o.lower().endswith("=false") for o in overrides):
        raise UserError(
            "debug=true is for one command line: give it to that of a stage; task=validate checks "
            "all stages and starts none"
        )
    skipped = list(cfg.get("skip") or [])
    names = [str(node.name) for node in cfg.stages]
    if unknown := [name for name in skipped if name not in names]:
        raise UserError(f"skip={unknown[0]} is no stage: there is {', '.join(names)}")
    kept = [name for name in names if name not in skipped]
    own = own_overrides(overrides)
    users = [o for o in overrides if o not in own]
    return [_stage(_resolved(node), users, kept, names) for node in cfg.stages if node.name in kept]


def _resolved(node: DictConfig) -> dict[str, Any]:
    try:
        plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except InterpolationToMissingValueError as error:
        missing = str(error).split("Missing mandatory value: ")[-1].split()[0]
        raise UserError(
            f"give a value to {missing}=..., or leave this stage out: skip=[{node.name}]"
        ) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _stage(
    node: dict[str, Any], users: Sequence[str], kept: Sequence[str], names: Sequence[str]
) -> Stage:
    if wrong := [key for key in node if key not in _KEYS]:
        raise UserError(f"stage {node['name']}: '{wrong[0]}' is none of {', '.join(_KEYS)}")
    if node.get("script") not in SCRIPTS:
        raise UserError(f"stage {node['name']}: script is train or eval, not {node.get('script')}")
    earlier = names[: names.index(node["name"])]
    waits: dict[str, tuple[str, ...]] = {}
    for key in ("best_of", "runs_of"):
        wanted = node.get(key) or []
        if wrong := [name for name in wanted if name not in earlier]:
            raise UserError(f"stage {node['name']}: {key} names '{wrong[0]}', no earlier stage")
        waits[key] = tuple(name for name in wanted if name in kept)
        if wanted and not waits[key]:
            raise UserError(
                f"skip leaves nothing for stage {node['name']}: leave it out too, "
                f"skip=[...,{node['name']}]"
            )
    takes = node.get("takes")
    passed = [o for o in users if takes is None or _within(o, takes)]
    if waits["best_of"]:
        # Every seed of the best has its own run, and is evaluated under its own seed.
        passed = [o for o in passed if _key(o) not in ("seed", "ckpt")]
    replaced = {_key(o) for o in passed}
    own = [quoted(o) for o in _flat(node.get("overrides") or []) if _key(o) not in replaced]
    return Stage(node["name"], node["script"], (*own, *passed), **waits)


def _flat(items: Any) -> Iterator[str]:
    for item in items:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield str(item)


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0]


def _within(override: str, keys: Sequence[str]) -> bool:
    key = _key(override)
    return any(key == k or key.startswith(f"{k}.") for k in keys)

"""The lines of ``--help`` that are made from the files in ``conf/`` (``conf/hydra/help``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ood_lab.scripts import CONF, command

WIDTH = 80
_NAMES = 20  # columns of the names of groups and tasks
_MANY = 3  # names that begin with the same word are shown as one


def register_help() -> None:
    """Registers the resolvers of the help page (idempotent)."""
    OmegaConf.register_new_resolver("help_command", command, replace=True)
    OmegaConf.register_new_resolver("help_group", _group, replace=True)
    OmegaConf.register_new_resolver("help_tasks", _tasks, replace=True)


def help_page() -> str:
    """The page of the script whose command line was composed last.

    Hydra would make the same text, but first lists all groups of ``conf/`` for a template that
    does not ask for them, which takes longer than the rest.
    """
    return str(HydraConfig.get().help.template)


def _group(name: str, words: str, *, _root_: DictConfig) -> str:
    """``name  words: choices``, those that are chosen first; cut at :data:`WIDTH` columns."""
    chosen = _root_.hydra.runtime.choices.get(name) or []
    first = [chosen] if isinstance(chosen, str) else list(chosen)
    options = _families(sorted(path.stem for path in (CONF / name).glob("*.yaml")))
    line = f"  {name:<{_NAMES}}{words}: "
    rest = list(dict.fromkeys([*first, *options]))
    while len(f"{line}{', '.join(rest)}") > WIDTH:
        rest = [*rest[: -1 if rest[-1] != "..." else -2], "..."]
    return line + ", ".join(rest)


def _families(names: Sequence[str]) -> list[str]:
    """The names, those of one family as ``family_*``."""
    families = Counter(name.partition("_")[0] for name in names if "_" in name)
    short = {name: name.partition("_")[0] for name in names if "_" in name}
    return [f"{short[n]}_*" if families[short.get(n, "")] >= _MANY else n for n in names]


def _tasks() -> str:
    """One line for each file of ``conf/task``: its name, and its first comment."""
    files = sorted((CONF / "task").glob("*.yaml"))
    return "\n".join(f"  {file.stem:<{_NAMES}}{_first_comment(file)}" for file in files)


def _first_comment(file: Path) -> str:
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if line[:2] == "# ")
    return next(line[2:] for line in lines if not line.startswith("# @package"))

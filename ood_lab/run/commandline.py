"""The command line: open keys, mistyped keys, children of a DDP job."""

from __future__ import annotations

import difflib
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from ood_lab.errors import UserError
from ood_lab.run.resolvers import register_resolvers
from ood_lab.run.staged import run_stages, validate_stages
from ood_lab.run.stages import Stage, is_one_experiment, own_overrides, read_stages
from ood_lab.run.validate import REQUEST, validate
from ood_lab.run.values import quoted, values_of
from ood_lab.scripts import CONF

#: Keys under these prefixes are the user's to invent (`data.ood.mine=DIR`).
OPEN_KEYS = ("data.ood.", "model.net.", "model.kwargs.")
#: Holds the overrides of the job that is running, for the other ranks of a DDP job.
JOB_VARIABLE = "OOD_LAB_JOB"

log = logging.getLogger(__name__)


def launch(main: Callable[[], Any], config_name: str) -> None:
    """Runs a ``@hydra.main`` function: checks the command line first, reports errors in one line.

    Exits with status 1 and a single line for a :class:`UserError`; other exceptions keep their
    traceback.
    """
    configure_logging()
    register_resolvers()
    # Hydra then raises what a job raised instead of printing a shortened traceback.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        sys.argv[1:] = rewrite(sys.argv[1:])
        # The others are flags and their values, as in "--cfg job".
        overrides = [a for a in sys.argv[1:] if a[0] == "~" or ("=" in a and a[0] != "-")]
        wanted = [o for o in overrides if o != REQUEST]
        dry = len(wanted) < len(overrides)
        if not set(sys.argv[1:]) - {*overrides, "-m", "--multirun"} and (
            stages := _stages(config_name, wanted)
        ):
            sys.exit(min(validate_stages(stages), 1) if dry else run_stages(stages))
        check_overrides(config_name, wanted)
        if dry:
            sys.exit(min(validate(config_name, wanted), 1))
        main()
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted: the same command resumes this run")
        sys.exit(130)


def _stages(config_name: str, overrides: Sequence[str]) -> list[Stage]:
    """The stages of the chosen experiment, each with a command line that composes."""
    if not is_one_experiment(overrides):
        return []
    cfg = _compose(config_name, own_overrides(overrides))
    stages = read_stages(cfg, overrides)
    for stage in stages:
        try:
            check_overrides(stage.script, stage.overrides)
        except UserError as error:
            raise UserError(f"stage {stage.name}: {error}") from error
    return stages


def fail(error: UserError) -> NoReturn:
    """Prints the error as one line and exits with status 1."""
    line = Text.assemble(("error:", "bold red"), " ", " ".join(str(error).split()))
    Console(stderr=True, soft_wrap=True).print(line)
    sys.exit(1)


def configure_logging() -> None:
    """Sends ``ood_lab``'s messages to the terminal and keeps Lightning's chatter out of it."""
    handler = RichHandler(show_path=False, show_level=False, log_time_format="%H:%M:%S")
    logger = logging.getLogger("ood_lab")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Lightning's own affairs: its use of a deprecated name, and a folder we resume in on purpose.
    # And what cannot matter here: metrics are logged once an epoch.
    messages = [".*LeafSpec.*", "Checkpoint directory .*", ".*does not have many workers.*"]
    messages += [".*is smaller than the logging interval.*"]
    # Frozen towers stay in eval mode on purpose.
    for message in (*messages, "Found .* in eval mode.*"):
        warnings.filterwarnings("ignore", message=message)
    os.environ.setdefault("WANDB_SILENT", "true")


def rewrite(line: Sequence[str]) -> list[str]:
    """Opens the keys of :data:`OPEN_KEYS`, quotes paths, and narrows a DDP child to its one job.

    Lightning starts the other ranks with the command line of the first one. In a multirun that
    line describes the whole sweep, so a child takes the overrides of the running job instead.
    """
    arguments = [argument for argument in line if argument]  # an unset variable of a shell
    job = os.environ.get(JOB_VARIABLE)
    if job and int(os.environ.get("LOCAL_RANK", 0)) > 0:
        added = [a for a in arguments if a.startswith("hydra.")]  # by Lightning: run dir, name
        arguments = json.loads(job) + added
    # Hydra reads overrides on one side of a flag only.
    arguments.sort(key=lambda a: a not in ("-m", "--multirun"))
    opened = [f"++{a}" if a.startswith(OPEN_KEYS) else a for a in arguments]
    return [a if a.startswith("-") else quoted(a) for a in opened]


def check_overrides(config_name: str, overrides: Sequence[str]) -> None:
    """Composes the configuration once for every value on the command line.

    Raises:
        UserError: an override does not parse, names an unknown key or an unknown choice; the
            message holds the nearest valid one.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(f"cannot read the command line: {str(error).splitlines()[0]}") from error
    values = [values_of(override) for override in parsed]
    first = [options[0] for options in values]
    lines = [first]
    for position, options in enumerate(values):
        lines += [[*first[:position], o, *first[position + 1 :]] for o in options[1:]]
    for line in lines:
        _compose(config_name, line)


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    overrides = [o for o in overrides if not o.lstrip("+~").startswith("hydra")]
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        try:
            return compose(config_name, overrides)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(_explain(config_name, overrides, error)) from error


def _explain(config_name: str, overrides: list[str], error: Exception) -> str:
    """One line for a composition error: the culprit among the overrides and what it may be."""
    groups = [o for o in overrides if "." not in o.split("=", 1)[0]]
    for override in overrides:
        key, _, value = override.partition("=")
        key = key.lstrip("+~").split("@")[0]
        if (CONF / key).is_dir():
            choices = [p.stem for p in (CONF / key).glob("*.yaml")]
            for choice in value.strip("[]").split(","):
                if choice.strip() not in [*choices, "null", ""]:  # as in detector=[]
                    return f"{key}={choice.strip()} is unknown. {_nearest(choice, choices)}"
            continue
        try:
            config = compose(config_name, groups)
        except (HydraException, OmegaConfBaseException):
            continue
        parent, leaf = key.rpartition(".")[::2]
        node = OmegaConf.select(config, parent) if parent else config
        if node is None:
            return f"unknown key '{key}'. {_nearest(key, _all_keys(config))}"
        if isinstance(node, DictConfig) and leaf not in node and override[0] != "+":
            siblings = [f"{parent}.{k}".lstrip(".") for k in map(str, node)]
            return f"unknown key '{key}'. {_nearest(key, siblings)}"
    return " ".join(str(error).split())


def _all_keys(config: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for key in map(str, config):
        path = prefix + key
        keys.append(path)
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
            keys += _all_keys(node, f"{path}.")
    return keys


def _nearest(word: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, choices, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Valid: {', '.join(sorted(choices)[:30])}."

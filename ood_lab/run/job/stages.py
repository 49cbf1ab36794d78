"""Staged experiments: a list of command lines in an experiment's YAML, run in order.

    study: {data: folder}  # what the lines share; skip: [NAME] leaves stages out
    stages:
      akg: [train, model=akg, "data=${study.data}", "seed=0,1"]
      best: [eval, "ckpt=${best:akg,nts}"]  # the best of their runs by validation accuracy
      table: [eval, task=compare, "runs=${runs:akg,best}"]  # all finished; ${run:akg}: the only

The user's overrides go to the stages that read them, a sweep to those that need no other, in place
of their own. Finished runs are shown again, so the same command resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import check_known
from ood_lab.run.building.checkpoints import best_runs
from ood_lab.run.commandline.composition import jobs_of, leaves
from ood_lab.run.commandline.line_checks import advice, check_line, read_arguments, takes
from ood_lab.run.commandline.overrides import key_of, options_of, quote, readable
from ood_lab.run.job.preparation import values_explained
from ood_lab.run.job.workspace import ignored_by
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.scripts import conf_files, is_group


@dataclass
class StageLine:
    """A stage of the experiment ``cfg``, and the overrides of the user that it takes."""

    cfg: DictConfig
    name: str
    users: Sequence[str] = ()

    def line(self, results: Mapping[tuple[str, ...], str]) -> tuple[str, list[str], list[Any]]:
        """Script, overrides, and what it needs, as ``(kind, *names)``, of which are the results."""
        needs: list[tuple[str, ...]] = []

        def value(kind: str, *names: str) -> str:
            needs.append((kind, *(n for n in names if n not in (self.cfg.get("skip") or ()))))
            return results.get(needs[-1], names[0])

        for kind in ("best", "runs", "run"):
            OmegaConf.register_new_resolver(kind, partial(value, kind), replace=True)
        with values_explained():
            parts = OmegaConf.to_container(self.cfg.stages[self.name], resolve=True)
        script, *words = [str(word) for _, word in leaves(parts) if word != []]
        users = [o for o in self.users if not needs or len(options_of(o)) == 1]
        words = [readable(word) for word in words if key_of(word) not in map(key_of, users)]
        return script, [*words, *users], needs

    def results(self, folders: Mapping[str, Sequence[Path]]) -> dict[tuple[str, ...], str]:
        """What it needs of the run folders of earlier stages, for :meth:`line`.

        Raises:
            UserError: there is no finished run, or the best and the only one are not certain.
        """
        results = {}
        for need in self.line({})[2]:
            kind, *names = need
            runs = [folder for name in names for folder in folders.get(name, [Path()])]
            finished = [run for run in runs if FinishedRun(run).done]
            if not finished or (kind != "runs" and finished != runs):
                raise UserError(f"{', '.join(names)} is not finished")
            values = ",".join(map(quote, best_runs(finished) if kind == "best" else finished))
            results[need] = {"best": values, "runs": f"[{values}]", "run": str(finished[0])}[kind]
        return results

    def check(self, earlier: Mapping[str, StageLine], users: Sequence[str]) -> None:
        """Checks the line, and takes the overrides of the user that it reads."""
        script, overrides, needs = self.line({})
        for kind, *names in needs:
            if not names or not {*names} <= {*earlier}:
                raise UserError(f"{kind}:{','.join(names)} names no earlier stage that is run")
            if kind == "run" and len(jobs_of(earlier[names[0]].line({})[1])) > 1:
                raise UserError(f"it needs the only run of {names[0]}: give one value, as seed=0")
        cfg = check_line(script, read_arguments(overrides).overrides)
        keys = {o: key for o in users if (key := key_of(o)).split(".")[0] not in ignored_by(cfg)}
        self.users = [o for o, key in keys.items() if is_group(key) or takes(cfg, key)]
        if self.users:
            check_line(script, self.line({})[1])


def stages_of(script: str, overrides: Sequence[str]) -> list[StageLine]:
    """The stages of the experiment that a line names, each of them checked; empty without any."""
    files = [f for f in conf_files("experiment") if f"experiment={f.stem}" in overrides]
    if len(files) != 1 or "stages" not in OmegaConf.load(files[0]):
        return []
    of_study = [o for o in overrides if key_of(o).split(".")[0] in ("experiment", "skip", "study")]
    users = [override for override in overrides if override not in of_study]
    cfg = check_line(script, of_study, sweep=False)
    skip, stages = cfg.get("skip") or [], dict[str, StageLine]()
    check_known(skip, cfg.stages, "skip={name} is not a stage")
    for name in (name for name in map(str, cfg.stages) if name not in skip):
        stage = StageLine(cfg, name)
        with reported_as(f"stage {name} (or skip=[{name}]): {{reason}}", UserError):
            stage.check(stages, users)
        stages[name] = stage
    for key in [key_of(o) for o in users if not any(o in s.users for s in stages.values())]:
        raise UserError(f"no stage of this experiment takes '{key}'. {advice(key, cfg)}")
    return list(stages.values())

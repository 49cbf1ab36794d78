"""The steps of a job: checks, the folder, the task, and what is left behind."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

from omegaconf import OmegaConf

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.run.building import checkpoints, nodes
from ood_lab.run.building.workspace import Workspace
from ood_lab.run.commandline.composition import running_overrides
from ood_lab.run.commandline.override_values import key_of
from ood_lab.run.job import input_files
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)


class Job(Workspace):
    """A workspace with the steps of its run, in the order in which they happen."""

    def check_settings(self) -> None:
        """Checks everything that can be checked of the settings before anything is built.

        Raises:
            UserError: a value that its target does not accept, a switch that is not true or false,
                a Trainer that this machine cannot provide, or no W&B account.
        """
        settings = self.settings
        checkpoints.check_ensemble(self.cfg)
        if not isinstance(self.cfg.force, bool):  # `no` is a text, and as such true
            raise UserError(f"force={self.cfg.force}: give true or false")
        if self.builds:
            nodes.check_nodes(settings)
        else:  # objects that are never built need not be loaded to be checked
            nodes.check_nodes(settings["task"], "task")
        if self.trains or {"trainer", "extractor"} & self.uses:
            from ood_lab.run.building.trainers import (
                check_batch_size,
                check_length,
                check_machine,
                check_processes,
                dry_trainer,
            )

            check_machine(settings["trainer"])
            if self.trains:
                check_length(settings["trainer"])
            check_processes(trainer := dry_trainer(self.cfg))
            if self.trains:
                check_batch_size(settings["data"], trainer)
        if "detectors" in self.uses:
            from ood_lab.run.building.trainers import check_detector_device

            check_detector_device(str(settings["detector_device"]))
        if self.is_main and settings["logger"]:
            from ood_lab.run.tracking.experiment_loggers import check_login

            check_login(settings["logger"])
            if node := settings["logger"].get("wandb"):
                from ood_lab.run.tracking.sweep_goals import check_running_sweep

                check_running_sweep(node.get("entity"), node.get("project"))

    @property
    def builds(self) -> bool:
        """True if this job builds data or networks; False if it only reads earlier results."""
        return self.trains or bool(self.uses)

    def begin(self) -> None:
        """Prepares the open folder; results from other data or weights are set aside."""
        if self.cfg.force:
            # A task that always looks again (force in its YAML) resumes where it was killed.
            if self.run_folder.done or any(key_of(o) == "force" for o in running_overrides()):
                self.run_folder.empty()
                self.anew = True
        elif self.changes:
            reason = "; ".join(self.changes)
            log.warning("what %s was made from has changed: %s", self.folder, reason)
            log.warning(
                "starting from scratch; old files are kept in %s", self.run_folder.set_aside(reason)
            )
        if self.run_folder.done:
            return
        write_text(OmegaConf.to_yaml(self.cfg, resolve=True), self.folder / "config.yaml")
        if not (self.folder / input_files.FILE).exists():
            self._note_inputs({})

    @cached_property
    def changes(self) -> list[str]:
        """Descriptions of everything that has changed since the run folder was made from it."""
        if self.cfg.force:  # it is run again, whatever has changed
            return []
        changes = input_files.changes_of(
            self.run_folder, self.settings, self.code, lambda: self._unread
        )
        # The device decides what the default leaves out, and not what a choice does.
        if self.run_folder.done and self.detectors_chosen:
            left_out = RunRecord.read(self.folder).left_out_to_save_time
            changes += [f"it left out {', '.join(left_out)} to save time"] if left_out else []
        return changes

    @property
    def done(self) -> bool:
        """True if this very configuration has been run before on the same data and weights.

        Raises:
            UserError: a file of that run is damaged.
        """
        return self.run_folder.done and not self.cfg.force and not self.changes and self._whole

    @cached_property
    def _whole(self) -> bool:
        self.run_folder.check()
        return True

    @property
    def finished(self) -> bool:
        """Shows a run that is :attr:`done` instead of repeating it; False for any other."""
        from ood_lab.report.rendering.run_summary import show_run

        if not self.done:
            return False
        log.info("already done on %s: %s", (self.folder / "DONE").read_text().strip(), self.folder)
        log.info("these are its results; force=true runs it again")
        show_run(self.folder)
        return True

    def run_task(self) -> None:
        """Runs the task and logs what it returns."""
        task, loggers = self.task, self.loggers  # from here on, a failure is a failed W&B run
        with self._computing():
            results = task.run(self)
        if self.is_main and results is not None:
            from ood_lab.run.tracking.experiment_loggers import log_results

            log_results(loggers, self.folder, self.record)

    def _computing(self) -> AbstractContextManager[None]:
        """Makes detectors compute on ``detector_device``, which the record records."""
        if "detectors" not in self.uses:
            return nullcontext()
        from ood_lab.detectors.support.compute_device import computing_on

        device = str(self.cfg.detector_device)
        if device == "auto":
            root = self.extractor.strategy.root_device
            device = str(root) if root.type == "cuda" else "cpu"
        self.record.detector_device = device
        return computing_on(device)

    def close(self) -> None:
        """Marks the run as finished.

        Raises:
            UserError: it is :attr:`unfinished`; its results so far are in its folder.
        """
        if self.is_main:
            if self.builds:
                import torch

                # It decides the order of summation, and so the last digits.
                self.record.threads = torch.get_num_threads()
            if self.stages.seconds:
                self.record.seconds = {k: round(s, 2) for k, s in self.stages.seconds.items()}
                self.record.done_before = self.stages.skipped
                log.info("%s", self.stages)
            self.record.finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.record.files = self.run_folder.records()
            self.record.write(self.folder)
            if self.unfinished is not None:
                raise UserError(f"{self.unfinished}. Its partial results are in {self.folder}")
            if self.cfg.debug:
                log.info("this was a debug run, which no other run takes for its own")
            else:
                write_text(self.record.finished + "\n", self.folder / "DONE")
            pages = sorted(self.folder.glob("*.html"))
            log.info("Results: %s", pages[0] if pages else self.folder)

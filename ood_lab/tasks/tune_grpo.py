"""Reinforcement fine-tuning of a vision-language model, measured on held-out questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv, write_table
from ood_lab.common.grouping import with_keys
from ood_lab.common.hints import check_known
from ood_lab.lvlm.answers.answer_files import store_of
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.oric.page import COMPARED, KIND, summary
from ood_lab.lvlm.benchmarks.oric.question_sets import ORIC
from ood_lab.lvlm.benchmarks.oric.training_questions import OricTraining
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.pages.benchmark_page import ScoredRun, difference_table
from ood_lab.lvlm.questions.question_files import Questions, read_questions
from ood_lab.lvlm.scoring.answer_differences import same_questions
from ood_lab.lvlm.scoring.wording_scores import contrasts, wording_rows
from ood_lab.lvlm.training.grpo import Reward, VlmGrpo, accuracy_reward, format_reward
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import write_results
from ood_lab.tasks.tune_vlm import tuned

_REWARDS: Mapping[str, Reward] = {"format": format_reward, "accuracy": accuracy_reward}
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, kw_only=True)
class TuneGrpo(Task):
    """Trains, writes the model of the best epoch as a folder, and asks both about other questions.

    Args:
        export: folder of the model; None = ``model`` in the run folder.
        held_out: ``questions.jsonl`` of ``task=oric``; its ORIC questions are answered before
            and after. None = nothing is measured.
    """

    export: str | None
    held_out: str | None

    def check(self, ws: Workspace) -> None:
        """Raises a UserError for what is missing, before the training."""
        check_known(ws.model["rewards"], _REWARDS, "model.rewards: no '{name}'")
        questions = self._asked()
        data: OricTraining = ws.build("model.prompts")
        if not len(data.val):
            raise UserError(
                "model.prompts.val_share holds out no question to choose the epoch by: raise it"
            )
        trained = {Path(item.image).name for part in (data.train, data.val) for item in part.items}
        shared = {Path(q.image or "").name for q in questions} & trained
        if shared:
            raise UserError(
                f"{len(shared)} images are in both the training file and task.held_out, such as "
                f"{min(shared)}: hold out questions about other images"
            )

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns results before and after; None where nothing is held out."""
        self.check(ws)
        base = ModelFolder(str(ws.model["path"]), "model.path")
        place = tuned(self._module(ws, base), ws.build("model.prompts"), ws, self.export)
        return None if place is None else self._measured(ws, {BEFORE: base.path, AFTER: place})

    @staticmethod
    def _module(ws: Workspace, base: ModelFolder) -> VlmGrpo:
        processor, model = base.load_processor(), base.load_model("float32")
        names = ("train", "lora", "group", "beta", "ratio", "temperature", "max_new_tokens")
        return VlmGrpo(
            model,
            processor,
            ws.build("model.optimizer"),
            [_REWARDS[name] for name in ws.model["rewards"]],
            ws.build("model.scheduler"),
            **with_keys(ws.model, names),
        )

    def _asked(self) -> Questions:
        if self.held_out is None:
            return []
        of_oric = [q for q in read_questions(Path(self.held_out)) if q.meta.get("split") == ORIC]
        if not of_oric:
            raise UserError(f"task.held_out={self.held_out} has none of ORIC's questions")
        return of_oric

    def _measured(self, ws: Workspace, models: Mapping[str, Path]) -> pd.DataFrame | None:
        """Answers of both, with the paired difference."""
        questions = self._asked()
        if not questions:
            return None
        folder = Path(str(self.held_out)).parent
        judgements: dict[str, pd.DataFrame] = {}
        for name, place in models.items():
            chat = TransformersChat(str(place), max_new_tokens=ws.model["max_new_tokens"])
            answers = answers_to(questions, folder, chat, store_of(chat.made_with, ws.answers_root))
            judgements[name] = judge(questions, {a.question_id: a for a in answers})
        tables = [
            KIND.table(wording_rows(table, resampling=ws.resampling), model=name, seed=ws.seed)
            for name, table in judgements.items()
        ]
        results = pd.concat(tables)
        write_results(results, ws.folder)
        write_table(same_questions(judgements), ws.folder / "judged.parquet")
        changes = {name: judgements[name] for name in (AFTER, BEFORE)}
        table = contrasts(same_questions(changes), "model", resampling=ws.resampling)
        write_csv(table, ws.folder / "models.csv")
        after = results[results["model"] == AFTER]
        ws.record.title = "ORIC after reinforcement fine-tuning"
        run = ScoredRun(ws.folder, folder, after, {}, {}, ws.record)
        title = "After minus before, points"
        blocks = [*summary(run), difference_table(title, table, {}, COMPARED)]
        show_blocks(blocks, ws.folder, "tune_grpo", lines=None)
        return results

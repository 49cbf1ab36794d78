"""The exported task in the real lmms-eval, with the tiny model: the same accuracies as ours.

Needs an environment with lmms-eval beside this package: ``pip install lmms-eval ood_lab[test]``
(in one of its own: lmms-eval asks for other versions of some packages than ``constraints.txt``).
"""

import pytest
import torch

pytest.importorskip("lmms_eval")
from lmms_eval import evaluator
from lmms_eval.api.model import lmms
from lmms_eval.tasks import TaskManager

from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.benchmarks.oodbench.question_building import BAP_TASKS
from ood_lab.lvlm.benchmarks.oodbench.scoring import bap_needs, bap_table
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.lvlm.questions.package_exports import GroupMetric, export
from ood_lab.lvlm.questions.question_files import Question

pytestmark = pytest.mark.slow
IMAGES = 12


class TinyInTheirWay(lmms):
    """The shipped weights asked by the means of transformers alone."""

    def __init__(self):
        from transformers import AutoModelForImageTextToText, AutoProcessor

        super().__init__()
        folder = ModelFolder("shipped:tiny").path
        self.processor = AutoProcessor.from_pretrained(folder)
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self.model = model.eval()

    def generate_until(self, requests):
        return [self.reply(*request.args) for request in requests]

    def reply(self, text, settings, visuals, number, task, split):
        content = [{"type": "image"}, {"type": "text", "text": text}]
        prompt = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        images = visuals(self.task_dict[task][split][number])
        inputs = self.processor(text=[prompt], images=images, return_tensors="pt")
        longest = settings["max_new_tokens"]
        out = self.model.generate(**inputs, max_new_tokens=longest, do_sample=False)
        return self.processor.decode(out[0, inputs["input_ids"].shape[1] :], True)

    def loglikelihood(self, requests):
        raise NotImplementedError

    def generate_until_multi_round(self, requests):
        raise NotImplementedError


def questions():
    asked = []
    for i in range(IMAGES):
        meta = {"split": ("id", "ood_h")[i % 2], "category": "mug"}
        for thing, right in (("mug", "yes"), ("cat", "no"), ("boat", "yes")):
            text = f"Does this image contain a {thing}? (yes or no)"
            asked.append(Question(f"{i}/{thing}", "yes_no", f"{i}.png", text, right, meta=meta))
        for task, text, right, parser in (
            ("bap_existence", "Is there a mug in the picture?", "yes", "default"),
            ("bap_counting", "How many mugs are there in the picture?", "1", "number"),
            ("bap_logic", "Are there more mugs than cats in the picture?", "no", "default"),
        ):
            about = {"parser": parser, "pair_id": f"{i}/bap", "meta": {**meta, "image": str(i)}}
            asked.append(Question(f"{i}/{task}", task, f"{i}.png", text, right, **about))
    return asked


def test_their_accuracies_are_ours(scene_images, tmp_path):
    asked = questions()
    model = TransformersChat("shipped:tiny", max_new_tokens=64, device="cpu")
    answers = answers_to(asked, scene_images, model, AnswerStore(tmp_path / "answers.jsonl"))
    ours = judge(asked, {answer.question_id: answer for answer in answers})
    wholes = {name: GroupMetric(needs) for name, needs in bap_needs().items()}
    export(asked, scene_images, tmp_path / "task", "oodbench", "lmms_eval", wholes)
    found = evaluator.simple_evaluate(
        model=TinyInTheirWay(),
        tasks=["ood_lab_oodbench"],
        task_manager=TaskManager("ERROR", include_path=str(tmp_path / "task")),
        batch_size=1,
        log_samples=True,
        force_simple=True,
        bootstrap_iters=0,
    )
    said = {s["doc"]["question_id"]: s["resps"][0][0] for s in found["samples"]["ood_lab_oodbench"]}
    assert [said[q.question_id].strip() for q in asked] == ours["reply"].tolist()
    theirs = {k: v for k, v in found["results"]["ood_lab_oodbench"].items() if "stderr" not in k}
    single = ours[ours["task"] == "yes_no"]
    samples = bap_table(ours)
    wanted = {"accuracy_yes_no,none": single["correct"].mean()}
    wanted |= {f"{metric},none": samples[metric].mean() for metric in BAP_TASKS}
    for split, part in single.groupby("split"):
        wanted[f"accuracy_yes_no_{split},none"] = part["correct"].mean()
    for split, part in samples.groupby("split"):
        wanted |= {f"{metric}_{split},none": part[metric].mean() for metric in BAP_TASKS}
    found = {k: v for k, v in theirs.items() if k.startswith(("accuracy", "bap"))}
    assert found == pytest.approx(wanted)
    assert 0 < wanted["accuracy_yes_no,none"] < 1
    logic = ours.loc[ours["task"] == "bap_logic", "correct"].mean()
    assert 0 < wanted["bap_logic,none"] < logic  # a sample needs its count right, too

"""A default stands once: in the YAML of a task; and where Python has one too, it is the same."""

import inspect
from collections import defaultdict
from pathlib import Path

import yaml
from hydra.utils import get_object

from ood_lab.scripts import CONF

#: Settings whose YAML is a choice for the builtin data, a small model or a published variant, and
#: whose Python default is the paper's.
CHOICES = {
    ("ood_lab.models.LabelledLoss", "outliers_per_image"),
    ("ood_lab.data.datamodules.shiftedbronzes.BronzesDataModule", "periods"),
    ("ood_lab.shift.LaidTraining", "margin"),
    ("ood_lab.shift.LaidTraining", "lr"),
    ("ood_lab.shift.LaidTraining", "steps_per_epoch"),
    ("ood_lab.lvlm.benchmarks.oric.training_questions.OricTraining", "problem"),
    ("ood_lab.lvlm.image_text.object_detectors.ObjectDetector", "name"),
    ("ood_lab.lvlm.image_generation.image_filter.Filter", "min_conf"),
    ("ood_lab.lvlm.training.tuning_data.QuestionTuning", "choose"),
}
#: What a task reads of a job, which the base class declares and its YAML says.
OF_TASKS = {"uses", "uses_with", "may_use", "subject", "synthetic_ood"}
#: Of networks: how images are prepared, and what a recipe sets, belongs to the YAML of each model.
OF_MODELS = {
    *("input_size", "crop_pct", "crop_mode", "interpolation", "mean", "std", "trunk_lr"),
    *("scheduler_interval", "label_smoothing", "channels_last"),
}


def nodes(node, file):
    """Every mapping with a ``_target_``, with its file."""
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node, file
        for value in node.values():
            yield from nodes(value, file)
    elif isinstance(node, list):
        for value in node:
            yield from nodes(value, file)


def by_target():
    found = defaultdict(list)
    for file in sorted(CONF.rglob("*.yaml")):
        for node, _ in nodes(yaml.safe_load(file.read_text()) or {}, file):
            if node["_target_"].startswith("ood_lab."):
                found[node["_target_"]].append(node)
    return found


def defaults_of(target):
    parameters = inspect.signature(get_object(target)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def plain(value):
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def test_settings_of_a_task_have_their_default_in_its_yaml_alone():
    for target, found in by_target().items():
        if target.startswith("ood_lab.tasks."):
            given = set.intersection(*map(set, found))
            own = vars(get_object(target)).get("__annotations__", {})
            twice = given & defaults_of(target).keys() & own.keys()
            assert not twice, f"{target}: {twice} stand in conf/task and in the class"


def test_a_default_that_stands_in_python_too_is_that_of_the_yaml():
    differing = []
    for target, found in by_target().items():
        if len(found) > 1:
            continue  # several YAMLs of one class are choices
        defaults = defaults_of(target)
        for key, value in found[0].items():
            choice = (target, key) in CHOICES or key in OF_MODELS or key in OF_TASKS
            text = isinstance(value, str) and ("${" in value or value == "???")
            if choice or text or key not in defaults or isinstance(value, dict):
                continue
            if isinstance(defaults[key], float) and isinstance(value, str):
                value = float(value)  # YAML reads 1e-5 as a word, Hydra as a number
            if plain(value) != plain(defaults[key]):
                differing.append(f"{target}.{key}: {value} and {defaults[key]}")
    assert not differing


def test_the_listed_choices_are_still_there():
    found = by_target()
    for target, key in CHOICES:
        assert any(key in node for node in found[target]), (target, key)
    assert Path(CONF, "task").is_dir()

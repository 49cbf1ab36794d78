"""What is true of every configuration: each object that it names takes what it is given."""

import inspect
import re

from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf

from ood_lab.evaluation.published.numbers import SETTINGS, SHIPPED
from ood_lab.run.building.nodes import check_nodes


def nodes_with_targets(node, path):
    if isinstance(node, DictConfig):
        if "_target_" in node:
            yield path, node
        for key in node:
            yield from nodes_with_targets(node[key], f"{path}.{key}")
    elif isinstance(node, ListConfig):
        for position, item in enumerate(node):
            yield from nodes_with_targets(item, f"{path}[{position}]")


def check_composed(cfg):
    """Binds the arguments of every node, and checks their values."""
    cfg = job_of(cfg)
    found = dict(nodes_with_targets(cfg, "cfg"))
    for node in found.values():
        target = get_object(node["_target_"])
        arguments = {k: None for k in node if not str(k).startswith("_")}
        inspect.signature(target).bind_partial(**arguments)
    check_nodes(OmegaConf.to_container(cfg, resolve=True))
    assert "cfg.task" in found


def job_of(cfg):
    """Without how jobs are launched, and with what the user has to fill in."""
    settings = OmegaConf.to_container(cfg, resolve=False)
    settings.pop("hydra", None)
    return OmegaConf.create(filled(settings))


def filled(node):
    """With a path in the place of every missing value."""
    if isinstance(node, dict):
        return {key: filled(value) for key, value in node.items()}
    if isinstance(node, list):
        return [filled(value) for value in node]
    return "DIR" if node == "???" else node


def of_papers():
    """The experiments that are held against the settings of a paper."""
    return set(re.findall(r"experiment=(\w+)", (SHIPPED / SETTINGS).read_text(encoding="utf-8")))

"""The identity of a run: the part of its configuration that can change a number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

#: Keys that say where things lie, what is shown or logged, and how fast a run is. Everything
#: else is hashed, and a test checks that none of these changes the numbers of a run.
NEUTRAL = (
    "name",  # the first part of the run folder's own path
    "seed",  # the last one
    "paths",
    "force",
    "openood",  # data and weights name what they take from these folders
    "root",
    "download",  # of data that is missing, which its own key says, too
    "ckpt_openood",
    "debug",  # what it shortens has keys of its own
    "tags",
    "logger",
    "callbacks.progress",
    "annotations.folder",  # where rendered scenes are kept
    "clip.cache_dir",  # of weights that were downloaded
    "clip.download",  # whether missing weights are fetched
    "model.backbone.clip.cache_dir",  # the same, where a network is made from the CLIP
    "model.backbone.clip.download",
    "model.allow_random",  # the same numbers, or none
    "model.download",
    "model.backbone.download",
    # Chat models: how requests are sent, not what they say.
    "lvlm.api_key_env",
    "lvlm.batch",
    "lvlm.concurrency",
    "lvlm.devices",
    "lvlm.download",
    "lvlm.dry_run",  # ends without a result
    "lvlm.give_up_after",
    "lvlm.image_tokens",  # for an estimate before the first request
    "lvlm.price",
    "lvlm.retries",
    "lvlm.timeout_s",
    "data.cache_dir",  # caches facts about files
    "data.info",  # words about the data
    "data.num_workers",
    "data.segmenter.download",
    "task.accept_failed",  # whether a run counts as finished
    "task.download",
    "task.foreign_clip",  # what it allows is named by other keys
    "task.keep_features",  # the same scores, of features that are kept or not
    "task.num_workers",
    # Sums are float64 on any device, so scores differ by rounding alone. trainer.accelerator, the
    # device that extracts the features, is hashed: there, every layer rounds to float32.
    "detector_device",
    "detector_table",  # what is printed
    "trainer.enable_model_summary",
    "trainer.log_every_n_steps",
)

#: Keys that came later, and the values that change nothing: earlier runs keep their hash.
LATER: dict[str, Any] = {
    **{"model.weights_entry": None, "model.match": "name", "probe_first": True},
    **{"ensemble": None, "mc_dropout": None},
    **{"model.multilabel": False, "data.multilabel": False},
    **{"lvlm.samples": 1, "judge.samples": 1, "reader.samples": 1},
    "task.divisions": [],
    "task._may_use_": ["annotations"],  # which are hashed where they are chosen
    **{"task.system": None, "task.prompt_prefix": None, "task.prompt_suffix": None},
    "task.uncut": False,
    **{"task.option_order": "given", "task.read_by": "letter", "task.matching": "contained"},
}
#: The same of ``model`` and ``model.backbone`` by what builds the network; null changes nothing.
LATER_OF = {
    "ood_lab.models.module_backbone": ("features", "output"),
    "ood_lab.models.torch_hub_backbone": ("features", "output"),
    "ood_lab.models.onnx_backbone": ("head",),
    "ood_lab.clip.clip_backbone": ("head",),
}


def telling(
    config: Mapping[str, Any], prefix: str = "", later: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration without what :data:`NEUTRAL` names and :data:`LATER` has."""
    if later is None:
        later = LATER | dict.fromkeys(_later_of(config))
    return {
        str(key): telling(value, f"{prefix}{key}.", later) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if f"{prefix}{key}" not in NEUTRAL
        and later.get(f"{prefix}{key}", telling) != value
        and not (key == "download" and prefix[:5] == "data.")
    }


def _later_of(config: Mapping[str, Any]) -> list[str]:
    model = config.get("model")
    backbone = model.get("backbone") if isinstance(model, Mapping) else None
    target = backbone.get("_target_") if isinstance(backbone, Mapping) else None
    keys = LATER_OF.get(str(target), ())
    return [f"{place}.{key}" for place in ("model", "model.backbone") for key in keys]


def config_hash(config: Mapping[str, Any]) -> str:
    """First 10 hex digits of the SHA-256 of everything in ``config`` that can change a number."""
    text = json.dumps(telling(config), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``(dotted key, value)`` for every leaf of nested settings."""
    parts = node.items() if isinstance(node, Mapping) else enumerate(node)
    for key, value in parts:
        if isinstance(value, (Mapping, list)) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

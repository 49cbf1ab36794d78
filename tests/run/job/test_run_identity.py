"""What a run's hash leaves out changes no number: each such key is given another value here."""

import pandas as pd
import pytest
from cli import call, run_folders

from ood_lab.run.job.run_identity import NEUTRAL

#: Each listed key as an override that differs from the default, ``{}`` = a folder of the test.
OTHER = {
    "name": "name=other",
    "paths": "paths.cache={}/elsewhere",
    "force": "force=true",
    "tags": "tags=[a]",
    "logger": "logger=csv",
    "callbacks.progress": "~callbacks.progress",
    "model.allow_random": "model.allow_random=true",
    "clip.cache_dir": "clip.cache_dir={}/weights",
    "clip.download": "clip.download=true",
    "data.cache_dir": "data.cache_dir=null",
    "detector_device": "detector_device=cpu",
    "detector_table": "detector_table=all",
    "data.info": "data.info.licence=other",
    "data.num_workers": "data.num_workers=1",
    "task.keep_features": "task.keep_features=false",
    "trainer.enable_model_summary": "trainer.enable_model_summary=true",
    "trainer.log_every_n_steps": "trainer.log_every_n_steps=1",
}
#: The same values as ``clip``'s, whether what is missing is fetched, and of tasks that always run.
ELSEWHERE = {
    "annotations.folder",  # test_oodbench_task.py renders below another one
    # No part of what an answer is made with: tests/lvlm/chat.
    "lvlm.api_key_env",
    "lvlm.concurrency",
    "lvlm.devices",
    "lvlm.download",
    "lvlm.dry_run",
    "lvlm.give_up_after",
    "lvlm.image_tokens",
    "lvlm.price",
    "lvlm.retries",
    "lvlm.timeout_s",
    "seed",  # names the folder
    "debug",  # shortens through keys of its own
    "openood",  # folders that data and weights name
    "root",
    "download",
    "ckpt_openood",
    "model.download",
    "model.backbone.download",
    "model.backbone.clip.cache_dir",
    "model.backbone.clip.download",
    "task.accept_failed",
    "task.download",
    "task.foreign_clip",  # refuses or not: tests/lvlm/benchmarks/oodbench/test_oodbench_task.py
    "task.num_workers",
}
RUNS = {
    "train": ("train.py", ("task=score", "trainer.max_epochs=1", "trainer.accelerator=cpu")),
    "clip": ("eval.py", ("model=clip", "trainer.accelerator=cpu")),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    import numpy as np
    from PIL import Image

    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in ("id/pear", "id/plum", "noise"):
        (root / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 255, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def results(photos, outputs, script, *arguments):
    data = ("data=folder", f"data.id.train={photos}/id", f"data.ood.noise={photos}/noise")
    small = (
        "data.batch_size=8",
        "detector=[msp,knn]",
        "detector.knn.k=2",
        "metrics.n_bootstrap=20",
    )
    base = (*data, *small, "task.report=false", "logger=none", f"paths.outputs={outputs}")
    assert call(script, *base, *arguments) == 0
    (folder,) = run_folders(outputs)
    return folder.parent.name, pd.read_parquet(folder / "results.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", pytest.param("clip", marks=pytest.mark.slow)])
def test_the_same_hash_and_the_same_numbers(kind, photos, tmp_path):
    assert set(NEUTRAL) == OTHER.keys() | ELSEWHERE
    script, arguments = RUNS[kind]
    (tmp_path / "weights").mkdir()
    others = [o.format(tmp_path) for key, o in OTHER.items()]
    digest, numbers = results(photos, tmp_path / "a", script, *arguments)
    digest_of_other, others = results(photos, tmp_path / "b", script, *arguments, *others)
    assert digest_of_other == digest
    pd.testing.assert_frame_equal(others, numbers)

"""What a job knows of itself before anything is built."""

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict

from ood_lab.run.commandline.composition import composed
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.run.job.preparation import prepare


@pytest.mark.parametrize(("script", "trains"), [("train", True), ("eval", False)])
def test_every_process_of_a_job_trains_or_none(script, trains, tmp_path):
    """Lightning gives the other processes of a DDP job another name."""
    register_resolvers()
    line = [f"paths.outputs={tmp_path}", "detector=[msp]"]
    ws = prepare(composed(script, line), line)
    for name in (script, f"{script}_ddp_process_1"):
        cfg = OmegaConf.create({"hydra": HydraConfig.get()})
        with open_dict(cfg):
            cfg.hydra.job.name = name
        HydraConfig.instance().cfg = cfg
        assert ws.trains is trains


@pytest.mark.parametrize(
    ("line", "read"),
    [(["prompt=gl_mcm", "clip=tiny"], True), (["model.pretrained=true", "clip=tiny"], False)],
)
def test_a_group_that_another_refers_to_is_read(line, read, tmp_path):
    """``model.backbone.clip`` is ``${clip}`` where a method works on the CLIP."""
    register_resolvers()
    line = [*line, f"paths.outputs={tmp_path}"]
    ws = prepare(composed("eval", line), line)
    assert ("clip" not in ws.unused) is read
    assert "lvlm" in ws.unused

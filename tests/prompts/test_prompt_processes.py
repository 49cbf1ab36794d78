"""Prompts learnt by two processes, each with half of every batch, and by one."""

import functools

import lightning as L
import pytest
import torch
from clip_towers import clip
from torch.utils.data import DataLoader, Dataset

from ood_lab.prompts import CoOp, IDLike, LoCoOp, prompt_backbone

CLASSES = ["cat", "dog", "great white shark"]
SGD = functools.partial(torch.optim.SGD, lr=0.1)
VIEWS = {"coop": 1, "locoop": 1, "idlike": 6}


class Noise(Dataset):
    def __init__(self, views):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(6, 3, 32 * views, 32, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index], "index": index, "label": index % 3}


class Data(L.LightningDataModule):
    def __init__(self, views, batch_size):
        super().__init__()
        self.views, self.batch_size = views, batch_size

    def train_dataloader(self):
        return DataLoader(Noise(self.views), batch_size=self.batch_size)

    def leave_out_images(self):
        pass

    def predict_loader(self, split):
        return DataLoader(Noise(self.views), batch_size=4)


def module(name, cached):
    model = clip("t-vit")  # made by its first use, which draws too
    torch.manual_seed(0)
    if name == "idlike":
        backbone = prompt_backbone(model, CLASSES, n_ctx=4, n_outliers=5)
        return IDLike(backbone, SGD, n_selected=2)
    backbone = prompt_backbone(model, CLASSES, n_ctx=4)
    return CoOp(backbone, SGD, cache_views=cached) if name == "coop" else LoCoOp(backbone, SGD)


def learned(name, processes, tmp_path, cached=False):
    torch.set_num_threads(1)  # forked processes hang in the threads of their parent
    learner = module(name, cached)
    before = [p.detach().clone() for p in learner.backbone.learned.parameters()]
    trainer = L.Trainer(
        accelerator="cpu", devices=processes, strategy="ddp_fork" if processes > 1 else "auto",
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(learner, datamodule=Data(VIEWS[name], 6 // processes))
    after = [p.detach().cpu() for p in learner.backbone.learned.parameters()]
    assert all((a - b).abs().max() > 1e-5 for a, b in zip(after, before, strict=True))
    return torch.cat([p.flatten() for p in after]), trainer.callback_metrics["train/loss"]


@pytest.mark.parametrize(("name", "cached"), [("coop", False), ("coop", True), ("idlike", False)])
def test_two_processes_equal_one(name, cached, tmp_path):
    (one, loss), (two, same) = (learned(name, n, tmp_path, cached) for n in (1, 2))
    torch.testing.assert_close(two, one, rtol=0, atol=1e-5)
    torch.testing.assert_close(same, loss, rtol=1e-5, atol=0)


@pytest.mark.slow
def test_two_processes_of_locoop_are_close_to_one(tmp_path):
    """The mean over regions is one of each process: docs/how-to/clip-prompts.md says so."""
    (one, loss), (two, same) = (learned("locoop", n, tmp_path) for n in (1, 2))
    torch.testing.assert_close(two, one, rtol=0, atol=0.02)
    torch.testing.assert_close(same, loss, rtol=0.02, atol=0)

"""Training prompts: gradients, modes, checkpoints, and what is refused."""

import functools

import lightning as L
import pytest
import torch
from clip_towers import clip
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, Dataset

from ood_lab.clip import LocalFeaturesUnsupported
from ood_lab.common.errors import UserError
from ood_lab.models import weights_sha256
from ood_lab.prompts import CoOp, IDLike, LoCoOp, RandomViews, prompt_backbone
from ood_lab.prompts.idlike import split_views

CLASSES = ["cat", "dog", "great white shark"]
SGD = functools.partial(torch.optim.SGD, lr=0.1)


class Noise(Dataset):
    def __init__(self, views=1, n=6):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(n, 3, 32 * views, 32, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index], "index": index, "label": index % 3}


class Data(L.LightningDataModule):
    """Validation images are single views."""

    def __init__(self, views=1):
        super().__init__()
        self.views = views

    def train_dataloader(self):
        return DataLoader(Noise(self.views), batch_size=3)

    def val_dataloader(self):
        return DataLoader(Noise(), batch_size=4)

    def leave_out_images(self):
        pass

    def predict_loader(self, split):
        return DataLoader(Noise(), batch_size=4)


def seeded():
    model = clip("t-vit")  # made by its first use, which draws too
    torch.manual_seed(0)
    return model


def coop(**options):
    return CoOp(prompt_backbone(seeded(), CLASSES, n_ctx=4), SGD, **options)


def locoop(**options):
    return LoCoOp(prompt_backbone(seeded(), CLASSES, n_ctx=4), SGD, top_k=1, **options)


def idlike(**options):
    backbone = prompt_backbone(seeded(), CLASSES, n_ctx=4, n_outliers=5)
    return IDLike(backbone, SGD, n_selected=2, **options)


METHODS = {"coop": (coop, 1), "locoop": (locoop, 1), "idlike": (idlike, 6)}


def trainer(tmp_path, epochs=2, *callbacks):
    return L.Trainer(
        accelerator="cpu", devices=1, logger=False, callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks), enable_progress_bar=False, max_epochs=epochs,
        enable_model_summary=False, default_root_dir=tmp_path, num_sanity_val_steps=0,
    )  # fmt: skip


class Watch(L.Callback):
    """Looks at the model in the middle of a training."""

    def on_before_optimizer_step(self, trainer, module, optimizer):
        assert module.training
        assert not any(m.training for m in module.backbone.clip.modules())
        got = {n for n, p in module.named_parameters() if p.grad is not None}
        assert got == {f"backbone.{n}" for n in module.backbone.learned.state_dict()}
        assert all(bool(p.grad.any()) for p in module.parameters() if p.grad is not None)
        assert all(p.dtype == torch.float32 for p in module.backbone.learned.parameters())


@pytest.fixture(scope="module", params=METHODS)
def fitted(request, tmp_path_factory):
    """A trained module, its checkpoint and the maker of a fresh one."""
    folder = tmp_path_factory.mktemp(request.param)
    make, views = METHODS[request.param]
    module, untouched = make(), weights_sha256(clip("t-vit"))
    saver = ModelCheckpoint(folder, filename="last", enable_version_counter=False)
    fit = trainer(folder, 2, Watch(), saver)
    fit.fit(module, datamodule=Data(views))
    assert weights_sha256(clip("t-vit")) == untouched
    assert {"val/loss", "val/acc", "train/acc"} <= set(fit.callback_metrics)
    return module, folder / "last.ckpt", make


def test_checkpoints_hold_prompts_alone(fitted):
    module, file, make = fitted
    content = torch.load(file, weights_only=True)
    assert set(content["state_dict"]) == {
        f"backbone.{n}" for n in module.backbone.learned.state_dict()
    }
    assert file.stat().st_size < 50_000
    assert content["data_config"] == module.backbone.data_config
    saved = content["prompts"]
    assert saved["classnames"] == CLASSES
    assert saved["template"] == "[4] {}."
    assert saved["temperature"] == pytest.approx(0.07)
    assert saved["clip"]["name"] == "t-vit"

    fresh = make().backbone
    assert not torch.equal(fresh.prompts.ctx, module.backbone.prompts.ctx)
    fresh.load(file)
    module.backbone.reset_head()
    assert weights_sha256(fresh) == weights_sha256(module.backbone)


@pytest.mark.slow
def test_a_training_goes_on(fitted, tmp_path):
    module, file, make = fitted
    views = next(v for m, v in METHODS.values() if m is make)
    whole, resumed = make(), make()
    trainer(tmp_path, 4).fit(whole, datamodule=Data(views))
    trainer(tmp_path, 4).fit(resumed, datamodule=Data(views), ckpt_path=file)
    torch.testing.assert_close(resumed.backbone.prompts.ctx, whole.backbone.prompts.ctx)
    assert not torch.equal(whole.backbone.prompts.ctx, module.backbone.prompts.ctx)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: prompt_backbone(clip("t-vit"), CLASSES[::-1], n_ctx=4), "class 0 is 'cat' there"),
        (lambda: prompt_backbone(clip("t-vit"), CLASSES[:2], n_ctx=4), "class 2 is 'great white"),
        (lambda: prompt_backbone(clip("t-vit"), CLASSES, n_ctx=5), r"here '\[5\] \{\}\.'"),
        (lambda: prompt_backbone(clip("t-eos"), CLASSES, n_ctx=4), "learned on t-vit"),
    ],
)
def test_prompts_of_something_else_are_refused(make, named, tmp_path):
    module = coop()
    content = {"state_dict": {}, "prompts": module.backbone.settings}
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(UserError, match=named):
        make().load(tmp_path / "other.ckpt")
    torch.save({"state_dict": {}}, tmp_path / "none.ckpt")
    with pytest.raises(UserError, match="holds no prompts"):
        make().load(tmp_path / "none.ckpt")


def test_kept_views_give_the_same_training(tmp_path):
    plain, kept = coop(), coop(cache_views=True)
    for module in (plain, kept):
        trainer(tmp_path).fit(module, datamodule=Data())
    torch.testing.assert_close(kept.backbone.prompts.ctx, plain.backbone.prompts.ctx)
    with pytest.raises(UserError, match="cache_views"):
        trainer(tmp_path).fit(coop(cache_views=True), DataLoader(Noise(), batch_size=3))


def test_coop_learns(tmp_path):
    module = coop(cache_views=True)
    fit = trainer(tmp_path, 30)
    fit.fit(module, datamodule=Data())
    first = coop().eval()
    batch = next(iter(DataLoader(Noise(), batch_size=6)))
    before = first.losses(first.outputs(batch), batch)["ce"]
    after = module.eval().losses(module.outputs(batch), batch)["ce"]
    assert after < 0.9 * before
    # The last validation saw the head of the last step.
    torch.testing.assert_close(fit.callback_metrics["val/loss"], after)


@pytest.mark.parametrize(("classes", "k"), [(3, 1), (11, 2), (22, 4), (100, 20)])
def test_top_k_is_a_fifth(classes, k):
    backbone = prompt_backbone(clip("t-vit"), [str(i) for i in range(classes)], n_ctx=1)
    assert LoCoOp(backbone, SGD).top_k == k


def test_locoop_refuses_what_cannot_work():
    backbone = prompt_backbone(clip("t-vit"), CLASSES, n_ctx=1)
    for top_k in (0, 3):
        with pytest.raises(UserError, match=f"top_k={top_k}: must lie between 1 and 2"):
            LoCoOp(backbone, SGD, top_k=top_k)
    with pytest.raises(LocalFeaturesUnsupported, match="t-timm"):
        LoCoOp(prompt_backbone(clip("t-timm"), CLASSES, n_ctx=1), SGD)


def test_idlike_needs_enough_views(tmp_path):
    with pytest.raises(UserError, match="3 views of an image cannot hold 2"):
        trainer(tmp_path).fit(idlike(), datamodule=Data(views=3))


def test_views_are_crops_of_the_image():
    from PIL import Image
    from torchvision.transforms.functional import to_tensor

    image = Image.effect_noise((80, 60), 60).convert("RGB")
    torch.manual_seed(0)
    stack = RandomViews(5, 16)(image)
    assert stack.size == (16, 80)
    views = split_views(to_tensor(stack)[None])
    assert views.shape == (1, 5, 3, 16, 16)
    assert torch.equal(views[0, 3], to_tensor(stack.crop((0, 48, 16, 64))))
    assert len(views[0].unique(dim=0)) == 5

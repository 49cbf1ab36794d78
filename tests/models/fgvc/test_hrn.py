"""HRN: reference values of its losses, flow of gradients, hidden leaves."""

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader
from tree_toys import (
    BIRDS,
    BRONZE,
    TOY,
    build,
    gradients,
    legal_states,
    module,
    parameters,
    wave,
)

from ood_lab.common.arguments import check_values
from ood_lab.common.errors import UserError
from ood_lab.models.fgvc.hrn import HRN, HRNNet, HRNOutput, shown_leaves

LEVELS = torch.tensor([[0, 0, 0], [1, 2, 4], [0, 1, -1], [1, -1, -1]])


def toy_net(categories: int = 0) -> HRNNet:
    return build(HRNNet, TOY | {"categories": categories}, 5, width=16, embedding=8)


def outputs(category=None):
    features = torch.zeros(4, 8)
    return HRNOutput(wave(4, 5, a=1.1), features, wave(4, 10, a=0.7), category)


def close(got, expected):
    torch.testing.assert_close(got, torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_reference_losses():
    batch = {"levels": LEVELS, "label": LEVELS[:, -1]}
    losses = module(HRN, toy_net()).losses(outputs(), batch)
    close(losses["tree"], 1.639319)
    close(losses["ce"], 2.167226)
    close(sum(losses.values()), 3.806545)


def test_no_known_class_leaves_the_tree_alone():
    levels = LEVELS.clone()
    levels[:, -1] = -1
    out = outputs()
    losses = module(HRN, toy_net()).losses(out, {"levels": levels, "label": levels[:, -1]})
    assert float(losses["ce"]) == 0
    assert float(losses["tree"]) > 0


def test_two_trees_are_their_product():
    """Tree and category: the sum of two losses is the loss on the product of the states."""
    category = wave(4, 2, a=0.3)
    target = torch.tensor([0, 1, 1, 0])
    batch = {"levels": LEVELS, "label": LEVELS[:, -1], "category": target}
    losses = module(HRN, toy_net(2)).losses(outputs(category), batch)
    eras = torch.from_numpy(legal_states(**TOY))
    kinds = torch.from_numpy(legal_states((2,), ()))
    both = torch.cat([eras.repeat_interleave(3, 0), kinds.repeat(len(eras), 1)], dim=1)
    potentials = torch.cat([wave(4, 10, a=0.7), category], dim=1).sigmoid().double()
    weights = (potentials @ both.T).exp()
    nodes, z = torch.tensor([5, 9, 3, 1]), weights.sum(1)
    chosen = both[:, nodes].T * both[:, 10 + target].T
    expected = -((weights * chosen).sum(1) / z).log().mean()
    close((losses["tree"] + losses["category"]).double(), expected)


def test_every_level_adds_to_the_coarser_ones():
    net = toy_net(3).eval()
    image = wave(2, 3, 64, 64, a=0.7)
    with net.capture([*net.level_heads, net.category_head]) as seen:
        logits, features = net(image)
    out = net.train_outputs(image)
    last = net.maps(image)[-1]
    e = [branch(last) for branch in net.branches]
    close(features, (e[0] + e[1] + e[2]).relu())
    close(logits, net.head(features))
    close(seen["heads.0"], net.heads[0](e[0].relu()))
    close(seen["heads.1"], net.heads[1]((e[0] + e[1]).relu()))
    close(torch.cat([*seen.values()], dim=1), torch.cat([out.levels[:, :5], out.category], dim=1))
    assert gradients(out.logits.sum(), *net.branches) == [True, True, True]
    assert gradients(out.levels[:, :2].sum(), *net.branches) == [True, False, False]
    assert gradients(out.category.sum(), *net.branches, net.category_branch) == [False] * 3 + [True]


def test_ceil_of_the_proportion_of_each_class_stays_known():
    labels = torch.tensor([0] * 30 + [1] * 7 + [2] + [-1] * 4)
    shown = shown_leaves(labels, 0.1, seed=3)
    assert [int(shown[labels == c].sum()) for c in (0, 1, 2, -1)] == [3, 1, 1, 0]
    assert torch.equal(shown, shown_leaves(labels, 0.1, seed=3))
    assert not torch.equal(shown, shown_leaves(labels, 0.1, seed=4))
    assert shown_leaves(labels, 1.0, 0).tolist() == (labels >= 0).tolist()
    with pytest.raises(UserError, match=r"model\.classifier\.leaf_proportion=1\.5: give .* 1"):
        check_values(HRN, {"leaf_proportion": 1.5}, "model.classifier")


class Images(torch.utils.data.Dataset):
    labels = torch.arange(8) % 5

    def __len__(self):
        return 8

    def __getitem__(self, i):
        fine = int(self.labels[i])
        levels = torch.tensor([int(fine > 2), (0, 0, 1, 2, 2)[fine], fine])
        image = wave(3, 64, 64, a=0.1 + i)
        return {"image": image, "index": i, "label": fine, "levels": levels}


class Data(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.splits = {"train": Images()}

    def train_dataloader(self):
        return DataLoader(self.splits["train"], 8)

    val_dataloader = train_dataloader


@pytest.mark.parametrize("proportion", [0.0, 0.5, 1.0])
def test_training_hides_the_other_classes(proportion):
    model = module(HRN, toy_net(), leaf_proportion=proportion, leaf_seed=1)
    seen = []
    losses = model.losses

    def watch(out, batch):
        terms = losses(out, batch)
        if model.training:
            each = torch.nn.functional.cross_entropy(out.logits, batch["label"], reduction="none")
            shown = shown_leaves(Images.labels, proportion, 1)[batch["index"]]
            assert shown.sum() == {0.0: 0, 0.5: 5, 1.0: 8}[proportion]
            seen.append((terms["ce"].detach(), (each * shown).sum().detach() / max(1, shown.sum())))
        return terms

    model.losses = watch
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, datamodule=Data())
    (got, expected), = seen  # fmt: skip
    close(got, expected)
    assert trainer.callback_metrics["val/loss_ce"] > 0
    assert "train/acc" in trainer.callback_metrics


@pytest.mark.slow
def test_parameters_on_resnet50():
    assert parameters(build(HRNNet, BIRDS, 200, "resnet50", {})) == 94_559_747


def test_the_hierarchy_must_end_in_the_classes():
    with pytest.raises(UserError, match="finest level of the hierarchy has 11 labels"):
        build(HRNNet, BRONZE, 12)

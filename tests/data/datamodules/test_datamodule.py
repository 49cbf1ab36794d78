import copy
import shutil
from dataclasses import replace
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from pictures import folders, picture, truncate
from torchvision import transforms

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.data.checks.check_report import ImageSize
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.data.transforms.subsets import default_shares, stratified_split
from ood_lab.run.commandline.resolvers import register_resolvers

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    folders(root / "train", each=20)
    folders(root / "val", each=3, first_seed=20_000)
    folders(root / "test", each=4, first_seed=30_000)
    for i in range(7):
        picture(root / "near" / f"{i}.jpg", seed=40_000 + i)
        picture(root / "far" / "sea" / f"{i}.jpg", seed=50_000 + i)
    return root


@pytest.fixture
def root(source, tmp_path):
    return shutil.copytree(source, tmp_path / "photos")


def module(root, id=("train", "val", "test"), ood=("near", "far"), **options):
    return FolderDataModule(
        {name: str(root / name) for name in id}, {name: str(root / name) for name in ood}, **options
    )


def to_tensor(image):
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float()


def test_sets_in_order(root):
    data = module(root, ood=("near", "far"), shift_order=["far", "near"])
    data.setup()
    assert list(data.splits) == ["train", "val", "test", "near", "far"]
    assert data.ood_names == ["near", "far"]
    assert data.shift_order == ["far", "near"]
    assert data.classes == ["cat", "dog", "owl"]
    assert [len(d) for d in data.splits.values()] == [60, 9, 12, 7, 7]
    assert data.predict_dataset("far").table["category_name"].unique().tolist() == ["sea"]
    before = data.splits
    data.setup("fit")
    assert data.splits is before


@pytest.mark.slow
def test_identity_is_the_same_for_every_process(root):
    first, second = module(root), module(root, cache_dir=str(root / "cache"))
    first.setup()
    second.setup()
    assert [d.identity for d in first.splits.values()] == [
        d.identity for d in second.splits.values()
    ]
    assert len({d.identity for d in first.splits.values()}) == 5


def test_transforms_of_train_and_evaluation(root):
    data = module(root, batch_size=8)
    data.use_transform(train=lambda image: to_tensor(image) * 0 - 1, eval=to_tensor)
    assert (next(iter(data.train_dataloader()))["image"] == -1).all()
    for split in data.splits:
        assert (data.predict_dataset(split)[0]["image"] >= 0).all()
    assert (next(iter(data.val_dataloader()))["image"] >= 0).all()
    data.use_transform(eval=to_tensor)
    assert (next(iter(data.train_dataloader()))["image"] >= 0).all()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_predict_loader_gives_every_row_once_in_order(root, num_workers):
    data = module(root, batch_size=4, eval_batch_size=7, num_workers=num_workers)
    data.use_transform(eval=to_tensor)
    for split in ("train", "near"):
        batches = list(data.predict_loader(split))
        index = torch.cat([b["index"] for b in batches])
        assert index.tolist() == list(range(len(data.splits[split])))
        labels = torch.cat([b["label"] for b in batches])
        assert labels.tolist() == data.splits[split].labels.tolist()
        assert len(batches[0]["index"]) == 7
    with pytest.raises(UserError, match="did you mean 'near'"):
        data.predict_loader("neer")


def test_train_loader_shuffles_and_drops_the_rest(root):
    data = module(root, batch_size=16)
    data.use_transform(eval=to_tensor)
    torch.manual_seed(0)
    seen = [b["index"].tolist() for b in data.train_dataloader()]
    assert [len(b) for b in seen] == [16, 16, 16]
    order = [index for batch in seen for index in batch]
    assert order != sorted(order)
    assert len(set(order)) == 48
    data.loading = replace(data.loading, batch_size=100)  # never the only one
    assert [len(b["index"]) for b in data.train_dataloader()] == [60]


@pytest.mark.slow
def test_order_and_augmentation_follow_from_seed_and_epoch_alone(root, monkeypatch):
    def epoch(number, seed=0, workers=0):
        monkeypatch.setenv("PL_GLOBAL_SEED", str(seed))
        data = module(root, num_workers=workers)
        noisy = transforms.Compose([to_tensor, lambda x: x + torch.rand(()) + np.random.rand()])
        data.use_transform(eval=to_tensor, train=noisy)
        loader = data.train_dataloader()
        loader.sampler.epoch = lambda: number
        batches = list(loader)
        return torch.cat([b["index"] for b in batches]), torch.cat([b["image"] for b in batches])

    rows, images = epoch(3)
    torch.rand(5)  # whatever else was drawn
    for again in (epoch(3), epoch(3, workers=2)):
        assert torch.equal(again[0], rows)
        assert torch.equal(again[1], images)
    for other in (epoch(4), epoch(3, seed=1)):
        assert not torch.equal(other[0], rows)
        assert not torch.equal(other[1].sort(0).values, images.sort(0).values)


def test_the_network_does_not_notice_the_augmentation(root):
    data = module(root)
    data.use_transform(eval=to_tensor)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    _ = data.train_dataloader().dataset[0, 77]
    assert torch.equal(torch.rand(3), expected)


class Probe(L.LightningModule):
    def __init__(self, by_step=False):
        super().__init__()
        self.by_step = by_step
        self.layer = torch.nn.Linear(3, 3)
        self.seen = []

    def training_step(self, batch, _):
        self.seen += batch["index"].tolist()
        return torch.nn.functional.cross_entropy(
            self.layer(batch["image"].mean((2, 3)) / 255), batch["label"]
        )

    def validation_step(self, batch, _):
        pass

    def configure_optimizers(self):
        if self.by_step:  # begins to load images, before a checkpoint is restored
            assert self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "by_step"), [(0, False), (1, False), (1, True)])
def test_a_resumed_training_sees_the_images_of_an_undisturbed_one(root, tmp_path, workers, by_step):
    """Processes that load images fetch the first ones before Lightning has counted the epochs."""

    def seen(epochs, **options):
        probe, data = Probe(by_step), module(root, num_workers=workers, batch_size=20)
        data.use_transform(eval=to_tensor)
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        last = L.pytorch.callbacks.ModelCheckpoint(tmp_path / str(epochs), save_last=True)
        trainer = L.Trainer(
            max_epochs=epochs, limit_val_batches=0, accelerator="cpu", callbacks=[last], **quiet
        )
        trainer.fit(probe, datamodule=data, **options)
        return probe.seen

    whole = seen(2)
    assert seen(1) == whole[:60]
    assert seen(2, ckpt_path=tmp_path / "1/last.ckpt") == whole[60:]


def test_a_trainer_takes_it(root, tmp_path):
    data = module(root, batch_size=16)
    data.use_transform(eval=to_tensor)
    probe = Probe()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(probe, datamodule=data)
    assert len(set(probe.seen)) == 48


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (("train",), (36, 6, 18)),
        (("train", "test"), (54, 6, 12)),
        (("train", "val"), (42, 9, 18)),
    ],
)
def test_missing_splits_are_taken_off_train(root, given, sizes):
    data = module(root, id=given)
    data.setup()
    parts = [data.splits[name] for name in ("train", "val", "test")]
    assert tuple(map(len, parts)) == sizes
    for part in parts:
        assert len(set(np.bincount(part.labels))) == 1  # stratified
    paths = [path for part in parts for path in part.paths]
    assert len(set(paths)) == len(paths)
    assert "split off train (seed 0)" in data.report.notes[0]
    assert data.split_off == [name for name in ("val", "test") if name not in given]

    again, other = module(root, id=given), module(root, id=given, split_seed=1)
    again.setup()
    other.setup()
    assert again.splits["train"].paths == data.splits["train"].paths
    assert other.splits["train"].paths != data.splits["train"].paths


def test_a_larger_share_of_few_images_becomes_test():
    assert default_shares(1999) == (0.6, 0.1, 0.3)
    assert default_shares(2000) == (0.8, 0.1, 0.1)


def test_shares_that_are_given_are_taken(root):
    data = module(root, id=("train",), split=(0.8, 0.1, 0.1))
    data.setup()
    assert [len(data.splits[name]) for name in ("train", "val", "test")] == [48, 6, 6]


def test_every_class_keeps_training_images(tmp_path):
    for name, images in {"two": 2, "three": 3, "many": 20}.items():
        folders(tmp_path, classes=(name,), each=images, first_seed=100 * images)
    data = FolderDataModule({"train": str(tmp_path)}, {})
    data.setup()
    of = {name: data.splits[name].labels.bincount(minlength=3) for name in data.splits}
    by_class = {name: [int(of[s][k]) for s in of] for k, name in enumerate(data.classes)}
    assert by_class == {"many": [12, 2, 6], "three": [1, 1, 1], "two": [1, 1, 0]}


def test_stratified_split_leaves_something_everywhere():
    labels = np.repeat([-1, 0, 1, 2], [5, 1, 2, 1000])
    train, val, test = stratified_split(labels, [0.1, 0.2], seed=0)
    assert sorted(np.concatenate([train, val, test])) == list(range(len(labels)))
    assert [(labels[train] == k).sum() for k in (-1, 0, 1, 2)] == [3, 1, 1, 700]
    assert [(labels[val] == k).sum() for k in (-1, 0, 1, 2)] == [1, 0, 1, 100]
    with pytest.raises(UserError, match="cannot be split"):
        stratified_split(np.array([0, 1]), [0.1], seed=0)
    with pytest.raises(UserError, match="sum < 1"):
        stratified_split(labels, [0.5, 0.5], seed=0)


def test_saved_splits_read_back(root, tmp_path):
    data = module(root, id=("train",), ood=("far",))
    data.save_splits(tmp_path / "splits")
    back = FolderDataModule(
        {name: tmp_path / "splits" / f"{name}.csv" for name in ("train", "val", "test")},
        {"far": tmp_path / "splits" / "far.csv"},
    )
    back.setup()
    assert back.classes == data.classes
    for name, split in data.splits.items():
        assert back.splits[name].identity == split.identity
        assert back.splits[name].table.to_dict() == split.table.to_dict()


def test_lists_with_a_root(root, tmp_path):
    for name in ("train", "test", "near"):
        table, _ = read_manifest(root / name)
        lines = [
            f"{Path(p).relative_to(root)} {label}"
            for p, label in zip(table["path"], table["label"], strict=True)
        ]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    data = FolderDataModule(
        {"train": tmp_path / "train.txt", "val": None, "test": tmp_path / "test.txt"},
        {"near": {"path": tmp_path / "near.txt", "root": root}, "gone": None},
        root=root,
    )
    data.setup()
    assert data.classes == ["0", "1", "2"]
    assert list(data.splits) == ["train", "val", "test", "near"]


def test_unreadable_images(root):
    truncate(root / "train/cat/003.jpg")
    truncate(root / "near/5.jpg")
    with pytest.raises(UserError, match=r"2 of 95 images cannot be read.*on_broken=skip"):
        module(root).setup()
    data = module(root, on_broken="skip")
    data.setup()
    assert (len(data.splits["train"]), len(data.splits["near"])) == (59, 6)
    assert "unreadable images of near skipped: 1" in data.report.notes
    for i in range(20):
        (root / "train/dog" / f"{i:03}.jpg").write_text("gone")
    with pytest.raises(UserError, match="every image of 'dog' in train is unreadable"):
        module(root, on_broken="skip").setup()
    for name, sets in (("near", ("near", "far")), ("train", ("far",))):
        for file in (root / name).rglob("*.jpg"):
            file.write_text("<html>404</html>")
        with pytest.raises(UserError, match=rf"images of {name} cannot be read"):
            module(root, on_broken="skip", ood=sets).setup()


def test_mistakes_are_named(root):
    def refuse(match, **options):
        with pytest.raises(UserError, match=match) as caught:
            module(root, **options).setup()
        assert "\n" not in str(caught.value)

    refuse("data.id.train=DIR", id=("test",))
    refuse(r"shift_order names 'nere', .*'near'", shift_order=["nere", "far"])
    refuse("names a set twice", shift_order=["near", "near"])
    refuse(r"data.unresized names 'nere', .*'near'", unresized=["nere"])
    refuse("'.*/neer' does not exist; nearest: '.*/near'", ood=("neer",))
    refuse("data.id.tset is not a split: did you mean 'test'", id=("train", "tset"))
    refuse("cannot be called 'test'", ood=("test",))
    refuse("sum 1", id=("train",), split=[0.5, 0.1])
    refuse("data.identify=name: give 'content' or 'stat'", identify="name")
    refuse("data.check=some: give 'auto', 'full'", check="some")


@pytest.mark.slow
@pytest.mark.parametrize("check", ["full", "off"])
def test_the_size_of_the_images(root, check):
    assert module(root, check=check).image_size == ImageSize(16, 16, shared=True)
    picture(root / "near" / "0.jpg", size=(99, 99))  # of OOD images nothing depends
    assert module(root, check=check).image_size.shared
    picture(root / "train" / "dog" / "000.jpg", size=(20, 10))
    assert module(root, check=check).image_size == ImageSize(16, 16, shared=False)


def test_id_alone_is_data_too(root):
    data = module(root, ood=())
    data.setup()
    assert data.ood_names == []


def test_unlabelled_id(root):
    data = FolderDataModule({"train": root / "near"}, {"far": root / "far"})
    data.setup()
    assert data.classes == []
    assert any("no labels" in note for note in data.report.notes)


def test_duplicates_are_reported(root):
    shutil.copy(root / "test/cat/000.jpg", root / "near/copy.jpg")
    data = module(root)
    data.setup()
    assert any("1 image of near also in ID" in warning for warning in data.report.warnings)


def test_a_copy_pickles_to_workers(root):
    data = module(root)
    data.use_transform(eval=to_tensor)
    twin = copy.deepcopy(data.splits["test"])
    assert torch.equal(twin[0]["image"], data.splits["test"][0]["image"])


@pytest.fixture(scope="module")
def vessels():
    data = VesselsDataModule(train=44, val=22, test=22, per_shift_set=5, per_cell=1)
    data.use_transform(eval=to_tensor)
    return data


def test_vessels_without_any_ood_set_and_a_few_batches_of_them():
    data = VesselsDataModule(44, 22, 22, 0, 0)
    data.setup()
    assert data.ood_names == data.shift_order == []
    assert any("no OOD set" in note for note in data.report.notes)
    few = VesselsDataModule(44, 22, 22, 5, 0, batch_size=6, eval_batch_size=2, max_batches=2)
    few.setup()
    assert [len(split) for split in few.splits.values()] == [12, 4, 4, *[4] * 5]
    assert few.splits["train"].labels.unique().numel() > 6  # taken through the whole table
    assert few.labels == data.labels  # of classes that the few images do not have, too
    assert few.splits["test"].identity != data.splits["test"].identity
    assert (data.title, few.title) == ("vessels", "2 batches of vessels")


def test_vessels_sets_and_order(vessels):
    order = [
        "transferred_bronze",
        "transferred_container",
        "sketch_rubbing",
        "container",
        "general",
    ]
    assert vessels.shift_order == order
    assert vessels.ood_names == [*order, "grid"]
    assert [len(d) for d in vessels.splits.values()] == [44, 22, 22, *[5] * 5, 35]
    assert {"semantic_level", "covariate_level"} <= set(vessels.splits["grid"].table)
    assert len({d.identity for d in vessels.splits.values()}) == 9
    assert vessels.report.warnings == []


def test_vessels_labels(vessels):
    labels = vessels.labels
    assert labels.level_sizes == [4, 11]
    assert labels.categories == 2
    assert labels.shapes
    assert labels.attributes
    batch = next(iter(vessels.val_dataloader()))
    assert batch["levels"].shape == (22, 2)
    assert torch.equal(batch["levels"][:, 1], batch["label"])
    assert batch["attributes"].shape == (22, labels.attributes)


def built(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(overrides=["+paths.cache=null", "+seed=5", *overrides])
    return instantiate(cfg.data, _convert_="all")


def test_folder_config_is_all_one_needs(root):
    sources = [f"data.id.train={root}/train", f"data.id.test={root}/test"]
    sets = [f"+data.ood.{name}={root}/{name}" for name in ("near", "far")]
    data = built("+data=folder", *sources, *sets, "data.shift_order=[near,far]")
    data.setup()
    assert list(data.splits) == ["train", "val", "test", "near", "far"]
    assert data.shift_order == ["near", "far"]
    assert isinstance(data.shift_order, list)
    assert (data.name, data.seed, data.loading.evaluated) == ("folder", 0, 256)
    with pytest.raises(UserError, match=r"data\.id\.train=DIR"):
        built("+data=folder").setup()


def vessels_of(*overrides):
    """The vessels bring a preset along, which the whole configuration alone has a place for."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("eval", overrides=["paths.cache=null", "seed=5", *overrides])
    return instantiate(cfg.data, _convert_="all")


def test_vessels_configs():
    small = ["data.train=66", "data.val=44", "data.test=44", "data.per_shift_set=2"]
    tail = vessels_of("data=vessels_longtail", *small, "data.min_per_class=2", "data.per_cell=0")
    plain = vessels_of("data=vessels", *small, "data.per_cell=1")
    tail.setup()
    plain.setup()
    assert set(np.bincount(plain.splits["train"].labels)) == {6}
    assert min(np.bincount(tail.splits["train"].labels)) >= 2
    assert max(np.bincount(tail.splits["train"].labels)) > 6
    assert (tail.name, plain.name) == ("vessels_longtail", "vessels")
    assert tail.ood_names == plain.ood_names[:-1]

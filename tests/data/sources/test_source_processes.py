"""Each kind of source read by several processes: every image once, in order, the same numbers."""

import os
from collections import Counter
from itertools import chain

import pytest
import torch
from bank_extraction import extract
from lightning import Trainer
from source_kinds import MOSAIC, kinds, write_kinds
from torch import nn

from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.models import module_backbone

KINDS = ("shards", "pil", "saved", *MOSAIC)
BATCH = 2
SLOW = ("folder", "pattern", "tensor", "image_folder", "parquet", "hf_folder")


@pytest.fixture(scope="module")
def root(tmp_path_factory, huggingface_cache):
    """15 images in shards of 7, 7 and 1: neither divides among two or three processes."""
    return write_kinds(tmp_path_factory.mktemp("sources"), far=5)


@pytest.fixture(scope="module")
def bank_of(root, tmp_path_factory):
    """The bank of the OOD set as one kind, by so many processes, and the rows that each has read.

    Features are the pixels, so that no order of sums moves a digit.
    """
    torch.set_num_threads(1)  # forked processes hang in OpenMP when their parent has used it
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))
    backbone = module_backbone(net, "1", input_size=16, mean=0.5, std=0.5)

    def bank_of(kind, processes):
        source = kinds(root, "far")[kind]
        data = FolderDataModule({"train": str(root / "train")}, {"far": source})
        data.use_transform(eval=backbone.transform)
        trainer = Trainer(
            accelerator="cpu", devices=processes, strategy="ddp_fork" if processes > 1 else "auto",
            logger=False, enable_checkpointing=False, enable_progress_bar=False,
        )  # fmt: skip
        place = tmp_path_factory.mktemp("bank")
        load = FileDataset.load_image

        def noted(images, index):
            with (place / f"{os.getpid()}.read").open("a") as file:
                file.write(f"{index}\n")
            return load(images, index)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileDataset, "load_image", noted)
            bank = extract(trainer, backbone, data.splits["far"], place, batch_size=BATCH)
        read = [list(map(int, file.read_text().split())) for file in place.glob("*.read")]
        return bank, read, data.splits["far"]

    return bank_of


@pytest.fixture(scope="module")
def expected(bank_of):
    return bank_of("folder", 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
@pytest.mark.parametrize("processes", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_image_is_read_once_and_in_order(bank_of, expected, kind, processes):
    bank, read, images = bank_of(kind, processes)
    assert len(read) == processes
    assert sorted(chain.from_iterable(read)) == list(range(15))
    assert all(rows == sorted(rows) for rows in read)
    # Processes take whole batches: none has a batch more than its share.
    assert max(map(len, read)) < 15 / processes + BATCH
    assert bank.index.tolist() == list(range(15))
    assert torch.equal(bank.features, expected.features)
    torch.testing.assert_close(bank.logits, expected.logits)
    if kind in ("shards", "pattern"):  # rows in order are shards in order, and places in them
        members = [images.store.members[path] for path in images.paths]
        places = [(member.shard, member.start) for member in members]
        assert places == sorted(places)
        assert list(Counter(shard for shard, _ in places).values()) == [7, 7, 1]

"""No call waits for the device within a batch; seen on a CPU, by a device that counts."""

import pytest
import timm
import torch
from bank_extraction import extract
from feature_toys import PRIME, MapPower, TinyBackbone, TinyImages, make_trainer
from torch.utils._python_dispatch import TorchDispatchMode

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.detectors import DetectorRefusal
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn
from ood_lab.features import extraction_pass
from ood_lab.features.extraction_pass import moved
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.models.loading.timm_networks import module_backbone

#: Operations for which the host waits until a GPU has done all that it was given.
READING = {
    *("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim"),
    *("unique_consecutive", "is_nonzero", "bincount", "repeat_interleave"),
}


class CountingDevice(TorchDispatchMode):
    """A device that notes what waits for it."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        masks = [i for i in args[1] if i is not None] if name == "index" else []
        if name in READING or any(mask.dtype == torch.bool for mask in masks):
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def test_the_counting_device_counts():
    with CountingDevice() as device:
        values = torch.arange(3.0)
        _ = bool((values > 1).all()), values[values > 1], values.max().item(), values + 1
    assert device.waits == ["_local_scalar_dense", "index", "_local_scalar_dense"]


@pytest.fixture(scope="module")
def resnet():
    net = timm.create_model("resnet18", num_classes=5).eval()
    return module_backbone(
        net, "fc", input_size=64, mean=0.5, std=0.5, allow_transform_mismatch=True
    )


def columns_of(backbone):
    for detector in chosen_detectors("all", "openood").values():
        column = detector.extraction_hook
        try:
            if column is not None and column.layers(backbone) is not None:
                yield column
        except DetectorRefusal:
            continue
    yield StatisticsColumn()


def test_no_detector_reads_from_the_device_within_a_batch(resnet):
    columns = {column.key: column for column in columns_of(resnet)}
    assert len(columns) > 5
    extractor = Extractor(resnet, list(columns.values()))
    batch = {"image": torch.randn(4, 3, 64, 64), "index": torch.arange(4), "label": torch.arange(4)}
    with frozen(resnet), torch.no_grad():
        extractor.on_predict_start()
        extractor.predict_step(moved(batch, torch.clone), 0)  # measures the memory
        with CountingDevice() as device:
            rows = extractor.predict_step(batch, 1)
        extractor.close()
    assert device.waits == []
    assert bool(rows["finite"])
    assert set(rows["columns"]) == set(columns)


class CountingCopies:
    """Two batches at most are on the device; every wait is noted."""

    lag = 1

    def __init__(self, diary):
        self.diary = diary

    def ahead(self, batches):
        waiting = None
        for batch in batches:
            self.diary.append(f"copy {batch['batch']}")
            if waiting is not None:
                yield waiting
            waiting = batch
        yield waiting

    def to_host(self, rows):
        self.diary.append(f"computed {int(rows['index'][0]) // 8}")

        def wait():
            self.diary.append(f"wait {int(rows['index'][0]) // 8}")
            return rows

        return wait


def test_a_batch_is_read_when_the_next_one_has_been_given_to_the_device(tmp_path, monkeypatch):
    diary = []
    monkeypatch.setattr(extraction_pass, "copies_for", lambda _: CountingCopies(diary))
    bank = extract(
        make_trainer(), TinyBackbone(), TinyImages(), tmp_path, [MapPower()], batch_size=8
    )
    monkeypatch.undo()
    assert diary == [
        *("copy 0", "copy 1", "computed 0"),
        *("copy 2", "computed 1", "wait 0"),
        *("computed 2", "wait 1"),
        "wait 2",
    ]
    plain = extract(
        make_trainer(), TinyBackbone(), TinyImages(), tmp_path / "b", [MapPower()], batch_size=8
    )
    assert len(bank) == PRIME
    assert torch.equal(bank.features, plain.features)
    assert torch.equal(bank.columns[MapPower().key], plain.columns[MapPower().key])

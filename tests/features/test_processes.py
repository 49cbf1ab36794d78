"""The same numbers from one, two and three processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bank_extraction import extract
from feature_toys import (
    COUNTED,
    PRIME,
    GradientStep,
    MapPower,
    TinyBackbone,
    TinyImages,
    make_trainer,
)

from ood_lab.common.errors import UserError


def several(devices):
    return make_trainer(devices=devices, strategy="ddp_fork" if devices > 1 else "auto")


@pytest.mark.parametrize("devices", [2, 3])
def test_the_same_numbers_from_several_processes(backbone, images, tmp_path, devices):
    columns = [MapPower(), GradientStep()]
    one = extract(several(1), backbone, images, tmp_path / "1", columns, batch_size=4)
    many = extract(several(devices), backbone, images, tmp_path / "n", columns, batch_size=4)
    assert len(many.record.shards) == devices
    assert sorted(many.record.shards.values())[-1] == -(-PRIME // devices)
    assert many.index.tolist() == one.index.tolist() == list(range(PRIME))
    assert torch.equal(many.labels, one.labels)
    torch.testing.assert_close(many.features, one.features)
    torch.testing.assert_close(many.logits, one.logits)
    for column in columns:
        torch.testing.assert_close(many.columns[column.key], one.columns[column.key])


@pytest.mark.slow
def test_several_sets_with_one_trainer_and_a_column_later(backbone, tmp_path):
    trainer = several(2)
    for name, n in {"train": 7, "far": 3}.items():
        images = TinyImages(n, name, name)
        extract(trainer, backbone, images, tmp_path, **COUNTED)
        bank = extract(trainer, backbone, images, tmp_path, [MapPower()], **COUNTED)
        assert bank.columns["map-power(power=2)"].shape == (n, 6)
    assert backbone.forwards == 0  # all of them happened in the other processes


def test_fewer_images_than_processes(backbone, tmp_path):
    with pytest.raises(UserError, match=r"'few' has 2 images for 3 processes: lower"):
        extract(several(3), backbone, TinyImages(2, "few"), tmp_path)


def test_an_error_in_another_process_stays_one_line(images, tmp_path):
    images.images[7] = float("nan")
    with pytest.raises(UserError, match=r"^\w+ of 'test' are not finite in rows \[7\][^\n]+$"):
        extract(several(2), TinyBackbone(), images, tmp_path)
    assert not list(tmp_path.glob(".partial/*"))


SCRIPT = """
import sys
from feature_toys import COUNTED, TinyBackbone, TinyImages, make_trainer
from bank_extraction import extract
from ood_lab.features.process_agreement import told_by_main
trainer, backbone = make_trainer(devices=2, strategy="ddp"), TinyBackbone()
for name in sys.argv[2:]:
    images = TinyImages(23, name, name)
    bank = extract(trainer, backbone, images, sys.argv[1], batch_size=4, **COUNTED)
    assert (bank is None) == (trainer.global_rank != 0)
told = told_by_main(trainer, trainer.global_rank)
print(f"rank {trainer.global_rank}: {backbone.forwards} forwards, told {told}")
"""


@pytest.mark.slow
def test_a_script_that_ddp_starts_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [here, *here.parents[:2]]))}

    def run(*names):
        command = [sys.executable, script, tmp_path / "banks", *names]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=True
        ).stdout

    output = run("near")
    assert "rank 0: 4 forwards" in output
    assert "rank 1: 4 forwards" in output
    # Both ranks find the first on disk, meet in the second, and agree on the third.
    output = run("near", "far", "near")
    assert "rank 0: 4 forwards" in output
    assert "rank 1: 4 forwards" in output
    # What the first one finds damaged is missing for the second, too.
    shard = next((tmp_path / "banks").glob("*/rows-00001-*"))
    shard.write_bytes(shard.read_bytes()[:-8] + bytes(8))
    output = run("near", "far")
    assert "rank 0: 4 forwards, told 0" in output
    assert "rank 1: 4 forwards, told 0" in output
    # Where no pass has connected them, they meet to be told something.
    output = run("near", "far")
    assert "rank 0: 0 forwards, told 0" in output
    assert "rank 1: 0 forwards, told 0" in output

"""What is on disk: damage, kills, two processes at once."""

import json
import multiprocessing
import os
import time
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
from ood_lab.features import bank_store, row_shards
from ood_lab.features.bank_store import BankStore, FeatureWriter, column_folder, load
from ood_lab.features.row_shards import checksum

COLUMNS = [MapPower(), GradientStep()]
fork = multiprocessing.get_context("fork")


def run(root, columns=COLUMNS, **attributes):
    images = TinyImages()
    for name, value in attributes.items():
        setattr(images, name, value)
    return extract(make_trainer(), TinyBackbone(), images, root, columns, batch_size=4)


def folder_of(bank, root):
    return root / bank.record.key


def assert_same(bank, other):
    assert torch.equal(bank.features, other.features)
    assert torch.equal(bank.logits, other.logits)
    assert torch.equal(bank.labels, other.labels)
    for column in COLUMNS:
        assert torch.equal(bank.columns[column.key], other.columns[column.key])


def truncate(path):
    os.truncate(path, path.stat().st_size - 5)


def zero_a_third(path):
    """The size and the header stay."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - size // 3)
        file.write(bytes(size // 3))


def tamper(path):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "n": PRIME + 1}))


@pytest.mark.parametrize(
    ("pattern", "damage", "kept"),
    [
        ("rows-*-00001.safetensors", truncate, False),
        ("rows-*-00001.safetensors", os.remove, False),
        ("rows-*-00001.safetensors", zero_a_third, False),
        ("manifest.json", truncate, False),
        ("manifest.json", tamper, False),
        ("head.safetensors", os.remove, False),
        ("head.safetensors", truncate, False),
        ("head.safetensors", zero_a_third, False),
        ("columns/map*/rows-*-00000.safetensors", zero_a_third, False),
        ("columns/map*/rows-*-00000.safetensors", truncate, True),
        ("columns/map*/manifest.json", os.remove, True),
    ],
)
def test_what_is_damaged_is_extracted_again(tmp_path, monkeypatch, caplog, pattern, damage, kept):
    """A column that is cut short alone; what has other content with the whole bank."""
    monkeypatch.setattr(FeatureWriter, "shard_bytes", 300)
    first = run(tmp_path)
    (path,) = folder_of(first, tmp_path).glob(pattern)
    (base,) = folder_of(first, tmp_path).glob("rows-*-00000.safetensors")
    stamp = base.stat().st_mtime_ns
    damage(path)
    with pytest.raises(UserError, match=r"damaged|not hold|do not add up"):
        load(folder_of(first, tmp_path), [column.key for column in COLUMNS])
    assert_same(run(tmp_path), first)
    assert (base.stat().st_mtime_ns == stamp) == kept
    assert ("extracting again" in caplog.text) == (not kept)
    assert not list(tmp_path.glob(".partial/*"))


def test_rows_that_are_not_the_data_set_are_refused(tmp_path):
    bank = run(tmp_path)
    folder = folder_of(bank, tmp_path)
    (shard,) = folder.glob("rows-*")
    tensors = bank_store.load_file(shard)
    manifest = json.loads((folder / "manifest.json").read_text())
    for index in ([0] * PRIME, list(range(1, PRIME + 1))):
        bank_store.save_tensors({**tensors, "index": torch.tensor(index)}, shard)
        manifest["checksums"][shard.name] = checksum(shard)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(UserError, match="delete"):
            load(folder, [])


def killed(function):
    process = fork.Process(target=function)
    process.start()
    process.join(60)
    assert process.exitcode == -9


def test_a_killed_pass_leaves_nothing_that_counts(tmp_path, monkeypatch):
    undisturbed = run(tmp_path / "undisturbed")
    monkeypatch.setattr(FeatureWriter, "shard_bytes", 300)
    root = tmp_path / "killed"
    killed(lambda: run(root, fatal=PRIME - 2))
    assert list(root.glob(".partial/*/rows-*"))
    assert not list(root.glob("*/manifest.json"))
    written = {p.name: p.stat().st_mtime_ns for p in root.glob(".partial/*/rows-*")}
    again = run(root)
    assert_same(again, undisturbed)
    assert not list(root.glob(".partial/*"))
    # Shards that are whole in base and columns stay; the others are made anew.
    found = {p.name: p.stat().st_mtime_ns for p in folder_of(again, root).glob("rows-*")}
    assert len([name for name, stamp in written.items() if found.get(name) == stamp]) >= 2
    assert sorted(again.index.tolist()) == list(range(PRIME))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_killed_pass_goes_on_after_its_last_shard(tmp_path, monkeypatch, devices):
    """With as many processes as there are now, and without what was gathered before."""
    monkeypatch.setattr(FeatureWriter, "shard_bytes", 300)

    def go(root, fatal=None, devices=1):
        images = TinyImages()
        images.fatal = fatal
        trainer = make_trainer(devices=devices, strategy="ddp_fork" if devices > 1 else "auto")
        more = {"batch_size": 4, "moments": ["within"]}
        return extract(trainer, TinyBackbone(), images, root, COLUMNS, **more)

    undisturbed, root = go(tmp_path / "undisturbed"), tmp_path / "killed"
    killed(lambda: go(root, fatal=PRIME - 2))
    (folder,) = root.glob(".partial/*")
    *whole, last = sorted(folder.glob("rows-*"))
    truncate(last)  # killed while it wrote
    (folder / "moments").mkdir()  # a process was further than the others
    (folder / "moments" / "00000.safetensors").write_bytes(b"half")
    kept = {row for shard in whole for row in bank_store.load_file(shard)["index"].tolist()}
    assert len(kept) >= PRIME // 3  # the last but one may have been under way, too
    bank = go(root, fatal=min(kept), devices=devices)  # to read one of them again would kill it
    torch.testing.assert_close(bank.features, undisturbed.features)
    for column in COLUMNS:
        torch.testing.assert_close(bank.columns[column.key], undisturbed.columns[column.key])
    within = [each.derived.moments(["within"]).within for each in (bank, undisturbed)]
    torch.testing.assert_close(*within)
    assert not list(root.glob(".partial/*"))


@pytest.mark.parametrize("existing", [None, []])
def test_a_kill_at_the_moment_of_publication(tmp_path, monkeypatch, existing):
    undisturbed = run(tmp_path / "undisturbed")
    root = tmp_path / "killed"
    if existing is not None:
        run(root, existing)  # the base is there: the killed pass adds columns
    with monkeypatch.context() as patch:
        patch.setattr(bank_store.os, "replace", lambda source, target: os.kill(os.getpid(), 9))
        killed(lambda: run(root))
    assert len(list(root.glob("*/manifest.json"))) == (0 if existing is None else 1)
    assert not list(root.glob("*/columns/*/manifest.json"))
    assert_same(run(root), undisturbed)
    assert not list(root.glob(".partial/*"))


class SlowBackbone(TinyBackbone):
    """Notes each forward pass in a file that all processes share."""

    def __init__(self, diary):
        super().__init__()
        self.diary = diary

    def forward(self, image):
        with open(self.diary, "a") as diary:
            diary.write(f"{os.getpid()}\n")
        time.sleep(0.05)
        return super().forward(image)


def test_two_processes_at_once_share_one_pass(tmp_path):
    diary = tmp_path / "diary"

    def work(queue):
        backbone = SlowBackbone(diary)
        columns = [MapPower()]
        bank = extract(
            make_trainer(), backbone, TinyImages(), tmp_path, columns, batch_size=4, **COUNTED
        )
        queue.put(bank.features.tolist())

    queue = fork.Queue()
    workers = [fork.Process(target=work, args=(queue,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert results[0] == results[1]
    authors = diary.read_text().split()
    assert len(authors) == 1 + 6
    assert len(set(authors)) == 1


def test_a_pass_under_way_is_not_swept(tmp_path):
    mine, other = BankStore(tmp_path, "a" * 32), BankStore(tmp_path, "b" * 32)
    with mine.locked():
        staging = mine.new_folder()
        abandoned, killed_lately = other.new_folder(), other.new_folder()
        for path in (staging, abandoned, killed_lately):
            path.mkdir(parents=True)
        long_ago = time.time() - bank_store.KEPT - 60
        for path in (staging, abandoned):
            os.utime(path, (long_ago, long_ago))
        with BankStore(tmp_path, "c" * 32).locked():
            assert staging.exists()
            assert not abandoned.exists()
            assert killed_lately.exists()


def test_a_large_bank_is_a_mapped_file_that_goes_with_it(tmp_path, monkeypatch):
    whole = run(tmp_path)
    monkeypatch.setattr(row_shards, "MAPPED", 1)
    mapped = load(folder_of(whole, tmp_path), list(whole.columns))
    assert_same(mapped, whole)
    assert ".mapped-" in Path("/proc/self/maps").read_text()
    assert not list(tmp_path.rglob(".mapped-*"))
    del mapped
    assert ".mapped-" not in Path("/proc/self/maps").read_text()


def test_a_large_bank_lies_in_memory_where_the_disk_is_full(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    whole = run(tmp_path)
    monkeypatch.setattr(row_shards, "MAPPED", 1)
    monkeypatch.setattr(row_shards.os, "posix_fallocate", full)
    assert_same(load(folder_of(whole, tmp_path), list(whole.columns)), whole)
    assert not list(tmp_path.rglob(".mapped-*"))


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o007])
def test_a_bank_has_the_rights_that_the_umask_gives(tmp_path, mask):
    before = os.umask(mask)
    try:
        run(tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".safetensors", ".json"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~mask}


def test_column_folders_are_safe_and_distinct():
    keys = ["a/b", "a_b", "a b", "../up", "x" * 300, "x" * 301, "é"]
    folders = {column_folder(key) for key in keys}
    assert len(folders) == len(keys)
    assert all("/" not in folder and len(folder) < 100 for folder in folders)
    assert not any(folder.startswith("..") and len(folder) < 5 for folder in folders)

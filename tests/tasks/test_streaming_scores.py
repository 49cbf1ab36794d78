"""``task.keep_features=false``: scores while the images pass are those of kept features."""

import json
from functools import partialmethod

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from cli import call, run_folders
from PIL import Image

from ood_lab.common.progress import Pace
from ood_lab.evaluation import split_features
from ood_lab.evaluation.prediction import table_parts
from ood_lab.features import extraction_pass

SIZES = {"train": 150, "val": 40, "test": 50, "per_shift_set": 10, "per_cell": 0}
SMALL = [f"data.{key}={value}" for key, value in SIZES.items()]
LINE = (
    *SMALL,
    "data.eval_batch_size=8",
    "logger=none",
    "report_by=sets",
    "metrics.n_bootstrap=20",
    "trainer.accelerator=cpu",
)
OF_SUMS = "detector=[msp,fdbd,nci,neco,pnml,dice]"
OF_ROWS = "detector=[msp,odin,knn,mds,vim,klm,react,mds_ensemble]"  # mds: of few images


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("trained")
    line = ("task=score", "task.report=false", "detector=[msp]", f"paths.outputs={outputs}")
    assert call("train.py", "experiment=smoke", *LINE, *line) == 0
    return run_folders(outputs)[-1]


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """Parts of three batches, and blocks of at most some 20 rows."""
    monkeypatch.setattr(split_features, "PART", 24)
    monkeypatch.setattr(extraction_pass, "MOST_BYTES", 20 * 4 * 300)

    def call_it(name, *arguments):
        line = (f"ckpt={trained}", *LINE, f"paths.outputs={tmp_path}/{name}", "name=scored")
        assert call("eval.py", "task=score", *line, "task.report=false", *arguments) == 0
        return run_folders(tmp_path / name)[-1]

    return call_it


def scores(folder):
    return pd.read_parquet(folder / "scores.parquet")


def kept(folder):
    """Names of the sets whose features were written."""
    found = (folder.parents[2] / "features").glob("*/manifest.json")
    return sorted(json.loads(file.read_text())["dataset"] for file in found)


def same(one, other):
    ours, theirs = scores(one), scores(other)
    assert list(ours) == list(theirs)
    for column in ours:
        if ours[column].dtype == np.float64:
            # Neighbours are searched in float32, where a block of few rows has other products.
            near = 2e-5 if column.startswith("knn") else 1e-9
            np.testing.assert_allclose(ours[column], theirs[column], rtol=near, atol=1e-12)
        else:
            pd.testing.assert_series_equal(ours[column], theirs[column])
    results = [pd.read_parquet(folder / "results.parquet") for folder in (one, other)]
    pd.testing.assert_frame_equal(*results, rtol=1e-9)


@pytest.mark.slow
def test_detectors_of_sums_keep_nothing(run):
    bank = run("bank", OF_SUMS)
    passed = run("passed", OF_SUMS, "task.keep_features=false")
    same(bank, passed)
    assert bank.parent.name == passed.parent.name  # one identity
    assert len(kept(bank)) == 7
    assert kept(passed) == []
    assert not (passed / "passed").exists()


@pytest.mark.slow
def test_what_needs_rows_keeps_what_it_is_fitted_on(run, capsys):
    line = (OF_ROWS, "tuning=id_only")
    bank, passed = run("bank", *line), run("passed", *line, "task.keep_features=false")
    same(bank, passed)
    assert "knn_tuned" in scores(passed)
    assert kept(passed) == ["train", "val"]
    log = (passed / "log.txt").read_text()
    assert "the features of 'train' are kept: knn, mds, vim, mds_ensemble need them" in log
    manifests = [json.loads((f / "manifest.json").read_text()) for f in (bank, passed)]
    for key in ("threshold", "tuning", "id_accuracy", "refused", "warnings"):
        assert manifests[0][key] == manifests[1][key]


@pytest.mark.slow
def test_a_pass_says_how_far_it_is(run, monkeypatch):
    monkeypatch.setattr(Pace, "due", True)  # a line for every batch, not one a minute
    log = (run("told", "detector=[msp]", "task.keep_features=false") / "log.txt").read_text()
    assert "'test': 29% of the images passed, " in log


@pytest.mark.slow
def test_a_killed_run_goes_on_at_the_part(run, monkeypatch):
    whole = run("whole", OF_SUMS, "task.keep_features=false")
    written = []
    write = table_parts.PartFiles.write

    def until_the_fourth(files, part, *rest):
        if len(written) == 4:
            raise MemoryError  # as good as killed: nothing of it is caught
        written.append(files.path(part))
        write(files, part, *rest)

    monkeypatch.setattr(table_parts.PartFiles, "write", until_the_fourth)
    with pytest.raises(MemoryError):
        run("killed", OF_SUMS, "task.keep_features=false")
    first = [*written]
    written[:] = [None] * 5
    again = run("killed", OF_SUMS, "task.keep_features=false")
    assert not set(first) & set(written)
    assert len(first) + len(written[5:]) == 8  # three parts of test, one of each other set
    same(whole, again)


@pytest.mark.slow
@pytest.mark.parametrize("detectors", [OF_ROWS, OF_SUMS], ids=["rows", "sums"])
def test_two_processes_give_the_same_rows(run, detectors):
    line = (detectors, "task.keep_features=false")
    one = run("one", *line)
    two = run("two", *line, "trainer=ddp_cpu", "trainer.strategy=ddp_fork")
    same(one, two)


@pytest.mark.slow
def test_distances_need_features(run, capsys):
    with pytest.raises(AssertionError):
        run("far", "task=shift_report", "task.keep_features=false")
    assert "task.keep_features=false is not supported" in capsys.readouterr().err


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A list of 60 images and one file that is none, relative to its own folder."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    names = [f"{i:02}.png" for i in range(61)]
    for name in names[:-1]:
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(folder / name)
    (folder / names[-1]).write_text("no image")
    (folder / "list.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


@pytest.fixture
def predict(trained, tmp_path, pictures, run):
    def call_it(name, *arguments, source=pictures / "list.txt"):
        line = (f"ckpt={trained}", *LINE[:-3], f"paths.outputs={tmp_path}/{name}", "name=p")
        chosen = ("detector=[msp,knn,mds_ensemble]", f"task.images={source}")
        assert call("eval.py", "task=predict", *line, *chosen, *arguments) == 0
        return run_folders(tmp_path / name)[-1]

    return call_it


PARTS = ("task.shard_size=30", "trainer.accelerator=cpu")  # of three batches, 24 images


def predicted(folder):
    files = sorted((folder / "predictions").glob("part-*.parquet"))
    return pd.concat([pq.ParquetFile(file).read().to_pandas() for file in files], ignore_index=True)


@pytest.mark.slow
def test_predictions_in_parts_are_those_of_the_table(predict):
    small = predict("small", "trainer.accelerator=cpu")
    table = pd.read_csv(small / "predictions.csv", keep_default_na=False, na_values=[""])
    folder = predict("parts", *PARTS)
    files = sorted(path.name for path in (folder / "predictions").iterdir())
    assert files == [f"part-{number:05d}.parquet" for number in range(3)]
    found = predicted(folder)
    assert list(found) == list(table)
    assert found.path.tolist() == table.path.tolist()
    assert found.predicted[:-1].tolist() == table.predicted[:-1].tolist()
    assert found.beyond_id[:-1].tolist() == table.beyond_id[:-1].fillna("").tolist()
    for column in found.columns[2:-2]:
        ours, theirs = (each[column][:-1].astype(float) for each in (found, table))
        np.testing.assert_allclose(ours, theirs, rtol=2e-5 if "knn" in column else 1e-9)
    assert found.iloc[-1].isna().sum() == len(found.columns) - 2
    assert "identify image" in found.error.iloc[-1]
    summaries = [json.loads((f / "manifest.json").read_text()) for f in (small, folder)]
    for name in ("msp", "knn", "mds_ensemble"):
        ours, theirs = (summary["detectors"][name] for summary in summaries)
        assert ours["flagged"] == theirs["flagged"]
        assert ours["share_flagged"] == theirs["share_flagged"] == ours["flagged"] / 60
    for text in (
        "Predictions for 61 images",
        "1 image cannot be read",
        "The first 20 of 61 images",
    ):
        pages = [(f / "predictions.html").read_text() for f in (small, folder)]
        assert all(text in page for page in pages)
    two = predict("two", "task.shard_size=30", "trainer=ddp_cpu", "trainer.strategy=ddp_fork")
    pd.testing.assert_frame_equal(predicted(two), found)


@pytest.mark.slow
def test_a_killed_prediction_goes_on_and_a_changed_list_is_noticed(
    predict, pictures, tmp_path, monkeypatch
):
    source = tmp_path / "list.txt"
    paths = [f"{pictures}/{line}" for line in (pictures / "list.txt").read_text().split()]
    source.write_text("\n".join(paths))
    made, write = [], table_parts.PartFiles.write

    def note(files, part, *rest, limit=99):
        if len(made) == limit:
            raise MemoryError
        made.append(part)
        write(files, part, *rest)

    monkeypatch.setattr(table_parts.PartFiles, "write", partialmethod(note, limit=2))
    with pytest.raises(MemoryError):
        predict("killed", *PARTS, source=source)
    assert made == [0, 1]
    made.clear()
    paths[0], paths[1] = paths[1], paths[0]
    source.write_text("\n".join(paths))
    monkeypatch.setattr(table_parts.PartFiles, "write", note)
    folder = predict("killed", *PARTS, source=source)
    assert made == [0, 2]
    found = predicted(folder)
    assert "1 part of 3 are there already" in (folder / "log.txt").read_text()
    made.clear()
    predict("killed", *PARTS, source=source)
    assert made == [0, 1, 2]  # a finished run is made again
    pd.testing.assert_frame_equal(found, predicted(folder), rtol=1e-5)

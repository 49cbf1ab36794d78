"""Class names are text in every set; a set may spell or number them in one other way."""

import pandas as pd
import pytest
from pictures import picture

from ood_lab.common.errors import UserError
from ood_lab.data.sources.manifest import read_manifest


@pytest.fixture
def listed(tmp_path):
    """Writes a table of one image per label and reads it."""
    path = picture(tmp_path / "0.png").name

    def read(labels, classes=None, kind=".csv"):
        table = pd.DataFrame({"path": [path] * len(labels), "label": labels})
        file = tmp_path / f"list{kind}"
        table.to_parquet(file) if kind == ".parquet" else table.to_csv(file, index=False)
        remarks = []
        found, names = read_manifest(
            file, classes=classes, tell=lambda text, doubtful=True: remarks.append(text)
        )
        return found["label"].tolist(), names, " ".join(remarks)

    return read


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["09", "1", "01"], ["01", "1", "09"]),
        (["007", "008"], ["007", "008"]),
        (
            ["1e3", "nan", "True", "NA", "null", "1000"],
            ["1000", "1e3", "NA", "True", "nan", "null"],
        ),
        (["101", "30001", "2050"], ["101", "2050", "30001"]),
        (["10000000000000002050", "10000000000000000101"], None),
        (["10", "9", "1"], ["1", "9", "10"]),
        (["0", "1", "3"], ["0", "1", "2", "3"]),  # positions
        (["0", "9"], ["0", "9"]),
        (["1.0", "1", "2"], ["1", "1.0", "2"]),
        (["0.0", "1.0", "2.0"], ["0", "1", "2"]),  # a column with gaps, written as floats
        (["9" * 60, "8"], ["8", "9" * 60]),
    ],
)
def test_names_are_text(listed, labels, classes, kind):
    found, names, _ = listed(labels, kind=kind)
    assert names == (classes or sorted(labels))
    assert len(set(found)) == len(labels)
    known = [f"{name}.0" if name not in labels else name for name in names]
    assert [known[label] for label in found] == labels


def test_integers_of_a_column_with_gaps(listed):
    assert listed([2050, None, 101], kind=".parquet")[:2] == ([1, -1, 0], ["101", "2050"])


def test_labels_from_one_are_so_many_classes(listed):
    found, names, said = listed([3, 1, 2])
    assert (found, names) == ([2, 0, 1], ["1", "2", "3"])
    assert "outputs 0 to 2" in said


@pytest.mark.parametrize(
    ("labels", "classes", "found", "said"),
    [
        (["1", "03"], ["01", "02", "03"], [0, 2], "'1' is '01'"),
        (["antfarm", "Zebra"], ["ant farm", "zebra"], [0, 1], "'Zebra' is 'zebra'"),
        (["ant_farm", "ant-farm"], ["ant farm", "zebra"], None, "train has 'ant farm', 'zebra'"),
        (["a b"], ["a_b", "a-b"], None, "it has 'a b'"),
        (["001"], ["1", "01"], None, "it has '001'"),
        (["2", "0"], ["cat", "dog", "owl"], [2, 0], "0 is 'cat'"),
        (["1", "2", "3"], ["cat", "dog", "owl"], [0, 1, 2], "from 1: 1 is 'cat'"),
        (["1", "3"], ["cat", "dog", "owl"], None, "class '3'"),
        (["0", "1", "2"], ["001", "002", "003"], [0, 1, 2], "positions"),
        (["a1.05", "a1.5"], ["a1.5", "a1.05"], [1, 0], ""),
    ],
)
def test_names_of_another_set_match_in_exactly_one_way(listed, labels, classes, found, said):
    if found is None:
        with pytest.raises(UserError, match=said):
            listed(labels, classes)
        return
    given, _, remarks = listed(labels, classes)
    assert given == found
    assert said in remarks
    assert bool(said) == bool(remarks)

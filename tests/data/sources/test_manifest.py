import re
import unicodedata
from functools import partial

import pandas as pd
import pytest
from pictures import picture
from PIL import Image
from torch.utils.data import ConcatDataset, Subset
from torchvision.datasets import ImageFolder

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.data.sources.source_settings import ReadOptions, source_of


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(["zèbre", "ant farm", "10", "2"]):
        picture(tmp_path / "train" / name / "deep" / f"ünï {i}.png", i)
        picture(tmp_path / "train" / name / f"b {i}.JPG", i + 10)
    return tmp_path


def test_class_folders_are_sorted_names(photos):
    table, classes = read_manifest(photos / "train")
    assert classes == ["10", "2", "ant farm", "zèbre"]
    assert table["label"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    folders = [p.removeprefix(str(photos / "train")).split("/")[1] for p in table["path"]]
    assert folders == [classes[i] for i in table["label"]]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "txt", "metadata", "mask", "given"])
@pytest.mark.parametrize(("written", "stored"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_names_in_a_table_and_on_the_disk_have_two_unicode_forms(tmp_path, kind, written, stored):
    here, there = (partial(unicodedata.normalize, form) for form in (written, stored))
    names = [f"é/Åä {row}.png" for row in range(3)]
    for row, name in enumerate(names):
        picture(tmp_path / "dà" / there(name), row)
    table = pd.DataFrame({"path": [f"dà/{name}" for name in names], "label": ["ô", "u", "ô"]})
    table = table.map(here)
    file = tmp_path / f"table.{kind}"
    if kind == "metadata":
        file = tmp_path / "dà"
        inside = table.assign(file_name=table["path"].str[len(here("dà/")) :]).drop(columns="path")
        inside.to_csv(file / "metadata.csv", index=False)
    elif kind == "parquet":
        table.to_parquet(file)
    elif kind == "jsonl":
        table.to_json(file, orient="records", lines=True, force_ascii=False)
    elif kind == "txt":
        file.write_text("".join(f"{path} {name}\n" for path, name in table.to_numpy()))
    else:
        file = tmp_path / "table.csv"
        table.assign(**({"mask": table["path"]} if kind == "mask" else {})).to_csv(file)
    if kind == "given":  # the folder itself, as somebody types it
        file, names = tmp_path / here("dà"), sorted(names)
    found, classes = read_manifest(file)
    assert [load_rgb(path).size for path in found["path"]] == [(16, 16)] * 3
    assert [unicodedata.normalize("NFC", p)[-11:] for p in found["path"]] == [
        unicodedata.normalize("NFC", f"/{name}")[-11:] for name in names
    ]
    assert classes == (["é"] if kind == "given" else ["u", "ô"])
    if kind == "mask":
        assert found["mask"].tolist() == found["path"].tolist()


def test_hidden_and_foreign_files_are_left_out(photos):
    (photos / "train" / ".cache").mkdir()
    (photos / "train" / "2" / "._b.jpg").write_bytes(b"x")
    (photos / "train" / "2" / "notes.txt").write_text("x")
    table, classes = read_manifest(photos / "train")
    assert len(table) == 8
    assert ".cache" not in classes


def test_empty_folders_are_no_classes_and_are_named(photos):
    (photos / "train" / "cat").mkdir()
    table, classes, ((text, doubtful),) = told(photos / "train")
    assert (len(table), len(classes), doubtful) == (8, 4, True)
    assert "folders that contain no images are no classes: 'cat'" in text
    assert len(read_manifest(photos / "train", classes=[])[0]) == 8


JUNK = ("@eaDir", "#recycle", "$RECYCLE.BIN", "__MACOSX", ".ipynb_checkpoints", ".thumbnails")


@pytest.mark.parametrize("labelled", [True, False])
def test_images_that_a_system_keeps_are_left_out_and_counted(photos, labelled):
    for name in (*JUNK, "lost+found", "System Volume Information"):
        picture(photos / "train" / name / "deep" / "x.png")
        picture(photos / "train" / "2" / name / "y.jpg")
    picture(photos / "train" / "2" / "._b.png")
    (photos / "train" / "2" / "Thumbs.db").write_text("x")
    table, classes, ((text, doubtful),) = told(photos / "train", classes=None if labelled else [])
    assert len(table) == 8
    assert classes == (["10", "2", "ant farm", "zèbre"] if labelled else [])
    assert not doubtful
    assert "17 images left out" in text
    assert all(f"{name} (2)" in text for name in JUNK)
    assert "._* (1)" in text


@pytest.mark.parametrize(
    "names",
    [
        *(["train", "dev"], ["Training set", "Test set"], ["train_images", "testImages"]),
        *(["train2017", "val2017"], ["train", "test", "unlabeled"], ["01_train", "02_eval"]),
        *(["trainA", "trainB", "testA"], ["train", "test", "extra"], ["fold1", "fold2"]),
        ["训练集", "测试集"],
    ],
)
def test_splits_under_any_name_are_no_classes(tmp_path, names):
    for name in names:
        picture(tmp_path / "set" / name / "cat" / "x.png")
    with pytest.raises(UserError, match=r"holds splits .*data\.id\.|holds splits .*own folder"):
        read_manifest(tmp_path / "set")
    read_manifest(tmp_path / "set", classes=[])  # of an OOD set anything goes
    given = partial(ImageFolder, root=str(tmp_path / "set"))
    with pytest.raises(UserError, match="holds splits"):
        source_of(given, "data.id.train").read(None, ReadOptions(print))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_label_is_a_position_also_where_names_are_numbers(tmp_path, wrapped):
    for name in ("0", "1", "10", "2"):
        picture(tmp_path / "set" / name / "x.png")
    whole = ImageFolder(str(tmp_path / "set"))
    part = Subset(Subset(whole, range(4)), [3, 2, 1, 0]) if wrapped else ConcatDataset([whole])
    table, classes, _ = source_of(part, "data.id.train").read(None, ReadOptions(print))
    assert classes == ["0", "1", "10", "2"]
    assert table["label"].tolist() == [3, 2, 1, 0][:: 1 if wrapped else -1]


def test_a_vector_of_0_and_1_is_no_list_of_classes(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text('path,label\na.png,"[0, 1, 0]"\n')
    sources = dict.fromkeys(("train", "val", "test"), str(tmp_path / "list.csv"))
    with pytest.raises(UserError, match="names a class twice"):
        FolderDataModule(sources, {}, multilabel=True).build_splits()


@pytest.mark.parametrize(
    "names", [["train", "car"], ["valley", "hill"], ["images", "data"], ["training", "walking"]]
)
def test_classes_that_sound_like_splits(tmp_path, names):
    for name in names:
        picture(tmp_path / name / "x.png")
    assert read_manifest(tmp_path)[1] == sorted(names)


def test_loose_images_beside_class_folders(photos):
    picture(photos / "train" / "loose.png")
    with pytest.raises(UserError, match=r"1 loose image.*'loose.png'"):
        read_manifest(photos / "train")
    table, _ = read_manifest(photos / "train", classes=[])
    assert table.loc[table["path"].str.endswith("loose.png"), "category_name"].item() == ""


def test_folder_of_splits_is_not_a_folder_of_classes(photos):
    picture(photos / "test" / "2" / "a.png")
    with pytest.raises(UserError, match=r"holds splits \(test, train\), not classes"):
        read_manifest(photos)


def test_flat_folder_has_no_labels(tmp_path):
    picture(tmp_path / "flat" / "b.png")
    picture(tmp_path / "flat" / "a.png")
    table, classes = read_manifest(tmp_path / "flat")
    assert classes == []
    assert table["label"].tolist() == [-1, -1]
    assert table["path"].tolist() == [str(tmp_path / "flat" / n) for n in ("a.png", "b.png")]


def test_ood_keeps_the_original_class(photos):
    table, classes = read_manifest(photos / "train", classes=[])
    assert classes == []
    assert set(table["label"]) == {-1}
    assert table["category_name"].tolist() == [
        c for c in ("10", "2", "ant farm", "zèbre") for _ in "ab"
    ]


def test_test_uses_the_classes_of_train(photos):
    picture(photos / "test" / "zèbre" / "x.png")
    table, classes = read_manifest(photos / "test", classes=["10", "2", "ant farm", "zèbre"])
    assert table["label"].tolist() == [3]
    assert len(classes) == 4
    picture(photos / "test" / "antform" / "x.png")
    with pytest.raises(UserError, match=r"class 'antform'.*did you mean 'ant farm'\?"):
        read_manifest(photos / "test", classes=classes)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_carry_all_columns(photos, suffix):
    rows = pd.DataFrame(
        {
            "path": ["train/2/b 3.JPG", str(photos / "train/10/b 2.JPG"), "train/zèbre/b 0.JPG"],
            "label": ["two", None, "NA"],
            "semantic_level": [1, None, 3],
            "level_0": [0, 1, 1],
            "attribute_lid": [0, 1, 1],
            "note": ["x", None, "z"],
        }
    )
    file = photos / f"list{suffix}"
    if suffix == ".parquet":
        rows.to_parquet(file)
    else:
        rows.to_csv(file, index=False, sep="," if suffix == ".csv" else "\t")
    table, classes = read_manifest(file)
    assert classes == ["NA", "two"]  # "NA" is a name, an empty cell is unknown
    assert table["label"].tolist() == [1, -1, 0]
    assert table["semantic_level"].tolist() == [1, -1, 3]
    assert table["semantic_level"].dtype == "int64"
    assert table["attribute_lid"].dtype == "float32"
    assert table["note"].iloc[2] == "z"
    assert table["path"].iloc[0] == str(photos / "train/2/b 3.JPG")


def write_list(photos, labels, name="list.csv"):
    files = sorted(str(p) for p in (photos / "train").rglob("*.JPG"))
    pd.DataFrame({"path": files[: len(labels)], "label": labels}).to_csv(photos / name, index=False)
    return photos / name


def test_number_labels_keep_their_number(photos):
    table, classes = read_manifest(write_list(photos, [0, 2, -1]))
    assert table["label"].tolist() == [0, 2, -1]
    assert classes == ["0", "1", "2"]
    with_gap, _ = read_manifest(write_list(photos, [1.0, None, 0.0]))
    assert with_gap["label"].tolist() == [1, -1, 0]


def test_numbers_mean_names_where_the_classes_have_such_names(photos):
    names = ["10", "2", "ant farm", "zèbre"]
    by_name, _ = read_manifest(write_list(photos, [10, 2, -1]), classes=names)
    assert by_name["label"].tolist() == [0, 1, -1]
    by_number, _ = read_manifest(write_list(photos, [3, 0, 1]), classes=["a", "b", "c", "d"])
    assert by_number["label"].tolist() == [3, 0, 1]
    with pytest.raises(UserError, match="class '3'"):  # "2" is a name, so 3 must be one too
        read_manifest(write_list(photos, [2, 3]), classes=names)
    with pytest.raises(UserError, match="class '4'"):
        read_manifest(write_list(photos, [4, 0]), classes=["a", "b", "c", "d"])


def test_negative_labels_other_than_unknown(photos):
    with pytest.raises(UserError, match="label -2"):
        read_manifest(write_list(photos, [0, -2]))


def test_image_list_with_root(photos):
    file = photos / "lists" / "test.txt"
    file.parent.mkdir()
    file.write_text("train/ant farm/b 1.JPG 0\n\ntrain/zèbre/deep/ünï 0.png 1\n", "utf-8")
    table, classes = read_manifest(file, root=photos)
    assert table["label"].tolist() == [0, 1]
    assert classes == ["0", "1"]
    assert table["path"].tolist() == [
        str(photos / "train/ant farm/b 1.JPG"),
        str(photos / "train/zèbre/deep/ünï 0.png"),
    ]
    with pytest.raises(
        UserError, match=r"2 of 2 files listed in .*root: \{path: LIST, root: DIR\}"
    ):
        read_manifest(file)
    file.write_text("train/ant farm/b 1.JPG\n", "utf-8")
    with pytest.raises(UserError, match="line 1 is not 'path label'"):
        read_manifest(file, root=photos)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [("trian", "nearest: '.*/train'"), ("trian/2", "nearest: '.*/train/2'"), ("q/x", "there is")],
)
def test_missing_path_names_the_nearest(photos, wanted, hint):
    with pytest.raises(UserError, match=f"does not exist; .*{hint}"):
        read_manifest(photos / wanted)


def test_bad_tables(photos):
    def refuse(text, match, name="bad.csv"):
        (photos / name).write_bytes(text)
        with pytest.raises(UserError, match=match) as caught:
            read_manifest(photos / name)
        assert "\n" not in str(caught.value)

    here = b"train/2/b 3.JPG"
    refuse(b"paths,label\na,b\n", "no column 'path': did you mean 'paths'")
    refuse(b"path,label\n", "contains no images: it has no rows")
    refuse(b"path,label\n,1\n", "row 1 has no path")
    refuse(
        b"path,semantic_level\n" + here + b",much\n",
        "'semantic_level' row 1: 'much' is not an integer",
    )
    refuse(b"path,attribute_a\n" + here + b",2\n", "'attribute_a' row 1: '2' is not 0 or 1")
    refuse(b"path\n\xff\xfe\n", "cannot read")
    refuse(b"", "cannot read")
    refuse(b"not parquet", "cannot read", "bad.parquet")
    refuse(b"x", "neither a folder nor", "bad.json")


def told(source, **options):
    """The table, and what was said of it."""
    remarks = []
    tell = lambda text, doubtful=True: remarks.append((text, doubtful))  # noqa: E731
    table, classes = read_manifest(source, tell=tell, **options)
    return table, classes, remarks


@pytest.mark.parametrize(
    "text",
    [
        "path, label\n{}, cat\n{}, dog\n",
        'Path,LABEL\n{},"cat"\n{},dog\n',
        "\ufeffpath;Label \n{};cat\n{};dog\n",
        "path\tlabel\n{}\tcat\n{}\t dog \n",
        " path ,label,Label\n{},cat,x\n{},dog,y\n",
        "path,label\n{} ,cat\n .\\{},dog\n",
    ],
)
def test_columns_are_found_however_they_are_written(photos, text):
    names = [picture(photos / f"{i}.png", i).name for i in range(2)]
    (photos / "list.csv").write_text(text.format(*names))
    table, classes, _ = told(photos / "list.csv")
    assert classes == ["cat", "dog"]
    assert table["label"].tolist() == [0, 1]
    assert table["path"].tolist() == [str(photos / name) for name in names]


def test_two_columns_that_may_be_the_label_are_refused(photos):
    (photos / "list.csv").write_text("path,Label, LABEL\nx.png,a,b\n")
    with pytest.raises(UserError, match="2 columns that may be 'label': 'Label' and 'LABEL'"):
        read_manifest(photos / "list.csv")


@pytest.mark.parametrize(
    ("column", "said", "doubtful"),
    [
        ("classes", "call it 'label'", True),
        ("lable", "call it 'label'", True),
        ("covariate level", "call it 'covariate_level'", True),
        ("camera", "these columns of .*: 'camera'", False),
    ],
)
def test_columns_that_nothing_reads_are_named(photos, column, said, doubtful):
    name = picture(photos / "0.png").name
    (photos / "list.csv").write_text(f"path,{column}\n{name},3\n")
    ((text, loud),) = told(photos / "list.csv")[2]
    assert re.search(f"nothing reads .*{said}", text)
    assert loud == doubtful
    assert told(photos / "list.csv", classes=[])[2][0][1] == (column == "covariate level")


def test_paths_and_labels_of_bytes(photos):
    names = [picture(photos / f"{i}é.png", i).name for i in range(2)]
    table = {"path": [n.encode() for n in names], "label": [b"cat", b"dog"]}
    pd.DataFrame(table).set_index("path").to_parquet(photos / "list.parquet")
    table, classes = read_manifest(photos / "list.parquet")
    assert classes == ["cat", "dog"]
    assert table["path"].tolist() == [str(photos / name) for name in names]
    pd.DataFrame({"path": [{"bytes": b"x"}]}).to_parquet(photos / "list.parquet")
    with pytest.raises(UserError, match="row 1 has no path: "):
        read_manifest(photos / "list.parquet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"path,label\nx.png,a,b\n", "more cells than its first line names"),
        ("path,label\nä.png,a\n".encode("latin-1"), "save it as UTF-8"),
        (b"path,label\n  ,a\n", "is missing|are missing|no path"),
    ],
)
def test_tables_that_cannot_be_right(photos, content, said):
    (photos / "list.csv").write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_manifest(photos / "list.csv")


def test_a_name_that_is_too_long_or_a_user_that_is_not_there(photos):
    for source in ("x" * 300, photos / ("x" * 300) / "y", "~nobody-here/images"):
        with pytest.raises(UserError, match="does not exist"):
            read_manifest(source)


def test_a_link_that_leads_back_is_followed_once(tmp_path):
    for i in range(5):
        picture(tmp_path / "id" / "ab"[i % 2] / f"{i}.png", i)
    for name, target in (
        ("a/back", tmp_path / "id"),
        ("a/up", tmp_path),
        ("b/x", tmp_path / "id/b"),
    ):
        (tmp_path / "id" / name).symlink_to(target)
    for options in ({}, {"classes": []}):
        table, _, ((text, doubtful),) = told(tmp_path / "id", **options)
        assert len(table) == 5
        assert doubtful
        assert "3 links back" in text
        assert "id/a/back'" in text
    (tmp_path / "id" / "c").symlink_to(tmp_path / "id")
    table, classes, _ = told(tmp_path / "id")
    assert (len(table), classes) == (5, ["a", "b"])


def test_links_to_folders_elsewhere_are_followed(tmp_path):
    for i in range(4):
        picture(tmp_path / "disk" / "ab"[i % 2] / f"{i}.png", i)
    (tmp_path / "id").mkdir()
    for name in "ab":
        (tmp_path / "id" / name).symlink_to(tmp_path / "disk" / name)
    table, classes, remarks = told(tmp_path / "id")
    assert (len(table), classes, remarks) == (4, ["a", "b"], [])


def test_files_that_cannot_be_opened_are_counted(photos, monkeypatch):
    monkeypatch.setattr(
        "ood_lab.data.sources.image_formats.image_extensions", lambda: {".png", ".jpg"}
    )
    for name in ("1.heic", "2.HEIC", "3.svg", "IMG_4", "notes.txt", ".hidden"):
        (photos / "train" / "2" / name).write_text("x")
    table, _, ((text, doubtful),) = told(photos / "train")
    assert len(table) == 8
    assert doubtful
    assert text == (
        f"'{photos}/train': 4 files that cannot be opened passed over (2 .heic, 1 .svg, 1 "
        "without an ending): pip install pillow-heif reads HEIC; save as PNG or JPEG what is a "
        "picture"
    )
    (photos / "only").mkdir()
    (photos / "only" / "1.heic").write_text("x")
    with pytest.raises(UserError, match=r"passed over \(1 .heic\): pip install pillow-heif"):
        read_manifest(photos / "only")


def test_heic_is_read_where_pillow_heif_is_installed(photos):
    heif = pytest.importorskip("pillow_heif")
    noise = Image.open(picture(photos / "0.png", size=(64, 48)))
    (photos / "mine").mkdir()
    heif.from_pillow(noise).save(photos / "mine" / "1.heic")
    table, _, remarks = told(photos / "mine", classes=[])
    assert (len(table), remarks) == (1, [])
    assert load_rgb(table["path"].item()).size == (64, 48)


def test_folder_without_images_says_what_is_there(tmp_path):
    (tmp_path / "a.pkl").write_bytes(b"x")
    with pytest.raises(
        UserError, match=r"no images: 1 file that cannot be opened passed over \(1 .pkl\)"
    ):
        read_manifest(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_metadata_of_an_image_folder(tmp_path, kind):
    rows = pd.DataFrame(
        {
            "file_name": [picture(tmp_path / f"{i}.png", i).name for i in range(3)],
            "label": ["cat", "09", "9"],
        }
    )

    def save(table):
        if kind == "csv":
            table.to_csv(tmp_path / "metadata.csv", index=False)
        elif kind == "jsonl":
            table.to_json(tmp_path / "metadata.jsonl", orient="records", lines=True)
        else:
            table.to_parquet(tmp_path / "metadata.parquet")

    save(rows)
    table, classes, _ = told(tmp_path)
    assert classes == ["09", "9", "cat"]
    assert table["label"].tolist() == [2, 0, 1]
    save(rows.rename(columns={"label": "animal"}))
    table, classes, ((text, doubtful), *_) = told(tmp_path)
    assert (len(table), classes, doubtful) == (3, [], True)
    assert f"give {{path: {tmp_path}, label: animal}}" in text
    chosen = source_of({"path": str(tmp_path), "label": "animal"}, "data.id.train")
    assert chosen.read(None, ReadOptions(print)).classes == ["09", "9", "cat"]
    wrong = source_of({"path": str(tmp_path), "label": "nothing"}, "data.id.train")
    with pytest.raises(UserError, match="without a table that has 'nothing'"):
        wrong.read(None, ReadOptions(print))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("path", "label"), [("filename", "class"), ("File", "target")])
def test_columns_of_other_names_are_read_and_the_run_says_as_what(tmp_path, kind, path, label):
    images = [picture(tmp_path / f"{i}.png", i).name for i in range(3)]
    rows = pd.DataFrame({path: images, label: ["007", "7", "cat"]})
    file = tmp_path / f"list.{kind}"
    rows.to_csv(file, index=False) if kind == "csv" else rows.to_parquet(file)
    table, classes, remarks = told(file)
    assert table["path"].tolist() == [str(tmp_path / name) for name in images]
    assert classes == ["007", "7", "cat"]
    assert remarks == [
        (f"'{file}': the column '{path}' is read as path", False),
        (f"'{file}': the column '{label}' is read as label", False),
    ]
    # Two that may be meant, or a choice of the user: none is taken unasked.
    both = rows.assign(**{"image": images, "label": ["a", "b", "c"]})
    both.to_csv(tmp_path / "both.csv", index=False)
    with pytest.raises(UserError, match="has no column 'path'"):
        read_manifest(tmp_path / "both.csv")
    columns = {"path": "image", "label": "label"}
    read = read_manifest(tmp_path / "both.csv", columns=columns, tell=lambda *remark: None)
    assert read[1] == ["a", "b", "c"]

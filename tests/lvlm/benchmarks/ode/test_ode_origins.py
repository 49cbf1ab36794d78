"""One distribution in three origins: the same pairs, annotated, from elsewhere, and made."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from sklearn.metrics import f1_score

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.published_files import read_pictures
from ood_lab.lvlm.image_generation.photographs import listed_photographs, paired
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture
from ood_lab.schema.results import read_results, whole

SMALL = (
    *("annotations.n=60", "metrics.n_bootstrap=50", "metrics.min_count=1", "logger=none"),
    *("task.construction.limit=4", "image_text=[]", "task.filter=null", "task.report=false"),
    *("lvlm=oracle", "lvlm.accuracy=0.7", "task.construction.criteria.long_tail=null"),
    *("task.construction.criteria.random=null", "task.construction.criteria.fictional=null"),
)


def run(outputs, *more):
    before = run_folders(outputs) if outputs.exists() else []
    assert call("eval.py", "task=ode", *SMALL, f"paths.outputs={outputs}", *more) == 0
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


def test_the_same_pairs_in_three_origins(tmp_path):
    built = run(tmp_path / "first", "task.until=build")
    web = tmp_path / "web"
    web.mkdir()
    rows = []
    for number, each in enumerate(read_pictures(built / "pictures.jsonl")):
        shutil.copy(built / each.file, web / f"{number}.png")
        rows.append({"file": f"{number}.png", "first": each.truth[1], "second": each.truth[0]})
    pd.DataFrame(rows[1:]).to_csv(web / "pairs.csv", index=False)  # one pair is not there
    origins = f"task.origins={{annotated: annotations, web: {web}/pairs.csv}}"
    tuning = ("task.tuning.choose=all", "task.tuning.criteria=[standard]")
    found = run(tmp_path / "second", origins, *tuning)
    pictures = read_pictures(found / "pictures.jsonl")
    sets = ("synthetic", "annotated", "web")
    pairs = {s: sorted(p.truth[:2] for p in pictures if p.meta["split"] == s) for s in sets}
    assert pairs["synthetic"] == pairs["annotated"] == pairs["web"]
    assert 1 < len(pairs["web"]) < len(rows)
    assert tuple(rows[0][k] for k in ("second", "first")) not in pairs["web"]
    captions, judged = (pd.read_parquet(found / f"{n}.parquet") for n in ("captions", "judged"))
    assert set(judged["task"]) == {"existence"}
    texts = judged.groupby(["pair", "split"])["text"].agg(lambda rows: tuple(sorted(rows)))
    assert texts.groupby("pair").nunique().eq(1).all()  # every origin is asked the same
    results = read_results(found)
    rows = whole(results)
    chair = rows[rows["metric"] == "chair"].set_index("split")
    assert set(chair["unit"]) == {"pair"}
    assert chair.loc["web", "n"] == len(set(pairs["web"]))
    for split, part in captions.groupby("split"):
        share = part["flagged"].sum() / part["nouns"].sum()
        assert chair.loc[split, "value"] == pytest.approx(share)
    parts = set(results["part"].dropna())
    assert {"kind ee", "kind ev", "criterion standard"} <= parts
    table = pd.read_csv(found / "differences.csv")
    row = table[(table["b"] == "annotated") & (table["metric"] == "existence_accuracy")].iloc[0]
    right = judged.groupby("split")["correct"].mean()
    assert row["difference"] == pytest.approx(right["synthetic"] - right["annotated"])
    f1 = table[(table["b"] == "annotated") & (table["metric"] == "existence_f1")].iloc[0]
    wanted = [
        f1_score(part["truth"] == "no", ~(part["correct"] ^ (part["truth"] == "no")))
        for part in (judged[judged["split"] == split] for split in sets[:2])
    ]
    assert [f1["value_a"], f1["value_b"]] == pytest.approx(wanted)
    assert f1["ci_low"] <= f1["difference"] == pytest.approx(wanted[0] - wanted[1])
    # The interval is that of pairs, resampled with both origins together.
    sums = judged.groupby(["pair", "split"])["correct"].agg(["sum", "size"]).unstack("split")
    wanted = [(sums["sum"][s] / sums["size"][s].sum()).to_numpy() for s in sets[:2]]
    assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    assert np.isclose(row["difference"], (wanted[0] - wanted[1]).sum())
    tuned = json.loads((found / "manifest.json").read_text())["question_tuning"]
    assert tuned["of"] == {"standard": tuned["questions"]}
    assert tuned["questions"] == len(captions) + len(judged)


def picture(name, split, pair, hallu):
    return AnnotatedPicture(
        name, "standard", "ee", pair, hallu=hallu, meta={"split": split, "pair": str(pair)}
    )


def test_as_many_of_a_pair_in_every_origin_and_candidates_that_none_shows():
    cat, dog = ("cat", "sofa"), ("dog", "sofa")
    pictures = [
        picture("a", "synthetic", cat, ("dog", "lamp")),
        picture("b", "synthetic", cat, ("dog", "lamp")),
        picture("c", "annotated", cat, ("lamp", "cup")),
        picture("d", "synthetic", dog, ("cat",)),
    ]
    found = paired(pictures)
    assert [each.file for each in found] == ["a", "c"]
    assert {each.hallu for each in found} == {("lamp",)}
    assert not any(each.numbers for each in found)
    with pytest.raises(UserError, match="no pair has a picture left"):
        paired([pictures[0], picture("e", "annotated", dog, ())])


@pytest.mark.parametrize(
    ("content", "words"),
    [("file,first\na.png,cat\n", "no column 'second'"), ("file,first,second\na,b,c\n", "line 2")],
)
def test_a_table_that_lacks_something_is_one_line(content, words, tmp_path):
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(UserError, match=words):
        listed_photographs(tmp_path / "pairs.csv")

"""``task=oodbench`` through the real entry point: stages together, alone, and wrong inputs."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image
from scripted_answers import answer_of

from ood_lab.common.files import read_table
from ood_lab.lvlm.questions.question_files import read_questions
from ood_lab.run.job.sweeps import headline
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import read_results

NO_PAGE = "task.report=false"
SMALL = ("annotations.n=30", "metrics.n_bootstrap=50", "metrics.min_count=2", "logger=none")

DRAWN = ("sets", "purified", "bap", "of_categories", "of_fields", "of_places")
OF_STATISTICS = ("degradation_accuracy", "degradation_mcc", "errors", "errors_together", "hard")
OF_STATISTICS += ("mmd", "drops", "tost_accuracy", "tost_mcc", "flags")


def run(outputs, *arguments, figures=()):
    line = ("task=oodbench", *SMALL, f"paths.outputs={outputs}", *arguments)
    return call("eval.py", *line, figures=figures)


def folder_of(outputs, before=()):
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("oodbench")
    assert run(outputs, "lvlm=oracle", "lvlm.accuracy=0.9", figures=DRAWN) == 0
    return folder_of(outputs)


@pytest.mark.slow
def test_every_stage_leaves_what_the_next_one_reads(finished):
    for name in ("division.parquet", "audit.csv", "questions.jsonl", "answers.jsonl"):
        assert (finished / name).is_file(), name
    for name in ("results.csv", "results.parquet", "judged.parquet", "oodbench.html"):
        assert (finished / name).is_file(), name
    assert {p.stem for p in (finished / "figures").glob("*.png")} >= {"sets", "purified", "bap"}
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["image_text"]["scenes_96"]["scale"] > 1
    assert manifest["lvlm"]["accuracy"] == 0.9
    assert (finished / "log.txt").read_text().rstrip().endswith(f"{finished}/oodbench.html")


def test_the_answer_comes_first_and_holds_the_numbers_of_the_results(finished):
    asked, accuracies, *others = answer_of(finished, "oodbench")
    questions = read_questions(finished / "questions.jsonl")
    images = len({question.image for question in questions})
    assert asked.startswith(f"oracle was asked {len(questions)} questions about {images} images")
    rows = pd.read_csv(finished / "results.csv").query("metric == 'accuracy'")
    rows = rows[rows[["semantic_level", "covariate_level", "part"]].isna().all(axis=1)]
    rows = rows[(rows["unparsed"] == rows["unparsed"].iloc[0]) & (rows["split"] != "id_and_ood")]
    found = re.findall(r"([\d.]+)% \[([\d.]+), ([\d.]+)\] on ([\w-]+)", accuracies)
    names = {"id": "ID", "ood_s": "OOD-S", "ood_h": "OOD-H"}
    ends = rows.set_index(rows["split"].map(names))[["value", "ci_low", "ci_high"]]
    assert {name: row for *row, name in found} == {
        name: [f"{100 * number:.1f}" for number in row] for name, *row in ends.itertuples()
    }
    values = [float(row[0]) for row in found]
    assert values == sorted(values, reverse=True)
    assert f"at worst {values[-1]}%" in accuracies
    widest = ends.eval("ci_high - ci_low").idxmax()
    n = rows.set_index(rows["split"].map(names)).loc[widest, "n"]
    (width,) = (each for each in others if "to either side" in each)
    assert width.startswith(f"With only {n} pairs, the interval on {widest} reaches about ")


def test_what_is_drawn_of_the_splits_is_what_was_asked(finished):
    asked = [q for q in read_questions(finished / "questions.jsonl") if q.task == "yes_no"]
    table = pd.read_csv(finished / "distribution.csv").query("by == 'place' and split == 'id'")
    places = [q.meta["place"] for q in asked if q.meta["split"] == "id"]
    assert dict(zip(table["value"], 2 * table["pairs"], strict=True)) == {
        place: places.count(place) for place in places
    }
    assert {p.stem for p in (finished / "figures").glob("of_*.png")} == {
        "of_categories", "of_fields", "of_places",
    }  # fmt: skip


def test_questions_are_true_of_the_annotations(finished):
    division = read_table(finished / "division.parquet")
    there = set(zip(division["image"], division["category"], strict=True))
    asked = [q for q in read_questions(finished / "questions.jsonl") if q.task == "yes_no"]
    assert asked
    for question in asked:
        present = (question.meta["image"], question.meta["category"]) in there
        says_not = "not contain" in question.text
        assert (question.answer == "yes") == (present != says_not)
    assert {q.meta["split"] for q in asked} > {"id"}


def test_what_both_shipped_models_overlook_is_small(finished):
    asked = [q for q in read_questions(finished / "questions.jsonl") if q.task == "yes_no"]
    areas = {
        split: [q.meta["area"] for q in asked if q.meta["split"] == split and q.meta["present"]]
        for split in ("id", "ood_h")
    }
    division = read_table(finished / "division.parquet")
    assert (division["split"] == "id").mean() > 0.3  # they know most of what is there
    assert np.median(areas["ood_h"]) < 150
    mine = pd.DataFrame([q.meta for q in asked])
    assert mine.loc[mine["split"] == "ood_h", "p_scenes_96"].median() < 0.05


@pytest.mark.slow
def test_measured_levels_take_the_place_of_known_ones(finished, tmp_path, capsys):
    asked = read_questions(finished / "questions.jsonl")
    images = sorted({q.image for q in asked})
    table = pd.DataFrame({"path": images, "dataset": "pool", "index": range(len(images))})
    levels = table.assign(semantic_level=np.arange(len(images)) % 2 + 7, covariate_level=4)
    levels.to_parquet(tmp_path / "levels.parquet")
    again = [f"task.questions={finished / 'questions.jsonl'}", "lvlm=oracle", NO_PAGE]
    again += [f"task.answers={finished / 'answers.jsonl'}"]
    assert run(tmp_path, *again, f"task.levels={tmp_path / 'levels.parquet'}") == 0
    found = read_table(folder_of(tmp_path) / "results.parquet")
    assert set(found["semantic_level"].dropna()) == {7, 8}
    assert set(found["covariate_level"].dropna()) == {4}
    before = read_table(finished / "results.parquet")
    whole = [
        r[r[["semantic_level", "covariate_level"]].isna().all(axis=1)] for r in (found, before)
    ]
    assert whole[0]["value"].tolist() == pytest.approx(whole[1]["value"].tolist(), nan_ok=True)
    levels[1:].to_csv(tmp_path / "few.csv")
    capsys.readouterr()
    assert run(tmp_path, *again, f"task.levels={tmp_path / 'few.csv'}") == 1
    assert "has no level for 1 of the" in capsys.readouterr().err


def test_results_are_those_of_an_oracle_that_errs_as_often_as_it_is_told(finished):
    results = read_table(finished / "results.parquet")
    row = results.query(
        "split == 'id_and_ood' and metric == 'accuracy' and unparsed == 'drop_pair'"
    )
    row = row[row["semantic_level"].isna() & row["covariate_level"].isna()].iloc[0]
    assert row["ci_low"] <= 0.9 <= row["ci_high"]
    assert abs(row["value"] - 0.9) < 0.06
    assert (results["n_failed"] == 0).all()


@pytest.mark.slow
def test_stages_alone_give_the_same_numbers(finished, tmp_path):
    questions = f"task.questions={finished}/questions.jsonl"
    assert run(tmp_path, "task.until=build", "lvlm=random") == 0
    built = folder_of(tmp_path)
    both = (read_questions(folder / "questions.jsonl") for folder in (built, finished))
    for one, other in zip(*both, strict=True):
        assert replace(one, image="") == replace(other, image="")  # rendered below paths.cache
    assert not (built / "answers.jsonl").exists()
    answers = f"task.answers={finished}/answers.jsonl"
    assert run(tmp_path, questions, answers, "lvlm=random", NO_PAGE) == 0
    scored = folder_of(tmp_path, [built])
    first, again = (read_table(f / "results.parquet") for f in (finished, scored))
    pd.testing.assert_frame_equal(first, again)


@pytest.mark.slow
def test_answers_are_parsed_again_without_being_asked(finished):
    outputs = finished.parents[2]
    before, stores = run_folders(outputs), list((outputs / "answers").glob("*.jsonl"))
    sizes = [store.stat().st_size for store in stores]
    assert run(outputs, "lvlm=oracle", "lvlm.accuracy=0.9", "task.parser=amber", NO_PAGE) == 0
    strict = folder_of(outputs, before)
    assert [store.stat().st_size for store in stores] == sizes
    judged = read_table(strict / "judged.parquet")
    # The oracle answers in lower case, which AMBER's rule does not read.
    assert (judged.loc[judged["task"] == "yes_no", "status"] == "unparsed").all()
    accuracy = read_table(strict / "results.parquet").query("metric == 'accuracy'")
    assert set(accuracy["unparsed"]) == {"drop_pair", "wrong"}
    assert np.isnan(accuracy["value"]).all()  # nothing was read: neither right nor wrong


def test_a_finished_run_is_shown_again(finished, capsys):
    assert run(finished.parents[2], "lvlm=oracle", "lvlm.accuracy=0.9") == 0
    shown = capsys.readouterr().out
    assert "OOD-H" in shown
    assert "Acc" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lvlm=constant", "task.parser=popee"], "did you mean 'pope'"),
        (["lvlm=constant", "task.questions=nowhere.jsonl"], "there is no such file"),
        (["lvlm=constant", "task.threshold=1.5"], "task.threshold=1.5"),
        (["lvlm=constant", "metrics.n_bootstrap=0"], "metrics.n_bootstrap=0"),
        (["image_text=[scenes_96,scenes_96]"], "names scenes_96 twice"),
        (["lvlm=constant", "annotations.categories=[mug,zebra]"], "no category 'zebra'"),
    ],
)
def test_wrong_inputs_are_one_line_before_any_work(tmp_path, capsys, arguments, message):
    assert run(tmp_path, *arguments) == 1
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


def test_annotations_of_another_format_are_one_line(tmp_path, capsys):
    (tmp_path / "a.json").write_text("[1, 2]")
    files = (f"annotations.file={tmp_path}/a.json", f"annotations.images={tmp_path}")
    real = "task.foreign_clip=true"  # what is refused otherwise, before the file is read
    arguments = ("task=oodbench", "annotations=coco", *files, "lvlm=random", "logger=none", real)
    assert call("eval.py", *arguments, f"paths.outputs={tmp_path}") == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "a.json" in error
    assert "COCO instances" in error


@pytest.fixture
def photographs(tmp_path):
    """Images of one's own with COCO's annotations, as overrides."""
    (tmp_path / "photos").mkdir()
    noise = np.random.default_rng(0)
    for n in range(12):
        pixels = noise.integers(0, 255, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{n}.png")
    document = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "width": 64, "height": 48} for n in range(12)
        ],
        "annotations": [
            {"id": n, "image_id": n, "category_id": n % 3, "bbox": [2, 2, 20, 20], "area": 400}
            for n in range(12)
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(("mug", "dog", "kite"))],
    }
    (tmp_path / "own.json").write_text(json.dumps(document))
    files = (f"annotations.file={tmp_path}/own.json", f"annotations.images={tmp_path}/photos")
    return ("annotations=coco", *files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["task=oodbench"], ["image_text=scenes_96", '"image_text=[clip]"']),
        (
            [
                "task=oodbench",
                "image_text=[open_clip]",
                "image_text.open_clip.clip.name=tiny",
            ],
            ["image_text=open_clip", "builtin vessels", '"image_text=[clip]"'],
        ),
        (["task=oric"], ["clip.name=scenes_96", "clip=vit_b32"]),
        (["experiment=oric_demo", "clip=vit_b32"], ["image_text=scenes_64"]),
        (["task=ode"], ["image_text=scenes_96"]),
    ],
)
def test_a_shipped_clip_does_not_judge_photographs(photographs, arguments, names, tmp_path, capsys):
    places = ("lvlm=random", "logger=none", f"paths.outputs={tmp_path}/out")
    assert call("eval.py", *arguments, *photographs, *places) == 1
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "comes with the package and knows only" in error
    assert "coco means nothing" in error
    for name in names:
        assert name in error
    assert not list((tmp_path / "out").rglob("division.parquet"))


def test_who_says_so_may_divide_photographs_with_a_shipped_clip(photographs, tmp_path):
    places = ("lvlm=random", "logger=none", f"paths.outputs={tmp_path}/out", NO_PAGE)
    said = ("task=oodbench", "task.foreign_clip=true", "task.until=build")
    assert call("eval.py", *said, *photographs, *places) == 0


def test_a_sweep_shows_the_accuracies(finished):
    assert list(headline(FinishedRun(finished))) == [
        "id acc.",
        "ood_s acc.",
        "ood_h acc.",
        "id_and_ood acc.",
    ]


@pytest.fixture(scope="module")
def weaker(finished):
    """Another model on the same questions."""
    outputs = finished.parents[2]
    before = run_folders(outputs)
    questions = f"task.questions={finished}/questions.jsonl"
    assert run(outputs, questions, "lvlm=oracle", "lvlm.accuracy=0.7", NO_PAGE) == 0
    return folder_of(outputs, before)


def statistics(outputs, *arguments, figures=()):
    line = ("task=oodbench_statistics", "logger=none", f"paths.outputs={outputs}")
    return call("eval.py", *line, *arguments, figures=figures)


def test_statistics_of_several_models(finished, weaker, tmp_path, capsys):
    names = [f"oracle ({folder.parent.name})" for folder in (finished, weaker)]
    pairs = pd.read_csv(finished / "audit.csv").query("split == 'ood_h'")
    image, category = pairs[["image", "category"]].iloc[0]
    texts = pd.DataFrame({"image": [image, "nowhere"], "text": ["an odd gadget", "a wardrobe"]})
    texts.to_csv(tmp_path / "corpus.csv", index=False)
    (tmp_path / "synonyms.csv").write_text(f"category,synonym\n{category},gadget\n")
    done = statistics(
        tmp_path,
        f"task.runs=['{finished}','{weaker}']",
        f"task.open=['{names[0]}']",
        f"task.hard=['{finished}','{weaker}']",
        f"task.train='{finished}'",
        f"+task.corpora.m={tmp_path}/corpus.csv",
        f"task.synonyms={tmp_path}/synonyms.csv",
        "task.draws=100",
        "task.mmd_draws=20",
        "clip=open_clip",
        "clip.name=scenes_96",
        figures=OF_STATISTICS,
    )
    assert done == 0
    folder = folder_of(tmp_path)
    found = {file.stem: pd.read_csv(file) for file in folder.glob("*.csv")}
    assert {"degradation", "signature", "tost", "hard", "mmd", "overlap", "screening"} <= set(found)
    assert set(found["degradation"]["model"]) == set(names)
    assert set(found["tost"]["model"]) == {names[1]}
    assert (found["tost"]["eta_resample"] == 100).all()
    judged = read_table(finished / "judged.parquet").query("task == 'yes_no' and split == 'ood_h'")
    assert found["errors"]["errors"].iloc[0] == (~judged["correct"].astype(bool)).sum()
    assert found["errors"]["share"].iloc[0] == pytest.approx(1 - judged["correct"].mean())
    shown, page = capsys.readouterr().out, (folder / "statistics.html").read_text()
    assert "…" not in shown
    assert f"{100 * found['errors']['share'].iloc[0]:.1f}" in shown
    for text in ("ID minus OOD, points", "E1 to E5", *(name.split()[0] for name in names)):
        assert text in page
    # The training split and the questions are the same pairs here.
    mmd = found["mmd"].set_index("quantity")["value"]
    assert float(mmd["mmd2"]) == pytest.approx(0, abs=1e-9)
    assert found["overlap"][["expressed", "by_name"]].to_numpy().tolist() == [[1, 0]]
    assert "one of 1 synonyms of 1 categories (synonyms.csv)" in " ".join(page.split())
    told = json.loads((folder / "manifest.json").read_text())["overlap"]
    assert told["synonyms_of"] == {category: ["gadget"]}
    check_flags(folder, found, dict(zip(names, (finished, weaker), strict=True)))
    check_draws(folder, found)
    check_samples(found, dict(zip(names, (finished, weaker), strict=True)))
    check_answer(answer_of(folder, "statistics"), found, judged)


def check_samples(found, runs):
    """ID, OOD-H and hard pairs of each model; the hard runs are those of all splits here."""
    samples = found["samples"].set_index(["model", "samples"])
    for name, folder in runs.items():
        judged = read_table(folder / "judged.parquet").query("task == 'yes_no'")
        sets = {split: judged[judged["split"] == split] for split in ("id", "ood_h")}
        rates = {k: rows["correct"].mean() for k, rows in (sets | {"hard": judged}).items()}
        for split, rate in rates.items():
            row = samples.loc[(name, split)]
            assert row["accuracy"] == pytest.approx(rate)
            drop = math.nan if split == "id" else rates["id"] - rate
            assert row["drop"] == pytest.approx(drop, nan_ok=True)
    own = found["degradation"].query("metric == 'accuracy'").set_index("model")
    ood = found["samples"].query("samples == 'ood_h'").set_index("model")
    assert ood[["low", "high", "p"]].equals(own.loc[ood.index, ["low", "high", "p"]])


def check_flags(folder, found, runs):
    """Figure 6: samples of which a model answers any question wrongly, from the answers alone."""
    wrong = {}
    for name, run in runs.items():
        answers = read_table(run / "judged.parquet").query("task == 'yes_no'")
        pairs = answers.groupby("pair_id").agg(right=("correct", "all"), split=("split", "first"))
        wrong[name] = {
            split: set(p.index[~p["right"].astype(bool)]) for split, p in pairs.groupby("split")
        }
        sizes = pairs["split"].value_counts()
    table, first = found["flags"].set_index("model"), next(iter(runs))
    for name, by in wrong.items():
        for split in sizes.index:
            assert table.loc[name, split] == pytest.approx(len(by.get(split, ())) / sizes[split])
    n = sizes.drop("id").sum()
    ood = {
        name: set().union(*(s for k, s in by.items() if k != "id")) for name, by in wrong.items()
    }
    union = found["flags_union"].set_index(["order", "models"])["union"]
    both = len(set.union(*ood.values())) / n
    shares = [len(flagged) / n for flagged in ood.values()]
    for order, alone in (
        ("given order", shares[0]),
        ("best order", max(shares)),
    ):
        assert union[order, 1] == pytest.approx(alone), order
        assert union[order, 2] == pytest.approx(both), order
    assert table.loc[first, "ood"] == pytest.approx(shares[0])
    results = read_results(folder)
    assert set(results["kind"]) == {"ood_flags"}
    row = results.query("metric == 'flagged' and split == 'ood'").iloc[1]
    assert row["value"] == pytest.approx(shares[1])
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert (folder / "figures" / "flags.png").is_file()
    assert (
        "Vision-language models as detectors of OOD samples"
        in (folder / "statistics.html").read_text()
    )


def told(folder):
    """The sentences of a run that wrote no page, or of which the page does not matter."""
    (blocks,) = json.loads((folder / "summary.json").read_text()).values()
    return [block["text"] for block in blocks if block.get("style") == "answer"]


def test_statistics_of_one_model_speak_of_one(finished, tmp_path):
    assert statistics(tmp_path, f"task.runs=['{finished}']", "task.draws=20", NO_PAGE) == 0
    folder = folder_of(tmp_path)
    sizes, lost, wrong = told(folder)
    assert sizes.startswith("1 model answered ")
    row = pd.read_csv(folder / "degradation.csv").query("metric == 'accuracy'").iloc[0]
    ends = "{:.1f} points [{:.1f}, {:.1f}]".format(
        *100 * row[["value", "low", "high"]].astype(float)
    )
    assert f" is {ends} for oracle (95% intervals in brackets); " in lost
    lower = "oracle" if row["p"] < 0.05 else "no model"
    assert lost.endswith(f"above zero for {lower} (a one-sided test of each).")
    share = pd.read_csv(folder / "errors.csv")["share"].iloc[0]
    assert wrong == f"Of the OOD-H questions, {100 * share:.1f}% are answered wrongly."


def check_answer(said, found, judged):
    """The sentences have the numbers of the tables."""
    sizes, lost, wrong, flagged = said
    best = found["flags_union"].query("order == 'best order'")["union"]
    assert flagged.endswith(
        " and ".join(
            f"{100 * v:.1f}% with {m}" for v, m in zip(best, best_names(found), strict=True)
        )
        + "."
    )
    assert f" {judged['pair_id'].nunique()} of OOD-H." in sizes
    rows = found["degradation"].query("metric == 'accuracy'").sort_values("value")
    numbers = [f"{100 * x:.1f}" for x in rows[["value", "low", "high"]].to_numpy().ravel()]
    values, _, tested = lost.partition(";")
    assert re.findall(r"-?\d+\.\d", values) == numbers
    for model, p in zip(rows["model"], rows["p"], strict=True):
        assert (model in tested) == (p < 0.05)
    by = found["wrong_by"].set_index("models")["at_least"]
    shares = [*sorted(found["errors"]["share"]), by[1], by[2]]
    assert re.findall(r"\d+\.\d", wrong) == [f"{100 * x:.1f}" for x in shares]


def best_names(found):
    return found["flags_union"].query("order == 'best order'")["added"]


def check_draws(folder, found):
    """What is drawn is what the tables' p-values and intervals were made of."""
    draws = read_table(folder / "draws.parquet")
    kept = {
        key: part["value"] for key, part in draws.groupby(["table", "model", "metric", "draws"])
    }
    for row in found["degradation"].to_dict("records"):
        place = ("degradation", row["model"], row["metric"])
        by_chance, resampled = kept[*place, "permuted"], kept[*place, "resampled"]
        assert len(by_chance) == len(resampled) == 100
        exceeded = (by_chance >= row["value"] - 1e-12).sum()
        assert row["p"] == pytest.approx((1 + exceeded) / 101)
        ends = np.quantile(resampled, [0.025, 0.975])
        assert [row["low"], row["high"]] == pytest.approx(ends)
    for row in found["tost"].to_dict("records"):
        replicates = kept["tost", row["model"], row["metric"], "difference"]
        ends = np.quantile(replicates, [0.05, 0.95])
        assert [row["low"], row["high"]] == pytest.approx(ends)
    hard = found["hard"].query("test == 'E3, E4'").set_index("quantity")["value"]
    for name in ("variance", "pearson", "spearman"):
        at_most = (kept["hard", "", "", name] <= hard[name] + 1e-12).sum()
        assert hard[f"{name}_p"] == pytest.approx((1 + at_most) / 101, abs=1.1 / 101)
    mmd = found["mmd"].set_index("quantity")["value"]
    assert float(mmd["threshold"]) == pytest.approx(np.quantile(kept["mmd", "", "", "parts"], 0.95))
    ends = np.quantile(kept["mmd", "", "", "resampled"], [0.05, 0.95])
    assert [float(mmd[name]) for name in ("low", "high")] == pytest.approx(ends)
    drawn = {file.stem for file in (folder / "figures").glob("*.png")}
    assert drawn >= {"degradation_accuracy", "degradation_mcc", "errors", "errors_together"}
    assert drawn >= {"hard", "mmd", "drops", "tost_accuracy", "tost_mcc"}
    wrong = found["wrong_by"]
    assert (wrong["models"] * wrong["questions"]).sum() == found["errors"]["errors"].sum()


def test_ood_pairs_are_compared_with_hard_ones_before_any_is_cut(finished, weaker, tmp_path):
    """E5: a run asks a part of the pairs, its audit.csv has them all."""
    copies = []
    for folder in (finished, weaker):
        copy = tmp_path / folder.parent.name / "run"
        shutil.copytree(folder, copy)
        judged = read_table(copy / "judged.parquet")
        ood = judged["split"] == "ood_h"
        asked = judged.loc[ood, "pair_id"].drop_duplicates()
        cut = ood & judged["pair_id"].isin(asked[len(asked) // 2 :])
        judged[~cut].to_parquet(copy / "judged.parquet")
        copies.append(copy)
    runs, hard = (f"['{a}','{b}']" for a, b in (copies, (finished, weaker)))
    arguments = [f"task.runs={runs}", f"task.hard={hard}", "task.draws=20", NO_PAGE]
    assert statistics(tmp_path / "out", *arguments) == 0
    table = pd.read_csv(folder_of(tmp_path / "out") / "hard.csv")
    found = table[table["test"] == "E5"].set_index("quantity")["value"]
    pairs = pd.read_csv(finished / "audit.csv").query("split == 'ood_h'")
    assert (found["shared"], found["of_ood"]) == (len(pairs), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task.runs=[nowhere]"], "not a finished run of task=oodbench"),
        (["task.runs=['{a}','{a}']"], "named twice"),
        (["task.runs=['{a}','{b}']", "task.open=[orcale]"], "names 'orcale': there is: oracle"),
        (["task.runs=['{a}']", "+task.corpora.m=x.csv"], "task.corpora needs task.train"),
        (["task.runs=['{a}']", "task.synonyms=s.csv"], "task.synonyms needs task.corpora"),
    ],
)
def test_wrong_runs_are_one_line(finished, weaker, tmp_path, capsys, arguments, message):
    filled = [text.format(a=finished, b=weaker) for text in arguments]
    assert statistics(tmp_path, *filled) == 1
    assert message in capsys.readouterr().err


def test_a_shipped_clip_does_not_compare_photographs(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "photographs" / "seed=0")
    text = (run / "config.yaml").read_text()
    kind = "ood_lab.builtin.scenes.annotations.ScenesAnnotations"
    assert kind in text
    (run / "config.yaml").write_text(text.replace(kind, "ood_lab.lvlm.annotations.coco.Coco"))
    given = (f"task.runs=['{run}']", f"task.train='{run}'", "task.draws=20", "task.mmd_draws=20")
    shipped = ("clip=open_clip", "clip.name=scenes_96")
    assert statistics(tmp_path / "out", *given, *shipped) == 1
    assert "clip.name=scenes_96 comes with the package and knows only" in capsys.readouterr().err
    assert statistics(tmp_path / "out", *given, *shipped, "task.foreign_clip=true", NO_PAGE) == 0


def test_an_ablation_names_what_differs(finished, weaker, tmp_path, capsys):
    runs = f"runs=['{finished}','{weaker}']"
    line = ("task=oodbench_ablation", "logger=none", runs, f"paths.outputs={tmp_path}")
    assert call("eval.py", *line, figures=["ablation"]) == 0
    table = pd.read_csv(folder_of(tmp_path) / "ablation.csv")
    settings = table["setting"].unique()
    assert len(settings) == 2
    assert "accuracy=0.9" in settings[0]
    assert "accuracy=0.7" in settings[1]
    assert (folder_of(tmp_path) / "figures" / "ablation.png").is_file()
    assert "Ablation" in capsys.readouterr().out
    (page,) = folder_of(tmp_path).glob("*.html")
    assert "Setting 1 minus the others, OOD-H, points" in page.read_text()
    found = pd.read_csv(folder_of(tmp_path) / "differences.csv")
    assert set(found["split"]) == {"id", "ood_s", "ood_h"}
    values = table.set_index(["setting", "split", "metric"])["value"]
    for row in found.to_dict("records"):
        own, other = (values[row[side], row["split"], row["metric"]] for side in "ab")
        assert row["a"] == settings[0]
        assert row["difference"] == pytest.approx(own - other)
    values, most = answer_of(folder_of(tmp_path), "ablation")
    first = table[(table["setting"] == settings[0]) & (table["metric"] == "accuracy")]
    first = first[first["split"] != "id_and_ood"].sort_values("value", ascending=False)
    ends = [f"{100 * x:.1f}" for x in first[["value", "ci_low", "ci_high"]].to_numpy().ravel()]
    assert re.findall(r"\d+\.\d", values.partition(" is ")[2]) == ends
    rows = found[found["metric"] == "accuracy"]
    row = rows.loc[rows["difference"].abs().idxmax()]
    assert row["p_holm"] < 0.05
    split = {"id": "ID", "ood_s": "OOD-S", "ood_h": "OOD-H"}[row["split"]]
    size = "{:.1f} points [{:.1f}, {:.1f}]".format(
        *100 * row[["difference", "ci_low", "ci_high"]].astype(float)
    )
    assert most == (
        f"It differs most on {split}: there it is {size} better than with setting 2 "
        f"({settings[1]})."
    )


@pytest.mark.slow
def test_probabilities_give_doubt(finished):
    outputs = finished.parents[2]
    before = run_folders(outputs)
    questions = f"task.questions={finished}/questions.jsonl"
    assert run(outputs, "lvlm=random", questions) == 0
    folder = folder_of(outputs, before)
    results = read_table(folder / "results.parquet")
    doubts = results[results["metric"].isin(["auroc_errors", "auroc_ood"])]
    assert set(doubts["split"]) == {"id", "ood_s", "ood_h", "id_and_ood"}
    # It doubts everything alike, and knows nothing.
    assert (doubts["value"] == 0.5).all()
    assert "Does the model doubt what it gets wrong?" in (folder / "oodbench.html").read_text()


@pytest.mark.parametrize(
    ("others", "draws", "wanted"),
    [
        ([], 50, None),
        (["finished"], 50, "not significantly different from that with setting 2 (run (2))."),
        (
            ["weaker"],
            10,
            "not tested against setting 2 ({label}): too few answers or resamples.",
        ),
    ],
)
def test_an_ablation_says_where_nothing_is_significant(
    finished, weaker, tmp_path, others, draws, wanted
):
    runs = [finished, *({"finished": finished, "weaker": weaker}[name] for name in others)]
    given = f"runs={[str(run) for run in runs]}"
    line = ("task=oodbench_ablation", "logger=none", given, f"metrics.n_bootstrap={draws}")
    assert call("eval.py", *line, f"paths.outputs={tmp_path}") == 0
    folder = folder_of(tmp_path)
    values, *most = told(folder)
    label = pd.read_csv(folder / "ablation.csv")["setting"].iloc[-1]
    assert values.startswith("With setting 1 (")
    assert [each.partition(": there it is ")[2] for each in most] == (
        [] if wanted is None else [wanted.format(label=label)]
    )


@pytest.fixture(scope="module")
def divided(finished):
    """The scenes divided by the builtin chat model."""
    outputs = finished.parents[2]
    before = run_folders(outputs)
    assert run(outputs, "image_text=[chat]", "lvlm=tiny", "task.until=build") == 0
    return folder_of(outputs, before)


@pytest.mark.slow
def test_a_chat_model_divides_images_as_others_do(finished, divided):
    division, manifest = read_table(divided / "division.parquet"), divided / "manifest.json"
    assert json.loads(manifest.read_text())["image_text"]["chat"]["chat"]["model"] == "tiny"
    assert len(division) == len(read_table(finished / "division.parquet"))
    assert 0 < division["flagged_chat"].sum() < len(division)
    assert (division["flagged_chat"] == (division["split"] == "ood_h")).all()
    # Case 1 or case 2 of the log-odds, from the answers that are kept.
    file = next((divided.parents[2] / "answers").glob("tiny-*.jsonl"))
    answers = [json.loads(line) for line in file.read_text().splitlines()]
    asked = re.compile(r"Does this image contain a (.+)\? \(yes or no\)")
    chance = {(a["image"], asked.fullmatch(a["prompt"])[1]): a["p_yes"] for a in answers}
    image, path = pd.read_csv(divided / "audit.csv")[["image", "file"]].iloc[0]
    odds = {c: p / (1 - p) for (file, c), p in chance.items() if file == path}
    there = division[division["image"] == image].set_index("category")
    absent = [value for name, value in odds.items() if name not in there.index]
    for name, row in there.iterrows():
        p = odds[name] / (odds[name] + sum(absent))
        assert row["p_chat"] == pytest.approx(p, rel=1e-2, abs=1e-4)
        assert row["flagged_chat"] == (
            p < 0.05 or max(absent) > max(odds[each] for each in there.index)
        )


@pytest.mark.slow
def test_statistics_say_what_divisions_of_models_flag(finished, divided, tmp_path, capsys):
    runs = f"task.runs=['{finished}']"
    given = f"task.divisions=['{divided}','{finished}']"
    assert statistics(tmp_path, runs, given, "task.draws=50", figures=["flags_union"]) == 0
    folder = folder_of(tmp_path)
    flags = pd.read_csv(folder / "flags.csv").set_index(["flagged_by", "model"])
    union = pd.read_csv(folder / "flags_union.csv").query("flagged_by == 'own division'")
    # By sets of (image, category).
    judged = read_table(finished / "judged.parquet").query("task == 'yes_no'")
    ood = judged[judged["split"] != "id"]
    samples = set(zip(ood["image"], ood["category"], strict=True))
    flagged = {}
    for run_folder in (divided, finished):
        division = read_table(run_folder / "division.parquet")
        pairs = list(zip(division["image"], division["category"], strict=True))
        for name in [c for c in division if c.startswith("flagged_")]:
            kept = {pair for pair, yes in zip(pairs, division[name], strict=True) if yes}
            flagged[name.removeprefix("flagged_").replace("chat", "tiny")] = kept & samples
    assert (
        list(flags.loc["own division"].index)
        == list(flagged)
        == [
            *("tiny", "scenes_96", "scenes_64"),
        ]
    )
    for name, kept in flagged.items():
        share = len(kept) / len(samples)
        assert flags.loc[("own division", name), "ood"] == pytest.approx(share)
    wrong = {(r.image, r.category) for r in ood.itertuples() if not r.correct}
    assert flags.loc["wrong answers"]["ood"].item() == pytest.approx(len(wrong) / len(samples))
    together, expected = set(), []
    for kept in flagged.values():
        together |= kept
        expected.append(len(together) / len(samples))
    assert union.query("order == 'given order'")["union"].to_list() == pytest.approx(expected)
    assert (union["ci_low"] <= union["union"]).all()
    assert (union["union"] <= union["ci_high"]).all()
    assert "by its own division, a model flags" in " ".join(capsys.readouterr().out.split())
    assert (folder / "figures" / "flags_union.png").is_file()


@pytest.mark.slow
def test_a_division_of_other_images_or_by_another_rule_is_one_line(
    finished, divided, tmp_path, capsys
):
    runs = f"task.runs=['{finished}']"
    few = ("annotations.n=10", "task.until=build", "logger=none", f"paths.outputs={tmp_path}")
    assert call("eval.py", "task=oodbench", *few, "image_text=[scenes_64]") == 0
    other = folder_of(tmp_path)
    assert statistics(tmp_path, runs, f"task.divisions=['{other}']") == 1
    assert "divide the images of the questions" in capsys.readouterr().err
    assert call("eval.py", "task=oodbench", *few, "task.threshold=0.01") == 0
    ruled = folder_of(tmp_path, [other])
    assert statistics(tmp_path, runs, f"task.divisions=['{divided}','{ruled}']") == 1
    assert "runs of the same rule" in capsys.readouterr().err
    assert statistics(tmp_path, runs, f"task.divisions=['{tmp_path}']") == 1
    assert "division.parquet" in capsys.readouterr().err

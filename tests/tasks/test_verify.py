"""Published numbers are well formed, and a run is compared with those measured the same way."""

import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from cli import ROOT, call, run_folders

from ood_lab.common.errors import UserError
from ood_lab.evaluation.published.numbers import SETTINGS, matching_rows, read_references
from ood_lab.lvlm.benchmarks.oodbench.question_building import BAP_TASKS
from ood_lab.lvlm.benchmarks.oric.page import KIND as ORIC
from ood_lab.lvlm.captions.caption_scoring import OF_NO
from ood_lab.lvlm.scoring.yes_no_scores import METRICS
from ood_lab.metrics import Evaluation, results_of
from ood_lab.metrics.answer_metrics import CAPTION_METRICS, TWO_CLASS_METRICS
from ood_lab.metrics.results_rows import KIND
from ood_lab.schema.results import write_results
from ood_lab.tasks.laid_zero_shot import TOP
from ood_lab.tasks.verify import Verify

ROWS = read_references()
CIFAR = matching_rows(ROWS, "cifar10")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")


POSSIBLE = {
    **dict.fromkeys(("dad", "dad_of_means"), (0, 10)),
    **{"images": (0, 1.2e7), "questions": (2e3, 3e4), "mcc": (-100, 100)},
    **{"seconds": (60, 9e4), "rank": (1, 5), "min_distance": (0, 2)},
}


def test_every_file_states_its_source_and_every_row_is_a_possible_number():
    files = sorted(p.stem for p in (ROOT / "ood_lab" / "references").glob("*.yaml"))
    assert sorted({row.reference.name for row in ROWS} | {Path(SETTINGS).stem}) == files
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        about = row.reference.about
        assert all(about[key] for key in ("title", "paper", "checkpoint", "data"))
        assert about["arxiv"] is None or re.fullmatch(r"\d{4}\.\d{5}", about["arxiv"])
        least, most = POSSIBLE.get(row.metric, (0, 100))
        if row.metric.startswith("correlation"):
            least, most = -1, 1
        if " - " in row.ood or "change" in row.ood:
            least = -100
        assert least <= row.value <= most, row.name
        assert row.tolerance >= 0


def names_of_a_run():
    """Every metric of a run of detectors on grouped sets and on levels, and of zero-shot runs."""
    rng = np.random.default_rng(0)
    sets = {"test": 30, "a": 20, "b": 20, "c": 20, "grid": 90}
    scores = pd.DataFrame({"dataset": [name for name, n in sets.items() for _ in range(n)]})
    scores["knn"] = rng.normal(size=len(scores))
    scores["label"] = scores["pred"] = 0
    grid = scores["dataset"] == "grid"
    scores["semantic_level"] = np.where(grid, np.arange(len(scores)) % 3, -1)
    scores["covariate_level"] = np.where(grid, np.arange(len(scores)) // 3 % 3, -1)
    groups = {"near": ["a", "b"], "far": ["c"]}
    options = {"groups": groups, "n_bootstrap": 5, "min_count": 2}
    found = results_of(Evaluation(scores, ["knn"], **options), "net")
    assert set(found["metric"]) > {"dad_of_means", "correlation_covariate_fpr95"}
    others = {"accuracy", "recall", "images"}  # of labels with levels, and of counts
    others |= {"dad_of_means"}  # of groups
    asked = {*METRICS, *BAP_TASKS, *TWO_CLASS_METRICS, *CAPTION_METRICS, "questions", "seconds"}
    groups = {f"{group}_{metric}" for group in ("existence", "attribute") for metric in OF_NO}
    of_questions = {*asked, *groups, "min_distance"}
    return {*found["metric"], *others, *of_questions, *(f"zero_shot_acc{top}" for top in TOP)}


def test_rows_have_only_metrics_that_a_run_can_have():
    assert {row.metric for row in ROWS} - names_of_a_run() == {"rank"}  # groups have no names


def test_the_dad_of_sixteen_methods():
    rows = matching_rows(ROWS, "shiftedbronzes_dad")
    assert len(rows) == 16
    assert sum(row.value for row in rows) == 100
    order = rows[0].reference.protocol["shift_order",]

    def fpr95(table, detector):
        found = matching_rows(ROWS, f"{table}/{detector}/*/fpr95")
        return {row.ood: row.value for row in found if row.ood not in ("mean", "general")}

    of_tables = {row.detector for row in matching_rows(ROWS, "shiftedbronzes_detection")}
    assert len(of_tables) == 16
    for row in rows:
        general = fpr95("shiftedbronzes_general", row.detector)
        assert len(general) == 5
        values = fpr95("shiftedbronzes_detection", row.detector)
        values["general"] = np.mean(list(general.values()))
        pairs = itertools.combinations([values[name] for name in order], 2)
        assert row.value == sum(one > other for one, other in pairs), row.detector


def test_printed_means_are_those_of_their_values():
    for table in ("detection", "general", "replaced", "prompts"):
        for row in matching_rows(ROWS, f"shiftedbronzes_{table}"):
            if row.ood in ("mean", "general") and row.detector != "locoop":
                name = f"{row.reference.name}/{row.detector}/*/{row.metric}"
                own = [one.value for one in matching_rows(ROWS, name) if one.ood != row.ood]
                assert row.value == pytest.approx(np.mean(own), abs=0.00501), row.name
    counts = {r.name.partition("/")[2]: r.value for r in matching_rows(ROWS, "*_counts")}
    periods = [k for k in counts if k.startswith("class/") and k.count(",") == 2]
    assert (
        sum(counts[k] for k in periods)
        == counts["class/ding, id/images"] + (counts["class/gui, id/images"])
    )
    held = sum(value for name, value in counts.items() if name.startswith("folder/"))
    assert held == counts["period/transferred_container/images"] == 51023


def printed_sets(table):
    """Metrics by model and set, as printed."""
    found = {}
    for row in matching_rows(ROWS, table):
        found.setdefault((row.detector, row.ood), {})[row.metric] = row.value
    return found


def test_oodbenchs_tables_agree_with_themselves_and_with_each_other():
    """P and R give the other metrics of balanced questions; data sets give those of all."""
    sets = ("coco", "lvis", "nuscenes", "cityscapes")
    tables = [printed_sets(f"oodbench_{name}") for name in sets]
    contradictions, checked = set(), 0
    for (model, _), found in [item for t in tables for item in t.items()]:
        if model == "Random Chance":
            continue
        p, r = (found[metric] / 100 for metric in ("precision", "recall"))
        fp = r * (1 / p - 1)
        expected = {"accuracy": (1 + r - fp) / 2, "f1": 2 * p * r / (p + r)}
        expected["mcc"] = (r - fp) / np.sqrt((r + fp) * (2 - r - fp))
        assert all(found[m] == pytest.approx(100 * v, abs=0.25) for m, v in expected.items())
        checked += 1
    assert checked == 10 * (8 + 7 + 8 + 6)
    for (model, place), found in printed_sets("oodbench_main").items():
        if model == "Random Chance":
            continue
        named = model + "-Instruct" * model.startswith("Llama")
        parts = [t[named, f"{place}, dataset {d}"] for t, d in zip(tables, sets, strict=True)]
        counts = [part["questions"] for part in parts]
        for metric in ("accuracy", "recall"):
            mean = np.average([part[metric] for part in parts], weights=counts)
            if abs(mean - found[metric]) > 0.02:
                contradictions.add((model, metric))
    swapped = {"DeepSeek-VL2-Small", "Qwen2.5-VL-7B-Instruct"}  # columns of P and R
    known = {(model, "recall") for model in swapped} | {("Qwen2.5-VL-7B-Instruct", "accuracy")}
    assert contradictions == known | {("Llama-3.2-11B-Vision", m) for m in ("accuracy", "recall")}


def test_odes_rounds_and_isoods_counts_add_up():
    flux, diffusion = (printed_sets(f"ode_round_{name}") for name in ("flux", "sd"))
    for (model, place), before in flux.items():
        after, change = diffusion[model, place], diffusion[model, f"{place}, change"]
        assert {m: pytest.approx(after[m] - v, abs=0.051) for m, v in before.items()} == change
    images = {place: found["images"] for (_, place), found in printed_sets("isood_counts").items()}
    cells = [value for place, value in images.items() if "semantic" in place and "cov" in place]
    assert len(cells) == 64
    assert sum(cells) == images["is_ood"]
    assert sum(images[f"is_ood semantic {level}"] for level in range(8)) == images["is_ood"]


def make_run(folder, positive="ood", model="resnet20", dataset="folder", **changes):
    """A run folder that holds exactly the CIFAR rows, but for ``changes`` by row name."""
    folder.mkdir(parents=True)
    values = {"detector": [], "dataset": [], "metric": [], "value": [], "n_ood": []}
    for row in CIFAR:
        number = changes.get(row.name, row.value) / 100
        n = row.reference.protocol["n", row.ood]
        for key, value in zip(values, (row.detector, row.ood, row.metric, number, n), strict=True):
            values[key].append(value)
    table = pd.DataFrame(values).assign(n_id=5000)
    write_results(KIND.table(table, model=model, seed=0), folder)
    stated = CIFAR[0].reference.protocol
    detectors = {row.detector: {} for row in CIFAR}
    for field, value in stated.items():
        if field[0] == "detectors":
            detectors[field[1]][field[2]] = value
    detectors |= changes.get("detectors", {})
    manifest = {
        "fpr95_positive": positive,
        "model": model,
        "backbone": {"transform": f"Normalize({stated['transform',]})"},
        "id_accuracy": 0.8668,
        "shift_order": [],
        "detectors": detectors,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "config.yaml").write_text(f"data: {{name: {dataset}}}\npaths: {{}}\n")
    return folder


def run_verify(tmp_path, run, row="cifar10"):
    tmp_path.mkdir(exist_ok=True)
    Verify(run_folder=str(run), row=row, references=None).run(SimpleNamespace(folder=tmp_path))
    return pd.read_csv(tmp_path / "verify.csv").set_index("row")


def test_the_same_numbers_are_within(tmp_path, capsys):
    table = run_verify(tmp_path, make_run(tmp_path / "run"))
    assert len(table) == len(CIFAR)
    assert set(table.verdict) == {"within"}
    assert table.difference.abs().max() < 1e-9
    assert "every protocol field that is stated agrees" in capsys.readouterr().out


def test_a_number_outside_fails_and_is_counted(tmp_path):
    name = "cifar10/knn/crops/auroc"
    run = make_run(tmp_path / "run", **{name: 94.84 - 0.06})
    with pytest.raises(UserError, match="1 of 6 numbers"):
        run_verify(tmp_path, run, "cifar10/knn")
    table = pd.read_csv(tmp_path / "verify.csv").set_index("row")
    assert table.verdict[name] == "outside"
    assert table.difference[name] == pytest.approx(-0.06)
    assert (table.drop(name).verdict == "within").all()
    assert set(run_verify(tmp_path, run, "cifar10/msp").verdict) == {"within"}


def test_another_setting_is_named_first_and_not_judged(tmp_path, capsys):
    settings = {"knn": {"k": 7, "fit_split": "train"}}
    run = make_run(tmp_path / "run", detectors=settings, **{"cifar10/knn/crops/auroc": 10})
    table = run_verify(tmp_path, run, "cifar10/*/crops")
    knn = table.index.str.contains("/knn/")
    assert set(table.verdict[knn]) == {"other protocol"}
    assert set(table.differs[knn]) == {"detectors.knn.k"}
    assert set(table.verdict[~knn]) == {"within"}
    out = capsys.readouterr().out
    assert 0 < out.index("detectors.knn.k") < out.index("Numbers")
    assert re.search(r"detectors\.knn\.k\s+7\s+50\s+3\b", out)
    assert re.search(r"row\s+paper\s+run\s+95% interval\s+difference\s+tolerance", out)


def test_a_detector_the_run_lacks(tmp_path):
    with pytest.raises(UserError, match=r"holds none of the 1 numbers.*msp.*inet32"):
        run_verify(tmp_path, make_run(tmp_path / "run"), "shiftedbronzes_dad/locoop")


def write_run(folder, table, manifest, data="shiftedbronzes"):
    folder.mkdir(parents=True)
    write_results(table, folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "config.yaml").write_text(f"data: {{name: {data}}}\npaths: {{}}\n")
    return folder


@pytest.mark.parametrize(
    ("model", "detector", "row"),
    [("locoop-ViT-B-16", "gl_mcm", "locoop"), ("idlike-ViT-B-16", "idlike", "id_like")],
)
def test_a_run_of_learned_prompts_finds_its_row(tmp_path, model, detector, row):
    published = matching_rows(ROWS, f"shiftedbronzes_prompts/{row}")
    sets = [r for r in published if r.ood != "mean"]
    rows = [
        {"detector": d, "dataset": r.ood, "metric": r.metric, "value": r.value / 100 + shift}
        for r in sets
        for d, shift in ((detector, 0.001), ("mcm", 0.2))
    ]
    table = KIND.table(pd.DataFrame(rows).assign(n_id=2861, n_ood=100), model=model, seed=0)
    run = write_run(tmp_path / "run", table, {"fpr95_positive": "ood"})
    found = run_verify(tmp_path, run, "shiftedbronzes_prompts")
    of_row = found.index.str.contains(f"/{row}/")
    assert of_row.sum() == 10
    of_sets = of_row & ~found.index.str.contains("/mean/")  # locoop's printed mean is another one
    assert found.difference[of_sets].tolist() == pytest.approx([0.1] * 8)
    assert set(found.verdict[~of_row]) == {"not in the run"}
    assert set(found.verdict[of_row]) == {"within", "other protocol"}  # FPR95: of which class?
    other = write_run(tmp_path / "coop", table.assign(model="coop-ViT-B-16"), {})
    with pytest.raises(UserError, match="holds none"):
        run_verify(tmp_path, other, "shiftedbronzes_prompts")


def benchmark_run(folder, model, dataset):
    """A run of ORIC with the numbers of Emu3 in table 5, one of them 1 point lower."""
    recalls = {"uniform": (67.25, 97.30), "pos_only": (47.75, None), "neg_only": (None, 81.17)}
    rows = [
        {"split": split, "metric": f"recall_{word}", "value": value / 100, "n_asked": 8000}
        | {"ci_low": value / 100 - 0.02, "ci_high": value / 100 + 0.02, "n_items": 2000}
        for split, values in recalls.items()
        for word, value in zip(("yes", "no"), values, strict=True)
        if value is not None
    ]
    manifest = {
        "benchmark": {"name": "ORIC", "finer": []},
        "annotations": {"name": dataset},
        "asking": {"seconds": {"": {"uniform": 90.0}}},
    }
    run = write_run(folder, ORIC.table(rows, model=model, seed=0), manifest)
    drops = {"a": "uniform", "b": "neg_only", "metric": "recall_no", "difference": 0.1613}
    pd.DataFrame([drops | {"ci_low": 0.1, "ci_high": 0.2}]).to_csv(run / "drops.csv", index=False)
    tiers = {"split": "oric", "edges": "tier", "tier": "small", "accuracy": 0.3873}
    pd.DataFrame([tiers | {"ci_low": 0.3, "ci_high": 0.5}]).to_csv(run / "tiers.csv", index=False)
    return run


def test_a_run_of_a_question_benchmark(tmp_path, capsys):
    run = benchmark_run(tmp_path / "run", "emu3", "coco")
    table = run_verify(tmp_path, run, "oric_samplers")
    there = table[table.verdict != "not in the run"]
    assert set(there.verdict) == {"within"}
    names = ("pos_only/recall_yes", "neg_only - uniform/recall_no")
    moved, dropped = (there.loc[f"oric_samplers/Emu3/{name}"] for name in names)
    assert (moved.paper, moved.run) == (48.75, 47.75)
    assert moved.difference == pytest.approx(-1)
    assert [moved.ci_low, moved.ci_high] == pytest.approx([45.75, 49.75])
    assert dropped.run == pytest.approx(-16.13)
    assert [dropped.ci_low, dropped.ci_high] == pytest.approx([-20, -10])
    assert len(there) == 5
    assert "every protocol field that is stated agrees" in capsys.readouterr().out
    small = run_verify(tmp_path, run, "oric_sizes/Emu3-Chat").loc[
        "oric_sizes/Emu3-Chat/oric, small/recall_yes"
    ]
    assert (small.run, small.verdict, small.differs) == (38.73, "other protocol", "n.oric model")

    other = benchmark_run(tmp_path / "other", "mine", "scenes")
    with pytest.raises(UserError, match=r"the models mine on the sets uniform.*FILE/MODEL"):
        run_verify(tmp_path, other, "oric_samplers")
    table = run_verify(tmp_path, other, "oric_samplers/Emu3")  # a single row: its model
    assert set(table.differs.dropna()) == {"dataset model"}


def test_cells_of_shift_are_counted(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    (run / "config.yaml").write_text("data: {name: is_ood}\npaths: {}\n")
    counts = {"covariate_level": [0, 1], "semantic_0": [472201, 437507], "semantic_1": [251593, 5]}
    pd.DataFrame(counts).to_csv(run / "level_counts.csv", index=False)
    with pytest.raises(UserError, match="6 of 9 numbers"):
        run_verify(tmp_path, run, "isood_counts")
    table = pd.read_csv(tmp_path / "verify.csv").set_index("row")
    within = set(table.index[table.verdict == "within"])
    assert within == {
        f"isood_counts/cells/is_ood semantic {s} covariate {c}/images"
        for s, c in ((0, 0), (0, 1), (1, 0))
    }
    assert table.run["isood_counts/cells/is_ood covariate 1/images"] == 437512


def test_what_is_printed_after_the_number_is_shown(tmp_path, capsys):
    (row,) = matching_rows(ROWS, "openood_v15_cifar10/ebo/near")
    assert (row.value, row.spread) == (87.58, 0.46)
    rows = [{"metric": "mean_near_auroc", "value": 0.8751}]
    rows += [{"metric": "auroc", "value": 0.8, "dataset": "tin"}]
    rows = pd.DataFrame(rows).assign(detector="ebo", n_id=9000, n_ood=10)
    table = KIND.table(rows, model="openood_resnet18", seed=0)
    run = write_run(tmp_path / "run", table, {}, "openood_cifar10")
    assert run_verify(tmp_path, run, "openood_v15_cifar10/ebo").spread.tolist() == [0.46, 0.92]
    assert re.search(r"87\.58\s+0\.46\s+87\.51", capsys.readouterr().out)


NEIGHBOURS = {
    "model": ("  model: resnet20\n", {"model": "resnet20_large"}),
    "dataset": ("  dataset: imagenet\n", {"dataset": "imagenet_r"}),
    "transform": ('  transform: "Resize(size=22"\n', {"transform": "Resize(size=224)"}),
}


@pytest.mark.parametrize("field", NEIGHBOURS)
def test_a_name_that_only_begins_alike_is_another_one(tmp_path, field):
    line, ours = NEIGHBOURS[field]
    reference = tmp_path / "reference"
    reference.mkdir()
    text = (ROOT / "ood_lab/references/cifar10.yaml").read_text()
    text = re.sub(r"(?m)^  transform: .*\n", line, text)
    (reference / "mine.yaml").write_text(text)
    run = make_run(tmp_path / "run", **{k: v for k, v in ours.items() if k != "transform"})
    if field == "transform":
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["backbone"]["transform"] = ours["transform"]
        (run / "manifest.json").write_text(json.dumps(manifest))
    ws = SimpleNamespace(folder=tmp_path)
    Verify(run_folder=str(run), row="mine/msp", references=str(reference)).run(ws)
    table = pd.read_csv(tmp_path / "verify.csv")
    assert set(table.differs) == {field}


@pytest.mark.parametrize(("positive", "same"), [("ood", True), ("id", False)])
def test_dad_is_judged_only_under_the_same_fpr(tmp_path, positive, same):
    reference = tmp_path / "reference"
    reference.mkdir()
    text = (ROOT / "ood_lab/references/shiftedbronzes_dad.yaml").read_text()
    text = re.sub(r"(?m)^  (dataset|model|id_accuracy|shift_order): .*\n", "", text)
    (reference / "mine.yaml").write_text(text)
    run = make_run(tmp_path / "run", positive)
    results = pd.read_parquet(run / "results.parquet")
    dad = results.iloc[[0]].assign(detector="msp", dataset=None, metric="dad_of_means", value=7.0)
    pd.concat([results, dad]).to_parquet(run / "results.parquet")
    Verify(run_folder=str(run), row="mine/msp", references=str(reference)).run(
        SimpleNamespace(folder=tmp_path)
    )
    (row,) = pd.read_csv(tmp_path / "verify.csv").itertuples()
    assert row.run == row.paper == 7
    assert row.verdict == ("within" if same else "other protocol")


@pytest.mark.parametrize(
    ("row", "nearest"), [("cifar", "cifar10"), ("cifar10/kn", "cifar10/knn"), ("zzz", "there is")]
)
def test_an_unknown_row_names_the_nearest(row, nearest):
    with pytest.raises(UserError, match=nearest):
        matching_rows(ROWS, row)


def test_a_malformed_reference_is_named(tmp_path):
    (tmp_path / "bad.yaml").write_text("title: x\n")
    with pytest.raises(UserError, match=r"bad\.yaml: expected the keys"):
        read_references(tmp_path)


def test_the_command(tmp_path, capsys):
    run = make_run(tmp_path / "run", **{"cifar10/vim/inet32/auroc": 50})
    common = ("task=verify", f"task.run_folder={run}", f"paths.outputs={tmp_path / 'outputs'}")
    for _ in range(2):  # never "already done"
        assert call("eval.py", *common, "task.row=cifar10/knn") == 0
        assert "6 within" in capsys.readouterr().out
    assert call("eval.py", *common, "task.row=cifar10") == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: 1 of 90 numbers")
    assert len(error.splitlines()) == 1


FIVE = ("transferred_bronze", "transferred_container", "sketch_rubbing", "container", "general")
OF_LEVELS = [
    f"{number}_{axis}_{metric}"
    for number in ("correlation", "sensitivity")
    for axis in ("semantic", "covariate")
    for metric in ("auroc", "fpr95", "aupr_in")
]
OF_ALL = ("all_images_auroc", "all_cells_auroc", "larger_semantic_images_auroc")


def typed_in(folder, rows, **protocol):
    """A table as a user types it in, with the numbers as printed."""
    folder.mkdir(exist_ok=True)
    metrics = {metric for sets in rows.values() for found in sets.values() for metric in found}
    content = dict.fromkeys(("title", "paper", "table", "checkpoint", "data"), "x")
    content |= {"arxiv": None, "protocol": protocol, "rows": rows}
    content["tolerance"] = dict.fromkeys(metrics, 0.006)
    (folder / "typed.yaml").write_text(yaml.safe_dump(content))
    return folder


def printed(table, scale=100, **where):
    """The only value with these entries; "" is none."""
    for column, wanted in where.items():
        table = table[table[column].fillna("") == wanted]
    (value,) = table["value"]
    return round(scale * float(value), 2)


@pytest.fixture(scope="module")
def builtin(tmp_path_factory):
    """Runs of detectors, of zero-shot accuracies and of the check, on the builtin data."""
    outputs = tmp_path_factory.mktemp("builtin")
    common = ("experiment=smoke", "clip=tiny", "logger=none", f"paths.outputs={outputs}")
    common = (*common, f"paths.features={outputs / 'features'}", "trainer.accelerator=cpu")
    scored = ("task=score", "model=clip", "detector=[msp,knn]", "data.name=shiftedbronzes")
    scored = (*scored, "detector.knn.k=50")  # fewer are right on all: no correlation
    groups = [f"+data.ood_groups.{n}=[{s}]" for n, s in (("made", "general"), ("drawn", "grid"))]
    runs = []
    zero, counted = ("task=laid_zero_shot", "name=zero"), ("task=data_check", "name=counted")
    for job in ((*scored, *groups, "name=scored"), zero, counted):
        assert call("eval.py", *common, *job) == 0
        runs.append(run_folders(outputs)[-1])
    return runs


def verified(tmp_path, run, references):
    where = (f"task.run_folder={run}", f"task.references={references}", "task.row=typed")
    status = call("eval.py", "task=verify", *where, f"paths.outputs={tmp_path}", "name=verified")
    return status, pd.read_csv(run_folders(tmp_path)[-1] / "verify.csv") if not status else None


def test_tables_of_levels_and_of_five_sets_are_compared_as_typed(builtin, tmp_path):
    """IS-OOD's tables 1, 2, 4, 5 and ShiftedBronzes' 3, 7: numbers as their papers print them."""
    results = pd.read_csv(builtin[0] / "results.csv").query("kind == 'detection'")
    rows = {}
    for detector in ("msp", "knn"):
        of = results[results["detector"] == detector]
        whole = {"semantic_level": "", "covariate_level": ""}
        grid = {
            metric: printed(of, 1 if metric[:4] == "corr" else 100, dataset="grid", metric=metric)
            for metric in (*OF_LEVELS, *OF_ALL)
        }
        rows[detector] = {"grid": grid}
        for levels in ({"semantic": 1}, {"covariate": 0}, {"semantic": 0, "covariate": 1}):
            place = whole | {f"{axis}_level": float(level) for axis, level in levels.items()}
            name = " ".join(["grid", *(f"{axis} {level}" for axis, level in levels.items())])
            rows[detector][name] = {
                metric: printed(of, dataset="grid", metric=metric, **place)
                for metric in ("auroc", "fpr95")
            }
        for ood in FIVE:
            rows[detector][ood] = {
                metric: printed(of, dataset=ood, metric=metric, **whole)
                for metric in ("auroc", "fpr95")
            }
        rows[detector]["made"] = {"fpr95": rows[detector]["general"]["fpr95"]}
        dad = printed(of, 1, metric="dad")
        rows[detector]["all"] = {"dad": dad}
    protocol = {"fpr95": "ood_positive", "aupr": "trapezoid", "dataset": "shiftedbronzes"}
    status, table = verified(tmp_path, builtin[0], typed_in(tmp_path / "r", rows, **protocol))
    assert status == 0
    n = len(OF_LEVELS) + len(OF_ALL) + 3 * 2 + 5 * 2 + 2
    assert len(table) == 2 * n
    assert set(table["verdict"]) == {"within"}
    rows["knn"]["grid semantic 1"]["auroc"] -= 0.02
    status, _ = verified(tmp_path, builtin[0], typed_in(tmp_path / "r", rows, **protocol))
    assert status == 1
    other = protocol | {"aupr": "average_precision"}
    rows = {"knn": {"grid": rows["knn"]["grid"]}}
    status, table = verified(tmp_path, builtin[0], typed_in(tmp_path / "r", rows, **other))
    differs = table.loc[table["verdict"] == "other protocol", "row"].str.rpartition("/")[2]
    assert set(differs) == {name for name in OF_LEVELS if "aupr" in name}


def test_zero_shot_accuracies_are_compared_as_typed(builtin, tmp_path):
    results = pd.read_csv(builtin[1] / "results.csv")
    rows = {
        part: {
            "vessels": {
                f"zero_shot_{metric}": printed(results, part=part, metric=metric)
                for metric in ("acc1", "acc5")
            }
        }
        for part in ("clip_whole", "laid_semantic", "laid_covariate", "pca_semantic")
    }
    status, table = verified(tmp_path, builtin[1], typed_in(tmp_path / "r", rows))
    assert status == 0
    assert len(table) == 8
    assert set(table["verdict"]) == {"within"}
    shipped = matching_rows(ROWS, "isood_zeroshot")
    assert {row.detector for row in shipped} == set(results["part"])


def test_dating_and_counts_are_compared_as_typed(builtin, tmp_path):
    """ShiftedBronzes' tables 1, 2, 6, 8, 9, 10: by granularity, class and category."""
    dating = pd.read_csv(builtin[0] / "results.csv").query("kind == 'hierarchy'")
    assert {"fine", "coarse"} <= set(dating["label_level"])
    rows = {}
    for found in dating.dropna(subset=["value"]).to_dict("records"):
        words = [found["label_level"], *([found["name"]] if isinstance(found["name"], str) else [])]
        words += ["of", found["subset"]] if found["subset"] != "all" else []
        rows[" ".join(words)] = {found["metric"]: round(100 * found["value"], 2)}
    rows = {dating["model"].iloc[0]: rows}
    assert len(rows[dating["model"].iloc[0]]) > 40
    facts = {"dataset": "shiftedbronzes", "n": {"test": 80}}
    status, table = verified(tmp_path, builtin[0], typed_in(tmp_path / "r", rows, **facts))
    assert status == 0
    assert set(table["verdict"]) == {"within"}
    assert table["run"].between(table["ci_low"] - 1e-9, table["ci_high"] + 1e-9).all()
    rows[dating["model"].iloc[0]]["fine of ding"]["accuracy"] += 0.02
    assert verified(tmp_path, builtin[0], typed_in(tmp_path / "r", rows, **facts))[0] == 1

    counts = pd.read_csv(builtin[2] / "counts.csv", keep_default_na=False)
    counts["dataset"] = counts["dataset"].replace(["train", "val", "test"], "id")
    one = counts.query("label == 'class' and name == 'late Shang' and dataset == 'id'")
    rows = {
        "class": {
            "id": {"images": 240 + 60 + 80},
            "late Shang, id": {"images": int(one["images"].sum())},
            "late Shang, ding, id": {
                "images": int(one.loc[one["category"] == "ding", "images"].sum())
            },
        },
        "category": {
            f"{found.name}, {found.dataset}": {"images": int(found.images)}
            for found in counts.query("label == 'category' and dataset != 'id'").itertuples()
        },
        "shape": {
            f"{name}, id": {"images": int(part["images"].sum())}
            for name, part in counts.query("label == 'shape' and dataset == 'id'").groupby("name")
        },
    }
    status, table = verified(tmp_path, builtin[2], typed_in(tmp_path / "r", rows))
    assert status == 0
    assert set(table["verdict"]) == {"within"}
    rows["class"]["id"]["images"] += 1
    assert verified(tmp_path, builtin[2], typed_in(tmp_path / "r", rows))[0] == 1


def test_the_page_shows_the_papers_numbers_beside_its_own(builtin):
    page = (builtin[0] / "report.html").read_text()
    section = page[page.index("Published numbers of these data") :]
    assert "16 methods on the four sets of ShiftedBronzes (arXiv 2412.12683, Table 3" in section
    assert "The protocols differ. " in section
    results = pd.read_csv(builtin[0] / "results.csv").query("detector == 'msp'")
    here = printed(results[results["semantic_level"].isna()], dataset="container", metric="fpr95")
    assert "68.55" in section  # the paper's
    assert f"{here:.2f}" in section
    assert f"{here - 68.55:+.2f}" in section
    assert "task.row=shiftedbronzes_detection" in section

"""``task=ode`` through the real entry point: stages, rounds, other models, wrong inputs."""

import json
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from PIL import Image
from scripted_answers import answer_of
from small_concepts import SHARED, needs_data

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.lvlm.benchmarks.ode.benchmark import PAIRS, pairs_of, read_round
from ood_lab.lvlm.benchmarks.ode.criteria import OdeConstruction, Standard
from ood_lab.lvlm.benchmarks.ode.published_files import read_pictures
from ood_lab.lvlm.concepts.concepts import Attribute, read_graphml
from ood_lab.lvlm.questions.question_files import Question, read_questions, write_questions

ROOT = Path(__file__).resolve().parents[4]
NO_PAGE = "task.report=false"
SMALL = (
    "annotations.n=60",
    "metrics.n_bootstrap=50",
    "metrics.min_count=2",
    "logger=none",
    "task.construction.limit=3",
    "image_text=[]",
    "task.filter=null",
)


def run(outputs, *arguments, figures=()):
    line = ("task=ode", *SMALL, f"paths.outputs={outputs}", *arguments)
    return call("eval.py", *line, figures=figures)


def folder_of(outputs, before=()):
    (folder,) = set(run_folders(outputs)) - set(before)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("ode")
    styles = "generator.styles=[photo,sketch]"
    model = ("lvlm=oracle", "lvlm.accuracy=0.9")
    assert run(outputs, *model, styles, figures=["sets", "answers"]) == 0
    return folder_of(outputs)


def test_the_answer_comes_first_and_holds_the_numbers_of_the_results(finished):
    asked, chair, *others, accuracy = answer_of(finished, "ode")
    asked_of = read_questions(finished / "questions.jsonl")
    assert asked.startswith(f"oracle was asked {len(asked_of)} questions about ")
    results = pd.read_csv(finished / "results.csv")
    whole = results[["semantic_level", "covariate_level", "part"]].isna().all(axis=1)
    rows = results[whole & (results["metric"] == "chair") & (results["split"] != "pooled")]
    rows = rows.sort_values("value", kind="stable")  # the less is made up, the better
    assert re.findall(r"([\d.]+)% \[[^]]+\] on ([\w-]+) pairs", chair) == [
        (f"{100 * row['value']:.1f}", row["split"].replace("_", "-")) for _, row in rows.iterrows()
    ]
    pooled = results[whole & (results["metric"] == "all_accuracy") & (results["split"] == "pooled")]
    row = 100 * pooled.iloc[0][["value", "ci_low", "ci_high"]].astype(float)
    assert "{:.1f}% [{:.1f}, {:.1f}].".format(*row) in accuracy
    table = pd.read_csv(finished / "differences.csv").query("metric == 'chair'")
    (compared,) = (each for each in others if each.startswith("On standard pairs it is"))
    for row in table.to_dict("records"):
        alike = compared.partition("not significantly different from ")[2]
        assert (f"{row['b'].replace('_', '-')} pairs" in alike) == (row["p_holm"] >= 0.05)


def test_every_stage_leaves_what_the_next_one_reads(finished):
    built = ("graph_T.graphml", "graph_H.graphml", "graphs.csv", "pairs.csv", "plan.jsonl")
    scored = ("captions.parquet", "judged.parquet", "results.csv", "amber.csv", "ode.html")
    scored += ("differences.csv", "styles.csv")
    for name in (*built, "pictures.jsonl", "questions.jsonl", "answers.jsonl", *scored):
        assert (finished / name).is_file(), name
    assert {p.stem for p in (finished / "figures").glob("*.png")} >= {"sets", "answers"}
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["scoring"] == {
        "nouns": "lexicon",
        "plurals": "inflect",
        "similarity": "association",
    }
    assert manifest["ode"]["round"] == 1
    assert manifest["generator"]["version"] == "scenes-1"


def test_pairs_are_those_of_their_criteria(finished):
    graph = read_graphml(finished / "graph_T.graphml")
    pairs = pd.read_csv(finished / "pairs.csv")
    assert pairs.groupby(["criterion", "kind"]).size().max() == 3
    for row in pairs.to_dict("records"):
        assert graph.has_edge(row["first"], row["second"]) == (row["frequency"] > 0)
    assert (pairs.loc[pairs["criterion"] == "fictional", "frequency"] == 0).all()
    assert pairs.loc[pairs["criterion"] == "long_tail", "frequency"].between(2, 4).all()


def test_every_picture_is_there_and_its_truth_is_not_among_the_candidates(finished):
    pictures = read_pictures(finished / "pictures.jsonl")
    assert len({p.criterion for p in pictures}) == 4
    for each in pictures:
        assert (finished / each.file).is_file()
        assert not set(each.truth) & set(each.hallu)
        assert len(each.hallu) == 5
    questions = read_questions(finished / "questions.jsonl")
    assert {q.task for q in questions} >= {"generative", "existence", "attribute_number"}
    sketched = [q for q in questions if q.meta["style"] == "sketch"]
    assert len(sketched) < len(questions) - len(sketched)  # a drawing has no colours to ask about


def test_an_oracle_makes_nothing_up(finished):
    results = read_table(finished / "results.parquet")
    whole = results[results[["semantic_level", "covariate_level", "part"]].isna().all(axis=1)]
    pooled = whole[whole["split"] == "pooled"].drop_duplicates("metric").set_index("metric")
    assert pooled.loc["chair", "value"] == 0
    assert pooled.loc["cover", "value"] == 1
    assert abs(pooled.loc["all_accuracy", "value"] - 0.9) < 0.08
    assert (results["n_failed"] == 0).all()


@pytest.mark.slow
def test_released_candidates_come_twice_and_every_question_is_answered(tmp_path):
    more = ("task.released=true", "task.construction.limit=40", NO_PAGE)
    assert run(tmp_path, "lvlm=oracle", *more) == 0
    folder = folder_of(tmp_path)
    pictures = read_pictures(folder / "pictures.jsonl")
    twice = sum(len(set(p.hallu[:2])) < len(p.hallu[:2]) for p in pictures)
    ids = [q.question_id for q in read_questions(folder / "questions.jsonl")]
    assert twice > 0
    assert sum(name.endswith("#2") for name in ids) == twice
    assert (read_table(folder / "results.parquet")["n_failed"] == 0).all()


def test_published_annotations_lead_to_the_same_questions(tmp_path):
    build = ("task.released=true", "task.until=build")
    assert run(tmp_path, *build) == 0
    first = folder_of(tmp_path)
    rows = []
    for item in read_pictures(first / "pictures.jsonl"):
        pairs = [pair or Attribute("", "") for pair in (*item.states, *item.actions)]
        true, false = ([getattr(pair, side) for pair in pairs] for side in ("true", "false"))
        row = {
            "image": str(Path(item.file).relative_to("images")),
            "type": item.criterion,
            "info_type": item.kind,
        }
        row |= {"truth": item.truth[:2], "hallu": item.hallu}
        rows.append(row | {"truth_attr": true, "hallu_attr": false})
    (tmp_path / "annotations_updated.json").write_text(json.dumps(rows))
    pictures = f"task.pictures={tmp_path}/annotations_updated.json"
    assert run(tmp_path, *build, pictures, f"task.images={first}/images") == 0
    second = folder_of(tmp_path, [first])
    elsewhere = f"task.pictures={second}/pictures.jsonl"  # with images of another folder
    assert run(tmp_path, *build, elsewhere) == 0
    third = folder_of(tmp_path, [first, second])
    texts, *others = (
        [q.text for q in read_questions(folder / "questions.jsonl")]
        for folder in (first, second, third)
    )
    assert others == [texts, texts]


@pytest.mark.slow
def test_another_round_has_other_pairs_and_knows_where_it_comes_from(finished):
    outputs = finished.parents[2]
    before = run_folders(outputs)
    previous = f"task.previous={finished}"
    assert run(outputs, previous, "lvlm=random", "seed=1", NO_PAGE) == 0
    second = folder_of(outputs, before)
    old, both = (pairs_of(read_table(folder / PAIRS)) for folder in (finished, second))
    assert {p.key for p in old} < {p.key for p in both}
    drawn = {frozenset(p.truth[:2]) for p in read_pictures(second / "pictures.jsonl")}
    assert not drawn & {p.key for p in old}
    about = read_round(second).record.ode
    assert about["round"] == 2
    assert about["lineage"] != read_round(finished).record.ode["lineage"]
    change = pd.read_csv(second / "change.csv")
    np.testing.assert_allclose(change["change"], change["after"] - change["before"])
    row = change[(change["split"] == "pooled") & (change["metric"] == "all_accuracy")].iloc[0]
    assert row["ci_low"] < row["change"] < row["ci_high"] < 0  # a coin instead of an oracle


@pytest.mark.slow
def test_answers_to_the_same_questions_by_another_model(finished, capsys):
    outputs = finished.parents[2]
    before = run_folders(outputs)
    questions = f"task.questions={finished}/questions.jsonl"
    export = "task.tuning.choose=errors"
    against = f"task.against=[{finished}]"
    assert run(outputs, questions, "lvlm=constant", NO_PAGE, export, against) == 0
    folder = folder_of(outputs, before)
    capsys.readouterr()
    assert run(outputs, questions, "lvlm=constant", NO_PAGE, export, against) == 0
    assert "constant - oracle" in capsys.readouterr().out  # the finished run is shown again
    models = pd.read_csv(folder / "models.csv").set_index("metric")
    assert set(models["a"]) == {"constant"}
    row = models.loc["all_accuracy"]
    own, other = (read_table(f / "judged.parquet")["correct"].mean() for f in (folder, finished))
    assert (row["value_a"], row["value_b"]) == pytest.approx((own, other))
    assert row["ci_low"] < row["difference"] == pytest.approx(own - other)
    assert row["ci_high"] < 0
    assert not (folder / "images").exists()
    rows = json.loads((folder / "tuning_llava.json").read_text())
    assert {row["conversations"][1]["value"] for row in rows} == {"No"}  # it always says yes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generator=null"], "generator="),
        (["task.previous=nowhere"], "task.previous=nowhere"),
        (["task.parser=yesno"], "task.parser=yesno"),
        (["task.against=[nowhere]"], "task.against: nowhere"),
        (["task.audit=pyproject.toml"], "task.audit"),
        (["generator.styles=[]"], "generator.styles=[]"),
        (["annotations=null"], "annotations="),
        pytest.param(
            ["generator=diffusers", "generator.path=nowhere"],
            "generator.path=nowhere",
            marks=pytest.mark.skipif(find_spec("diffusers") is None, reason="needs diffusers"),
        ),
    ],
)
def test_what_is_missing_is_named_before_any_work(tmp_path, capsys, caplog, arguments, words):
    assert run(tmp_path, "lvlm=oracle", *arguments) == 1
    assert words in caplog.text + capsys.readouterr().err
    assert not list(tmp_path.rglob("*.graphml"))


def test_criteria_can_be_left_out_as_the_error_advises():
    graph = nx.Graph()
    for name in ("dog", "mug", "boat"):
        graph.add_node(name, type="entity", state=[], action=[])
    graph.add_edge("dog", "mug", frequency=2)

    class Draws:
        def drawable(self, graph):
            return graph

    criteria = {"standard": Standard(), "fictional": None}
    construction = OdeConstruction(criteria=criteria)
    found = construction.compositions({"T": graph}, Draws(), 0, [])
    assert {each.criterion for each in found} == {"standard"}
    with pytest.raises(UserError, match="every criterion is null"):
        OdeConstruction(criteria={"standard": None}).compositions({"T": graph}, Draws(), 0, [])


def test_questions_of_another_benchmark_are_one_line(tmp_path, capsys, caplog):
    asked = [Question("1", "oric", None, "Is there a dog?", "yes")]
    write_questions(asked, tmp_path / "questions.jsonl")
    assert run(tmp_path, "lvlm=oracle", f"task.questions={tmp_path}/questions.jsonl") == 1
    assert "are of another benchmark (oric" in caplog.text + capsys.readouterr().err


@pytest.mark.slow
@needs_data
def test_amber_gives_the_concepts_and_the_renderer_draws_what_it_knows(tmp_path):
    amber = ("concepts=amber", f"concepts.path={SHARED}")
    assert run(tmp_path, *amber, "lvlm=oracle", "lvlm.accuracy=1.0", NO_PAGE) == 0
    folder = folder_of(tmp_path)
    graph = read_graphml(folder / "graph_T.graphml")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (315, 4353)
    rounded = pd.read_csv(folder / "amber.csv").set_index("split")
    assert rounded.loc["pooled", ["chair", "hal", "cog"]].tolist() == [0, 0, 0]
    assert rounded.loc["pooled", "existence_f1"] == 100.0


@pytest.mark.slow
def test_a_diffusion_pipeline_drives_it_end_to_end(tmp_path):
    pytest.importorskip("diffusers")
    sys.path.insert(0, str(Path(__file__).parents[3] / "synthesis"))
    from tiny_models import save_pipeline

    pipeline = save_pipeline(tmp_path / "pipeline")
    settings = (
        "generator=diffusers",
        f"generator.path={pipeline}",
        "generator.per_composition=2",
        "generator.arguments={num_inference_steps: 2, height: 32, width: 32}",
        "task.construction.limit=1",
    )
    assert run(tmp_path / "out", *settings, "lvlm=oracle", NO_PAGE) == 0
    folder = folder_of(tmp_path / "out")
    images = sorted((folder / "images").rglob("*.png"))
    assert len(images) >= 8
    plan = [json.loads(line) for line in (folder / "plan.jsonl").read_text().splitlines()]
    assert all(row["prompt"].startswith("a picture of ") for row in plan[1:])
    times = [image.stat().st_mtime_ns for image in images]
    bytes_of = [image.read_bytes() for image in images]
    images[0].unlink()  # as if the run had been killed before it
    (folder / "DONE").unlink()
    assert run(tmp_path / "out", *settings, "lvlm=oracle", NO_PAGE) == 0
    assert [image.read_bytes() for image in images] == bytes_of  # from the same seed, bit for bit
    assert [image.stat().st_mtime_ns for image in images[1:]] == times[1:]


@pytest.mark.slow
def test_a_killed_run_makes_no_image_twice_and_leaves_none_half(tmp_path):
    settings = ("lvlm=oracle", "generator.per_composition=25", NO_PAGE)
    command = [sys.executable, "eval.py", "task=ode", *SMALL, f"paths.outputs={tmp_path}"]
    with subprocess.Popen([*command, *settings], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and len(made_in(tmp_path)) < 20:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    first = {path: path.stat().st_mtime_ns for path in made_in(tmp_path)}
    assert run(tmp_path, *settings) == 0
    plan = (folder_of(tmp_path) / "plan.jsonl").read_text().splitlines()[1:]
    assert 20 <= len(first) < len(plan) == len(made_in(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in first} == first
    for path in made_in(tmp_path):
        Image.open(path).load()


def made_in(outputs):
    """Images under their name; what is being written has a dot before it."""
    return list(outputs.glob("ode-*/*/seed=0/images/*/[!.]*.png"))


@pytest.mark.slow
def test_the_loop_closes_on_what_was_answered_wrongly(tmp_path):
    """Errors are exported, the tiny model learns them, and is asked the same questions again."""
    assert run(tmp_path, "lvlm=tiny", "task.tuning.choose=errors", NO_PAGE) == 0
    first = folder_of(tmp_path)
    learned = tmp_path / "tuned"
    training = ("model=vlm", "model.path=shipped:tiny", "trainer.max_epochs=4", "logger=none")
    data = (f"model.chats.train={first}/tuning_trl.jsonl", "model.optimizer.lr=5e-4")
    export = (f"task.export={learned}", f"paths.outputs={tmp_path}")
    assert call("train.py", *training, *data, *export) == 0
    (log,) = tmp_path.glob("vlm/*/seed=0/log.txt")
    assert "weights of shipped:tiny" in log.read_text()
    before = run_folders(tmp_path)
    again = (f"task.questions={first}/questions.jsonl", f"task.against=[{first}]")
    assert run(tmp_path, "lvlm=transformers", f"lvlm.path={learned}", *again, NO_PAGE) == 0
    models = pd.read_csv(folder_of(tmp_path, before) / "models.csv").set_index("metric")
    assert set(models["a"]) == {"tuned"}
    # It learns a good part of what it got wrong, whatever becomes of the rest.
    old, new = (
        read_table(f / "judged.parquet").set_index("question_id")["correct"].astype(bool)
        for f in (first, folder_of(tmp_path, before))
    )
    assert new[~old].mean() > 0.25


@pytest.mark.slow
def test_one_fine_tuning_per_criterion_and_all_answer_the_same_new_questions(tmp_path, capsys):
    """The experiment of figure 7, of two criteria; what is finished is not done again."""
    made = "annotations.n=60,task.construction.limit=3,'image_text=[]',task.filter=null"
    skipped = [f"{s}_{c}" for s in ("data", "tune", "ask") for c in ("long_tail", "random")]
    study = (f"study.made=[{made}]", "study.choose=all", "study.samples=20")
    study += ("study.tune=[trainer.max_epochs=1]", f"skip=[{','.join(skipped)}]")
    more = ("metrics.n_bootstrap=50", "metrics.min_count=2", "logger=none")
    line = ("experiment=ode_tuning", *study, *more, f"paths.outputs={tmp_path}")
    assert call("train.py", *line) == 0
    folders = {folder.parents[1].name: folder for folder in run_folders(tmp_path)}
    first, before = folders["ode_tuning_first"], folders["ode_before"]
    pairs = [
        {each.truth[:2] for each in read_pictures(folder / "pictures.jsonl")}
        for folder in (first, before)
    ]
    assert not pairs[0] & pairs[1]
    answers = {"tiny": read_table(before / "judged.parquet").set_index("question_id")}
    for name in ("standard", "fictional"):
        learned = json.loads((folders[f"vlm_{name}"] / "manifest.json").read_text())
        asked = json.loads((folders[f"tuned_on_{name}"] / "manifest.json").read_text())
        assert (
            asked["lvlm"]["revision"]
            != json.loads((before / "manifest.json").read_text())["lvlm"]["revision"]
        )
        assert asked["questions"]["file"] == str(before / "questions.jsonl")
        assert (Path(learned["model_folder"]) / "model.safetensors").is_file()
        judged = read_table(folders[f"tuned_on_{name}"] / "judged.parquet")
        answers[f"model (tuned_on_{name})"] = judged.set_index("question_id")
    for folder in tmp_path.glob("ode_tuning_data/*/seed=0"):
        tuning = json.loads((folder / "manifest.json").read_text())["question_tuning"]
        (criterion,) = tuning["criteria"]
        lines = (folder / "tuning_trl.jsonl").read_text().splitlines()
        assert tuning["of"] == {criterion: 20} == {criterion: len(lines)}
    table = pd.read_csv(folders["ode_tuning"] / "benchmark_differences.csv")
    rows = table[table["metric"] == "all_accuracy"]
    assert len(rows) == 3
    for row in rows.to_dict("records"):
        a, b = (answers[row[side]]["correct"].astype(float) for side in "ab")
        assert a.index.equals(b.index)
        assert row["difference"] == pytest.approx((a - b).mean())
        assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    assert set(pd.read_csv(folders["ode_tuning"] / "benchmarks.csv")["label"]) == set(answers)
    assert "3 runs asked 3 models 1 set" in (folders["ode_tuning"] / "summary.json").read_text()
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")}
    capsys.readouterr()
    assert call("train.py", *line) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")} == weights
    assert " ".join(capsys.readouterr().out.split()).count("already done") == 8


@pytest.mark.slow
def test_a_missing_model_is_one_error_before_images_are_made(tmp_path, capsys):
    assert run(tmp_path, "lvlm=transformers", "lvlm.path=/nowhere") == 1
    assert "lvlm.path=/nowhere is not a directory" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.rglob("*.png"))

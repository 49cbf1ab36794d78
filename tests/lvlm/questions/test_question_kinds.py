"""Questions of one's own of every kind, from every layout, asked of a real server."""

import base64
import io
import json
import random

import numpy as np
import pandas as pd
import pytest
from cli import call, run_folders
from local_server import LocalServer
from PIL import Image
from scripted_answers import answer_of

from ood_lab.common.errors import UserError
from ood_lab.lvlm.questions.question_files import read_questions, write_questions
from ood_lab.schema.results import read_results

MIXED = [
    {"text": "Is there a dog? (yes or no)", "answer": "Yes", "split": "new"},
    {"text": "Is there a cat? (yes or no)", "answer": False, "split": "old"},
    {"text": "Which colour has it?", "options": ["red", "blue", "light blue"], "answer": "blue"},
    {"text": "Which shape?", "options": {"A": "round", "B": "square"}, "answer": "A"},
    {"text": "How many dogs are there?", "answer": 3},
    {"text": "What is it?", "answer": ["couch", "sofa"], "category": "names"},
    {"text": "What differs?", "image": ["red.png", "blue.png"], "answer": "the colour"},
    {"text": "Describe it.", "task": "caption", "objects": ["dog", "car"], "answer": None},
    {"text": "Describe that.", "task": "caption", "objects": "dog; tree"},
]


@pytest.fixture
def place(tmp_path):
    for name in ("red", "blue"):
        Image.new("RGB", (8, 8), name).save(tmp_path / f"{name}.png")
    return tmp_path


def written(place, rows, name="questions.jsonl"):
    lines = [json.dumps({"image": "red.png", **row}) for row in rows]
    text = f"[{','.join(lines)}]" if name.endswith(".json") else "\n\n".join(lines) + "\n"
    (place / name).write_text("\ufeff" + text, encoding="utf-8")
    return place / name


def asked(place, file, *arguments):
    """The run, and its results of whole sets."""
    given = (f"task.questions={file}", f"paths.outputs={place}/out", "logger=none")
    places = (f"paths.answers={place}/answers", "metrics.n_bootstrap=50", "metrics.min_count=1")
    brief = () if "task.report=true" in arguments else ("task.report=false",)
    assert call("eval.py", "task=questions", *given, *places, *brief, *arguments) == 0
    run = run_folders(place / "out")[-1]
    return run, read_results(run)


def value(results, metric, split="pooled", unparsed="wrong", part=None):
    rows = results[(results["metric"] == metric) & (results["split"] == split)]
    rows = rows[rows["semantic_level"].isna() & rows["covariate_level"].isna()]
    rows = rows[rows["part"].isna() if part is None else rows["part"] == part]
    rows = rows[rows["unparsed"].isna() | (rows["unparsed"] == unparsed)]
    return rows["value"].item()


def text_of(body):
    return body["messages"][-1]["content"][-1]["text"]


def said(content, **more):
    message = {"role": "assistant", "content": content}
    return 200, {"choices": [{"message": message, "finish_reason": "stop", **more}]}


def served(server, *more):
    return ("lvlm=openai", "lvlm.model=m", f"lvlm.base_url={server.url}", *more)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["questions.jsonl", "questions.json"])
def test_every_kind_has_its_table_and_whoever_knows_is_right(place, name):
    run, results = asked(place, written(place, MIXED, name), "lvlm=oracle", "task.report=true")
    for metric in ("accuracy", "choice_accuracy", "count_accuracy", "text_accuracy", "cover"):
        assert value(results, metric) == 1, metric
    assert value(results, "chair") == 0
    assert value(results, "accuracy", "new") == 1
    page = (run / "questions.html").read_text()
    for title in ("Yes/no questions", "Multiple choice", "Counts", "Free text", "Captions"):
        assert f"{title}, %" in page
    assert (run / "judged.csv").is_file()
    assert (run / "captions.csv").is_file()
    assert any("accuracy on free text is 100.0%" in each for each in answer_of(run, "questions"))


@pytest.mark.slow
def test_replies_of_every_kind_are_read(place):
    replies = {
        "dog? (yes": "Yes, there is.",
        "cat?": "Yes.",
        "colour": "It is light blue.",  # "blue" is within it
        "shape": "The answer is (A).",
        "How many": "I can see 4 dogs.",
        "What is it": "It looks like a Sofa to me.",
        "differs": "The shape",
        "Describe it": "A dog and a tree.",
        "Describe that": "A dog under a tree.",
    }

    def reply(_path, body):
        return said(next(v for k, v in replies.items() if k in text_of(body)))

    with LocalServer(reply) as server:
        run, results = asked(place, written(place, MIXED), *served(server))
        images = [
            sum(p["type"] == "image_url" for p in b["messages"][-1]["content"])
            for b in server.asked
        ]
    assert sorted(images) == [1] * 8 + [2]  # both images of one question
    wanted = {"accuracy": 0.5, "choice_accuracy": 0.5, "count_accuracy": 0, "count_within_one": 1}
    # Of 4 things that captions name one is made up; of 4 that are there 3 are named.
    wanted |= {"text_accuracy": 0.5, "chair": 1 / 4, "cover": 3 / 4, "hal": 1 / 2}
    assert {metric: value(results, metric) for metric in wanted} == wanted
    judged = pd.read_parquet(run / "judged.parquet").set_index("question_id")
    assert judged.loc["3", ["truth", "parsed"]].tolist() == ["B", "C"]
    assert value(results, "text_accuracy", part="category names") == 1


def test_tables_of_several_models_have_every_kind(place):
    file = written(place, [*MIXED, {"text": "Which?", "options": ["x", "y"], "answer": "A"}])
    first, _ = asked(place, file, "lvlm=oracle")
    second, _ = asked(place, file, "lvlm=constant", "lvlm.text=A", f"task.against=[{first}]")
    table = pd.read_csv(second / "models.csv").set_index("metric")
    right = pd.read_parquet(second / "judged.parquet").query("task == 'multiple_choice'")["correct"]
    assert table.loc["choice_accuracy", "value_a"] == pytest.approx(right.mean())
    assert table.loc["choice_accuracy", "value_b"] == 1
    assert {"accuracy", "text_accuracy", "chair"} <= set(table.index)


@pytest.mark.slow
def test_runs_with_other_prompts_are_compared_in_every_kind(place):
    rows = [
        {"text": f"Which {n}?", "options": ["x", "y"], "answer": "AB"[n % 2]} for n in range(60)
    ]
    rows += [{"text": f"Is there {n}? (yes or no)", "answer": n % 2} for n in range(60)]
    file = written(place, rows)
    asked(place, file, "lvlm=oracle", "task.system=Look.")
    asked(place, file, "lvlm=constant", "lvlm.text=A")
    board = ("task=benchmarks", f"runs={place / 'out'}", f"paths.outputs={place / 'board'}")
    assert call("eval.py", *board, "logger=none") == 0
    _, ahead = answer_of(run_folders(place / "board")[0], "benchmarks")
    assert "Multiple choice: Acc (100.0%" in ahead
    assert "not known" not in ahead


def test_two_parsers_of_the_same_replies_are_not_two_models(place, capsys):
    rows = [{"text": f"Is there {n}? (yes or no)", "answer": n % 2} for n in range(20)]
    file, replies = written(place, rows), place / "replies.jsonl"
    lines = [{"question_id": n + 1, "response": "It is not." if n % 3 else "No"} for n in range(20)]
    replies.write_text("\n".join(map(json.dumps, lines)))
    recorded = ("lvlm=replay", f"lvlm.path={replies}")
    first, _ = asked(place, file, *recorded)
    second, _ = asked(place, file, *recorded, "task.parser=strict", f"task.against=[{first}]")
    assert not (second / "models.csv").exists()
    (warning,) = json.loads((second / "manifest.json").read_text())["warnings"][-1:]
    assert "are read by default (reader: none), those of replies by strict" in warning
    capsys.readouterr()
    board = ("task=benchmarks", f"runs={place / 'out'}", f"paths.outputs={place / 'board'}")
    assert call("eval.py", *board, "logger=none") == 0
    (folder,) = run_folders(place / "board")
    table = pd.read_csv(folder / "benchmarks.csv")
    readings = table[["parser", "form", "samples", "reader"]].drop_duplicates().values.tolist()
    assert sorted(readings) == [[parser, "plain", 1, "none"] for parser in ("default", "strict")]
    assert not (folder / "benchmark_differences.csv").exists()
    shown = " ".join(capsys.readouterr().out.split())
    assert "replies are read by different parsers (default, reader none; strict, reader" in shown
    assert "Of every row: form plain, samples 1, reader none." in shown
    assert "ahead" not in shown


CHOICES = [
    {"text": f"Which is picture {n}?", "options": ["red", "blue", "green"], "answer": "ABC"[n % 3]}
    for n in range(12)
]


def options_of(text):
    return dict(line.split(". ", 1) for line in text.split("\n") if line[1:3] == ". ")


@pytest.mark.slow
def test_options_are_shuffled_and_turned(place):
    file = written(place, CHOICES)

    def always_the_first(_path, body):
        return said("A")

    def knows_two(_path, body):
        """Says blue where it can, else the first option."""
        options = options_of(text_of(body))
        number = int(text_of(body).split("picture ")[1].split("?")[0])
        right = CHOICES[number]["options"]["ABC".index(CHOICES[number]["answer"])]
        wanted = right if number % 2 else options["A"]
        return said(f"**{next(k for k, v in options.items() if v == wanted)}**")

    with LocalServer(always_the_first) as server:
        _, given = asked(place, file, *served(server))
        assert value(given, "choice_accuracy") == 4 / 12
        _, shuffled = asked(place, file, *served(server), "task.option_order=shuffled")
        orders = {}
        for number in range(12):
            orders[number] = [0, 1, 2]
            random.Random(f"0/options/{number + 1}").shuffle(orders[number])
        right = np.mean([orders[n].index(n % 3) == 0 for n in orders])
        assert value(shuffled, "choice_accuracy") == pytest.approx(right)
        assert len({tuple(order) for order in orders.values()}) > 1
    with LocalServer(knows_two) as server:
        _, turned = asked(
            place, file, *served(server, "lvlm.model=n"), "task.option_order=circular"
        )
        assert len(server.asked) == 36
    # Even ones are right when their answer comes first, in one order of three.
    assert value(turned, "choice_accuracy") == pytest.approx((6 + 6 / 3) / 12)
    assert value(turned, "circular_accuracy") == pytest.approx(6 / 12)
    row = turned[(turned["metric"] == "choice_accuracy") & (turned["split"] == "pooled")].iloc[0]
    assert (row["n"], row["n_asked"]) == (12, 36)


def test_choices_are_read_by_their_text_or_their_probability(place):
    file = written(place, CHOICES)

    def reply(_path, body):
        options = options_of(text_of(body))
        if body.get("logprobs"):
            top = [("A", 0.2), (" (A", 0.25), ("B", 0.4), ("C", 0.05), ("The", 0.1)]
            top = [{"token": token, "logprob": float(np.log(p))} for token, p in top]
            return said("B", logprobs={"content": [{"token": "B", "top_logprobs": top}]})
        assert "Answer with only the text" in text_of(body)
        return said(f"(A) {options['C']}")  # the letter is not what is asked for

    with LocalServer(reply) as server:
        _, by_text = asked(place, file, *served(server), "task.read_by=text")
        assert value(by_text, "choice_accuracy") == 4 / 12
        run, by_chance = asked(
            place, file, *served(server, "lvlm.logprobs=5"), "task.read_by=probability"
        )
    judged = pd.read_parquet(run / "judged.parquet")
    assert set(judged["parsed"]) == {"A"}  # 0.45 in two spellings, against 0.4
    chances = json.loads(judged["p_options"].iloc[0])
    assert chances == pytest.approx({"A": 0.45 / 0.9, "B": 0.4 / 0.9, "C": 0.05 / 0.9})
    assert value(by_chance, "choice_accuracy") == 4 / 12


def test_probabilities_of_options_need_a_server_that_gives_them(place, capsys):
    given = (f"task.questions={written(place, CHOICES)}", f"paths.outputs={place}/out")
    assert call("eval.py", "task=questions", *given, "lvlm=random", "task.read_by=probability") == 1
    assert "lvlm.logprobs=10" in capsys.readouterr().err


def test_free_text_is_matched_in_three_ways(place):
    rows = [{"text": f"What is {n}?", "answer": ["couch", "sofa"]} for n in range(4)]
    replies = ["Sofa.", "It is a couch.", "A settee", "a carouch"]

    def reply(_path, body):
        text = text_of(body)
        if "Right answer: couch or sofa" in text:
            return said("Yes" if "a couch" in text or "settee" in text else "No")
        return said(replies[int(text.split("What is ")[1][0])])

    with LocalServer(reply) as server:
        file, model = written(place, rows), served(server)
        assert value(asked(place, file, *model)[1], "text_accuracy") == 2 / 4
        exact = asked(place, file, *model, "task.matching=exact")[1]
        assert value(exact, "text_accuracy") == 1 / 4
        reader = ("reader=openai", "reader.model=r", f"reader.base_url={server.url}")
        read = asked(place, file, *model, "task.matching=reader", *reader)[1]
        assert value(read, "text_accuracy") == 3 / 4


def test_a_reader_is_needed_and_said(place, capsys):
    given = (f"task.questions={written(place, MIXED)}", f"paths.outputs={place}/out")
    assert call("eval.py", "task=questions", "lvlm=oracle", *given, "task.matching=reader") == 1
    said = capsys.readouterr().err.replace("\n", " ")
    assert "task.matching=reader needs a language model" in said


def encoded(colour):
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9), colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_a_table_of_vlmevalkit_brings_its_images(place):
    red, blue = encoded("red"), encoded("blue")
    rows = [
        ["index", "image", "question", "A", "B", "C", "D", "answer", "category", "l2-category"],
        ["7", red, "Which colour?", "red", "blue", "", "", "A", "colour", "low"],
        ["8", "7", "Which shape?", "round", "square", "flat", "", "B", "shape", "low"],
        [
            "9",
            f"['{red}', '{blue}']",
            "Which is blue?",
            "first",
            "second",
            "",
            "",
            "B",
            "colour",
            "low",
        ],
    ]
    file = place / "bench.tsv"
    file.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    run, results = asked(place, file, "lvlm=oracle")
    assert value(results, "choice_accuracy") == 1
    assert value(results, "choice_accuracy", part="category colour") == 1
    assert len(list((run / "images").iterdir())) == 2  # each once
    for image in (run / "images").iterdir():
        assert Image.open(image).size == (9, 9)
    judged = pd.read_parquet(run / "judged.parquet")
    assert judged["question_id"].tolist() == ["7", "8", "9"]
    assert judged["l2-category"].tolist() == ["low"] * 3
    assert "C. flat" in judged["text"][1]
    assert "C. " not in judged["text"][0]


def test_a_csv_with_its_own_columns(place):
    lines = [
        "image,question,answer,category,semantic_level,colour",
        "red.png,Is it red?,Yes,new,2,x",
        "red.png,Is there a cap?,0,new,2.0,x",  # no; a table of numbers writes them so
        "red.png,How many caps?,1.0,new,2,x",
    ]
    lines += ["blue.png,How many?,3,new,1,y", 'red.png,"What, if any?",a couch,old,1,z']
    (place / "q.csv").write_text("\r\n".join(lines))
    found = read_questions(place / "q.csv")
    assert [q.task for q in found] == ["yes_no", "yes_no", "count", "count", "free_text"]
    assert [q.answer for q in found] == ["yes", "no", "1", "3", "a couch"]
    assert [q.meta["semantic_level"] for q in found] == [2, 2, 2, 1, 1]
    assert found[0].meta["colour"] == "x"
    assert found[4].text == "What, if any?"
    write_questions(found, place / "again.jsonl")
    assert read_questions(place / "again.jsonl") == found


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "q.jsonl",
            '{"text": "x", "answer": "yes"}\n\n{"txt": "x"}',
            "line 3: there is no key 'txt'",
        ),
        ("q.jsonl", '{"text": "x"', "line 1, is no JSON (column 13)"),
        ("q.jsonl", "[1, 2]", "record 1, is no object such as"),
        ("q.jsonl", '{"answer": "yes"}', "line 1: the key 'text' is missing"),
        ("q.jsonl", '{"text": "x", "image": 3}', "line 1: the key 'image' is neither"),
        ("q.jsonl", '{"text": "x", "meta": 3}', "line 1: the key 'meta' holds no object"),
        ("q.jsonl", '{"text": "x", "answer": "yes", "parser": "strct"}', "did you mean 'strict'"),
        ("q.jsonl", '{"text": "x", "options": ["a", "b"], "answer": "C"}', "a letter from A to B"),
        ("q.jsonl", '{"text": "x", "task": "free_text"}', "line 1: the key 'answer' is missing"),
        ("q.jsonl", '{"text": "x", "task": "count", "answer": "few"}', "'few' is no count"),
        ("q.json", '[{"text": "x", "answer": 1.5, "task": "count"}]', "record 1: the answer 1.5"),
        ("q.csv", "question,A,C,answer\nx,a,c,A\n", "line 2: options are in A, C"),
        ("q.csv", "question,answer\nx,yes,no\n", "line 2, has more cells"),
        (
            "q.csv",
            "question,answer,semantic_level\nx,yes,far\n",
            "the key 'semantic_level' holds 'far'",
        ),
        (
            "q.tsv",
            f"question\tanswer\timage\nx\tyes\t{'QUJD' * 30}\n",
            "the key 'image' holds no image",
        ),
    ],
)
def test_messages_name_line_and_key(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_questions(tmp_path / name)
    said = str(error.value)
    assert message in said
    assert str(tmp_path / name) in said
    for word in ("Expecting", "unexpected keyword", "Error", "__init__"):
        assert word not in said


def test_captions_are_held_against_annotations_of_coco(place):
    instances = {
        "images": [
            {"id": 1, "file_name": "red.png", "width": 8, "height": 8},
            {"id": 2, "file_name": "blue.png", "width": 8, "height": 8},
        ],
        "categories": [
            {"id": 1, "name": "dog"},
            {"id": 2, "name": "car"},
            {"id": 3, "name": "bus"},
        ],
        "annotations": [
            {
                "id": n,
                "image_id": image,
                "category_id": kind,
                "bbox": [0, 0, 4, 4],
                "area": 16,
                "iscrowd": 0,
            }
            for n, (image, kind) in enumerate([(1, 1), (1, 1), (1, 2), (2, 1)])
        ],
    }
    (place / "instances.json").write_text(json.dumps(instances))
    rows = [
        {"text": "Describe it.", "task": "caption", "image": image}
        for image in ("red.png", "blue.png")
    ]
    file = written(place, rows)
    coco = (
        "annotations=coco",
        f"annotations.file={place}/instances.json",
        f"annotations.images={place}",
    )

    with LocalServer(lambda *_: said("Dogs and a bus.")) as server:
        run, results = asked(place, file, *served(server), *coco)
    # Two captions name two things each, the bus is made up; of dog, car and dog two are named.
    assert value(results, "chair") == 2 / 4
    assert value(results, "cover") == 2 / 3
    assert (
        pd.read_parquet(run / "captions.parquet")["flagged_nouns"].map(list).tolist()
        == [["bus"]] * 2
    )


def test_a_caption_of_which_nothing_is_known_is_refused(place, capsys):
    file = written(place, [{"text": "Describe it.", "task": "caption"}])
    given = (f"task.questions={file}", f"paths.outputs={place}/out")
    assert call("eval.py", "task=questions", "lvlm=oracle", *given) == 1
    assert "the caption '1' has no key 'objects'" in capsys.readouterr().err.replace("\n", " ")

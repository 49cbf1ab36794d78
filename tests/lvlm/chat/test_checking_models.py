"""Models that check a benchmark, and the store of answers, asked through the one way to ask."""

import csv
import json
import sys
from dataclasses import replace

import pandas as pd
import pytest
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to, recorded_answers
from ood_lab.lvlm.chat.base import ChatModel, Reply, Request
from ood_lab.lvlm.chat.checking_models import Constant, Oracle, RandomModel, Replay
from ood_lab.lvlm.questions.question_files import Question


@pytest.fixture
def folder(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    Image.new("RGB", (8, 8), "blue").save(tmp_path / "blue.png")
    return tmp_path


def questions(count=4):
    return [
        Question(f"q{i}", "yes_no", "red.png", f"Is there a thing {i}?", ("yes", "no")[i % 2])
        for i in range(count)
    ]


class Scripted(ChatModel):
    """Fails or dies where it is told to, and counts."""

    def __init__(self, fails=(), dies_after=None, name="scripted"):
        self.asked, self.fails, self.dies_after, self.name = [], fails, dies_after, name

    @property
    def made_with(self):
        return {"model": self.name}

    def ask(self, requests):
        for count, request in enumerate(requests):
            if count == self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(request.question.question_id)
            failed = request.question.question_id in self.fails
            yield Reply(request.key, "" if failed else "Yes", error="503" if failed else None)


def test_each_model_says_what_it_is_for(folder):
    asked = questions(40)

    def replies(model):
        name = json.dumps(dict(model.made_with))
        store = AnswerStore(folder / f"{hash(name)}.jsonl")
        return [answer.response for answer in answers_to(asked, folder, model, store)]

    assert replies(Constant("No")) == ["No"] * 40
    assert replies(Oracle()) == ["yes", "no"] * 20
    assert replies(Oracle(accuracy=0.0)) == ["no", "yes"] * 20
    drawn = replies(RandomModel(0.5, seed=1))
    assert drawn == replies(RandomModel(0.5, seed=1)) != replies(RandomModel(0.5, seed=2))
    assert 5 < drawn.count("Yes") < 35
    assert replies(RandomModel(1.0)) == ["Yes"] * 40


def test_an_interrupted_asking_goes_on_where_it_was(folder):
    path, asked = folder / "deep" / "answers.jsonl", questions(6)
    with pytest.raises(KeyboardInterrupt):
        answers_to(asked, folder, Scripted(dies_after=3), AnswerStore(path))
    with path.open("a") as file:
        file.write('{"key": "half of a li')
    second = Scripted()
    answers = answers_to(asked, folder, second, AnswerStore(path))
    assert second.asked == ["q3", "q4", "q5"]
    assert [a.question_id for a in answers] == [q.question_id for q in asked]
    third = Scripted()
    assert answers_to(asked, folder, third, AnswerStore(path)) == answers
    assert third.asked == []


def test_failures_stay_failures_and_are_asked_again(folder, caplog):
    path, asked = folder / "answers.jsonl", questions(3)
    first = answers_to(asked, folder, Scripted(fails={"q1"}), AnswerStore(path))
    assert [a.error for a in first] == [None, "503", None]
    assert first[1].response == ""
    assert "1 of 3 questions have no answer: 1 x 503 [q1]" in caplog.text
    again = Scripted()
    second = answers_to(asked, folder, again, AnswerStore(path))
    assert again.asked == ["q1"]
    assert [a.error for a in second] == [None] * 3
    assert len(path.read_text().splitlines()) == 4  # the failure stays in the file


def test_what_can_change_the_answer_is_asked_anew(folder):
    path = folder / "answers.jsonl"
    [question] = questions(1)
    answers_to([question], folder, Scripted(), AnswerStore(path))

    def is_asked(changed, model=None):
        model = model or Scripted()
        answers_to([changed], folder, model, AnswerStore(path))
        return bool(model.asked)

    same = Question("other id", "yes_no", "red.png", question.text, "no")
    assert not is_asked(same)
    for change in ({"text": "Else?"}, {"image": "blue.png"}, {"system": "Be brief."}):
        assert is_asked(Question(**{**vars(question), **change}))
    assert is_asked(question, Scripted(name="another"))
    Image.new("RGB", (8, 8), "green").save(folder / "red.png")
    assert is_asked(question)


def test_the_same_question_twice_is_asked_once(folder):
    first, second = (Question(i, "yes_no", "red.png", "Is it?", "yes") for i in "ab")
    model = Scripted()
    answers = answers_to([first, second], folder, model, AnswerStore(folder / "answers.jsonl"))
    assert model.asked == ["a"]
    assert [a.question_id for a in answers] == ["a", "b"]


def test_replay_says_what_a_file_says(folder):
    asked, path = questions(3), folder / "answers.jsonl"
    answers_to(asked[:2], folder, Oracle(), AnswerStore(path))
    answers = answers_to(asked, folder, Replay(str(path)), AnswerStore(folder / "again.jsonl"))
    assert [a.response for a in answers] == ["yes", "no", ""]
    assert "has no answer to it" in answers[2].error
    with pytest.raises(UserError, match=r"nowhere\.jsonl is not a file"):
        answers_to(asked, folder, Replay("nowhere.jsonl"), AnswerStore(folder / "b.jsonl"))


def lines(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_replies_to_another_image_or_text_under_the_same_id_are_not_replayed(folder):
    asked, path = questions(3), folder / "answers.jsonl"
    answers_to(asked, folder, Oracle(), AnswerStore(path))
    renumbered = [replace(question, question_id=f"other {i}") for i, question in enumerate(asked)]
    found = answers_to(renumbered, folder, Replay(str(path)), AnswerStore(folder / "b.jsonl"))
    assert [a.response for a in found] == ["yes", "no", "yes"]
    for change in ({"image": "blue.png"}, {"text": "Else?"}):
        changed = [replace(asked[0], **change), *asked[1:]]
        with pytest.raises(UserError, match=r"another question than '.*' under the id 'q0'"):
            answers_to(changed, folder, Replay(str(path)), AnswerStore(folder / "c.jsonl"))
        with pytest.raises(UserError, match=r"another question than '.*' under the id 'q0'"):
            recorded_answers(changed, path, folder)
    assert [a.response for a in recorded_answers(renumbered, path, folder)] == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:2], "has 2 replies to 3 questions .'q2' is in one"),
        (
            lambda rows: [*rows, {"question_id": "q9", "text": "No"}],
            "'q9' is in one of them only",
        ),
        (lambda rows: [{**row, "prompt": "Else?"} for row in rows], "answers another question"),
        (
            lambda rows: [*rows, {"question_id": "q1", "text": "Yes"}],
            "two replies to 'q1' .'No' and",
        ),
        (lambda rows: [{"question_id": "q0"}], "holds no replies"),
        (lambda rows: [vars(each) for each in questions(3)], "holds questions, no replies"),
    ],
)
def test_replies_of_other_packages_must_be_those_to_the_questions(folder, change, message):
    asked = questions(3)
    rows = [{"question_id": q.question_id, "prompt": q.text, "text": "No"} for q in asked]
    path = lines(folder / "replies.jsonl", rows)
    found = answers_to(asked, folder, Replay(str(path)), AnswerStore(folder / "a.jsonl"))
    assert [a.response for a in found] == ["No"] * 3
    lines(path, change(rows))
    with pytest.raises(UserError, match=message):
        answers_to(asked, folder, Replay(str(path)), AnswerStore(folder / "b.jsonl"))


def test_replies_that_are_numbers_are_read(folder):
    rows = [{"question_id": f"q{n}", "response": reply} for n, reply in enumerate((3, 0.5, True))]
    path = lines(folder / "replies.jsonl", rows)
    assert [a.response for a in recorded_answers(questions(3), path, folder)] == [
        "3",
        "0.5",
        "true",
    ]


def samples(asked, folder):
    """As lmms-eval logs them: in any order, reasoning in ``resps`` alone."""
    rows = [
        {
            "doc_id": n,
            "input": f"{q.text.replace(' Please', '')}\nAnswer with a word.",
            "target": q.answer,
            "filtered_resps": "No",
        }
        for n, q in enumerate(asked)
    ]
    rows[1]["resps"] = [["<think>Hm.</think>No"]]
    return lines(folder / "20260801_samples_pope.jsonl", rows[::-1])


def predictions(asked, folder, ending):
    """As VLMEvalKit writes them: of the third question the request failed."""
    replies = ["No", "<think>Hm.</think>No", "Failed to obtain answer via API."]
    columns = {"question": [q.text for q in asked], "answer": [q.answer.title() for q in asked]}
    table = pd.DataFrame({"index": range(7, 10), **columns, "prediction": replies})
    path = folder / f"model_MME.{ending}"
    if ending == "json":
        path.write_text(json.dumps(table.to_dict("records"), indent=4))
    else:
        table.to_csv(path, index=False, sep="\t", quoting=csv.QUOTE_ALL)
    return path


@pytest.mark.parametrize("form", ["lmms_eval", "tsv", "json"])
def test_replies_that_other_packages_recorded(folder, form):
    asked = questions(3)
    path = samples(asked, folder) if form == "lmms_eval" else predictions(asked, folder, form)
    found = answers_to(asked, folder, Replay(str(path)), AnswerStore(folder / "a.jsonl"))
    assert [a.response for a in found[:2]] == ["No", "<think>Hm.</think>No"]
    assert (found[2].error is not None) == (form != "lmms_eval")
    assert [a.response for a in recorded_answers(asked, path, folder)] == [
        a.response for a in found
    ]
    changes = [asked[::-1], [replace(q, text="Is it blue?") for q in asked]]
    for changed in [*changes, [replace(q, answer="yes") for q in asked]]:
        with pytest.raises(UserError, match="another question"):
            recorded_answers(changed, path, folder)
    with pytest.raises(UserError, match="3 replies to 2 questions"):
        recorded_answers(asked[:2], path, folder)


def test_letters_of_options_in_another_order_are_not_replayed(folder):
    text = "Choose one\nA. a dog?\nB. a cat"
    asked = [Question("q", "multiple_choice", "red.png", text, "A", parser="choice")]
    row = {"index": 0, "question": "Choose one", "answer": "A", "prediction": "A"}
    path = folder / "model_MCQ.json"
    path.write_text(json.dumps([row]))
    assert [a.response for a in recorded_answers(asked, path, folder)] == ["A"]
    path.write_text(json.dumps([row | {"answer": "B"}]))
    with pytest.raises(UserError, match="another question"):
        recorded_answers(asked, path, folder)


def test_a_sheet_without_its_reader_says_what_to_do(folder, monkeypatch):
    (folder / "model_MME.xlsx").touch()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UserError, match=r"openpyxl.*PRED_FORMAT=tsv"):
        recorded_answers(questions(3), folder / "model_MME.xlsx", folder)


def test_answers_of_questions_of_several_forms_are_of_one_model(folder):
    path, asked = folder / "answers.jsonl", questions(2)
    answers_to(asked, folder, Oracle(), AnswerStore(path))
    first, second = map(json.loads, path.read_text().splitlines())
    for number, record in enumerate((first, second)):
        record["made_with"] |= {"gen_kwargs": {"max_tokens": 64 * (number + 1)}}
    assert len(recorded_answers(asked, lines(path, [first, second]), folder)) == 2
    second["made_with"] |= {"model": "another"}
    with pytest.raises(UserError, match="answers of several models"):
        recorded_answers(asked, lines(path, [first, second]), folder)


def test_without_the_images_the_texts_decide(folder, caplog):
    path, asked = folder / "answers.jsonl", questions(2)
    answers_to(asked, folder, Oracle(), AnswerStore(path))
    (folder / "red.png").unlink()
    assert len(recorded_answers(asked, path, folder)) == 2
    assert "only the texts of the questions" in caplog.text


def test_a_missing_image_is_named_before_anything_is_asked(folder):
    model = Scripted()
    lost = [*questions(1), Question("q", "yes_no", "lost.png", "Is it?", "yes")]
    with pytest.raises(UserError, match=r"lost\.png"):
        answers_to(lost, folder, model, AnswerStore(folder / "answers.jsonl"))
    assert model.asked == []


def test_the_oracle_fails_where_nothing_is_right(folder):
    caption = Question("c", "caption", "red.png", "Describe this image.", "")
    [answer] = answers_to([caption], folder, Oracle(), AnswerStore(folder / "a.jsonl"))
    assert answer.error


def test_the_oracle_errs_in_numbers_too():
    asked = [Question(f"{n}", "count", None, "How many?", "3", "number") for n in range(200)]
    requests = [Request(each.question_id, [], each) for each in asked]
    said = [reply.response for reply in Oracle(accuracy=0.9).ask(requests)]
    assert set(said) == {"3", "4"}
    assert 0.8 < said.count("3") / len(said) < 0.97

"""What other packages make of exported questions, in a few lines of their own."""

import csv
import json
import sys

import yaml

csv.field_size_limit(sys.maxsize)


def lmms_eval(run, name):
    """Metrics of the exported task, from the replies of the run, as lmms-eval computes them."""
    folder = run / "exports" / "lmms_eval"
    utils: dict = {}
    exec((folder / "utils.py").read_text(), utils)
    task = yaml.safe_load((folder / f"ood_lab_{name}.yaml").read_text().replace("!function ", ""))
    answers = map(json.loads, (run / "answers.jsonl").read_text().splitlines())
    said = {answer["question_id"]: answer["response"] for answer in answers}
    data = task["dataset_kwargs"]["data_files"]["test"]
    with open(data) as lines:
        docs = [json.loads(line) for line in lines]
    values: dict = {}
    for doc in docs:
        assert utils["doc_to_visual"](doc)[0].mode == "RGB"
        for metric, found in utils["process_results"](doc, [said[doc["question_id"]]]).items():
            values.setdefault(metric, []).append(found)
    means = {"mean": lambda found: sum(found) / len(found)}
    means["utils.share_of_groups"] = utils["share_of_groups"]
    named = {each["metric"]: each["aggregation"] for each in task["metric_list"]}
    assert set(named) == set(values)
    return docs, {name: means[how](values[name]) for name, how in named.items()}


def vlmevalkit(run, name, kind):
    """Rows of a TSV, where an image that is the number of a row is that row's."""
    file = run / "exports" / "vlmevalkit" / f"{name}_{kind}.tsv"
    with file.open(newline="") as content:
        rows = list(csv.DictReader(content, delimiter="\t"))
    images = {row["index"]: row["image"] for row in rows}
    return [row | {"image": images.get(row["image"], row["image"])} for row in rows]


def pope(run, name, kind):
    """Records of a file of POPE."""
    file = run / "exports" / "pope" / f"{name}_{kind}.json"
    return [json.loads(line) for line in file.read_text().splitlines()]

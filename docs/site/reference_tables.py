"""Tables of references, and pages of tables only."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path

import configuration
import parser_tables
import yaml
from detector_pages import detector_map, detector_tables, head_kinds, table

from ood_lab.data.transforms.corruptions import CORRUPTIONS, SIZES
from ood_lab.evaluation.published.numbers import SETTINGS, SHIPPED, read_references
from ood_lab.lvlm.scoring.scored_results import question_kind
from ood_lab.metrics.record import known_metrics
from ood_lab.schema.results import CORE, Kind

ROOT = Path(__file__).parents[2]
#: Groups of conf/ that pages list; a choice is a row.
GROUPS = ("annotations", "generator", "image_text", "lvlm", "prompt", "task", "trainer", "tuning")


def tables() -> dict[str, str]:
    """Markdown of every table, by its name."""
    return {
        **detector_tables(),
        **{f"conf/{group}": configuration.choice_table(group) for group in GROUPS},
        "corruptions": _corruptions(),
        "detector map": detector_map(),
        "head kinds": head_kinds(),
        "extras": _extras(),
        "kinds": _kinds(),
        "metrics": _metrics(),
        "parsers": parser_tables.parser_table(),
    }


def pages(made: dict[str, str]) -> dict[str, str]:
    """Markdown of the pages that consist of tables only, by their path."""
    return {
        "reference/datasets.md": _dataset_page(made),
        "reference/extras.md": (
            "# Extras\n\n`pip install -e '.[NAME]'` in the clone installs the packages of one "
            f"extra.\n\n{made['extras']}\n"
        ),
        "reference/paper-settings.md": _settings_page(),
        "reference/published-numbers.md": _published_page(),
        "reference/parsers.md": _parser_page(made),
    }


def _settings_page() -> str:
    """What each experiment composes, beside its paper; deviations have a reason."""
    parts = [
        "# Settings of the papers\n\nAn experiment has the settings of its paper, unless its file "
        "says that it is a demo. A test composes each command line and compares it with this page. "
        "Where the value here is another one, the last column has the reason. `???` is a value "
        "that you give."
    ]
    entries = yaml.load((SHIPPED / SETTINGS).read_text(encoding="utf-8"), yaml.CSafeLoader)
    for paper, group in groupby(entries, lambda entry: entry["paper"]):
        parts.append(f"## {paper}")
        for entry in group:
            rows = [
                [
                    row.get("stage", ""),
                    f"`{row['setting']}`",
                    _shown(row["value"]),
                    row["place"],
                    _shown(row["here"]) if "here" in row else "the same",
                    row.get("reason", ""),
                ]
                for row in entry["rows"]
            ]
            heads = ["stage", "setting", "in the paper", "place", "here", "reason"]
            command = f"`python {entry['script']}.py {entry['line']}`"
            parts.append(f"{command}\n\n{table(heads, rows)}")
    return "\n\n".join(parts) + "\n"


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value).strip()
    return {"None": "null", "True": "true"}.get(text, text).replace("|", "\\|")


def _published_page() -> str:
    """Every published table of the package, and the command of a run that has its numbers."""
    parts = [
        "# Published numbers\n\nAll tables that come with the package, as printed: percent; DAD, "
        "correlations, counts, distances and seconds as they are; sensitivities in points per "
        "level. `task=verify task.run_folder=RUN task.row=NAME` compares a run with one of them, "
        "and the report of a run on data of that name shows them. Type in tables of your own as "
        "`ood_lab/references/README.md` says."
    ]
    for name, group in groupby(read_references(), lambda row: row.reference.name):
        rows = list(group)
        about, protocol = rows[0].reference.about, rows[0].reference.protocol
        facts = [
            ["name", f"`{name}`"],
            ["paper", " ".join(filter(None, (about["paper"], about["arxiv"])))],
            *([key, about[key]] for key in ("table", "checkpoint", "data") if about[key]),
            ["protocol", "; ".join(f"{'.'.join(k)}: {v}" for k, v in protocol.items()) or "–"],
            ["command", _calls(about["command"] or "–")],
        ]
        metrics = list(dict.fromkeys(row.metric for row in rows))
        found: dict[tuple[str, str], dict[str, str]] = {}
        for row in rows:
            found.setdefault((row.detector, row.ood), {})[row.metric] = row.printed
        cells = [
            [*place, *(values.get(m, "–") for m in metrics)] for place, values in found.items()
        ]
        numbers = table(["row", "dataset", *(f"`{metric}`" for metric in metrics)], cells)
        parts.append(f"## {about['title']}\n\n{table(['', ''], facts)}\n\n{numbers}")
    return "\n\n".join(parts) + "\n"


def _calls(commands: str) -> str:
    return "<br>".join(f"`{line}`" for line in commands.splitlines())


def _metrics() -> str:
    found = [one for one in known_metrics() if one.name != "fpr95"]
    rows = [
        [f"`{one.name}`", one.title, one.better or "–", one.meaning or f"See `{before.name}`."]
        for before, one in pairwise([found[0], *found])
    ]
    return table(["column `metric`", "title", "better", "definition"], rows)


def kinds() -> list[Kind]:
    """Every kind of row that a module of the package declares, and that of question benchmarks."""
    found = [question_kind("*a question benchmark*", "question pair", "unparsed")]
    for file in sorted((ROOT / "ood_lab").rglob("*.py")):
        if re.search(r"^\w+ = Kind\(", file.read_text(encoding="utf-8"), re.M):
            module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
            found += [one for one in vars(module).values() if isinstance(one, Kind)]
    return sorted(dict.fromkeys(found), key=lambda kind: kind.name)


def _kinds() -> str:
    rows = [
        [
            kind.name if kind.name.startswith("*") else f"`{kind.name}`",
            kind.unit,
            ", ".join(f"`{key}`" for key in kind.keys),
        ]
        for kind in kinds()
    ]
    core = ", ".join(f"`{name}`" for name in CORE)
    return f"All kinds: {core}.\n\n" + table(["kind", "default unit", "further columns"], rows)


def _extras() -> str:
    """Name, comment and packages of each extra of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.split("[project.optional-dependencies]\n")[1].split("\n[project.scripts]")[0]
    rows, comment = [], ""
    for found in re.finditer(r"^# ?(.*)$|^(\w+) = \[((?:.|\n)*?)\]$", block, re.M):
        if found[2] is None:
            comment += f" {found[1]}"
        else:
            packages = re.findall(r'"([\w.-]+(?:\[[\w,]+\])?)', found[3])
            rows.append([f"`{found[2]}`", comment.strip(), ", ".join(packages)])
            comment = ""
    return table(["extra", "for", "packages"], rows)


def _corruptions() -> str:
    rows = []
    for name, corruption in CORRUPTIONS.items():
        said = (inspect.getdoc(corruption.apply) or "").split("\n\n")[0]
        cells = [
            "; ".join(",".join(f"{value:g}" for value in one) for one in corruption.strengths[size])
            for size in SIZES
        ]
        rows.append([f"`{name}`", " ".join(said.split()).replace("``", "`"), *cells])
    return table(["corruption", "definition", *(f"{size} pixels" for size in SIZES)], rows)


def _dataset_page(made: dict[str, str]) -> str:
    return (
        "# Datasets\n\nNothing is downloaded without `download=true`. How to load your own: "
        "[load data](../how-to/load-data.md).\n\n"
        f"## ID datasets: `data=NAME`\n\n{_datasets('data')}\n\n"
        f"## OOD datasets: `data/ood=[NAME,...]`\n\n{_datasets('data/ood')}\n\n"
        "## Corruptions: `synthetic_ood=corruptions`\n\n"
        "The 15 corruptions of ImageNet-C (arXiv 1903.12261). Columns are the arguments of "
        "severities 1 to 5. An image takes the column nearest to its shorter side "
        "(below 46 pixels 32, below 120 pixels 64). The comparison with a second implementation "
        f"is in [results](../results/corruptions.md).\n\n{made['corruptions']}\n\n"
        f"## Annotated images: `annotations=NAME`\n\n{made['conf/annotations']}\n"
    )


def _datasets(group: str) -> str:
    rows = []
    for file in sorted((configuration.CONF / group).glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        info = (yaml.load(text, yaml.CSafeLoader).get("data") or {}).get("info") or {}
        said = dict(re.findall(r"^# (Licence|Source): (.*)\.$", text, re.M))
        link = f"../configuration/{configuration.anchor(group, file)}"
        licence = info.get("licence", said.get("Licence", ""))
        source = str(info.get("source", said.get("Source", "")))
        about = configuration.first_sentence(file)
        rows.append([f"[`{file.stem}`]({link})", about, str(licence), _autolink(source)])
    return table(["name", "", "licence", "source"], rows)


def _autolink(source: str) -> str:
    source = re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)
    return f"<{source}>" if re.fullmatch(r"https?://\S+", source) else source


def _parser_page(made: dict[str, str]) -> str:
    return (
        "# Parsers of replies\n\nA parser reads yes or no in a reply. `task.parser=NAME` chooses "
        "one; answers that are stored are parsed again without a new request.\n\n"
        f"## Rules\n\n{made['parsers']}\n\n"
        "A published rule is that of its source to the letter, also where its recall leaves out "
        "what is unparsed. lmms-eval's `pope_yes_ratio` is no yes-rate: it counts right answers. "
        "Under every rule, reasoning (`<think>...</think>`) is removed first. A truncated reply "
        "counts only where nothing that could follow changes its meaning.\n\n"
        "Our rules for yes or no, counts, choices and free text read English, and Chinese and "
        "Japanese by clause; yes and no also in French, German, Portuguese, Russian and Spanish, "
        "numbers up to ten in all of these but Russian. Replies in other languages are unparsed. "
        "Names of things are known in Chinese and Japanese for COCO's categories: "
        '"我看到一只猫" is no answer to "a dog?". What a '
        'reply takes back ("3... wait, 4") does not count. Ranges, bounds, fractions, two '
        "letters, alternatives and refusals are unparsed.\n\n"
        "## Agreement with a person\n\nReplies in the styles of vision-language models "
        "(`tests/lvlm/parsers/styled_replies.jsonl`), read as a person reads them, in %. "
        "`default` was written with these replies in view, so its 100% is no estimate.\n\n"
        f"{parser_tables.style_table()}\n\n"
        "## Disagreement between rules\n\nOf 300 replies that are meant to be hard "
        "(`tests/lvlm/parsers/parser_replies.jsonl`), in %. These are no error rates of a "
        f"model.\n\n{parser_tables.difference_table()}\n"
    )

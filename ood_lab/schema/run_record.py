"""What a run is and found: ``manifest.json``, written and read by one class."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, write_text

MANIFEST = "manifest.json"
#: Settings and measurements whose names another class declares.
Facts = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """Something to look at before a number is believed.

    Attributes:
        text: one sentence.
        sets: whose numbers it may concern; tables mark them.
    """

    text: str
    sets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


class RecordSection(BaseModel):
    """A part of the record; a field of a file that it does not declare is an error."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), validate_assignment=True)


class ExecutionRecord(RecordSection):
    """How the run was executed.

    Attributes:
        config_hash: of everything in the configuration that can change a number.
        recipe: the file that gave a method its settings.
        versions: of packages.
        git: commit of the project's clone; None outside one.
        machine: operating system.
        detector_device: on which detectors compute.
        threads: of the processor; they decide the order of summation.
        seconds: of every stage.
        finished: when.
        files: ``bytes`` and ``sha256`` of the files that later commands read.
    """

    config_hash: str = ""
    recipe: str | None = None
    versions: dict[str, str] = {}
    git: str | None = None
    machine: str = ""
    detector_device: str | None = None
    threads: int | None = None
    seconds: dict[str, float] = {}
    finished: str = ""
    files: dict[str, Facts] = {}


class DataRecord(RecordSection):
    """The images.

    Attributes:
        data: identity of every set.
        findings: of the check of the data.
        classes: of ID.
        split_off: number of images of each split that was taken from the training images.
        shift_order: the OOD sets, the least shifted first.
        ood_groups: sets of each group with a mean of its own.
        csid: ID sets with shifted covariates.
        synthetic_ood: settings of the OOD sets that are made of ID test.
        id_split: which ID images are compared.
        near_copies: ``heading``, and ``images``: set, row and name of each; the examples of a page.
    """

    data: dict[str, str] = {}
    findings: list[Finding] = []
    classes: list[str] = []
    split_off: dict[str, int] = {}
    shift_order: list[str] = []
    ood_groups: dict[str, list[str]] = {}
    csid: list[str] = []
    synthetic_ood: Facts | None = None
    id_split: str | None = None
    near_copies: list[Facts] = []


class BankRecord(RecordSection):
    """Feature bank: what its rows were made from, and the files that hold them.

    The manifest of a column in the bank has only ``key`` and the files.

    Attributes:
        key: hash of all that follows but ``dataset``; of a column, its own key.
        dataset: name of the set.
        dataset_identity: sha256 of what determines pixels and labels.
        network: a text that names network and weights, where the caller extracted the features.
        weights_sha256, parts_sha256: of the network.
        transform: printed.
        precision: of the Trainer.
        versions: of what turns pixels into features.
        n: number of images.
        columns: keys of the columns that were read.
        shards: rows of every file.
        checksums: of every file, XXH3.
        chunk: images that passed the network together.
        memory_format: of those.
    """

    key: str = ""
    dataset: str = ""
    dataset_identity: str = ""
    network: str = ""
    weights_sha256: str = ""
    parts_sha256: str = ""
    transform: str = ""
    precision: str = ""
    versions: dict[str, str] = {}
    n: int = 0
    columns: list[str] = []
    shards: dict[str, int] = {}
    checksums: dict[str, str] = {}
    chunk: int | None = None
    memory_format: str = ""


class NetworkRecord(RecordSection):
    """The network and its weights.

    Attributes:
        model: its name.
        head: kind of its head, see :class:`~ood_lab.models.head_kind.HeadKind`.
        multilabel: whether an image may have several classes.
        backbone: features of ID test.
        backbones: runs whose networks were compared, by name.
        transform_overrides: of the network's own transform.
        fitted_head: of a network without one.
        training: ``epochs, steps``.
        val_accuracy: of the best epoch.
        probe: the linear probe of the untrained layers.
        weights_of: the run that trained them.
        seeds: of ``training`` and ``evaluation``.
        id_accuracy: a fraction; None where no label is known.
        id_accuracy_n: of so many images.
        id_accuracy_independent: independent images that are as many, where images belong together.
        id_chance: share of the largest class.
    """

    model: str = ""
    head: str | None = None
    multilabel: bool = False
    backbone: BankRecord = BankRecord()
    backbones: dict[str, str] = {}
    transform_overrides: Facts = {}
    fitted_head: Facts | None = None
    training: Facts | None = None
    val_accuracy: float | None = None
    probe: Facts | None = None
    weights_of: str | None = None
    seeds: dict[str, int] = {}
    id_accuracy: float | None = None
    id_accuracy_n: int = 0
    id_accuracy_independent: float = 0
    id_chance: float | None = None


class VerdictRecord(RecordSection):
    """What a verdict says in addition to its rows.

    Attributes:
        remarks: sentences on the data and on how the shift was measured.
        next: purpose and text of the next command.
    """

    remarks: list[str] = []
    next: tuple[str, str] | None = None


class PredictedImages(RecordSection):
    """New images: where they come from, their identity, and what is no image."""

    source: str
    identity: str | None
    passed_over: list[str]


class DetectionRecord(RecordSection):
    """Detectors and what they decided.

    Attributes:
        fpr95_positive: the positive class of the primary FPR95.
        detectors: settings and costs of each.
        refused: detectors that could not work here, and why.
        left_out_to_save_time: detectors of the default set that were not computed.
        tuning: how settings were chosen.
        threshold: above which the recommended detector calls an image OOD.
        verdict: in addition to its rows.
        images: that were predicted.
        threshold_from: TPR, and sizes of the OOD sets that thresholds come from.
        causes: statistics in which the new images differ.
        not_exported: detectors without an ONNX file, and why.
        onnx_deviation: of an ONNX file with its preprocessing, the largest of a p-value from the
            run's, by detector.
        near_copies_auroc: ``dataset, detector, auroc, without`` copies of training images.
    """

    fpr95_positive: str = ""
    detectors: dict[str, Facts] = {}
    refused: dict[str, str] = {}
    left_out_to_save_time: list[str] = []
    tuning: Facts = {}
    threshold: float | None = None
    verdict: VerdictRecord = VerdictRecord()
    images: PredictedImages | None = None
    threshold_from: Facts | None = None
    causes: list[Facts] = []
    not_exported: dict[str, str] | None = None
    onnx_deviation: dict[str, float] | None = None
    near_copies_auroc: list[Facts] = []


class ShiftRecord(RecordSection):
    """How shift was measured.

    Attributes:
        distance: of a report of detectors: ``by, k, unsplit, rulers`` and what split the features.
        clip: identity of the CLIP.
        laid: details of the decomposition.
        k: which neighbour.
        id_images: number of ID train.
        rulers: of the units, see :mod:`ood_lab.evaluation.shift.shift_rulers`.
        edges: of the levels.
        pool: number of images that were divided.
        texts: number of labels and templates of LAID.
        held_out: how well LAID predicts words that it was not trained on.
    """

    distance: Facts = {}
    clip: Facts = {}
    laid: Facts = {}
    k: int = 0
    id_images: int = 0
    rulers: list[Facts] = []
    edges: Facts = {}
    pool: int | None = None
    texts: dict[str, int] | None = None
    held_out: dict[str, float] = {}


class QuestionsRecord(RecordSection):
    """A file of questions: number of questions and of images, hash."""

    file: str = ""
    n: int
    images: int
    sha256: str


class AskingRecord(RecordSection):
    """What the answers took.

    Attributes:
        calls: that they came from.
        input_tokens, output_tokens, cost: sums; None where nothing is known.
        retries: of requests.
        latency_s, latency_s_95: median and 95% quantile.
        seconds: of all calls, by form and set of questions.
    """

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    retries: int = 0
    latency_s: float | None = None
    latency_s_95: float | None = None
    seconds: dict[str, dict[str, float]] = {}


class ReadingRecord(RecordSection):
    """Form of the questions, and parser of the replies.

    Attributes:
        parser: rules, with how each reads.
        form: of the questions.
        samples: replies to a question.
        reader: the language model that reads open answers.
    """

    parser: str = ""
    form: str = ""
    samples: int | None = None
    reader: str = ""


class BenchmarkFacts(RecordSection):
    """A benchmark as tables of several benchmarks need it.

    Attributes:
        name: of the benchmark.
        page: its file.
        headlines: set, metric and words of its primary numbers.
        lower_is_better: metrics of its sentences, and whether less is better.
        tables: metrics by title of the table.
        sets: sets of questions that comparisons separate, and their names.
        finer: what divides its sets further.
        about: the data.
        forms: of the questions, in words.
    """

    name: str = ""
    page: str = ""
    headlines: list[tuple[str, str, str]] = []
    lower_is_better: dict[str, bool] = {}
    tables: dict[str, Any] = {}
    sets: dict[str, str] = {}
    finer: list[str] = []
    about: str = ""
    forms: dict[str, str] = {}


class AnswersRecord(RecordSection):
    """Questions, answers and the model that gave them.

    Attributes:
        questions: their file.
        benchmark: that scores them.
        lvlm: what the model is made with.
        answers: where they are kept.
        reader, judge: language models that read answers, and that say what is expected.
        parsers: of the questions.
        asking: what the answers took.
        reading: form of the questions, and parser of the replies.
        scoring: how captions are read.
    """

    questions: QuestionsRecord | None = None
    benchmark: BenchmarkFacts | None = None
    lvlm: Facts = {}
    answers: str | None = None
    reader: Facts | None = None
    judge: Facts | None = None
    parsers: dict[str, str] = {}
    asking: AskingRecord | None = None
    reading: ReadingRecord = ReadingRecord()
    scoring: Facts = {}

    @property
    def seconds_of_calls(self) -> list[tuple[str, str, float]]:
        """Form and set of questions, and the seconds of all calls about them."""
        seconds = self.asking.seconds if self.asking else {}
        return [(form, of, value) for form, sets in seconds.items() for of, value in sets.items()]

    @property
    def question_file(self) -> QuestionsRecord:
        """The questions of a benchmark, which records them before anything is answered."""
        if self.questions is None:
            raise ValueError("no questions were recorded")
        return self.questions


class ConstructionRecord(RecordSection):
    """How questions were constructed.

    Attributes:
        annotations: ``name, identity, root, images, categories, fields, domain``.
        image_text: the image-text models.
        division: rule and number of pairs of each split (OODBench).
        datasets: that were pooled.
        proposals, hard_pairs: of detectors, and those without their object.
        overlap: of classes with corpora.
        oric: settings and counts.
        ode: concepts and round.
        generator: of images.
        generated: number of images.
        filter: of images.
        tendencies: of clusters.
        question_tuning: how the next round was chosen.
    """

    annotations: Facts = {}
    image_text: dict[str, Facts] = {}
    division: Facts = {}
    datasets: dict[str, Facts] = {}
    proposals: int | None = None
    hard_pairs: int | None = None
    overlap: Any = None
    oric: Facts = {}
    ode: Facts = {}
    generator: Facts = {}
    generated: int | None = None
    filter: Facts = {}
    tendencies: Facts | None = None
    question_tuning: Facts | None = None


class OutputRecord(RecordSection):
    """What other tasks leave.

    Attributes:
        runs: that were compared.
        out: folder of what was made.
        plan: models of a plan of images.
        model_folder: of tuned weights.
        validation: of a tuning.
    """

    runs: dict[str, str] | dict[str, list[str]] | list[str] | None = None
    out: str | None = None
    plan: Facts | None = None
    model_folder: str | None = None
    validation: Facts | None = None


class RunRecord(
    ExecutionRecord,
    DataRecord,
    NetworkRecord,
    DetectionRecord,
    ShiftRecord,
    AnswersRecord,
    ConstructionRecord,
    OutputRecord,
):
    """All of it; a field that a run does not set is not written.

    Attributes:
        title: of the page.
        sentence: under it.
        warnings: what to know before a number is believed.
    """

    title: str = ""
    sentence: str = ""
    warnings: list[str] = []

    def facts(self) -> Facts:
        """What was set, as plain values by field; ``warnings`` always."""
        plain = self.model_dump()
        empty = type(self)().model_dump()
        return {
            name: value
            for name, value in plain.items()
            if value != empty[name] or name in self.model_fields_set | {"warnings"}
        }

    def write(self, folder: Path) -> None:
        """Writes ``manifest.json``."""
        write_text(json.dumps(self.facts(), indent=2, default=str), folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path, missing_ok: bool = False) -> Self:
        """The record of a run folder.

        Args:
            folder: of the run.
            missing_ok: gives an empty record for a folder that is not a run's.

        Raises:
            UserError: the file is missing, damaged, or has a field that is not declared.
        """
        if missing_ok and not (folder / MANIFEST).is_file():
            return cls()
        fields = read_json(folder / MANIFEST)
        if missing_ok and "config_hash" not in fields:
            return cls()
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise UserError(
                f"{folder / MANIFEST}: {field}: {first['msg']}. Repeat that run with force=true"
            ) from error

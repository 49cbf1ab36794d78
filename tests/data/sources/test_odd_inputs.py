"""Whatever images, folders and tables look like: right numbers, or a line that says what is odd."""

import random

import pytest
from odd_inputs import draw

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.folder import FolderDataModule

CASES = 20


def wrong_with(source) -> str | None:
    """What is wrong with how a source is read; None where it is read right or refused."""
    data = FolderDataModule(
        {"train": {"path": str(source.path), "root": str(source.folder)}, "val": None},
        {"same": {"path": str(source.path), "root": str(source.folder)}},
        on_broken=random.Random(str(source.path)).choice(["stop", "skip"]),
    )
    try:
        data.setup()
    except UserError as error:
        said = str(error)
        if not said or "\n" in said.replace("a\nb", ""):
            return f"not one line: {said!r}"
        # Sets too small to be split are refused, too.
        known = any(word in said for word in source.said) or "too few to split" in said
        return None if known else f"refused without need: {said}"
    said = " ".join([*data.report.warnings, *data.report.notes])
    parts = [data.splits[name] for name in ("train", "val", "test")]
    images = sum(map(len, parts))
    labelled = sum(int((part.labels >= 0).sum()) for part in parts)
    for part in (*parts, data.splits["same"]):
        for row in range(len(part)):
            part.load_image(row)
    if len(data.splits["same"]) != images:
        return f"{images} images as ID, {len(data.splits['same'])} as OOD"
    told = not source.said or any(word in said for word in source.said)
    if (images, labelled) != (source.images, source.labelled) and not (source.said and told):
        return f"{images} images, {labelled} labels, and nothing said: {said}"
    return None if told else f"nothing said of {source.said}: {said}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 40))]
)
def test_odd_inputs_give_right_numbers_or_one_line(part, tmp_path):
    wrong = []
    for case in range(CASES):
        source = draw(tmp_path / str(case), random.Random(f"{part} {case}"))
        try:
            found = wrong_with(source)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            wrong.append(f"{part} {case} {source.oddities} {source.path.name!r}: {found}")
    assert not wrong, "\n".join(wrong)

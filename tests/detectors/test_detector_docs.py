"""The page about detectors has a row for each, with the settings of its YAML."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "detectors.md").read_text()
ROWS = re.findall(r"^\| (`.*?) \|(.*)\|$", PAGE, re.MULTILINE)


def settings(file):
    content = yaml.safe_load(file.read_text())
    return set(content.get("detector", content)[file.stem]) - {"_target_", "force", "seed"}


def test_every_detector_has_one_row():
    keys = [key for row, _ in ROWS for key in re.findall(r"`(\w+)`", row)]
    assert sorted(keys) == sorted(p.stem for p in (ROOT / "conf" / "detector").glob("*.yaml"))


def test_a_row_names_real_settings():
    for row, rest in ROWS:
        named = rest.replace("\\|", "/").split("|")[-2]
        for key in re.findall(r"`(\w+)`", row):
            known = settings(ROOT / "conf" / "detector" / f"{key}.yaml") | {"inner_product"}
            assert set(re.findall(r"\b[a-z]\w*_\w+\b", named)) <= known, key

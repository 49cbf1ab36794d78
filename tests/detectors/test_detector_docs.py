"""The tables of the page about detectors are those of the classes."""

from ood_lab.detectors.support.documentation_table import PAGE, detector_tables, with_tables


def test_the_page_has_the_tables_of_today():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, (
        "python -m ood_lab.detectors.support.documentation_table writes them"
    )


def test_every_detector_has_a_formula_and_a_source():
    rows = [row for table in detector_tables().values() for row in table.split("\n")[2:]]
    for row in rows:
        key, formula, *_, source = row.strip("| ").replace("\\|", "/").split(" | ")
        assert formula, key
        assert source, key

"""Long work says how far it is where nobody sees a bar."""

import logging

from ood_lab.synthesis.image_batches import batches


def test_lines_where_there_is_no_terminal(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ood_lab.common.progress.time.monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "ood_lab"):
        for _ in batches("making images", range(40), 1):
            now[0] += 3
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "making images: 4 of 40, 1 min 48 s left"
    assert lines[-1] == "making images: 40 of 40"
    assert len(lines) == 10  # every 12 s, the first moment at which 10 s are over

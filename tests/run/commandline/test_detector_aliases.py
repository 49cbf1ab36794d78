"""Names of detectors in other packages."""

import pytest

from ood_lab.run.commandline.overrides import ALIASES, readable
from ood_lab.scripts import conf_files


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("detector=[energy,knn,Mahalanobis]", "detector=[ebo,knn,mds]"),
        ("detector=maxlogit,msp", "detector=mls,msp"),
        ("detector.energy.t=2", "detector.ebo.t=2"),
        ("detector.knn.k=5", "detector.knn.k=5"),
        ("detector_table=energy", "detector_table=energy"),
        ("data.id.train=energy", "data.id.train=energy"),
    ],
)
def test_overrides_get_our_names(given, meant):
    assert readable(given) == meant


def test_an_alias_is_another_word_for_a_detector_that_exists():
    names = {file.stem for file in conf_files("detector")}
    assert set(ALIASES.values()) <= names
    assert not ALIASES.keys() & names

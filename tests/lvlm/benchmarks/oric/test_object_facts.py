import numpy as np
import pandas as pd
import pytest
from toy_annotations import CATEGORIES, annotations

from ood_lab.lvlm.annotations.image_contents import contents_of
from ood_lab.lvlm.benchmarks.oric.set_analyses import with_facts


@pytest.fixture(scope="module")
def contents():
    return contents_of(annotations())


def test_annotated_objects_have_the_area_that_questions_about_them_have(contents):
    rows, names = contents.rows, np.array(CATEGORIES)[contents.codes]
    asked_about = pd.DataFrame({"row": rows, "object": names, "label": "yes"})
    found = with_facts(asked_about, annotations(), contents)
    assert contents.areas.tolist() == found["area"].tolist()

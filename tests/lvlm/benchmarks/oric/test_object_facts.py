import numpy as np
import pandas as pd
import pytest
from toy_annotations import CATEGORIES, annotations

from ood_lab.lvlm.annotations.image_contents import contents_of
from ood_lab.lvlm.benchmarks.oric.set_analyses import annotated_areas, with_facts


@pytest.fixture(scope="module")
def contents():
    return contents_of(annotations())


@pytest.mark.parametrize("area_of", ["union", "largest"])
def test_annotated_objects_have_the_area_that_questions_about_them_have(contents, area_of):
    rows, names = contents.rows, np.array(CATEGORIES)[contents.codes]
    asked_about = pd.DataFrame({"row": rows, "object": names, "label": "yes"})
    found = with_facts(asked_about, annotations(), contents, area_of)
    assert annotated_areas(contents, area_of).tolist() == found["area"].tolist()

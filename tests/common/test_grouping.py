from ood_lab.common.grouping import grouped, with_keys, without_keys, without_none

VALUES = {"b": 1, "a": None, "c": 0}


def test_values_are_grouped_in_the_order_in_which_they_come():
    assert grouped([(1, "x"), (0, "y"), (1, "z")]) == {1: ["x", "z"], 0: ["y"]}
    assert list(grouped([(1, "x"), (0, "y")])) == [1, 0]


def test_parts_of_a_dictionary_keep_its_order():
    assert list(with_keys(VALUES, ["c", "b", "d"]).items()) == [("b", 1), ("c", 0)]
    assert list(without_keys(VALUES, {"b"}).items()) == [("a", None), ("c", 0)]
    assert without_none(VALUES) == {"b": 1, "c": 0}

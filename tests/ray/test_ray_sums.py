"""Figures of engines, added up."""
from stoker.ray import add_up


def test_reports_of_engines_add_up_whatever_reasons_each_has():
    one = {"samples": 3, "failures": {"masked": 1, "by_reason": {"broken": 1}}, "name": "a"}
    two = {"samples": 4, "failures": {"masked": 2, "by_reason": {"late": 2}}, "name": "b"}
    total = {"samples": 7, "failures": {"masked": 3, "by_reason": {"broken": 1, "late": 2}}, "name": "a"}
    assert add_up([one, two]) == total and add_up([two, one]) == total | {"name": "b"}
    assert add_up([]) == {}

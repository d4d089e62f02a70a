"""Figures of engines, added up."""
from stoker.ray import add_up


def test_reports_of_engines_add_up_whatever_reasons_each_has():
    one = {"samples": 3, "failures": {"masked": 1, "by_reason": {"broken": 1}}, "name": "a"}
    two = {"samples": 4, "failures": {"masked": 2, "by_reason": {"late": 2}}, "name": "b"}
    total = {"samples": 7, "failures": {"masked": 3, "by_reason": {"broken": 1, "late": 2}}, "name": "a"}
    assert add_up([one, two]) == total and add_up([two, one]) == total | {"name": "b"}
    assert add_up([]) == {}


def test_what_is_no_sum_is_none():
    one = {"samples": 1000, "first_batch_s": 1.5, "store": {"requests": 5, "whole": {"count": 5, "p99_ms": 80.0}, "price": 2.0, "price_per_million_samples": 2000.0}}
    two = {"samples": 3000, "first_batch_s": 0.5, "store": {"requests": 7, "whole": {"count": 7, "p99_ms": 90.0}, "price": 2.0, "price_per_million_samples": 667.0}}
    assert add_up([one, two]) == {"samples": 4000, "first_batch_s": 1.5, "store": {"requests": 12, "whole": {"count": 12, "p99_ms": 90.0}, "price": 4.0,
                                                                                   "price_per_million_samples": 1000.0}}

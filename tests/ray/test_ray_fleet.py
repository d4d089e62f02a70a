"""Which engine is asked, and when one is left alone."""
import pytest
from stoker import _fleet
from stoker._fleet import Fleet, Member


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_fleet.time, "monotonic", lambda: now[0])
    return now


def asked(fleet, number):
    return fleet.pick(number, 0, 0)[0].name


@pytest.fixture
def fleet():
    made = Fleet.__new__(Fleet)
    made.members = [Member(name, name) for name in ("a", "b", "c")]
    made._handles = {member.name: member.name for member in made.members}
    made._alone, made._doubts, made._lock, made._placement = {}, {}, _fleet.threading.RLock(), "nodes"
    return made


def test_an_engine_that_is_late_is_left_alone_each_time_for_longer(clock, fleet):
    a = fleet.members[0]
    assert [asked(fleet, n) for n in range(4)] == ["a", "b", "c", "a"]
    for left_alone in (30, 60, 120, 240, 480, 480):
        fleet.doubt(a, 30)
        clock[0] += left_alone - 1
        assert [asked(fleet, n) for n in range(4)] == ["b", "b", "c", "b"]
        clock[0] += 1
        assert asked(fleet, 0) == "a"
    fleet.trust(a)
    fleet.doubt(a, 30)
    clock[0] += 30
    assert asked(fleet, 0) == "a"


def test_when_all_are_late_the_one_that_comes_back_first_is_asked(clock, fleet):
    for member, late in zip(fleet.members, (20, 10, 30)):
        fleet.doubt(member, late)
    assert [asked(fleet, n) for n in range(3)] == ["b", "b", "b"]
    fleet.trust(fleet.members[2])
    assert [asked(fleet, n) for n in range(3)] == ["c", "c", "c"]


def test_an_engine_of_another_node_that_helped_out_and_has_gone_is_not_created_here(clock, fleet, monkeypatch):
    """Whose it is does so, on its node."""
    fleet._placement, fleet.run, (own, helper, _) = "local", "run", fleet.members
    fleet.members = [own, helper._replace(node="")]
    monkeypatch.setattr(_fleet.ray.util, "list_named_actors", lambda all_namespaces: [])
    fleet.went(fleet.members[1], "b")
    assert fleet.members == [own] and [asked(fleet, n) for n in range(3)] == ["a", "a", "a"]
    fleet.went(own, "a")
    assert fleet.members == [own]

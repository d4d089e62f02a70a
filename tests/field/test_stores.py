"""Field reports (e): sets that lie on a store, and tars."""
import io
import json
import os
import pathlib
import sys
import tarfile

import pytest
from field_set import chat, encode, gradient, lines

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "s3"))
from fault_store import FAULTS, Answer, FaultStore, Schedule, Thing, calm, refusal, refusing  # noqa: E402

PICTURES = {f"{i}.png": gradient(32, 32 * (1 + i % 5)) + i for i in range(40)}


def records(names):
    return [{"id": str(i), **chat(f"<image>{i}?", str(i), image=name)} for i, name in enumerate(names)]


class Moving(FaultStore):
    """Who asks in another region is sent to the bucket's own, as Amazon does."""

    def identify(self, request, schedule):
        refused = super().identify(request, schedule)
        if refused and b"AuthorizationHeaderMalformed" in refused.body:
            return refusal("301 Moved Permanently", "PermanentRedirect", headers={"x-amz-bucket-region": schedule.region})
        return refused


@pytest.fixture(scope="module")
def store():
    with Moving() as made:
        yield made


@pytest.fixture
def remote(field, store, monkeypatch):
    """A set on the store: ``remote(records, files, region=..., **options)`` gives it, with its `schedule`."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in store.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)

    def make(rows, files, region="us-east-1", **options):
        things = {name: Thing.of(content if isinstance(content, bytes) else encode(content)) for name, content in files.items()}
        schedule = store.add(Schedule(f"set-{len(store.schedules)}", {"train.jsonl": Thing.of(lines(rows)), **things}, region=region))
        one = field(manifests={}, data={"path": f"s3://{schedule.bucket}/train.jsonl"}, endpoint=store.url, index_dir="index", **options)
        one.schedule = schedule
        return one

    yield make
    assert all(schedule.bad_signatures == 0 for schedule in store.schedules.values())


async def slow_down_in_no_words(out, answer, request, draw):
    return await calm(out, Answer("503 Slow Down"), request, draw)


def test_e01_a_store_that_says_slow_down_to_every_other_request_loses_and_moves_nothing(field, remote, monkeypatch):
    monkeypatch.setitem(FAULTS, "slow_down_in_no_words", slow_down_in_no_words)
    rows, options = records(PICTURES), {"batch": 4, "shuffle": True}
    one = remote(rows, PICTURES, **options)
    for number, thing in enumerate(one.schedule.things.values()):
        thing.faults = [("slow_down", "slow_down_in_no_words")[number % 2], "calm"] * 9
    came, local = one.run("--digest"), field(rows, PICTURES, **options).run("--digest")
    assert came["digest"] == local["digest"] and came["samples"] == len(rows) and came["failures"]["masked"] == 0
    assert came["store"]["throttles"] >= len(rows)


def test_e05_each_key_is_its_own_object(remote):
    """The store compares each signature with the path that came."""
    names = ["a+b.jpg", "a b.jpg", "50%.jpg", "a%20b.jpg", "ä.jpg"]
    files = {name: gradient(32, 32 * (1 + i)) for i, name in enumerate(names)}
    one = remote(records(names), files)
    samples = one.samples()
    assert len(samples) == 5 and all((sample.pictures[0] == files[name]).all() for sample, name in zip(samples, names))
    assert all(one.schedule.things[name].asked for name in names)


def test_e07_a_body_that_is_cut_is_no_end_of_data(field, remote, monkeypatch):
    """Manifest and tar come whole at the third time, before that six tenths of what was asked for."""
    async def cut(out, answer, request, draw):
        out.write(answer.head() + answer.body[:-(-len(answer.body) * 6 // 10)])
        return False

    monkeypatch.setitem(FAULTS, "cut", cut)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as out:
        for name, picture in PICTURES.items():
            content = encode(picture)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    one = remote(records(f"tar://{name}::images.tar" for name in PICTURES), {"images.tar": tar.getvalue()}, batch=4)
    for thing in one.schedule.things.values():
        thing.faults = ["cut", "cut"]
    came, local = one.run("--digest"), field(records(PICTURES), PICTURES, batch=4).run("--digest")
    assert came["samples"] == local["samples"] == len(PICTURES) and came["digest"] == local["digest"]
    assert all(thing.asked > 2 for thing in one.schedule.things.values())


CLOSED = {"0.png": "access_denied", "1.png": "no_such_key", "2.png": "past_end"}


@pytest.fixture
def closed(remote, monkeypatch):
    """A set, and what makes three of its pictures go."""
    monkeypatch.setitem(FAULTS, "past_end", refusing("416 Range Not Satisfiable", "InvalidRange"))
    one = remote(records(PICTURES), PICTURES, batch=4, dead_letter="dead.jsonl")

    def close():
        for name, fault in CLOSED.items():
            thing = one.schedule.things[name]
            thing.always, thing.asked = fault, 0
    return one, close


def test_e09_what_is_gone_or_closed_is_refused_by_the_index(closed):
    one, close = closed
    close()
    assert {reason: [line for line, _ in lines] for reason, lines in one.reasons().items()} == {
        "media that may not be read": [1], "media missing": [2], "media of no bytes": [3]}
    assert [one.schedule.things[name].asked for name in CLOSED] == [2, 1, 1]  # a refusal is believed at the second


def test_e09_what_goes_or_is_closed_later_is_masked_in_its_place(closed):
    """Nothing of the bucket has come before, but the manifest."""
    one, close = closed
    before = one.samples()
    close()
    assert one.run()["failures"] == {"masked": 3, "by_reason": {"media missing": 1, "media that may not be read": 1, "media changed since indexing": 1}}
    assert [json.loads(line)["id"] for line in (one.folder / "dead.jsonl").read_text().splitlines()] == ["train/0", "train/1", "train/2"]
    assert [one.schedule.things[name].asked for name in CLOSED] == [2, 1, 1]  # a refusal is believed at the second
    after = one.samples()
    assert [s.id for s in after] == [s.id for s in before] and [i for i, s in enumerate(after) if s.status != "made"] == [0, 1, 2]


def test_e09_a_bucket_of_another_region_is_found(field, remote):
    one = remote(records(PICTURES), PICTURES, region="eu-probe-7", batch=4)
    came = one.run("--digest")
    assert came["digest"] == field(records(PICTURES), PICTURES, batch=4).run("--digest")["digest"]
    assert came["store"]["retries_by_reason"].keys() == {"region"}

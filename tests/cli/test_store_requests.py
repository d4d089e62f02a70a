"""How many requests a run has under way: within its memory, and enough of them where facts are found as they are drawn."""
import asyncio
import json
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "s3"))
from fault_store import FAULTS, FaultStore, calm  # noqa: E402
from sets import configure, make_set, serve  # noqa: E402


class Held:
    """A fault that is none: it answers a moment later, and counts how many wait at once."""

    def __init__(self):
        self.now = self.most = 0

    async def __call__(self, out, answer, request, draw):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        return await calm(out, answer, request, draw)


@pytest.fixture(scope="module")
def made_set(tmp_path_factory):
    return make_set(tmp_path_factory.mktemp("set"))


@pytest.fixture
def held(monkeypatch):
    monkeypatch.setitem(FAULTS, "held", Held())
    return FAULTS["held"]


@pytest.fixture
def ran(stoker, made_set, tmp_path):
    """A run over a store whose media come late: options to its report."""
    with FaultStore() as store:
        for key, thing in serve(store, "late", made_set).things.items():
            thing.always = "held" if key.startswith("media/") else ""
        config = configure(tmp_path / "late.yaml", "s3://late/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\n")

        def run(*options, status=0):
            done = stoker("run", config, "--json", "--digest", "--workers", 2, *options, status=status, env=store.environment())
            return json.loads(done.stdout) if status == 0 else done.stderr
        yield run


def test_requests_under_way_are_as_many_as_the_memory_takes(ran, held, stoker, made_set, tmp_path):
    local = configure(tmp_path / "local.yaml", made_set / "train.jsonl", tmp_path / "local index")
    digest = json.loads(stoker("run", local, "--json", "--digest", "--batch", 64).stdout)["digest"]
    roomy = ran("--batch", 64)
    assert held.most > 64 and roomy["digest"] == digest
    # The least that it takes, as the refusal says it, requests and all.
    words = ran("--batch", 64, "--memory", 1 << 20, "--prefetch", 2, status=2)
    assert re.search(r"requests to stores \d+", words), words
    least = int(re.search(r"= (\d+): raise memory", words)[1])
    assert int(re.search(r"requests to stores (\d+)", words)[1]) > 16 * 64 * 1024
    opened = ran("--batch", 64, "--memory", least, "--prefetch", 2, "--steps", 0)
    held.most = 0
    tight = ran("--batch", 64, "--memory", least, "--prefetch", 2)
    assert tight["digest"] == digest and 4 < held.most <= 16
    assert tight["store"]["connections"] <= 16 + 4  # and some for what was found first
    assert tight["memory"]["peak_bytes"] <= tight["memory"]["budget_bytes"] == least
    assert tight["memory"]["rss_peak_bytes"] - opened["memory"]["rss_peak_bytes"] <= least


def test_facts_that_are_found_as_they_are_drawn_are_asked_for_by_hundreds(ran, held):
    stream = ("--index", "stream", "--balance", "none", "--max_tokens", 128, "--limits.media_pixels", 1000000, "--limits.media_bytes", "1MiB")
    came = ran("--batch", 240, "--workers", 4, *stream, "--steps", 1)
    assert held.most > 150 and came["facts_read"]["headers"] == 240
    assert came["failures"]["masked"] == 0

"""The disk cache as runs use it, by what the store counts: kills, damage, and room for half of the data."""
import random
import shutil
import signal
import subprocess
import time

import pytest
from fault_store import FaultStore
from sets import configure, serve

def media_asked(schedule):
    return sum(thing.asked for key, thing in schedule.things.items() if key.startswith("media/"))


def forget(schedule):
    for thing in schedule.things.values():
        thing.asked = 0


@pytest.fixture
def cached(made_set, stoker, tmp_path):
    """A set with an index and a cache: (store's schedule, configuration, environment)."""
    with FaultStore() as store:
        schedule = serve(store, "cached", made_set)

        def make(cache_bytes, epochs=1):
            config = configure(tmp_path / "c.yaml", "s3://cached/train.jsonl", tmp_path / "index", more=(
                f"endpoint: {store.url}\nhedge: false\nepochs: {epochs}\ncache: {{path: {tmp_path / 'cache'}, bytes: {cache_bytes}}}\n"))
            stoker("index", config, env=store.environment())
            forget(schedule)
            return schedule, config, store.environment()
        yield make


def test_a_second_run_asks_for_nothing_again(cached, digest_of, calm):
    schedule, config, environment = cached("1GiB")
    assert digest_of(config, environment) == calm
    assert media_asked(schedule) <= 300
    forget(schedule)
    assert digest_of(config, environment) == calm
    assert media_asked(schedule) == 0


def test_a_flipped_byte_on_disk_is_noticed_and_asked_for_again(cached, digest_of, calm, tmp_path):
    schedule, config, environment = cached("1GiB")
    digest_of(config, environment)
    largest = sorted((p for p in (tmp_path / "cache").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)[-5:]
    for path in largest:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    forget(schedule)
    assert digest_of(config, environment) == calm
    assert 1 <= media_asked(schedule) <= 5


def test_room_for_half_keeps_half(cached, stoker, tmp_path):
    """Shuffled epochs: least-recently-used would ask for 85 % again.  What all takes on disk, blocks included, is measured first."""
    _, config, environment = cached("1GiB")
    stoker("run", config, env=environment)
    all_bytes = sum(p.stat().st_blocks * 512 for p in (tmp_path / "cache").rglob("*") if p.is_file())
    shutil.rmtree(tmp_path / "cache")
    schedule, config, environment = cached(all_bytes // 2, epochs=3)
    stoker("run", config, env=environment)
    asked = media_asked(schedule)
    assert asked - 300 <= 2 * 0.55 * 300, asked


def test_two_runs_on_one_cache_and_kills(cached, digest_of, build, calm, tmp_path):
    schedule, config, environment = cached("1GiB")
    command = [build / "cli" / "stoker", "run", config, "--digest"]
    draw = random.Random(5)
    for _ in range(8):
        pair = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) for _ in range(2)]
        time.sleep(draw.uniform(0.02, 0.3))
        for process in pair:
            process.send_signal(signal.SIGKILL)
            process.wait()
    pair = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in pair] == [calm, calm]
    forget(schedule)
    assert digest_of(config, environment) == calm
    assert media_asked(schedule) == 0
    shutil.rmtree(tmp_path / "cache")
    assert digest_of(config, environment) == calm

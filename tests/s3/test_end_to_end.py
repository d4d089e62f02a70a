"""The command line over stores: what `stoker run` delivers from s3:// is what it delivers from a folder, digest by digest."""
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from fault_store import TRANSIENT, FaultStore, Schedule, Thing
from sets import SAMPLE, configure, make_set, picture, upload

FAULTY_KEYS = {"key": "AKSCHEDULE", "secret": "a secret that no error may tell"}


@pytest.fixture(scope="module")
def made_set(tmp_path_factory):
    return make_set(tmp_path_factory.mktemp("set"))


@pytest.fixture
def digest_of(stoker):
    def run(config, environment=None, *flags):
        return stoker("run", config, "--digest", *flags, env=environment or dict(os.environ)).stdout.strip()
    return run


@pytest.fixture
def calm(made_set, digest_of, tmp_path):
    """The digest of the set in its folder."""
    return digest_of(configure(tmp_path / "calm.yaml", made_set / "train.jsonl", tmp_path / "calm-index"))


def serve(store, name, folder, **more):
    """A set as a schedule of the fault store: every file an object."""
    things = {str(p.relative_to(folder)): Thing.of(p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}
    return store.add(Schedule(name, things, **FAULTY_KEYS, **more))


def environment_of(store, **more):
    from servers import Server
    return Server(store.port, **FAULTY_KEYS).environment(**more)


@pytest.mark.parametrize("name", ["jfs", "moto"])
def test_a_manifest_and_300_pictures(name, request, made_set, digest_of, calm, tmp_path):
    server = request.getfixturevalue(name)
    server.bucket("a-set")
    upload(server, made_set, "a-set", "deep/er/")
    config = configure(tmp_path / "s3.yaml", "s3://a-set/deep/er/train.jsonl", tmp_path / "index")
    assert digest_of(config, server.environment()) == calm
    assert digest_of(config, server.environment(), "--index", "require", "--workers", "inline") == calm


def test_the_sample_set_with_its_odd_names(jfs, digest_of, tmp_path):
    jfs.bucket("sample")
    upload(jfs, SAMPLE, "sample")
    local = configure(tmp_path / "local.yaml", SAMPLE / "train.jsonl", tmp_path / "a")
    remote = configure(tmp_path / "remote.yaml", "s3://sample/train.jsonl", tmp_path / "b", more=f"endpoint: {jfs.url}\nregion: us-east-1\n")
    assert digest_of(remote, jfs.environment(AWS_ENDPOINT_URL_S3=None, AWS_REGION=None)) == digest_of(local)


def test_media_on_a_store_of_a_manifest_on_disk(jfs, made_set, digest_of, calm, tmp_path):
    jfs.bucket("media-only")
    upload(jfs, made_set / "media", "media-only", "media/")
    (tmp_path / "train.jsonl").write_bytes((made_set / "train.jsonl").read_bytes())
    config = configure(tmp_path / "c.yaml", "train.jsonl\n    media_root: s3://media-only", tmp_path / "index", more="allow: [s3://media-only]\n")
    assert digest_of(config, jfs.environment()) == calm


def test_an_index_on_a_store_is_read_by_another_machine(jfs, made_set, stoker, digest_of, calm, tmp_path):
    jfs.bucket("shared")
    upload(jfs, made_set, "shared")
    config = configure(tmp_path / "c.yaml", "s3://shared/train.jsonl", "s3://shared/index/of this")
    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
    stoker("index", config, env=jfs.environment(HOME=str(tmp_path / "one")))
    assert digest_of(config, jfs.environment(HOME=str(tmp_path / "two")), "--index", "require") == calm


def test_a_run_goes_on_from_its_state(jfs, made_set, stoker, tmp_path):
    jfs.bucket("resumed")
    upload(jfs, made_set, "resumed")
    config = configure(tmp_path / "c.yaml", "s3://resumed/train.jsonl", tmp_path / "index")
    environment = jfs.environment()
    whole = json.loads(stoker("run", config, "--json", env=environment).stdout)
    stoker("run", config, "--steps", 11, "--state", tmp_path / "state", env=environment)
    rest = json.loads(stoker("run", config, "--json", "--resume", tmp_path / "state", env=environment).stdout)
    assert rest["steps"] == whole["steps"] - 11 and rest["state"] == whole["state"]


def test_what_changed_or_went_since_the_index_is_masked_and_named(made_set, stoker, tmp_path):
    with FaultStore() as store:
        schedule = serve(store, "masked", made_set)
        config = configure(tmp_path / "c.yaml", "s3://masked/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\nerrors: {{masked: 0.5}}\n")
        environment = environment_of(store)
        stoker("index", config, env=environment)
        names = [key for key in schedule.things if key.startswith("media/")]
        schedule.things[names[5]] = Thing.of(picture(1005))
        schedule.things[names[17]].always = "access_denied"
        del schedule.things[names[40]]
        ran = json.loads(stoker("run", config, "--json", "--index", "require", "--dead-letter", tmp_path / "dead", env=environment).stdout)
    assert ran["failures"]["masked"] == 3, ran["failures"]
    dead = [json.loads(line) for line in (tmp_path / "dead").read_text().splitlines()]
    assert {entry["reason"] for entry in dead} == {"media missing", "media changed since indexing", "media that may not be read"}, dead


@pytest.mark.parametrize("wrong,words", [({"secret": "WRONGsecret"}, "SignatureDoesNotMatch|secret"), ({"key": "AKNONE"}, "InvalidAccessKeyId|key")])
def test_wrong_credentials_stop_the_run(jfs, made_set, stoker, tmp_path, wrong, words):
    bucket = "closed-" + words[:3].lower()
    jfs.bucket(bucket)
    upload(jfs, made_set, bucket)
    config = configure(tmp_path / "c.yaml", f"s3://{bucket}/train.jsonl", tmp_path / "index")
    done = stoker("run", config, status=None, env=dataclasses.replace(jfs, **wrong).environment())
    assert done.returncode not in (0, None) and done.returncode > 0
    assert any(w in done.stderr for w in words.split("|")) and "WRONGsecret" not in done.stderr, done.stderr


@pytest.mark.parametrize("seed", range(6))
def test_faults_do_not_change_the_stream(seed, made_set, digest_of, calm, tmp_path):
    """Index and run, with a fault at two of five requests."""
    draw = random.Random(seed)
    with FaultStore() as store:
        schedule = serve(store, "stormy", made_set)
        for thing in schedule.things.values():
            thing.faults = [draw.choice(TRANSIENT) if draw.random() < 0.4 else "calm" for _ in range(4)]
        config = configure(tmp_path / "s3.yaml", "s3://stormy/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\n")
        assert digest_of(config, environment_of(store)) == calm


def test_a_store_that_goes_away_stops_the_run_in_words(made_set, stoker, tmp_path):
    with FaultStore() as store:
        serve(store, "gone", made_set)
        config = configure(tmp_path / "c.yaml", "s3://gone/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\n")
        environment = environment_of(store)
        stoker("index", config, env=environment)
        store.schedules["gone"].all_requests = "no_such_bucket"
        done = stoker("run", config, "--index", "require", status=None, env=environment)
    assert done.returncode > 0 and "gone" in done.stderr, done.stderr


# --- the cache, by what the store counts ---

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
                f"endpoint: {store.url}\nepochs: {epochs}\ncache: {{path: {tmp_path / 'cache'}, bytes: {cache_bytes}}}\n"))
            stoker("index", config, env=environment_of(store))
            forget(schedule)
            return schedule, config, environment_of(store)
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


def test_room_for_half_keeps_half(cached, made_set, stoker):
    """Shuffled epochs: least-recently-used would ask for 85 % again."""
    total = sum(p.stat().st_size for p in (made_set / "media").iterdir())
    schedule, config, environment = cached(total // 2, epochs=3)
    stoker("run", config, "--prefetch", 1, "--workers", 1, env=environment)
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

"""The command line over stores: what `stoker run` delivers from s3:// is what it delivers from a folder, digest by digest."""
import dataclasses
import json
import random
import signal
import subprocess
import time

import pytest
from fault_store import TRANSIENT, FaultStore, Thing
from sets import SAMPLE, configure, picture, serve, upload

@pytest.mark.parametrize("name", ["jfs", "moto"])
def test_a_manifest_and_300_pictures(name, request, made_set, digest_of, calm, tmp_path):
    server = request.getfixturevalue(name)
    server.bucket("a-set")
    upload(server, made_set, "a-set", "deep/er/")
    config = configure(tmp_path / "s3.yaml", "s3://a-set/deep/er/train.jsonl", tmp_path / "index")
    assert digest_of(config, server.environment()) == calm
    assert digest_of(config, server.environment(), "--index", "require", "--workers", "inline") == calm
    assert digest_of(config, server.environment(), "--index", "require", "--io_threads", "3") == calm


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
        environment = store.environment()
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
        assert digest_of(config, store.environment()) == calm


def test_a_store_that_goes_away_stops_the_run_in_words(made_set, stoker, tmp_path):
    with FaultStore() as store:
        serve(store, "gone", made_set)
        config = configure(tmp_path / "c.yaml", "s3://gone/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\n")
        environment = store.environment()
        stoker("index", config, env=environment)
        store.schedules["gone"].all_requests = "no_such_bucket"
        done = stoker("run", config, "--index", "require", status=None, env=environment)
    assert done.returncode > 0 and "gone" in done.stderr, done.stderr


def start_and_take_away(build, config, environment, schedule, store, *flags):
    """A run whose store goes when a third of the objects have been asked for."""
    program = subprocess.Popen([build / "cli/stoker", "run", config, "--index", "require", "--digest", "--step-ms", "20", "--fetch-ahead", "40KB", *flags],
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while schedule.requests < 100 and program.poll() is None:
        time.sleep(0.01)
    assert program.poll() is None
    store.__exit__()
    return program


@pytest.fixture
def leaving(made_set, stoker, tmp_path):
    """A store with the set, its configuration and its index."""
    store = FaultStore().__enter__()
    schedule = serve(store, "leaving", made_set)
    config = configure(tmp_path / "c.yaml", "s3://leaving/train.jsonl", tmp_path / "index", more=f"endpoint: {store.url}\n")
    stoker("index", config, env=store.environment())
    schedule.requests = 0
    return store, schedule, config, store.environment()


def test_a_run_whose_store_comes_back_goes_on(leaving, build, calm):
    store, schedule, config, environment = leaving
    program = start_and_take_away(build, config, environment, schedule, store)
    time.sleep(1)
    with FaultStore(store.port) as again:
        again.add(schedule)
        out, err = program.communicate(timeout=120)
    assert program.returncode == 0 and out.strip() == calm, err


def test_a_run_whose_store_stays_away_can_be_interrupted(leaving, build, tmp_path):
    store, schedule, config, environment = leaving
    program = start_and_take_away(build, config, environment, schedule, store, "--state", tmp_path / "state")
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    err = program.communicate(timeout=60)[1]
    assert program.returncode == 130 and "interrupted" in err and (tmp_path / "state").exists(), err

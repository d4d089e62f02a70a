"""Runs whose manifests, media and indexes lie on a store: the digest of the same set on a disk, and every fault in its place."""
import asyncio
import base64
import contextlib
import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse

import pytest


@pytest.fixture(scope="module")
def fault_store(source):
    sys.path.insert(0, str(source / "tests/s3"))
    import fault_store
    return fault_store


@pytest.fixture(scope="module")
def store(fault_store):
    class Store(fault_store.FaultStore):
        """What is put is there."""

        def decide(self, request, schedule, thing, body):
            if request.method == "PUT" and getattr(schedule, "holds_puts", False):
                schedule.held = True
                return fault_store.Answer("200 OK"), "no_first_byte"
            decided = super().decide(request, schedule, thing, body)
            if request.key in schedule.puts:
                schedule.things[request.key] = fault_store.Thing.of(schedule.puts[request.key])
            return decided

    with Store() as made:
        yield made


@pytest.fixture
def sample(source, tmp_path):
    folder = tmp_path / "sample"
    shutil.copytree(source / "examples/sample", folder, ignore=shutil.ignore_patterns("*.stoker-*"))
    return folder


class Remote:
    """The sample set as a bucket of its own, and a configuration that reads it."""
    made = 0

    def __init__(self, fault_store, store, stoker, sample, tmp_path, prefix="sets/one two+%/"):
        Remote.made += 1
        self.bucket = f"set-{Remote.made}"
        self.thing, self.prefix, self.store, self.folder = fault_store.Thing, prefix, store, tmp_path
        things = {prefix + "train.jsonl": self.thing.of((sample / "train.jsonl").read_bytes())}
        for path in sorted((sample / "images").iterdir()):
            things[f"{prefix}images/{path.name}"] = self.thing.of(path.read_bytes())
        self.schedule = store.add(fault_store.Schedule(self.bucket, things))
        self.things = things
        self.config = sample / "remote.yaml"
        text = (sample / "stoker.yaml").read_text().replace("path: train.jsonl ", f"path: '{self.address}train.jsonl' ")
        assert self.bucket in text
        self.config.write_text(text + f"endpoint: {store.url}\n")
        self.cache = tmp_path / "cache"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
        self.environment |= {"AWS_ACCESS_KEY_ID": self.schedule.key, "AWS_SECRET_ACCESS_KEY": self.schedule.secret,
                             "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent",
                             "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "XDG_CACHE_HOME": str(self.cache)}
        self.stoker = stoker

    @property
    def address(self):
        return f"s3://{self.bucket}/{self.prefix}"

    def __call__(self, command, *arguments, config=None, status=0, **more):
        done = self.stoker(command, config or self.config, *arguments, status=status, env=self.environment | more)
        assert self.schedule.secret not in done.stdout + done.stderr
        return done

    def run(self, *arguments, **more):
        return json.loads(self("run", "--json", "--digest", *arguments, **more).stdout)

    def index(self, *arguments, **more):
        return json.loads(self("index", "--json", *arguments, **more).stdout)["sets"][0]

    def asked(self):
        assert self.schedule.bad_signatures == 0
        return sum(thing.asked for key, thing in self.things.items() if "/images/" in key)


@pytest.fixture
def remote(fault_store, store, stoker, sample, tmp_path):
    return Remote(fault_store, store, stoker, sample, tmp_path)


@pytest.fixture
def local(stoker, sample):
    return json.loads(stoker("run", sample / "stoker.yaml", "--json", "--digest").stdout)


def test_the_run_is_that_of_the_same_set_on_a_disk(remote, local):
    came = remote.run()
    assert came["digest"] == local["digest"] and came["state"] == local["state"]
    assert came["store"]["requests"] >= 32  # that many objects; those that are under way are not asked for twice
    assert came["store"]["retries"] == 0 and came["store"]["whole"]["count"] > 0
    assert local["store"]["requests"] == 0
    assert (remote.cache / "stoker").stat().st_mode & 0o077 == 0  # copies of what others may not be allowed to read
    # The index is there: no header is read again, and the manifest is not fetched again.
    before = remote.asked()
    assert remote.run("--index", "require")["digest"] == local["digest"]
    assert remote.asked() - before <= came["images"]
    assert all(".stoker-" in path.name for path in (remote.cache / "stoker").iterdir())
    for more in (("--workers", 4), ("--serial",), ("--index", "stream", "--balance", "none", "--max_tokens", 2048, "--limits.media_pixels", 4000000,
                                                   "--limits.media_bytes", "8MiB")):
        assert remote.run(*more)["samples"] == local["samples"]


def test_packed_manifests_of_a_prefix(remote, local):
    key = remote.prefix + "train.jsonl"
    remote.things[key + ".gz"] = remote.thing.of(gzip.compress(remote.things.pop(key).own))
    for path in ("", "tr", "train*"):
        text = remote.config.read_text().split("\n")
        text = [f"    path: '{remote.address}{path}'" if line.strip().startswith("path:") else line for line in text]
        remote.config.write_text("\n".join(text))
        assert remote.run()["digest"] == local["digest"]
    shown = remote("show", "sample#3", status=None)
    assert shown.returncode == 0, shown.stderr


def test_an_index_on_a_store_serves_another_machine(remote, local):
    remote.config.write_text(remote.config.read_text() + f"index_dir: s3://{remote.bucket}/index/\n")
    first = remote.index()
    assert first["media_headers_read"] > 0
    put = {key: remote.things[key] for key in remote.schedule.puts}
    assert len(put) == 2 and all(key.startswith("index/train.jsonl-") for key in put)
    remote.schedule.puts.clear()
    other = {"XDG_CACHE_HOME": str(remote.folder / "other machine")}
    before = remote.asked()
    again = remote.index(**other)
    assert again["media_headers_read"] == again["records_parsed"] == 0 and not remote.schedule.puts
    assert remote.asked() == before
    assert remote.run("--index", "require", **other)["digest"] == local["digest"]
    # What is damaged there is made anew and put again.
    for key in put:
        remote.things[key] = remote.thing.of(put[key].own[:-40] + bytes(40))
    third = {"XDG_CACHE_HOME": str(remote.folder / "third machine")}
    assert remote.index(**third)["media_headers_read"] > 0 and len(remote.schedule.puts) == 2


def test_an_index_on_a_store_that_may_not_be_listed_is_made_there(remote, local, fault_store, monkeypatch):
    """To callers who may not list, a key that is not there is 403: an index that was never made is made, not refused."""
    decide = remote.store.decide

    def unlisted(request, schedule, thing, body):
        if request.method != "PUT" and not thing:
            return remote.store.headless(request, fault_store.refusal("403 Forbidden", "AccessDenied")), "calm"
        return decide(request, schedule, thing, body)
    monkeypatch.setattr(remote.store, "decide", unlisted)
    remote.config.write_text(remote.config.read_text() + f"index_dir: s3://{remote.bucket}/index\n")
    assert remote.index()["media_headers_read"] > 0
    assert len(remote.schedule.puts) == 2
    other = {"XDG_CACHE_HOME": str(remote.folder / "other machine")}
    assert remote.run("--index", "require", **other)["digest"] == local["digest"]


def test_records_left_out_are_left_out_on_every_machine(remote):
    remote.config.write_text(remote.config.read_text() + f"index_dir: s3://{remote.bucket}/index\n")
    letters = remote.folder / "list.txt"
    letters.write_text("sample#3\n")
    assert remote.index()["excluded"] == 0
    assert json.loads(remote("index", "--json", "--exclude", letters).stdout)["sets"][0]["excluded"] == 1
    other = {"XDG_CACHE_HOME": str(remote.folder / "other machine")}
    assert remote.index(**other)["excluded"] == 1
    assert json.loads(remote("index", "--json", "--include-all", **other).stdout)["sets"][0]["excluded"] == 0
    assert remote.index()["excluded"] == 0


def test_a_list_that_may_not_be_read_for_a_while_is_kept(remote, fault_store, monkeypatch):
    """403 says nothing of whether there is a list: what this machine knows of it stays."""
    remote.config.write_text(remote.config.read_text() + f"index_dir: s3://{remote.bucket}/index\n")
    letters = remote.folder / "list.txt"
    letters.write_text("sample#3\n")
    assert json.loads(remote("index", "--json", "--exclude", letters).stdout)["sets"][0]["excluded"] == 1
    decide = remote.store.decide

    def secret(request, schedule, thing, body):
        if request.method != "PUT" and request.key.endswith("excluded"):
            return remote.store.headless(request, fault_store.refusal("403 Forbidden", "AccessDenied")), "calm"
        return decide(request, schedule, thing, body)
    monkeypatch.setattr(remote.store, "decide", secret)
    assert remote.index()["excluded"] == 1
    monkeypatch.undo()
    assert remote.index()["excluded"] == 1


def test_objects_that_change_or_go_are_masked(remote, local):
    remote.index()
    names = [key for key in remote.things if "/images/" in key]
    changed, gone = names[2], names[5]
    body = remote.things[changed].own
    remote.things[changed] = remote.thing.of(body[:-1] + bytes([body[-1] ^ 1]))  # of the same size
    del remote.things[gone]
    letters = remote.folder / "letters.jsonl"
    came = remote.run("--errors.masked", 1, "--dead_letter", letters)
    reasons = came["failures"]["by_reason"]
    assert reasons.keys() == {"media changed since indexing", "media missing"}
    lines = [json.loads(line) for line in letters.read_text().splitlines()]
    assert len(lines) == came["failures"]["masked"] == sum(reasons.values())
    assert all(line["file"].endswith("train.jsonl") and "s3://" in line["file"] for line in lines)
    assert all(line["message"].startswith("image ") and f"s3://{remote.bucket}/" in line["message"] for line in lines)
    # The index notices what has gone when it is asked to, and does not look at the others.
    report = remote.index()
    assert report["records"] == report["usable"]


def test_missing_objects_are_unusable(remote):
    names = [key for key in remote.things if "/images/" in key]
    del remote.things[names[0]]
    remote.things[names[1]].always = "access_denied"
    report = remote.index()
    assert {"media missing", "media that may not be read"} <= report["unusable"].keys()
    assert "list" in report["unusable"]["media that may not be read"]["examples"][0]["message"]
    words = report["unusable"]["media missing"]["examples"][0]
    assert words["file"].startswith("s3://") or words["file"].startswith("...")
    assert names[0].split("/")[-1] in words["message"]


def test_faults_of_the_network_change_nothing(remote, local):
    for number, (key, thing) in enumerate(remote.things.items()):
        thing.faults = ["reset_in_body", "slow_down", "internal_error"][number % 3:]
    assert remote.run()["digest"] == local["digest"]
    for thing in remote.things.values():
        thing.asked, thing.faults = 0, ["closed_before", "unavailable"]
    came = remote.run()
    assert came["digest"] == local["digest"] and came["state"] == local["state"]
    assert came["store"]["retries"] >= came["store"]["throttles"] > 0 and came["store"]["retries_by_reason"]["throttle"] > 0


def test_an_interrupt_ends_an_index_that_waits_for_the_store(remote, build):
    for key, thing in remote.things.items():
        thing.always = "" if key.endswith("jsonl") else "no_first_byte"
    program = subprocess.Popen([build / "cli/stoker", "index", remote.config], env=remote.environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not remote.asked() and time.monotonic() < until:
        time.sleep(0.05)
    assert remote.asked()
    program.send_signal(signal.SIGINT)
    assert "interrupted" in program.communicate(timeout=60)[1] and program.returncode == 130


@pytest.mark.parametrize("what", ["LIST", "HEAD", "GET", "PUT", "fetch-bench"])
def test_one_interrupt_ends_an_opening_that_waits_for_the_store(remote, build, what):
    manifest = remote.things[remote.prefix + "train.jsonl"]
    text = remote.config.read_text()
    if what == "LIST":
        remote.config.write_text(text.replace("train.jsonl'", "'"))
    if what == "PUT":
        remote.config.write_text(text + f"index_dir: s3://{remote.bucket}/index\n")
    if what in ("LIST", "fetch-bench"):
        remote.schedule.all_requests = "no_first_byte"
    elif what == "PUT":
        remote.schedule.holds_puts = True
    else:
        manifest.faults, manifest.always = (["calm"] * (what == "GET") + ["no_first_byte"] * 9), ""
    command = ["fetch-bench", remote.address, "--endpoint", remote.store.url] if what == "fetch-bench" else ["run", remote.config]
    program = subprocess.Popen([build / "cli/stoker", *command], env=remote.environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    waits = {"GET": lambda: manifest.asked > 1, "PUT": lambda: getattr(remote.schedule, "held", False)}.get(what, lambda: remote.schedule.requests)
    while not waits() and time.monotonic() < until:
        time.sleep(0.05)
    assert waits()
    program.send_signal(signal.SIGINT)
    # Long before the client's own patience is over, which asks again after ten seconds.
    before = remote.schedule.requests
    assert "interrupted" in program.communicate(timeout=60)[1] and program.returncode == 130
    assert remote.schedule.requests <= before + 1


def interrupted(build, remote, command, waits, most=1, **more):
    """Once the command waits for a store that has stopped answering, one Ctrl-C ends it: long before it would ask again, after ten seconds."""
    for thing in remote.things.values():
        thing.asked = 0
    program = subprocess.Popen([build / "cli/stoker", *map(str, command)], env=remote.environment | more, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not waits() and program.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert waits() and program.poll() is None, program.communicate()[1]
    program.send_signal(signal.SIGINT)
    said = program.communicate(timeout=60)[1]
    assert program.returncode == 130 and "interrupted" in said, said
    assert all(thing.asked <= most for thing in remote.things.values())


COMMANDS = {"index": (), "plan": (), "plan --step": ("--step", 0), "show": ("sample#1",), "replay": ("--step", 0), "run": (), "fetch-bench": ()}


@pytest.mark.parametrize("name", [*COMMANDS, "diff"])
def test_one_interrupt_ends_every_command_that_waits_for_its_manifest(remote, build, name):
    remote.schedule.all_requests = "no_first_byte"
    more = (remote.config,) if name == "diff" else COMMANDS[name]
    interrupted(build, remote, [name.split()[0], remote.config, *more], lambda: remote.schedule.requests)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["show", "replay", "run", "fetch-bench"])
def test_one_interrupt_ends_every_command_that_waits_for_media(remote, build, name, stream):
    lazily = ("--index", "stream", "--balance", "none", "--max_tokens", 2048, "--limits.media_pixels", 4000000, "--limits.media_bytes", "8MiB") if stream else ()
    remote("replay", "--step", 0, *lazily)  # index and copies are there
    for key, thing in remote.things.items():
        thing.always = "" if key.endswith("jsonl") else "no_first_byte"
    # Facts of a picture in two records are asked for by one for both: called back, the other asks for itself.  fetch-bench asks for each.
    interrupted(build, remote, [name, remote.config, *COMMANDS[name], *lazily], remote.asked, most=8 if name == "fetch-bench" else 1 + stream)


def test_one_interrupt_ends_a_command_that_waits_for_its_credentials(remote, build, tmp_path):
    """A program that never says them."""
    (tmp_path / "config").write_text(f"[default]\ncredential_process = /bin/sh -c 'touch {tmp_path}/asked; exec sleep 60'\n")
    interrupted(build, remote, ["show", remote.config, "sample#1"], (tmp_path / "asked").exists,
                AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONFIG_FILE=str(tmp_path / "config"))


def test_a_store_that_refuses_ends_show_in_words(remote):
    """It is no fault of the picture."""
    remote.index()
    names = [key for key in remote.things if "/images/" in key]
    for key in names:
        remote.things[key].always = "invalid_key_id"
    shown = remote("show", "sample#1", status=1)
    assert "InvalidAccessKeyId" in shown.stderr and "unusable" not in shown.stdout


def test_the_requester_pays_for_every_request(remote, monkeypatch):
    seen, decide = [], remote.store.decide

    def spy(request, schedule, thing, body):
        seen.append(request)
        return decide(request, schedule, thing, body)
    monkeypatch.setattr(remote.store, "decide", spy)
    text = remote.config.read_text().replace("train.jsonl'", "'")
    remote.config.write_text(text + f"index_dir: s3://{remote.bucket}/index\nrequester_pays: true\n")
    remote.run()
    assert {request.method for request in seen} == {"GET", "HEAD", "PUT"} and any("list-type" in request.query for request in seen)
    assert all(request.headers.get("x-amz-request-payer") == "requester" for request in seen)
    assert all("x-amz-request-payer" in request.headers["authorization"] for request in seen)


def test_a_data_uri_has_the_limit_of_a_medium(remote):
    picture = max((thing.own for key, thing in remote.things.items() if key.endswith(".jpg")), key=len)
    records = [{"id": str(i), "image": "data:image/jpeg;base64," + base64.b64encode(picture + bytes(more)).decode(),
                "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]} for i, more in enumerate((0, 1))]
    remote.things[remote.prefix + "train.jsonl"] = remote.thing.of("".join(json.dumps(r) + "\n" for r in records).encode())
    report = remote.index("--limits.media_bytes", len(picture), status=None)
    assert report["usable"] == 1 and report["unusable"]["the media exceeds a limit"]["count"] == 1, report
    assert remote.index()["usable"] == 2


def test_a_second_run_takes_objects_from_the_cache(remote, local):
    options = ("--cache.path", remote.folder / "disk", "--cache.bytes", "1GB", "--epochs", 1)
    first = remote.run(*options)
    before = remote.asked()
    second = remote.run(*options)
    assert second["digest"] == first["digest"] and remote.asked() == before
    assert second["store"]["cache_hits"] > 0 == second["store"]["cache_misses"] and second["store"]["cache_hit_bytes"] > 0


def test_prices_become_an_estimate(remote):
    came = remote.run("--set", "prices={request: 0.4, transfer: 20}")["store"]
    assert abs(came["price"] - (came["requests"] * 0.4 / 1e3 + came["bytes"] * 20 / 1e9)) < 1e-9
    assert came["price_per_million_samples"] > came["price"]


def test_the_figures_of_a_store_are_those_of_a_loader_too(remote):
    """The keys of the command line, from Python."""
    remote.config.write_text(remote.config.read_text() + "prices: {request: 0.4, transfer: 20}\n")
    said = remote.run()["store"]
    script = """
import json, sys, stoker
with stoker.Loader(sys.argv[1]) as loader:
    for _ in loader:
        pass
    print(json.dumps(loader.metrics()["store"]))
"""
    done = subprocess.run([sys.executable, "-c", script, remote.config], env=remote.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.keys() == said.keys() and told["first_byte"].keys() == said["first_byte"].keys()
    assert told["requests"] > 0 and told["whole"]["count"] > 0 and told["cache_warning"] is None
    assert abs(told["price"] - (told["requests"] * 0.4 / 1e3 + told["bytes"] * 20 / 1e9)) < 1e-9


def test_a_store_that_refuses_stops_with_words(remote):
    wrong = remote("index", status=None, AWS_SECRET_ACCESS_KEY="not this one")
    assert wrong.returncode != 0 and "not this one" not in wrong.stderr
    assert "credentials" in wrong.stderr or "SignatureDoesNotMatch" in wrong.stderr
    none = remote("run", status=None, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert none.returncode != 0 and "no credentials found" in none.stderr
    remote.config.write_text(remote.config.read_text().replace(remote.bucket, "no-such-bucket"))
    missing = remote("run", status=None)
    assert missing.returncode != 0 and "no-such-bucket" in missing.stderr


def test_a_manifest_may_name_only_what_is_allowed(remote, store):
    key = remote.prefix + "train.jsonl"
    records = [{"id": name, "image": image, "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}
               for name, image in (("other", "s3://other-bucket/x.png"), ("file", "/etc/passwd"), ("up", "../../../out.png"),
                                   ("host", store.url + "/elsewhere/x.png?X-Amz-Signature=hush"),
                                   ("link", "http://169.254.169.254/latest/meta-data/"))]
    remote.things[key] = remote.thing.of("".join(json.dumps(r) + "\n" for r in records).encode())
    done = remote("index", "--json", status=3)
    report = json.loads(done.stdout)["sets"][0]
    assert report["usable"] == 0 and "hush" not in done.stdout + done.stderr
    words = json.dumps(report["unusable"])
    assert "allow: ['s3://other-bucket']" in words and "allow: [/etc]" in words and "out of the bucket" in words
    assert remote.asked() == 0


def test_a_presigned_address_is_told_without_its_signature(remote, local):
    key = remote.prefix + "train.jsonl"
    image = f"{remote.store.url}/{remote.bucket}/no-such.png?X-Amz-Signature=hush"
    record = {"id": "a", "image": image, "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}
    tar = dict(record, id="b", image=f"tar:0+10::{image}")
    remote.things[key] = remote.thing.of(f"{json.dumps(record)}\n{json.dumps(tar)}\n".encode())
    done = remote("index", "--json", "--allow", remote.store.url, status=3)
    report = json.loads(done.stdout)["sets"][0]["unusable"]
    assert sum(reason["count"] for reason in report.values()) == 2 and "no-such.png" in json.dumps(report)
    shown = remote("show", "sample/a", "--allow", remote.store.url, status=None)
    files = b"".join(path.read_bytes() for path in (remote.cache / "stoker").iterdir() if "copy" not in path.name)
    assert "hush" not in done.stdout + done.stderr + shown.stdout + shown.stderr and b"hush" not in files


@pytest.fixture
def web(fault_store):
    """A host that asks nobody for a signature."""
    class Web(fault_store.FaultStore):
        get_only = False

        def identify(self, request, schedule):
            if self.get_only and request.method == "HEAD":
                return self.headless(request, fault_store.refusal("403 Forbidden", "SignatureDoesNotMatch"))
            return None

    with Web() as made:
        yield made


def test_media_of_eval_may_lie_on_a_host_that_training_may_not_name(remote, local, web, fault_store, sample):
    pictures = {f"images/{path.name}": fault_store.Thing.of(path.read_bytes()) for path in sorted((sample / "images").iterdir())}
    hosted = web.add(fault_store.Schedule("pictures", pictures))
    image = f"{web.url}/pictures/" + next(name for name in pictures if name.endswith(".jpg") and " " not in name and name.isascii())
    record = {"id": "a", "image": image, "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}
    (sample / "val.jsonl").write_text(json.dumps(record) + "\n")
    plain = remote.config.read_text()
    remote.config.write_text(plain + f"eval: {{data: [{{name: val, path: val.jsonl}}], batch: 1, allow: ['{web.url}']}}\n")
    came = remote.run("--eval-every", 9)
    assert came["digest"] == local["digest"] and came["eval"]["same"] and came["eval"]["images"] == came["eval"]["evaluations"] > 0
    assert hosted.requests > 1 and came["failures"]["masked"] == 0
    # Training may not name it.
    remote.config.write_text(plain.replace("data:\n", "data:\n  - {name: val, path: val.jsonl}\n"))
    before = hosted.requests
    assert "allow" in remote("run", "--errors.unusable", 0.5, status=None).stderr
    assert hosted.requests == before


def test_a_manifest_of_a_url_is_read_as_one_on_a_store(remote, local, web, fault_store, sample):
    things = {f"deep/{path.relative_to(sample)}": fault_store.Thing.of(path.read_bytes())
              for path in [sample / "train.jsonl", *sorted((sample / "images").iterdir())]}
    hosted = web.add(fault_store.Schedule("hosted", things))
    manifest, plain = things["deep/train.jsonl"], (sample / "stoker.yaml").read_text()

    def configure(url, more=""):
        remote.config.write_text(plain.replace("path: train.jsonl ", f"path: '{url}' ") + more)

    configure(f"{web.url}/hosted/deep/train.jsonl?X-Amz-Signature=hush", f"allow: ['{web.url}']\n")
    first = remote("run", "--json", "--digest")
    assert json.loads(first.stdout)["digest"] == local["digest"]
    # Signed anew, for GET alone as such a URL is: one look, and the copy serves.
    before, web.get_only = manifest.asked, True
    configure(f"{web.url}/hosted/deep/train.jsonl?X-Amz-Signature=hush2", f"allow: ['{web.url}']\n")
    again = remote("run", "--json", "--digest", "--index", "require")
    assert json.loads(again.stdout)["digest"] == local["digest"] and manifest.asked == before + 1
    web.get_only = False
    # A changed one is fetched again, and errors name it without its query.
    things["deep/train.jsonl"] = fault_store.Thing.of(manifest.own + b"{\n")
    changed = remote("index", "--json", status=None)
    assert json.loads(changed.stdout)["sets"][0]["records"] > 0 and "deep/train.jsonl" in changed.stdout
    del things["deep/train.jsonl"]
    gone = remote("run", status=None)
    assert gone.returncode > 0 and "deep/train.jsonl" in gone.stderr
    # Only where its host is allowed.
    asked = hosted.requests
    configure(f"{web.url}/hosted/deep/train.jsonl?X-Amz-Signature=hush")
    refused = remote("run", status=2)
    assert f"allow: ['{web.url}']" in refused.stderr and hosted.requests == asked
    files = b"".join(path.name.encode() + path.read_bytes() for path in (remote.cache / "stoker").iterdir())
    said = "".join(done.stdout + done.stderr for done in (first, again, changed, gone, refused))
    assert "hush" not in said and b"hush" not in files


def test_eval_with_a_store_of_its_own_is_refused_beside_training(remote):
    remote.config.write_text(remote.config.read_text() + "eval: {data: [{name: val, path: train.jsonl}], batch: 1, region: elsewhere-1}\n")
    done = remote("run", "--eval-every", 9, status=None)
    assert done.returncode == 2 and "eval: region is not that of the run" in done.stderr
    assert remote("run", status=0).returncode == 0


def test_a_presigned_address_that_expired_is_masked_and_told_without_its_signature(remote, local):
    """Whoever answers 403 gets the hint; the dead letter says which address it was."""
    key, name = remote.prefix + "train.jsonl", next(key for key in remote.things if "/images/" in key)
    record = {"id": "a", "image": f"{remote.store.url}/{remote.bucket}/{urllib.parse.quote(name)}?X-Amz-Signature=hush",
              "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}
    remote.things[key] = remote.thing.of((json.dumps(record) + "\n").encode())
    identify = remote.store.identify
    remote.store.identify = lambda request, schedule: None
    try:
        assert remote.index("--allow", remote.store.url)["usable"] == 1
    finally:
        remote.store.identify = identify
    letters = remote.folder / "letters.jsonl"
    came = remote("run", "--json", "--epochs", 1, "--allow", remote.store.url, "--errors.masked", 1, "--dead_letter", letters)
    letter = json.loads(letters.read_text())
    assert letter["reason"] == "media that may not be read" and "presigned URL may have expired" in letter["message"]
    assert remote.store.url in letter["message"] and "hush" not in letters.read_text() + came.stdout + came.stderr


def test_files_in_tars_of_a_bucket(remote, local, sample):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for path in sorted((sample / "images").iterdir()):
            out.add(path, path.name)
    key = remote.prefix + "train.jsonl"
    text = remote.things[key].own.decode()
    remote.things[key] = remote.thing.of(re.sub(r'"images/([^"]+)"', r'"tar://\1::images.tar"', text).encode())
    remote.things = {k: v for k, v in remote.things.items() if "/images/" not in k}
    remote.things[remote.prefix + "images.tar"] = remote.thing.of(tar.getvalue())
    remote.schedule.things = remote.things
    came = remote.run()
    assert came["samples"] == local["samples"] and came["images"] == local["images"] and came["failures"]["masked"] == 0
    assert came["store"]["requests"] > 0


def test_fetch_bench_measures_a_prefix(remote, stoker):
    done = stoker("fetch-bench", remote.address, "--endpoint", remote.store.url, "--seconds", 1, "--most", 16, "--json", env=remote.environment)
    said = json.loads(done.stdout)
    assert said["objects"] == len(remote.things) and said["best_in_flight"] in (8, 16)
    assert [level["in_flight"] for level in said["levels"]] == [8, 16]
    for level in said["levels"]:
        assert level["objects"] > 0 and level["failed"] == 0 and level["bytes"] > level["objects"]
        assert 0 < level["first_byte"]["p50_ms"] <= level["whole"]["p99_ms"]
    table = stoker("fetch-bench", remote.config, "--seconds", 1, "--most", 8, env=remote.environment).stdout
    assert "objects/s" in table and "best: 8 in flight" in table and "fetch_ahead" in table
    assert not any("media" in path.name for path in (remote.cache / "stoker").iterdir())
    nothing = stoker("fetch-bench", remote.address + "none/", "--endpoint", remote.store.url, env=remote.environment, status=None)
    assert nothing.returncode == 1 and "no object" in nothing.stderr


def test_fetch_bench_says_how_many_requests_are_enough(remote, fault_store, stoker, monkeypatch):
    """Of a store that serves 16 at a time, and takes 40 ms for each: the least number that gives as much as any, within 5 %."""
    places = asyncio.Semaphore(16)

    async def narrow(out, answer, request, draw):
        async with places:
            await asyncio.sleep(0.04)
        return await fault_store.calm(out, answer, request, draw)
    monkeypatch.setitem(fault_store.FAULTS, "narrow", narrow)
    for key, thing in remote.things.items():
        thing.always = "narrow"
    done = stoker("fetch-bench", remote.address, "--endpoint", remote.store.url, "--seconds", 1, "--most", 512, "--json", env=remote.environment)
    said = json.loads(done.stdout)
    rate = {level["in_flight"]: level["objects_per_s"] for level in said["levels"]}
    assert said["best_in_flight"] == min(n for n in rate if rate[n] * 1.05 >= max(rate.values())), rate
    assert said["best_in_flight"] < max(rate) < 512, rate  # more was tried in vain, and then no more


def test_fetch_bench_follows_redirects_as_a_run_does(stoker, remote, fault_store):
    """To hosts that the caller names, and to no others."""
    class Moved(fault_store.FaultStore):
        def decide(self, request, schedule, thing, body):
            return fault_store.Answer("302 Found", headers={"Location": self.to}), "calm"

    class Calm(fault_store.FaultStore):
        def decide(self, request, schedule, thing, body):
            return self.content(request, thing), "calm"

    with Moved() as first, Calm() as second:
        for web in (first, second):
            web.add(fault_store.Schedule("web", {"a": fault_store.Thing.of(b"some bytes")}))
        first.to = f"{second.url}/web/a"
        command = ("fetch-bench", f"{first.url}/web/a", "--seconds", 1, "--most", 8)
        refused = stoker(*command, env=remote.environment, status=1)
        assert f'redirected to a place outside the allowed places: add allow: ["{second.url}"]' in refused.stderr and not second.reached
        assert "best: 8 in flight" in stoker(*command, "--allow", second.url, env=remote.environment).stdout


def test_fetch_bench_of_a_store_that_is_not_there_says_so(stoker, remote):
    """Within its measurement nothing has come yet: it is waited for, until the retries are over."""
    dead = stoker("fetch-bench", "http://127.0.0.1:1/x.jpg?X-Amz-Signature=hush", "--seconds", 1, env=remote.environment, status=None)
    assert dead.returncode == 1 and "connect to 127.0.0.1" in dead.stderr and "look at" in dead.stderr, dead.stderr
    assert dead.stdout == "" and "hush" not in dead.stderr


def test_a_store_without_tls_behind_https_is_told_at_once(remote):
    """It answers as such servers do, and is asked once: another answer will not come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        came = []

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        came.append(connection.recv(4096))
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        said = remote("index", "--endpoint", f"https://127.0.0.1:{server.getsockname()[1]}", status=None)
        server.shutdown(socket.SHUT_RDWR)
    assert said.returncode == 1 and "speaks no TLS" in said.stderr and "http://" in said.stderr and len(came) == 1, (said.stderr, len(came))

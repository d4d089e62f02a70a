"""The disk cache and tars on a store, by what the store was asked: a store of our own that counts."""
import collections
import http.server
import json
import random
import re
import shutil
import subprocess
import tarfile
import threading

import pytest


class Store:
    """Files of a folder over HTTP/1.1, with ETag, Range and If-Match; `asked` counts the bodies sent, by path."""

    def __init__(self, folder):
        self.folder, self.asked, self.bytes, self.lock = folder, collections.Counter(), 0, threading.Lock()
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = 1 << 16

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, with_body):
                path = store.folder / self.path.lstrip("/")
                if not path.is_file():
                    return self.send(404, b"", with_body, {})
                body = path.read_bytes()
                etag = f'"{hash(body) & 0xffffffff:x}-{len(body)}"'
                if self.headers.get("If-Match", etag) != etag:
                    return self.send(412, b"", with_body, {})
                wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                if not wanted:
                    return self.send(200, body, with_body, {"ETag": etag})
                first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
                if first > last:
                    return self.send(416, b"", with_body, {"Content-Range": f"bytes */{len(body)}"})
                return self.send(206, body[first:last + 1], with_body, {"ETag": etag, "Content-Range": f"bytes {first}-{last}/{len(body)}"})

            def send(self, status, body, with_body, headers):
                with store.lock:
                    store.asked[self.path] += with_body
                    store.bytes += len(body) * with_body
                self.send_response(status)
                for name, value in {**headers, "Content-Length": len(body)}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 1024
            daemon_threads = True

            def handle_error(self, *_):
                pass                        # a client that was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        """Bodies sent since the last call."""
        with self.lock:
            asked, self.asked, self.bytes = sum(self.asked.values()), collections.Counter(), 0
        return asked


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    store = Store(tmp_path / "store")
    yield store
    store.server.shutdown()
    store.server.server_close()


RECORDS = 60


@pytest.fixture
def pictures(source, store):
    """As many different pictures as there are records: comments behind the end make them so."""
    images = sorted((source / "examples/sample/images").glob("*.jpg"))
    names = [f"p{i:03}.jpg" for i in range(RECORDS)]
    for i, name in enumerate(names):
        (store.folder / name).write_bytes(images[i % len(images)].read_bytes() + b"-%d" % i * 20)
    return names


def set_of(source, folder, addresses, more):
    folder.mkdir(exist_ok=True)
    with open(folder / "train.jsonl", "w") as out:
        for i, address in enumerate(addresses):
            turns = [{"from": "human", "value": f"<image>{i}?"}, {"from": "gpt", "value": "Yes."}]
            out.write(json.dumps({"id": i, "image": address, "conversations": turns}) + "\n")
    config = (source / "examples/sample/stoker.yaml").read_text().replace("model: model", f"model: {source}/examples/sample/model")
    config = re.sub(r"(?m)^(batch|epochs|max_pixels):.*\n", "", config)
    (folder / "stoker.yaml").write_text(config + f"batch: 4\nepochs: 1\nmax_pixels: 16384\nmin_pixels: 4096\nhedge: false\n{more}")
    return folder / "stoker.yaml"


def digest_of(stoker, config, *flags):
    return stoker("run", config, "--digest", *flags).stdout.strip()


def size_of(store, names):
    """What they take in the cache: whole blocks, with their heads."""
    return sum(((store.folder / name).stat().st_size + 400 + 4095) // 4096 * 4096 for name in names)


def entries(cache):
    return [p for p in cache.rglob("*") if p.is_file() and len(p.name) == 32]


@pytest.fixture
def remote(source, store, pictures, tmp_path, stoker):
    """A set on the store, indexed, and the digest of the same set on the disk."""
    local = set_of(source, tmp_path / "local", pictures, f"allow: [{store.folder}]\n")
    for name in pictures:
        shutil.copy(store.folder / name, tmp_path / "local" / name)
    expected = digest_of(stoker, local)
    cache = tmp_path / "cache"
    config = set_of(source, tmp_path / "remote", [f"{store.url}/{name}" for name in pictures],
                    f"allow: ['{store.url}']\ncache: {{path: {cache}, bytes: 1GiB}}\n")
    stoker("index", config)
    assert not cache.exists() or not entries(cache), "the index keeps nothing"
    store.taken()
    return config, cache, expected


def test_what_was_fetched_once_is_not_asked_again(stoker, store, remote):
    config, cache, expected = remote
    assert digest_of(stoker, config) == expected
    assert store.taken() == RECORDS and len(entries(cache)) == RECORDS
    assert digest_of(stoker, config, "--seed", 7) != expected
    assert store.taken() == 0


def test_a_byte_that_flips_on_the_disk_is_fetched_again(stoker, store, remote):
    config, cache, expected = remote
    digest_of(stoker, config)
    store.taken()
    for i, path in enumerate(sorted(entries(cache))[:3]):
        data = bytearray(path.read_bytes())
        data[[20, -1, len(data) // 2][i]] ^= 1
        path.write_bytes(data)
    done = json.loads(stoker("run", config, "--digest", "--json").stdout)
    assert done["digest"] == expected and store.taken() == 3
    assert done["store"]["cache_broken"] == done["store"]["cache_stored"] == 3 and done["store"]["cache_warning"] is None
    assert done["store"]["cache_hits"] == RECORDS - 3
    assert digest_of(stoker, config) == expected and store.taken() == 0


def test_room_for_half_serves_half(stoker, store, pictures, remote):
    """Least-recently-used would ask for 85 % in each epoch after the first."""
    config, cache, expected = remote
    flags = ["--set", f"cache.bytes={size_of(store, pictures) // 2}"]
    digest_of(stoker, config, *flags)
    assert store.taken() == RECORDS
    for seed in 5, 6:
        digest_of(stoker, config, "--seed", seed, *flags)
        assert store.taken() <= 0.55 * RECORDS
    assert digest_of(stoker, config, *flags) == expected


def test_the_set_that_is_drawn_most_stays(source, stoker, store, pictures, tmp_path):
    """Room for a third of the pictures, and that third is drawn three times an epoch: only the others are asked for again."""
    often, once = pictures[:RECORDS // 3], pictures[RECORDS // 3:]
    for name, some in ("often", often), ("once", once):
        set_of(source, tmp_path / name, [f"{store.url}/{p}" for p in some], "")
    config = set_of(source, tmp_path / "both", [], f"allow: ['{store.url}']\ncache: {{path: {tmp_path / 'cache'}, bytes: {size_of(store, often)}}}\n")
    data = "data:\n" + "".join(f"  - {{name: {n}, path: ../{n}/train.jsonl, epochs: {e}}}\n" for n, e in (("once", 1), ("often", 3)))
    config.write_text(re.sub(r"(?s)data:\n.*?(?=batch|epochs|seed)", data, config.read_text()))
    stoker("index", config)
    digest_of(stoker, config)
    for seed in 5, 6:
        store.taken()
        digest_of(stoker, config, "--seed", seed)
        assert store.taken() == len(once)


def test_a_changed_object_is_never_served_from_the_cache(stoker, store, pictures, remote):
    config, cache, expected = remote
    digest_of(stoker, config)
    (store.folder / pictures[0]).write_bytes((store.folder / pictures[1]).read_bytes())
    for sidecar in config.parent.glob("train.jsonl.*"):
        sidecar.unlink()
    stoker("index", config)
    store.taken()
    assert digest_of(stoker, config) != expected
    assert store.taken() == 1


def test_two_runs_at_once_that_are_killed_leave_a_cache_that_works(build, stoker, store, remote):
    config, cache, expected = remote
    rng = random.Random(3)
    for _ in range(6):
        both = [subprocess.Popen([build / "cli/stoker", "run", config, "--digest"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2)]
        for one in both:
            try:
                one.wait(rng.uniform(0.05, 0.5))
            except subprocess.TimeoutExpired:
                one.kill()
            out, err = one.communicate()
            assert one.returncode in (0, -9), err
            assert not out or out.decode().strip() == expected
    assert digest_of(stoker, config) == expected
    store.taken()
    assert digest_of(stoker, config) == expected and store.taken() == 0
    assert not list((cache / "tmp").iterdir())


def test_a_cache_that_cannot_be_written_changes_nothing(stoker, store, remote, tmp_path):
    config, cache, expected = remote
    (tmp_path / "file").write_text("")
    done = json.loads(stoker("run", config, "--digest", "--json", "--set", f"cache.path={tmp_path / 'file'}").stdout)
    assert done["digest"] == expected and "cannot be used" in done["store"]["cache_warning"]
    assert store.taken() == RECORDS
    assert "warning: the cache cannot be used" in stoker("run", config, "--set", f"cache.path={tmp_path / 'file'}").stdout


@pytest.mark.parametrize("by_place", [False, True])
def test_a_tar_on_a_store_is_as_one_on_the_disk(source, stoker, store, pictures, remote, tmp_path, by_place):
    """The list of its files takes a request for each megabyte, once; then each file is one request at most, or none with the cache."""
    _, cache, expected = remote
    with tarfile.open(store.folder / "all.tar", "w") as tar:
        for name in pictures:
            tar.add(store.folder / name, name)
    with tarfile.open(store.folder / "all.tar") as tar:
        place = {m.name: f"{m.offset_data}+{m.size}" for m in tar}
    address = [f"tar:{place[n]}::{store.url}/all.tar" if by_place else f"tar://{n}::{store.url}/all.tar" for n in pictures]
    config = set_of(source, tmp_path / "tar", address,
                    f"allow: ['{store.url}']\ncache: {{path: {cache}, bytes: 1GiB}}\nindex_dir: {tmp_path / 'lists'}\n")
    stoker("index", config)
    store.taken()
    assert digest_of(stoker, config) == expected
    assert 1 <= store.taken() <= RECORDS + 1, "files that lie side by side may come by one"
    assert digest_of(stoker, config) == expected
    assert store.taken() <= 1


def test_a_tar_that_changed_on_the_store_is_not_taken_for_the_old_one(source, stoker, store, pictures, tmp_path):
    def pack(names):
        with tarfile.open(store.folder / "all.tar", "w") as tar:
            for name in names:
                tar.add(store.folder / name, name)

    pack(pictures)
    config = set_of(source, tmp_path / "tar", [f"tar://{n}::{store.url}/all.tar" for n in pictures],
                    f"allow: ['{store.url}']\nindex_dir: {tmp_path / 'lists'}\nerrors: {{masked: 1.0}}\n")
    stoker("index", config)
    before = digest_of(stoker, config)
    pack(reversed(pictures))
    assert digest_of(stoker, config) != before, "all samples are masked: no byte of another picture is taken"
    assert "changed" in stoker("run", config, "--set", "errors.masked=0.01", status=None).stderr

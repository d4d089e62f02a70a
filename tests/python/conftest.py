"""Loaders over the sample set."""
import contextlib
import functools
import http.server
import importlib.util
import json
import pathlib
import shutil
import threading

import pytest


def pytest_collection_modifyitems(items):
    """Without Python's headers Meson leaves the extension out."""
    if importlib.util.find_spec("stoker") is None or importlib.util.find_spec("stoker._core") is None:
        for item in items:
            if item.path.parent == pathlib.Path(__file__).parent:
                item.add_marker(pytest.mark.skip(reason="the extension is not built: install python3-dev, and configure again"))


@pytest.fixture(scope="session")
def package():
    import stoker
    return stoker


@pytest.fixture(params=["inprocess", "process"])
def engine(request):
    """Where batches are made."""
    return request.param


@pytest.fixture
def load(package, config, index_dir, engine):
    """Open a loader on the sample set; small and quick unless options say otherwise.  Closed at the end."""
    opened = []

    def open_one(*ranks, **options):
        loader = package.Loader(config, *ranks, **{"index_dir": index_dir, "workers": 2, "memory": "256MiB", "keep": 2, "engine": engine, **options})
        opened.append(loader)
        return loader

    yield open_one
    for loader in opened:
        loader.close()


class Store(http.server.BaseHTTPRequestHandler):
    """Pictures of a folder; bodies are held back while the gate is closed."""
    protocol_version = "HTTP/1.1"

    def __init__(self, folder, gate, *more):
        self.folder, self.gate = folder, gate
        super().__init__(*more)

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        data = (self.folder / self.path.lstrip("/")).read_bytes()
        start, end = 0, len(data) - 1
        if body:
            self.gate.wait()
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or end), end)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked has gone
            self.end_headers()
            if body:
                self.wfile.write(data[start:end + 1])

    def log_message(self, *words):
        pass


class Held:
    """A configuration whose pictures come from a store, and the store's gate."""

    def __init__(self, package, source, folder):
        self.gate = threading.Event()
        self.gate.set()
        handler = functools.partial(Store, source / "examples/sample/images", self.gate)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{self.server.server_port}"
        shutil.copytree(source / "examples/sample/model", folder / "model")
        records = [{"id": name, "image": f"{address}/{name}.jpg", "conversations": [
            {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A picture."}]} for name in ("harbour", "mountains")]
        (folder / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        rest = (source / "examples/sample/stoker.yaml").read_text().partition("epochs:")[2].partition("\n")[2]
        (folder / "stoker.yaml").write_text(f"model: model\ndata:\n  - path: train.jsonl\nallow: [{address}]\nbatch: 2\nepochs: 4\nprefetch: 1\n"
                                            f"workers: 2\nmemory: 256MiB\nhedge: false\n{rest}")
        self.config = folder / "stoker.yaml"
        package.index(self.config)


@pytest.fixture
def held(package, source, tmp_path):
    """Closed: batches do not come until held.gate.set()."""
    store = Held(package, source, tmp_path)
    store.gate.clear()
    yield store
    store.gate.set()
    store.server.shutdown()

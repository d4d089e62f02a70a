"""Where the servers are installed (`make test-s3`: .venv-s3) these tests run; elsewhere they are not collected."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

INSTALLED = importlib.util.find_spec("moto") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]

if INSTALLED:
    import servers
    from probe import Probe
    from sets import configure, make_set


@pytest.fixture(scope="session")
def probe_program(build):
    program = build / "tests" / "s3" / "store_probe"
    assert program.exists(), f"build it: ninja -C {build} tests/s3/store_probe"
    return program


@pytest.fixture
def probe(probe_program):
    """probe(environment, **config): an open source in a process of its own, at whose end nothing may be left."""
    made = []

    def start(environment, **config):
        p = Probe(probe_program, environment)
        made.append(p)
        return p.open(**config)

    yield start
    for p in made:
        with p:
            if p.process.poll() is None:
                assert p.end()["held"] == 0


@pytest.fixture(scope="session")
def jfs(tmp_path_factory):
    with servers.juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        server.bucket("tests")
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory):
    with servers.moto(tmp_path_factory.mktemp("moto")) as server:
        server.bucket("tests")
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory):
    with servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        server.bucket("tests")
        yield server


@pytest.fixture(params=["jfs", "moto", "rclone"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["jfs", "moto"])
def sound_server(request):
    """Without rclone, which knows neither ranges nor conditions as S3 does."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def made_set(tmp_path_factory):
    """300 chats with a picture each, in a folder."""
    return make_set(tmp_path_factory.mktemp("set"))


@pytest.fixture
def digest_of(stoker):
    def run(config, environment=None, *flags):
        return stoker("run", config, "--digest", *flags, env=environment or dict(os.environ)).stdout.strip()
    return run


@pytest.fixture
def calm(made_set, digest_of, tmp_path):
    """The digest of that set, read from its folder."""
    return digest_of(configure(tmp_path / "calm.yaml", made_set / "train.jsonl", tmp_path / "calm-index"))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Of 127.0.0.1, with its key; beside it as .crt without: its own authority."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path, "-out", path.with_suffix(".crt"),
                    "-days", "30", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with open(path, "ab") as out:
        out.write(path.with_suffix(".crt").read_bytes())
    return path

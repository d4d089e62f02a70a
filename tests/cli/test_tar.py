"""Images in tars: the same stream as from the plain files, and faults of a tar counted as those of files are."""
import gzip
import json
import shutil
import tarfile

import pytest

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@pytest.fixture(scope="module")
def sample(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tar") / "sample"
    shutil.copytree(source / "examples/sample", folder, ignore=shutil.ignore_patterns("*.stoker-*"))
    return folder


@pytest.fixture(scope="module")
def digest(stoker, sample):
    """Of the run over plain files."""
    return stoker("run", sample / "stoker.yaml", "--digest").stdout.strip()


def names_of(sample):
    return sorted(str(p.relative_to(sample)) for p in (sample / "images").rglob("*") if p.is_file())


def pack(path, sample, names, form=tarfile.GNU_FORMAT, prefix=""):
    with tarfile.open(path, "w", format=form) as tar:
        for name in names:
            tar.add(sample / name, prefix + name)


def set_of(sample, folder, address):
    """A copy of the set's records and configuration, without its images, each address by a function of the old one."""
    names = set(names_of(sample))

    def renamed(value):
        if isinstance(value, dict):
            return {key: renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one) for one in value]
        return address(value) if isinstance(value, str) and value in names else value

    folder.mkdir(exist_ok=True)
    records = [json.loads(line) for line in open(sample / "train.jsonl")]
    (folder / "train.jsonl").write_text("".join(json.dumps(renamed(record)) + "\n" for record in records))
    config = (sample / "stoker.yaml").read_text().replace("model: model", f"model: {sample / 'model'}")
    (folder / "stoker.yaml").write_text(config)
    return folder / "stoker.yaml"


@pytest.mark.parametrize("form", FORMATS)
def test_the_stream_is_that_of_the_files(stoker, sample, digest, tmp_path, form):
    """Two shards, names as webdataset and `tar -c .` write them, and a name too long for a header's own field."""
    names, long = names_of(sample), "" if form == "ustar" else "n" * 120 + "/"
    tmp_path = tmp_path / form
    tmp_path.mkdir()
    pack(tmp_path / "a.tar", sample, names[::2], FORMATS[form], "./" + long)
    pack(tmp_path / "b.tar", sample, names[1::2], FORMATS[form], long)
    shard = {name: "a.tar" if i % 2 == 0 else "b.tar" for i, name in enumerate(names)}
    config = set_of(sample, tmp_path, lambda name: f"tar://{long}{name}::{shard[name]}")
    assert stoker("run", config, "--digest").stdout.strip() == digest
    assert (tmp_path / "a.tar.stoker-members").exists()
    assert stoker("run", config, "--digest", "--index", "verify").stdout.strip() == digest


def test_places_and_absolute_paths(stoker, sample, digest, tmp_path):
    pack(tmp_path / "all.tar", sample, names_of(sample))
    with tarfile.open(tmp_path / "all.tar") as tar:
        place = {m.name: f"tar:{m.offset_data}+{m.size}::../all.tar" for m in tar}
    config, flags = set_of(sample, tmp_path / "place", place.get), ["--allow", tmp_path]
    assert stoker("run", config, "--digest", *flags).stdout.strip() == digest
    assert not (tmp_path / "all.tar.stoker-members").exists()
    config = set_of(sample, tmp_path / "member", lambda name: f"tar://{name}::{tmp_path / 'all.tar'}")
    lists = tmp_path / "lists"
    assert stoker("run", config, "--digest", *flags, "--index-dir", lists).stdout.strip() == digest
    assert not (tmp_path / "all.tar.stoker-members").exists() and list(lists.glob("*.stoker-members"))
    assert "outside media_" in stoker("run", config, status=3).stderr


def test_faults_of_a_tar_are_those_of_its_files(stoker, sample, tmp_path):
    names = names_of(sample)
    pack(tmp_path / "all.tar", sample, names[1:])
    config = set_of(sample, tmp_path, lambda name: f"tar://{name}::all.tar")
    config.write_text(config.read_text() + "errors: {unusable: 1.0}\n")
    text = stoker("index", config).stdout
    assert "media missing" in text and f"the tar holds no file {names[0]}" in text

    def indexed_anew():
        for sidecar in tmp_path.glob("train.jsonl.*"):
            sidecar.unlink()
        return stoker("index", config).stdout

    with open(tmp_path / "all.tar", "r+b") as tar:
        tar.truncate(tar.seek(0, 2) // 2)
    text = indexed_anew()
    assert "broken or truncated media" in text and ("the tar is damaged at byte" in text or "the tar ends inside" in text)
    (tmp_path / "all.tar").write_bytes(gzip.compress(b"anything"))
    text = indexed_anew()
    assert "not supported" in text and "the tar is compressed (gzip)" in text

"""The sample set holds what the demo promises, and comes from its script."""
import importlib.metadata
import json
import subprocess
import sys

import pytest
from PIL import Image


@pytest.fixture(scope="module")
def pictures(source):
    folder = source / "examples" / "sample" / "images"
    return {path.name: Image.open(path) for path in sorted(folder.iterdir())}


def records(source, name):
    lines = (source / "examples" / "sample" / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def test_every_kind_of_picture_is_there(pictures):
    def any_of(**wanted):
        return any(all((p.info.get(k) if k in ("progressive", "interlace", "transparency") else getattr(p, k)) == v
                       for k, v in wanted.items()) for p in pictures.values())

    assert len(pictures) >= 24
    for kind, modes in {"JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "RGBA", "P", "L", "LA", "1", "I;16"), "WEBP": ("RGB", "RGBA")}.items():
        for mode in modes:
            assert any_of(format=kind, mode=mode), (kind, mode)
    assert any_of(format="JPEG", progressive=1) and any_of(format="PNG", interlace=1)
    assert {p.getexif().get(0x0112) for p in pictures.values()} >= {3, 6, 8}
    assert any("transparency" in p.info and p.mode == "P" for p in pictures.values())
    assert any("transparency" in p.info and p.mode == "RGB" and p.format == "PNG" for p in pictures.values())
    assert any(" " in name for name in pictures) and any(not name.isascii() for name in pictures)
    assert max(max(p.size) for p in pictures.values()) >= 1100 and min(min(p.size) for p in pictures.values()) < 32


def test_every_kind_of_record_is_there(source, pictures):
    all_records = records(source, "train.jsonl")
    text = [json.dumps(r) for r in all_records]
    images = [t.count("images/") + t.count("data:image") for t in text]
    turns = [len(r.get("messages") or r["conversations"]) for r in all_records]
    assert len(all_records) >= 40
    assert 0 in images and 1 in images and max(images) >= 3 and max(turns) >= 4
    assert any("messages" in r for r in all_records) and any("conversations" in r for r in all_records)
    assert all(any(name in json.dumps(r, ensure_ascii=False) for r in all_records) for name in pictures)


def test_the_set_is_small(source):
    folder = source / "examples" / "sample"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1_500_000


def test_the_script_makes_the_committed_bytes(source, tmp_path):
    for package, version in (("pillow", "13.0.0"), ("numpy", "2.4.6")):
        if importlib.metadata.version(package) != version:
            pytest.skip(f"needs {package} {version}")
    subprocess.run([sys.executable, source / "tools/make-sample-set", tmp_path], check=True, capture_output=True)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert len(made) > 30
    for name, content in made.items():
        assert (source / "examples" / "sample" / name).read_bytes() == content, name


def test_all_of_it_is_usable(source, stoker, tmp_path):
    done = stoker("index", source / "examples/sample/stoker.yaml", "--json", "--index-dir", tmp_path)
    sets = json.loads(done.stdout)["sets"]
    assert [(s["records"], s["usable"]) for s in sets] == [(len(records(source, "train.jsonl")),) * 2]


def test_each_fault_is_listed(source, stoker, tmp_path):
    done = stoker("index", source / "examples/sample/faulty.yaml", "--index", "verify", "--index-dir", tmp_path)
    said = done.stdout + done.stderr
    for words in ("media missing", "broken or truncated", "not an image", "ratio", "outside the allowed", "tags and media",
                  "a role without a mapping", "no assistant turn", "video", "JSON", "not a known form"):
        assert words in said, f"{words!r} is not in\n{said}"

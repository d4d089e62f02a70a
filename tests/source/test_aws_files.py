"""The shared files of the AWS tools, read as botocore reads them; every oddity of an INI file that it has."""
import json
import random
import subprocess

import pytest

loader = pytest.importorskip("botocore.configloader")
from botocore.exceptions import ConfigParseError  # noqa: E402

CONFIG = """\
\ufeff# a comment
; another
[default]
region = eu-central-1
Output: json
s3 =
    addressing_style = path
    # no value
    max_concurrent_requests = 20

  use_accelerate_endpoint=false
empty =
with_equals = a=b:c
with_hash = a # not a comment
two_lines = first
    second

    third
[profile train]
   region   =   us-west-2
   services = minio
[profile "with space"]
region = eu-west-1
[profile 'it''s']
region = ap-south-1
[profile]
region = nobody
[preview]
cloudfront = true
[services minio]
s3 =
  endpoint_url = http://127.0.0.1:9000
sts =
  endpoint_url = http://127.0.0.1:9001
[train]
region = not-a-profile-here
[sso-session x]
sso_region = us-east-1
[profile last]
key = no line break"""

CREDENTIALS = """\
[default]
aws_access_key_id = AKID
aws_secret_access_key = se/cr+et=
[train]
aws_access_key_id=TRAIN
aws_secret_access_key:TRAINSECRET
region = of-credentials
[profile train]
aws_access_key_id = wrong
"""


class Files:
    def __init__(self, build, folder):
        self.program = build / "tests" / "source" / "identity_probe"
        self.config, self.credentials = folder / "config", folder / "credentials"

    def ask(self, config, credentials, questions):
        self.config.write_bytes(config if isinstance(config, bytes) else config.encode())
        self.credentials.write_bytes(credentials if isinstance(credentials, bytes) else credentials.encode())
        lines = "".join("\t".join(question) + "\n" for question in questions)
        done = subprocess.run([self.program, "ini", self.config, self.credentials], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return answers[0], [answer[0] for answer in answers[1:]]

    def theirs(self):
        return loader.load_config(str(self.config)), loader.raw_config_parse(str(self.credentials))


@pytest.fixture
def files(build, tmp_path):
    return Files(build, tmp_path)


def questions_of(config, credentials):
    """All that botocore found, as questions with their answers."""
    for profile, values in config["profiles"].items():
        for key, value in values.items():
            if isinstance(value, dict):
                yield from ((("config", profile, key, inner), text) for inner, text in value.items())
            else:
                yield ("config", profile, "", key), value
    for profile, values in credentials.items():
        for key, value in values.items():
            if not isinstance(value, dict):
                yield ("credentials", profile, "", key), value


def compare(files, config, credentials):
    files.config.write_bytes(config.encode())
    files.credentials.write_bytes(credentials.encode())
    expected = list(questions_of(*files.theirs()))
    head, answers = files.ask(config, credentials, [question for question, _ in expected])
    assert head["message"] is None, head
    assert answers == [answer for _, answer in expected]
    return len(expected)


def test_files_are_read_as_botocore_reads_them(files):
    assert compare(files, CONFIG.lstrip("\ufeff"), CREDENTIALS) == 20
    for line_break in "\r\n", "\r":
        compare(files, CONFIG.lstrip("\ufeff").replace("\n", line_break), CREDENTIALS.replace("\n", line_break))


def test_profiles_blocks_and_services(files):
    _, answers = files.ask(CONFIG, CREDENTIALS, [
        ("either", "train", "", "region"), ("config", "train", "", "region"), ("either", "default", "s3", "addressing_style"),
        ("either", "default", "", "addressing_style"), ("service", "train", "s3", "endpoint_url"),
        ("service", "train", "sts", "endpoint_url"), ("service", "default", "s3", "endpoint_url"), ("either", "nobody", "", "region"),
        ("either", "with space", "", "region"), ("either", "preview", "", "cloudfront"), ("either", "train", "", "aws_access_key_id"),
        ("either", "default", "", "two_lines")])
    assert answers == ["of-credentials", "us-west-2", "path", None, "http://127.0.0.1:9000", "http://127.0.0.1:9001", None, None,
                       "eu-west-1", None, "TRAIN", "first\nsecond\n\nthird"]


def test_random_files(files):
    source = random.Random(1)
    seen = 0
    for _ in range(80):
        lines, names, keys = [], set(), set()
        for _ in range(source.randint(1, 40)):
            name = source.choice(["[default]", "[profile a]", "[profile b]", '[profile "c d"]', "[e]"])
            kind = source.random()
            if kind < 0.2 and name not in names or not names:
                names.add(name)
                keys = set()
                lines.append(" " * (source.random() < 0.05) + name + source.choice(["", " ", " # x"]))
            elif kind < 0.3:
                lines.append(source.choice(["# c", "  ; c", "", "   ", "\t"]))
            elif kind < 0.5 and keys:
                lines.append(source.choice(["  ", "    ", "\t"]) + source.choice(["k = v", "k=", "a:b = c", "p =q= r"]))
            else:
                key = f"key{len(keys)}"
                keys.add(key)
                lines.append(key + source.choice([" = ", "=", " : ", ":"]) + source.choice(["", "v", "v w", "#v", "v = w", '"v"']))
        text = "\n".join(lines) + source.choice(["", "\n", "\n\n"])
        files.config.write_text(text)
        try:
            loader.load_config(str(files.config))
        except ConfigParseError:            # a section that comes twice, a nested line without '='
            continue
        seen += compare(files, text, "")
    assert seen > 300


@pytest.mark.parametrize("config, line, words", [
    ("region = x\n", 1, "before the first [section]"),
    ("[default]\nregion\n", 2, "neither a [section] nor key = value"),
    ("[default]\n= x\n", 2, "neither"),
    ("[default]\ns3 =\n  nothing\nregion = x\n", 4, "no '='"),
    ("[default]\nregion = a\0b\n", 2, "NUL"),
    ("[default]\n" + "# " + "x" * (1 << 20), 0, "more than 1 MiB"),
])
def test_a_broken_file_is_named_with_its_line_and_not_quoted(files, config, line, words):
    head, _ = files.ask(config, "", [])
    assert words in head["message"] and head["line"] == line
    assert "nothing" not in head["message"]


def test_missing_and_special_files_are_empty(files):
    files.config = "/dev/null"
    done = subprocess.run([files.program, "ini", "/dev/null", "/nonexistent/x"], input="either\tdefault\t\tregion\n", capture_output=True,
                          text=True, check=True)
    assert done.stdout.splitlines()[1] == "[null]"

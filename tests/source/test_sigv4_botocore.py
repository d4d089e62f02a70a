"""Signatures of random requests equal botocore's: keys of any bytes, odd queries, headers with blanks, long tokens."""
import datetime
import json
import random
import subprocess

import pytest

auth = pytest.importorskip("botocore.auth")
from botocore.awsrequest import AWSRequest  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402

PIECES = ["a", "Z", "9", "-", ".", "_", "~", "/", "//", "/./", "/../", " ", "+", "%", "%2F", "%20", "=", "&", "?", "#", "\\", "'", '"', ";",
          ":", "@", "!", "$", "(", ")", "*", ",", "\t", "\r\n", "\x01", "\x7f", "é", "e\u0301", "中", "😀", "[", "{", "|", "^", "`", "<"]
SPECIAL_KEYS = ["a b", "a+b", "100%", "a%2Fb", "a%20b", "\u00e4", "a\u0308", "a//b", "/a", "./a", "x/./a", "x/../a", "a/", "a ", "=&?#", "~",
                "'\"", "a\\b", ";:@!$(),*", "a.", "a\tb", "k" * 1024, "\n", "\x00", "😀" * 256]


def text(random, most, pieces=PIECES):
    return "".join(random.choice(pieces) for _ in range(random.randint(0, most)))


def key_bytes(random, i):
    if i < len(SPECIAL_KEYS):
        return SPECIAL_KEYS[i].encode()
    if random.random() < 0.2:
        return random.randbytes(random.randint(1, 60))      # not even UTF-8
    return (text(random, 12) or "k").encode()[:1024]


def case(random, i):
    names = random.sample(["x-amz-request-payer", "x-amz-checksum-mode", "x-amz-meta-a", "x-amz-meta-a-b", "x-amz-meta-ab", "range",
                           "x-amz-copy-source-range", "if-match"], random.randint(0, 4))
    blanks = ["a", "b=c", "  ", " ", "\t", '"q  q"', ",", "é"]
    return {
        "endpoint": random.choice([None, None, "http://127.0.0.1:9000", "https://store.example/", "http://[::1]:80", "http://h:443/base"]),
        "region": random.choice(["us-east-1", "eu-central-1", "cn-north-1", "garage"]),
        "addressing": random.randint(0, 2),
        "bucket": random.choice(["data", "my.data", "Upper_Case", "a-b"]),
        "key_hex": key_bytes(random, i).hex(),
        "query": [[text(random, 3).replace("\x00", "") or "q", text(random, 6)] for _ in range(random.randint(0, 5))],
        "headers": [[name, text(random, 6, blanks)] for name in names],
        "method": random.choice(["GET", "PUT", "HEAD"]),
        "service": "s3",
        "payload": random.choice([None, "UNSIGNED-PAYLOAD", "%064x" % random.getrandbits(256)]),
        "time": random.randint(0, 4_000_000_000),
        "access": random.choice(["AKID", "test:tester", "A" * 128]),
        "secret": random.choice(["S/+cret", "x" * 200, "s ö"]),
        "token": random.choice(["", "", "IQo=" * 300, "eyJ." * 1500]),
    }


def expected(case, url, monkeypatch):
    """The headers that botocore adds to a request of this URL."""
    now = datetime.datetime.fromtimestamp(case["time"], datetime.timezone.utc)
    monkeypatch.setattr(auth, "get_current_datetime", lambda: now)

    class Signer(auth.S3SigV4Auth):
        def payload(self, request):
            return case["payload"] or auth.EMPTY_SHA256_HASH

    signer = Signer(Credentials(case["access"], case["secret"], case["token"] or None), "s3", case["region"])
    # An if-match or a range of ours is signed when it is given; botocore signs all but a few names.
    request = AWSRequest(method=case["method"], url=url, headers={"placeholder": ""})
    del request.headers["placeholder"]
    for name, value in case["headers"]:
        request.headers[name] = value
    signer.add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def test_random_requests_have_botocores_signatures(build, monkeypatch):
    source = random.Random(20130524)
    cases = [case(source, i) for i in range(4000)]
    lines = "".join(json.dumps(one) + "\n" for one in cases)
    done = subprocess.run([build / "tests" / "source" / "sign_probe"], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    for one, answer in zip(cases, answers):
        ours = dict(line.split(": ", 1) for line in answer["lines"])
        ours = {name.lower(): value for name, value in ours.items()}
        theirs = expected(one, answer["url"], monkeypatch)
        assert ours["authorization"] == theirs["authorization"], (one, answer)
        assert ours["x-amz-date"] == theirs["x-amz-date"]
        assert ours["x-amz-content-sha256"] == theirs["x-amz-content-sha256"]
        assert ours.get("x-amz-security-token", "") == one["token"]


def test_urls_quote_keys_as_botocore_does(build):
    from botocore.utils import percent_encode
    source = random.Random(6)
    cases = [dict(case(source, i), endpoint="http://127.0.0.1:9000", bucket="data", query=[]) for i in range(500)]
    lines = "".join(json.dumps(one) + "\n" for one in cases)
    done = subprocess.run([build / "tests" / "source" / "sign_probe"], input=lines, capture_output=True, text=True, check=True)
    for one, line in zip(cases, done.stdout.splitlines()):
        key = bytes.fromhex(one["key_hex"])
        assert json.loads(line)["url"] == "http://127.0.0.1:9000/data/" + percent_encode(key, safe="/~-._")

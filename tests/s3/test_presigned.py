"""Presigned URLs of a real store as media: they pass through as they are, are checked there, and their queries are told nowhere."""
import json
import re
import time

import pytest
import servers
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from sets import configure, picture

KEYS = ["plain.png", "a b+.png", "100%.png", "ü/t.png", "a//b.png", "a=b&c.png", "it's.png"]


def presigned(server, key, seconds=3600):
    request = AWSRequest("GET", f"{server.url}/presigned/{servers.quote(key)}")
    S3SigV4QueryAuth(Credentials(server.key, server.secret), "s3", servers.REGION, expires=seconds).add_auth(request)
    return request.url


@pytest.fixture(scope="module")
def media(jfs):
    jfs.bucket("presigned")
    return {key: jfs.put("presigned", key, picture(3 * i)) for i, key in enumerate(KEYS)}


def test_presigned_urls_pass_through(jfs, media, stoker, tmp_path):
    """One record a key, and one with a digit of its signature changed; no credentials are here, or the store would give them all."""
    urls = [presigned(jfs, key) for key in KEYS]
    signature = re.search("X-Amz-Signature=([0-9a-f]+)", urls[0])[1]
    urls.append(urls[0].replace(signature, signature[:-1] + ("0" if signature[-1] != "0" else "1")))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"id": str(i), "image": url, "conversations": [
        {"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}) + "\n" for i, url in enumerate(urls)))
    config = configure(tmp_path / "c.yaml", tmp_path / "train.jsonl", tmp_path / "index", batch=1, more=f"errors: {{unusable: 1}}\nallow: ['{jfs.url}']\n")
    environment = jfs.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    indexed = stoker("index", config, "--json", env=environment)
    report = json.loads(indexed.stdout)["sets"][0]
    assert report["usable"] == len(KEYS) and report["unusable"].keys() == {"media that may not be read"}, report
    ran = stoker("run", config, "--json", env=environment)
    assert json.loads(ran.stdout)["images"] == len(KEYS)
    shown = stoker("show", config, "set/1", env=environment)
    said = "".join(done.stdout + done.stderr for done in (indexed, ran, shown))
    kept = b"".join(path.name.encode() + path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file())
    for secret in ("X-Amz-Signature", "X-Amz-Credential", signature):
        assert secret not in said and secret.encode() not in kept, secret


def test_one_that_expired_is_the_fault_of_its_record(jfs, media, stoker, tmp_path):
    url = presigned(jfs, KEYS[0], seconds=1)
    time.sleep(2.1)
    (tmp_path / "train.jsonl").write_text(json.dumps({"id": "a", "image": url, "conversations": [
        {"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}) + "\n")
    config = configure(tmp_path / "c.yaml", tmp_path / "train.jsonl", tmp_path / "index", more=f"allow: ['{jfs.url}']\n")
    done = stoker("index", config, "--json", status=3, env=jfs.environment())
    reason = json.loads(done.stdout)["sets"][0]["unusable"]["media that may not be read"]
    assert reason["count"] == 1 and "presigned URL may have expired" in reason["examples"][0]["message"], reason

"""The library against real servers that verify each signature: keys, ranges, conditions, lists, credentials.

JuiceFS's gateway has MinIO's handlers, moto stores every key and speaks STS and instance metadata, rclone is the odd one."""
import base64
import dataclasses
import hashlib
import json
import struct
import zlib

import pytest
import servers
from probe import is_whole

ODD_KEYS = ["a b", "a+b", "100%", "a%2Fb", "a%20b", "T\u00fcr \u732b", "Tu\u0308r", "a//b", "/lead", "./a", "x/./a", "x/../a", "end/", "end ", "a=b&c?d#e",
            "~home", "it's \"quoted\"", "back\\slash", ";:@!$(),*", "final.", "tab\there", "k" * 200 + "/" + "k" * 200, "..."]
# What a server does not take: dot segments and `dir/` with a body in JuiceFS, dot segments and empty ones in rclone.
REFUSED = {"jfs": {"./a", "x/./a", "x/../a", "end/"}, "moto": set(), "rclone": {"./a", "x/./a", "x/../a", "a//b", "/lead"}}


def body_of(seed, size):
    return bytes((seed * 31 + i * 7 + (i >> 8)) & 255 for i in range(size))


@pytest.mark.parametrize("name", ["jfs", "moto", "rclone"])
def test_every_odd_key_reaches_the_store_unchanged(name, request, probe):
    """Field report E05, and more of the kind."""
    server = request.getfixturevalue(name)
    keys = [k for k in ODD_KEYS if k not in REFUSED[name]]
    body = {key: body_of(i, 500 + i) for i, key in enumerate(keys)}
    server.bucket("odd-keys")
    for key in keys:
        server.put("odd-keys", key, body[key])
    came = probe(server.environment()).get_all([{"address": f"s3://odd-keys/{key}"} for key in keys])
    assert [key for key, c in zip(keys, came) if not is_whole(c, body[key])] == []


def test_ranges_are_those_bytes(server, probe):
    body = body_of(3, 5000)
    server.put("tests", "range", body)
    server.put("tests", "empty", b"")
    p = probe(server.environment())
    wanted = [(0, 10), (1000, 1), (4990, 10), (4990, 100), (0, 5000), (0, -1), (4000, -1), (0, 9000)]
    came = p.get_all([{"address": "s3://tests/range", "offset": o, "size": n} for o, n in wanted])
    for (offset, size), c in zip(wanted, came):
        assert is_whole(c, body[offset:] if size < 0 else body[offset:offset + size]), (offset, size, c)
        assert c["total"] == 5000, (offset, size, c)
    empty, look = p.get_all([{"address": "s3://tests/empty"}, {"address": "s3://tests/range", "size": 0}])
    assert is_whole(empty, b"") and empty["total"] == 0
    assert look["status"] == "STK_OK" and look["got"] == 0 and look["total"] == 5000


def test_a_buffer_too_small_is_told_with_the_size(server, probe):
    server.put("tests", "large", body_of(4, 3000))
    came = probe(server.environment()).get("s3://tests/large", capacity=1000)
    assert came["status"] == "STK_ERR_MEDIA_LIMIT" and came["total"] == 3000, came


def test_an_object_in_parts_is_whole(sound_server, probe):
    """20 MB: ranges of 8 MiB side by side."""
    body = body_of(5, 1 << 16) * 320
    etag = sound_server.put("tests", "parts", body)
    came = probe(sound_server.environment()).get("s3://tests/parts", capacity=len(body), size=len(body), etag=etag)
    assert is_whole(came, body), came


def test_another_object_than_the_index_knew_is_told(server, probe):
    """rclone ignores If-Match: the ETag of the answer tells."""
    etag = server.put("tests", "changing", b"first")
    p = probe(server.environment())
    came = p.get("s3://tests/changing", etag=etag)
    assert is_whole(came, b"first") and came["etag"].strip('"') == etag.strip('"') and not came["changed"]
    server.put("tests", "changing", b"later")
    came = p.get("s3://tests/changing", etag=etag)
    assert came["status"] == "STK_ERR_MEDIA" and came["changed"], came


def test_a_missing_key_is_a_fault_of_one_object_and_a_missing_bucket_is_not(server, probe):
    server.put("tests", "there", b"x")
    p = probe(server.environment())
    there, missing = p.get_all([{"address": "s3://tests/there"}, {"address": "s3://tests/not-there"}])
    assert there["status"] == "STK_OK" and missing["status"] == "STK_ERR_MEDIA_MISSING", missing
    bucket = p.get("s3://no-such-bucket/there")
    assert bucket["status"] == "STK_ERR_NETWORK" and "no-such-bucket" in bucket["message"] + bucket["file"], bucket


def test_wrong_keys_stop_the_run_and_are_not_told(server, probe):
    server.put("tests", "guarded", b"x")
    wrong = dataclasses.replace(server, secret="WRONGsecret0123456789")
    came = probe(wrong.environment()).get("s3://tests/guarded")
    assert came["status"] == "STK_ERR_NETWORK" and came["code"] == 403, came
    assert wrong.secret not in json.dumps(came)
    unknown = dataclasses.replace(server, key="AKUNKNOWN0000000")
    came = probe(unknown.environment()).get("s3://tests/guarded")
    assert came["status"] == "STK_ERR_NETWORK" and came["code"] == 403, came


def test_no_credentials_at_all_is_told_with_what_was_tried(jfs, probe):
    came = probe(jfs.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, HOME="/nonexistent")).get("s3://tests/guarded")
    assert came["status"] == "STK_ERR_NETWORK", came
    assert all(source in came["message"] for source in ("environment", "shared files", "instance metadata")), came


def test_a_list_of_several_pages_is_complete_and_in_order(jfs, probe):
    keys = sorted([f"page/{i:04d} a+b" for i in range(1100)], key=str.encode)
    jfs.bucket("listed")
    for i, key in enumerate(keys):
        jfs.put("listed", key, b"x" * (i % 5))
    came = probe(jfs.environment()).ask("list", address="s3://listed/page/")
    assert came["status"] == "STK_OK" and [e[0] for e in came["entries"]] == keys
    assert [e[2] for e in came["entries"]] == [i % 5 for i in range(1100)]


@pytest.mark.parametrize("name", ["moto", "rclone"])
def test_a_list_gives_keys_as_they_are(name, request, probe):
    server = request.getfixturevalue(name)
    keys = [k for k in ODD_KEYS if k not in REFUSED[name] and not (name == "rclone" and k.endswith("/"))]  # it lists `end/` as `end`
    server.bucket("odd-list")
    etags = [server.put("odd-list", key, key.encode()) for key in keys]
    came = probe(server.environment()).ask("list", address="s3://odd-list/")
    assert came["status"] == "STK_OK", came
    assert sorted((key, etag.strip('"')) for key, etag, _ in came["entries"]) == sorted((k, e.strip('"')) for k, e in zip(keys, etags))


def test_a_list_stops_where_it_is_told(jfs, probe):
    for i in range(5):
        jfs.put("tests", f"few/{i}", b"x")
    came = probe(jfs.environment()).ask("list", address="s3://tests/few/", most=2)
    assert came["status"] == "STK_ERR_INTERRUPTED" and len(came["entries"]) == 2


@pytest.mark.parametrize("key", ["put a+b", "put/T\u00fcr"])
def test_what_is_put_is_there(server, probe, key):
    text = "one piece " * 5000
    p = probe(server.environment())
    assert p.ask("put", address=f"s3://tests/{key}", text=text)["status"] == "STK_OK"
    assert server.request("GET", f"/tests/{servers.quote(key)}").body == text.encode()
    assert is_whole(p.get(f"s3://tests/{key}"), text.encode())


def test_buckets_as_host_names(jfs, probe):
    jfs.put("tests", "by host", b"virtual")
    p = probe(jfs.environment(AWS_ENDPOINT_URL_S3=None), endpoint=f"http://s3.probe:{jfs.port}", addressing="virtual")
    assert is_whole(p.get("s3://tests/by host"), b"virtual")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return struct.pack(">I", crc ^ 0xffffffff)


CHECKSUMS = {"CRC32": lambda data: struct.pack(">I", zlib.crc32(data)), "CRC32C": crc32c, "SHA1": lambda data: hashlib.sha1(data).digest(),
             "SHA256": lambda data: hashlib.sha256(data).digest()}


@pytest.mark.parametrize("kind", CHECKSUMS)
def test_a_checksum_of_the_store_is_compared(moto, probe, kind):
    """As moto tells it.  It takes whatever checksum a PUT names: one that is not that of the bytes is noticed here."""
    body, name = body_of(9, 3000), f"x-amz-checksum-{kind.lower()}"
    for key, of in (("right", body), ("wrong", body[::-1])):
        value = base64.b64encode(CHECKSUMS[kind](of)).decode()
        moto.put("tests", f"{kind}/{key}", body, headers={"x-amz-sdk-checksum-algorithm": kind, name: value})
        assert moto.request("GET", f"/tests/{kind}/{key}", headers={"x-amz-checksum-mode": "ENABLED"}).headers[name] == value
    right, wrong = probe(moto.environment()).get_all([{"address": f"s3://tests/{kind}/{key}"} for key in ("right", "wrong")])
    assert is_whole(right, body) and wrong["status"] == "STK_ERR_NETWORK" and "checksum" in wrong["message"], (right, wrong)


@pytest.fixture(scope="module")
def distant(tmp_path_factory):
    """MinIO's handlers again, in a region of their own: they answer 400, with the region in a header and, but to HEAD, in the body."""
    with servers.juicefs(tmp_path_factory.mktemp("distant"), region="eu-probe-7") as server:
        server.bucket("tests")
        server.put("tests", "there", b"far away")
        yield server


@pytest.mark.parametrize("first", ["GET", "HEAD", "LIST", "PUT"])
def test_a_bucket_of_another_region_is_found(distant, probe, first):
    """Whatever is asked first; and once, for all that is asked of the bucket later."""
    p = probe(distant.environment(AWS_REGION="ap-south-1"))

    def ask(what):
        if what == "LIST":
            return p.ask("list", address="s3://tests/th")
        if what == "PUT":
            return p.ask("put", address="s3://tests/put", text="from far away")
        return p.get("s3://tests/there", **({"size": 0} if what == "HEAD" else {}))
    assert ask(first)["status"] == "STK_OK"
    for what in ("GET", "HEAD", "LIST", "PUT"):
        came = ask(what)
        assert came["status"] == "STK_OK", (what, came)
    assert is_whole(p.get("s3://tests/there"), b"far away") and distant.request("GET", "/tests/put").body == b"from far away"
    assert p.ask("metrics")["retries"] | {"region": 0} == dict.fromkeys(p.ask("metrics")["retries"], 0) and p.ask("metrics")["retries"]["region"] == 1


def test_connections_are_kept(jfs, probe):
    for i in range(20):
        jfs.put("tests", f"kept/{i}", b"x" * i)
    p = probe(jfs.environment())
    for _ in range(5):
        assert all(c["status"] == "STK_OK" for c in p.get_all([{"address": f"s3://tests/kept/{i}"} for i in range(20)]))
    assert p.ask("metrics")["connections"] <= 25


def test_a_profile_and_its_program(jfs, probe, tmp_path):
    jfs.put("tests", "profile", b"x")
    keys = json.dumps({"Version": 1, "AccessKeyId": jfs.key, "SecretAccessKey": jfs.secret})
    (tmp_path / "keys.json").write_text(keys)
    (tmp_path / "config").write_text(f"[profile program]\nregion = us-east-1\ncredential_process = /bin/cat {tmp_path}/keys.json\n")
    (tmp_path / "credentials").write_text(f"[plain]\naws_access_key_id = {jfs.key}\naws_secret_access_key = {jfs.secret}\n")
    environment = jfs.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_CONFIG_FILE=str(tmp_path / "config"),
                                  AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "credentials"))
    for name in ("plain", "program"):
        assert is_whole(probe(environment, profile_name=name).get("s3://tests/profile"), b"x"), name


# --- credentials that expire: moto ---

@pytest.fixture
def lax_moto(tmp_path):
    """Without checks, for STS and instance metadata; of its own, since a test turns the checks on."""
    with servers.moto(tmp_path, checks=False) as server:
        server.bucket("tests")
        server.put("tests", "object", b"some bytes")
        yield server


def make_role(server):
    everything = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
    servers.iam(server, Action="CreateRole", RoleName="reader", AssumeRolePolicyDocument=everything)
    servers.iam(server, Action="PutRolePolicy", RoleName="reader", PolicyName="all", PolicyDocument=everything)
    return "arn:aws:iam::123456789012:role/reader"


def test_a_session_token_is_signed_and_sent(lax_moto, probe):
    came = servers.iam(lax_moto, "sts", Action="AssumeRole", RoleArn=make_role(lax_moto), RoleSessionName="tests")
    servers.check_signatures(lax_moto)
    session = servers.Server(lax_moto.port, came["AccessKeyId"], came["SecretAccessKey"], came["SessionToken"])
    assert is_whole(probe(session.environment()).get("s3://tests/object"), b"some bytes")
    for other in (dataclasses.replace(session, token=""), dataclasses.replace(session, token="expired")):
        refused = probe(other.environment()).get("s3://tests/object")
        assert refused["status"] == "STK_ERR_NETWORK" and "credentials" in refused["message"], refused
        assert session.secret not in json.dumps(refused)


def test_web_identity(lax_moto, probe, tmp_path):
    """The token of a file is exchanged at STS; then moto verifies what is signed with the answer."""
    (tmp_path / "token").write_text("a.web.token\n")
    p = probe(lax_moto.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"),
                                   AWS_ROLE_ARN=make_role(lax_moto), AWS_ENDPOINT_URL_STS=lax_moto.url))
    assert is_whole(p.get("s3://tests/object"), b"some bytes")
    servers.check_signatures(lax_moto)
    assert is_whole(p.get("s3://tests/object"), b"some bytes")
    assert lax_moto.request("GET", "/tests/object").status == 403  # it does verify


def test_instance_metadata(lax_moto, probe):
    p = probe(lax_moto.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_EC2_METADATA_DISABLED=None,
                                   AWS_EC2_METADATA_SERVICE_ENDPOINT=lax_moto.url))
    assert is_whole(p.get("s3://tests/object"), b"some bytes")

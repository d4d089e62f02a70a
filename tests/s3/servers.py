"""Real S3 servers for tests: started on free ports, awaited by a signed answer, stopped whatever happens.

    with juicefs(folder) as server:                     # MinIO's request handlers
        server.request("PUT", "/bucket")                # signed by botocore, sent as it is: no library tidies the path
        server.put("bucket", "a//b", b"...")

Each server gets keys drawn for it, so that an answer to a request signed with them is its own: another program on the
port would refuse it.  The programs die with this process (setpriv), and their folders are the caller's.
"""
import contextlib
import dataclasses
import http.client
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

PROGRAMS = pathlib.Path(sys.executable).parent
REGION = "us-east-1"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes


@dataclasses.dataclass
class Server:
    port: int
    key: str
    secret: str
    token: str = ""
    region: str = REGION  # that it wants in signatures, where it looks at it

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self, **more):
        """What a client needs, and nothing of the machine's own.  The region is the usual one, also for a server that has another."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        own |= {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL_S3": self.url, "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}
        if self.token:
            own["AWS_SESSION_TOKEN"] = self.token
        return {name: value for name, value in (own | more).items() if value is not None}

    def request(self, method, path, query="", body=b"", headers=None, service="s3", signed=True):
        """path is what goes on the wire."""
        url = self.url + path + ("?" + query if query else "")
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body))} | (headers or {})
        if signed:
            request = AWSRequest(method, url, data=body, headers=sent)
            request.context["payload_signing_enabled"] = True
            S3SigV4Auth(Credentials(self.key, self.secret, self.token or None), service, self.region).add_auth(request)
            sent = dict(request.headers.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, url[len(self.url):], skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def made(self, method, path, **more):
        answer = self.request(method, path, **more)
        assert answer.status in (200, 204), f"{method} {path}: {answer.status} {answer.body[:300]}"
        return answer

    def bucket(self, name):
        self.made("PUT", "/" + name)

    def put(self, bucket, key, body, headers=None):
        """Gives the ETag."""
        return self.made("PUT", f"/{bucket}/{quote(key)}", body=body, headers=headers).headers["etag"]


def quote(key):
    """A key on the wire: every byte but the unreserved and the slash in percent form, dots left as they are."""
    return urllib.parse.quote(key, safe="/-._~")


@contextlib.contextmanager
def running(command, folder, environment=None):
    """A program of this process, killed with its children at the end; its output stands in folder/log."""
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env=os.environ | (environment or {}), start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def await_answer(process, folder, ask, seconds=30):
    """Until ask() is true; a program that has ended, or is not ready in time, fails with its output."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask():
                return
        time.sleep(0.02)
    raise AssertionError(f"{process.args[3]} did not come up: {(folder / 'log').read_text(errors='replace')[-2000:]}")


def fresh_keys():
    return "AK" + secrets.token_hex(8).upper(), secrets.token_hex(20)


@contextlib.contextmanager
def juicefs(folder, region=None):
    """JuiceFS's gateway over a local folder: MinIO's handlers.  Refuses keys with dot segments, and `dir/` with a body.

    With a region it refuses signatures for another, and says which it wants; without, it takes any."""
    program, meta = PROGRAMS / "juicefs", f"sqlite3://{folder}/meta.db"
    subprocess.run([program, "format", "--no-update", "--storage", "file", "--bucket", f"{folder}/blocks/", "--trash-days", "0", meta, "tests"],
                   check=True, capture_output=True, timeout=60)
    server = Server(free_port(), *fresh_keys(), region=region or REGION)
    command = [program, "gateway", "--no-usage-report", "--no-agent", "--no-banner", "--multi-buckets", "--keep-etag", "--backup-meta", "0",
               "--metrics", f"127.0.0.1:{free_port()}", "--cache-dir", folder / "cache", "--log", folder / "gateway.log", "--domain", "s3.probe",
               meta, f"127.0.0.1:{server.port}"]
    environment = {"MINIO_ROOT_USER": server.key, "MINIO_ROOT_PASSWORD": server.secret} | ({"MINIO_REGION_NAME": region} if region else {})
    with running(command, folder, environment) as process:
        await_answer(process, folder, lambda: server.request("GET", "/").status == 200)
        yield server


@contextlib.contextmanager
def rclone(folder):
    """rclone serve s3: the odd one, which answers a range with 200 and Content-Range, and ignores If-Match."""
    data = folder / "data"
    data.mkdir()
    server = Server(free_port(), *fresh_keys())
    command = [PROGRAMS / "rclone", "serve", "s3", "--config", "/dev/null", "--addr", f"127.0.0.1:{server.port}",
               "--auth-key", f"{server.key},{server.secret}", "--vfs-cache-mode", "off", data]
    with running(command, folder) as process:
        await_answer(process, folder, lambda: server.request("GET", "/").status == 200)
        yield server


@contextlib.contextmanager
def moto(folder, checks=True):
    """moto: every odd key, session tokens, STS, instance metadata.  It closes each connection.

    With checks, signatures are verified for a user made here; without them STS and instance metadata answer as well."""
    server = Server(free_port(), *fresh_keys())
    with running([PROGRAMS / "moto_server", "-H", "127.0.0.1", "-p", str(server.port)], folder) as process:
        await_answer(process, folder, lambda: server.request("GET", "/moto-api/data.json", signed=False).status == 200)
        if checks:
            policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
            iam(server, Action="CreateUser", UserName="tests")
            made = iam(server, Action="CreateAccessKey", UserName="tests")
            iam(server, Action="PutUserPolicy", UserName="tests", PolicyName="all", PolicyDocument=policy)
            server.key, server.secret = made["AccessKeyId"], made["SecretAccessKey"]
            check_signatures(server)
        yield server


def iam(server, service="iam", **parameters):
    """One call of IAM or STS: its leaves by name."""
    body = urllib.parse.urlencode({"Version": "2010-05-08" if service == "iam" else "2011-06-15"} | parameters).encode()
    answer = server.made("POST", "/", body=body, service=service, headers={"Content-Type": "application/x-www-form-urlencoded"})
    return {e.tag.split("}")[-1]: e.text for e in ElementTree.fromstring(answer.body).iter() if len(e) == 0}


def check_signatures(server):
    """From now on moto verifies what it gets."""
    server.made("POST", "/moto-api/reset-auth", body=b"0", headers={"Content-Type": "text/plain"}, signed=False)

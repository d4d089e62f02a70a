"""A store that misbehaves by schedule: S3's GET, LIST and PUT, each signature verified, and faults as a seed draws them.

    with FaultStore() as store:                       # one thread, one port, as many buckets as there are schedules
        schedule = store.add(Schedule(seed=7, ...))   # served as bucket "s7"

What a request meets depends on the seed, the object and how often that object was asked for, never on time, so that a
schedule is the same at each run whatever the client's timing.  A `Fault` is a way to answer; all stand in FAULTS.
"""
import asyncio
import base64
import collections
import contextlib
import dataclasses
import datetime
import hashlib
import hmac
import random
import socket
import ssl
import struct
import threading
import urllib.parse
import zlib

from servers import Server

BLOB = random.Random(0).randbytes(1 << 20)
PARKED_S = 60  # longer than any client waits: it goes away


@dataclasses.dataclass
class Thing:
    """An object: bytes of BLOB from `at`, or its own."""
    at: int
    size: int
    faults: list = dataclasses.field(default_factory=list)  # names in FAULTS, one for each time it is asked, then none
    always: str = ""                                        # the fault of every time
    asked: int = 0
    own: bytes = None

    @property
    def body(self):
        return BLOB[self.at:self.at + self.size] if self.own is None else self.own

    @staticmethod
    def of(data, faults=()):
        return Thing(0, len(data), list(faults), own=data)

    @property
    def etag(self):
        return f'"{zlib.crc32(self.body):08x}{self.size:024x}"'


@dataclasses.dataclass
class Schedule:
    bucket: str
    things: dict                   # by key
    key: str = "AKSCHEDULE"
    secret: str = "a secret that no error may tell"
    token: str = ""                # of the credentials that are valid now
    region: str = "us-east-1"
    clock_s: int = 0               # how far the store's clock is ahead
    storm: int = 0                 # so many requests are throttled before one is answered
    all_requests: str = ""         # the fault of every request
    expires: list = dataclasses.field(default_factory=list)  # the credentials change after so many requests
    puts: dict = dataclasses.field(default_factory=dict)
    requests: int = 0
    bad_signatures: int = 0

    def turn_over(self):
        """New credentials, when it is time."""
        if self.expires and self.requests >= self.expires[0]:
            self.expires.pop(0)
            self.token = f"token-{len(self.expires)}"


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ", 2)
        self.headers = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                self.headers[name.strip().lower()] = value.strip()
        self.path, _, self.query = self.target.partition("?")
        bucket, _, key = self.path[1:].partition("/")
        self.bucket, self.key = bucket, urllib.parse.unquote(key)
        self.range = None
        if self.headers.get("range", "").startswith("bytes="):
            first, _, last = self.headers["range"][6:].partition("-")
            self.range = (int(first), int(last) if last else None) if first else (-int(last), None)


def signature_of(request, schedule):
    """SigV4 by its definition: what must stand in Authorization, given the names and the scope that the client chose."""
    fields = dict(part.strip().split("=", 1) for part in request.headers["authorization"].split(" ", 1)[1].split(","))
    _, date, region, service, _ = fields["Credential"].rsplit("/", 4)
    query = "&".join(sorted(p if "=" in p else p + "=" for p in request.query.split("&"))) if request.query else ""
    signed = fields["SignedHeaders"]
    canonical = "\n".join([request.method, request.path, query,
                           *(f"{name}:{request.headers[name]}" for name in signed.split(";")), "", signed, request.headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], f"{date}/{region}/{service}/aws4_request",
                      hashlib.sha256(canonical.encode("latin-1")).hexdigest()])
    key = b"AWS4" + schedule.secret.encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return fields, region, hmac.new(key, text.encode(), "sha256").hexdigest()


class Answer:
    """What would be right: a status, headers, a body.  A fault sends it in its own way."""

    def __init__(self, status, body=b"", headers=None, length=None):
        self.status, self.body, self.headers = status, body, dict(headers or {})
        self.headers["Content-Length"] = str(len(body) if length is None else length)

    def head(self):
        return (f"HTTP/1.1 {self.status}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in self.headers.items()) + "\r\n").encode("latin-1")


def refusal(status, code, more="", headers=None):
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>of the fault store</Message>{more}</Error>'
    return Answer(status, text.encode(), {"Content-Type": "application/xml"} | (headers or {}))


# --- faults: each sends an answer in its own way, and says whether the connection goes on ---

async def calm(out, answer, request, draw):
    out.write(answer.head() + answer.body)
    return True


async def slow_first_byte(out, answer, request, draw):
    await asyncio.sleep(draw.uniform(0.05, 0.5))
    return await calm(out, answer, request, draw)


async def no_first_byte(out, answer, request, draw):
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(out.reader.read(), PARKED_S)
    return False


async def stalled_body(out, answer, request, draw):
    out.write(answer.head() + answer.body[:len(answer.body) // 2])
    return await no_first_byte(out, answer, request, draw)


async def dripping_body(out, answer, request, draw):
    out.write(answer.head())
    step = max(1, len(answer.body) // 8)
    for at in range(0, len(answer.body), step):
        await asyncio.sleep(0.03)
        out.write(answer.body[at:at + step])
    return True


async def reset_before(out, answer, request, draw):
    reset(out)
    return False


async def reset_in_body(out, answer, request, draw):
    out.write(answer.head() + answer.body[:draw.randrange(len(answer.body) + 1)])
    await out.drain()
    await asyncio.sleep(0.01)
    reset(out)
    return False


async def closed_before(out, answer, request, draw):
    return False


async def closed_in_head(out, answer, request, draw):
    head = answer.head()
    out.write(head[:draw.randrange(1, len(head) - 1)])
    return False


async def closed_in_body(out, answer, request, draw):
    """The length says more than comes."""
    out.write(answer.head() + answer.body[:-1 - draw.randrange(max(1, len(answer.body)))] if answer.body else answer.head()[:-2])
    return False


async def wrong_range(out, answer, request, draw):
    """Of a range that was asked: other bytes, as its Content-Range says.  Else nothing comes."""
    if answer.headers.get("Content-Range", "bytes */").startswith("bytes */") or len(answer.body) < 2:
        return False
    span, total = answer.headers["Content-Range"][6:].split("/")
    first, last = map(int, span.split("-"))
    cut = draw.randrange(1, len(answer.body))
    if draw.random() < 0.5:
        first, answer.body = first + cut, answer.body[cut:]
    else:
        last, answer.body = last - cut, answer.body[:-cut]
    answer.headers |= {"Content-Range": f"bytes {first}-{last}/{total}", "Content-Length": str(len(answer.body))}
    return await calm(out, answer, request, draw)


async def length_of_another(out, answer, request, draw):
    """Content-Length and Content-Range contradict each other."""
    if "Content-Range" not in answer.headers or not answer.body:
        return False
    answer.body = answer.body[:len(answer.body) // 2]
    answer.headers["Content-Length"] = str(len(answer.body))
    return await calm(out, answer, request, draw)


async def flipped_byte(out, answer, request, draw):
    """The checksum tells; where none is sent, nothing comes."""
    if "x-amz-checksum-crc32" not in answer.headers or not answer.body:
        return False
    at = draw.randrange(len(answer.body))
    answer.body = answer.body[:at] + bytes([answer.body[at] ^ 1]) + answer.body[at + 1:]
    return await calm(out, answer, request, draw)


async def garbage(out, answer, request, draw):
    out.write(draw.randbytes(draw.randrange(1, 3000)) + b"\r\n\r\n")
    return False


async def garbage_headers(out, answer, request, draw):
    """Lines that are no headers, before the right ones."""
    status, _, rest = answer.head().partition(b"\r\n")
    junk = b"".join(b"%s\r\n" % bytes(b for b in draw.randbytes(draw.randrange(1, 200)) if b not in b"\r\n\0") for _ in range(20))
    out.write(status + b"\r\n" + junk + rest + answer.body)
    return False


async def space_first(out, answer, request, draw):
    """A first line that goes on with the last header, and there is none: libcurl before 8.2 took one of the handle's last transfer, whose memory was free."""
    status, _, rest = answer.head().partition(b"\r\n")
    out.write(status + b"\r\n and: so on\r\n" + rest + answer.body)
    return False


async def endless_headers(out, answer, request, draw):
    out.write(b"HTTP/1.1 200 OK\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(2000):
            out.write(b"X-Junk: " + b"j" * 1000 + b"\r\n")
            await out.drain()
    return False


async def endless_error(out, answer, request, draw):
    """An error body without end."""
    out.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/xml\r\n\r\n<Error><Code>InternalError</Code><Message>")
    with contextlib.suppress(ConnectionError):
        for _ in range(2000):
            out.write(b"m" * 1000)
            await out.drain()
    return False


async def closes_after(out, answer, request, draw):
    """Right, and then the connection is closed without a word."""
    await calm(out, answer, request, draw)
    return False


async def half_closed(out, answer, request, draw):
    """Right; the next request on this connection is read and never answered."""
    await calm(out, answer, request, draw)
    out.faulty = True
    return True


async def bytes_after(out, answer, request, draw):
    """Right, with bytes behind it that belong to nothing."""
    out.write(answer.head() + answer.body + b"bytes of nothing\r\n\r\n")
    return True


async def chunked(out, answer, request, draw, cut=False):
    if "Content-Length" in answer.headers:
        del answer.headers["Content-Length"]
    answer.headers["Transfer-Encoding"] = "chunked"
    out.write(answer.head())
    for at in range(0, len(answer.body), 7000):
        part = answer.body[at:at + 7000]
        out.write(b"%x\r\n" % len(part) + part + b"\r\n")
    if cut:
        return False
    out.write(b"0\r\n\r\n")
    return True


async def chunked_without_end(out, answer, request, draw):
    return await chunked(out, answer, request, draw, cut=True)


async def hints_before(out, answer, request, draw):
    out.write(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n")
    return await calm(out, answer, request, draw)


def refusing(*arguments, **more):
    async def refuse(out, answer, request, draw):
        return await calm(out, refusal(*arguments, **more), request, draw)
    return refuse


async def bad_gateway(out, answer, request, draw):
    return await calm(out, Answer("502 Bad Gateway", b"<html>a proxy's page</html>", {"Content-Type": "text/html"}), request, draw)


def page(status, content="text/html", text=b"<html>maintenance</html>"):
    """What stands between says something of its own, in place of the store."""
    async def say(out, answer, request, draw):
        return await calm(out, Answer(status, b"" if request.method == "HEAD" else text, {"Content-Type": content}), request, draw)
    return say


FAULTS = {f.__name__: f for f in (calm, slow_first_byte, no_first_byte, stalled_body, dripping_body, reset_before, reset_in_body, closed_before,
                                  closed_in_head, closed_in_body, wrong_range, length_of_another, flipped_byte, garbage, garbage_headers, space_first,
                                  endless_headers, endless_error, closes_after, half_closed, bytes_after, chunked, chunked_without_end, hints_before,
                                  bad_gateway)}
FAULTS |= {
    "internal_error": refusing("500 Internal Server Error", "InternalError"),
    "unavailable": refusing("503 Service Unavailable", "ServiceUnavailable"),
    "slow_down": refusing("503 Slow Down", "SlowDown"),
    "too_many": refusing("429 Too Many Requests", "TooManyRequests", headers={"Retry-After": "0"}),
    "timeout_400": refusing("400 Bad Request", "RequestTimeout"),
    "html_200": page("200 OK"),
    "ingress_404": page("404 Not Found", "text/plain", b"404 page not found\n"),
    "page_403": page("403 Forbidden"),
    # Of one object, and no fault of the network:
    "no_such_key": refusing("404 Not Found", "NoSuchKey"),
    "access_denied": refusing("403 Forbidden", "AccessDenied"),
    "archived": refusing("403 Forbidden", "InvalidObjectState"),
    "changed": refusing("412 Precondition Failed", "PreconditionFailed"),
    # Of all, for ever:
    "no_such_bucket": refusing("404 Not Found", "NoSuchBucket"),
    "invalid_key_id": refusing("403 Forbidden", "InvalidAccessKeyId"),
    "expired": refusing("400 Bad Request", "ExpiredToken"),
    "elsewhere": refusing("301 Moved Permanently", "PermanentRedirect", headers={"x-amz-bucket-region": "nowhere-1"}),
    "skewed": refusing("403 Forbidden", "RequestTimeTooSkewed", headers={"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}),
}
# Each may be met by any request, and is over when it is asked again.  Those of WAITED take seconds.
TRANSIENT = ["slow_first_byte", "dripping_body", "reset_before", "reset_in_body", "closed_before", "closed_in_head", "closed_in_body", "wrong_range",
             "length_of_another", "flipped_byte", "garbage", "garbage_headers", "space_first", "endless_headers", "endless_error", "closes_after", "half_closed",
             "bytes_after", "chunked", "chunked_without_end", "hints_before", "bad_gateway", "internal_error", "unavailable", "slow_down", "too_many",
             "timeout_400", "html_200", "ingress_404", "page_403"]
WAITED = ["no_first_byte", "stalled_body"]


def reset(out):
    """RST in place of FIN."""
    out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    out.transport.abort()


class FaultStore:
    """host: 0.0.0.0 is all of 127.x.x.x.  certificate: a PEM file with its key, for TLS."""

    def __init__(self, port=0, host="127.0.0.1", certificate=None):
        self.schedules, self.port, self.host, self.tls = {}, port, host, None
        if certificate:
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(certificate)
        self.reached = collections.Counter()  # connections by the address that they were made to
        self.resumed = 0                      # of them, those that went on with an older TLS session
        self.loop = asyncio.new_event_loop()
        self.open_connections = 0
        self.tasks = set()

    def __enter__(self):
        async def start():
            self.server = await asyncio.start_server(self.serve, self.host, self.port, backlog=1024, limit=1 << 20, ssl=self.tls)
            self.port = self.server.sockets[0].getsockname()[1]
        self.loop.run_until_complete(start())
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        async def stop():
            self.server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        asyncio.run_coroutine_threadsafe(stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def environment(self):
        """Of a program that asks its schedules."""
        return Server(self.port, Schedule.key, Schedule.secret).environment()

    def add(self, schedule):
        self.schedules[schedule.bucket] = schedule
        return schedule

    async def serve(self, reader, out):
        self.open_connections += 1
        self.reached[out.get_extra_info("sockname")[0]] += 1
        if self.tls:
            self.resumed += out.get_extra_info("ssl_object").session_reused
        task = asyncio.current_task()
        self.tasks.add(task)
        out.faulty, out.reader = False, reader
        try:
            while await self.serve_one(reader, out):
                await out.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            self.open_connections -= 1
            out.close()

    async def serve_one(self, reader, out):
        request = Request(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(int(request.headers.get("content-length", 0)))
        if out.faulty:
            return False
        if request.path.startswith("/credentials/"):
            return await calm(out, self.credentials(request), request, None)
        schedule = self.schedules.get(request.bucket)
        if not schedule:
            return await calm(out, refusal("404 Not Found", "NoSuchBucket"), request, None)
        thing = schedule.things.get(request.key)
        answer, fault = self.decide(request, schedule, thing, body)
        draw = random.Random(f"{schedule.bucket}/{request.key}/{thing.asked if thing else 0}")
        return await FAULTS[fault](out, answer, request, draw)

    def credentials(self, request):
        """As a container's agent gives them."""
        schedule = self.schedules[request.path.split("/")[2]]
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        return Answer("200 OK", (f'{{"AccessKeyId": "{schedule.key}", "SecretAccessKey": "{schedule.secret}", "Token": "{schedule.token}", '
                                 f'"Expiration": "{until:%Y-%m-%dT%H:%M:%SZ}"}}').encode())

    def decide(self, request, schedule, thing, body):
        """The right answer, and the fault that it meets."""
        schedule.requests += 1
        schedule.turn_over()
        if schedule.all_requests:
            return Answer("200 OK"), schedule.all_requests
        if schedule.requests <= schedule.storm:
            return Answer("200 OK"), "slow_down"
        refused = self.identify(request, schedule)
        if refused:
            return refused, "calm"
        if request.method == "PUT":
            schedule.puts[request.key] = body
            return Answer("200 OK", headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'}), "calm"
        if not request.key:
            return self.listing(request, schedule), "calm"
        if not thing:
            return refusal("404 Not Found", "NoSuchKey"), "calm"
        fault = thing.always or (thing.faults[thing.asked] if thing.asked < len(thing.faults) else "calm")
        thing.asked += 1
        return self.content(request, thing), fault

    def identify(self, request, schedule):
        """None where the request may be answered."""
        if "authorization" not in request.headers:
            return refusal("403 Forbidden", "AccessDenied")
        now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=schedule.clock_s)
        date = {"Date": now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        fields, region, signature = signature_of(request, schedule)
        if fields["Credential"].split("/")[0] != schedule.key:
            return refusal("403 Forbidden", "InvalidAccessKeyId", headers=date)
        if region != schedule.region:
            return refusal("400 Bad Request", "AuthorizationHeaderMalformed", f"<Region>{schedule.region}</Region>", headers=date)
        said = datetime.datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((now - said).total_seconds()) > 900:
            return refusal("403 Forbidden", "RequestTimeTooSkewed", headers=date)
        if request.headers.get("x-amz-security-token", "") != schedule.token:
            return refusal("400 Bad Request", "ExpiredToken", headers=date)
        if fields["Signature"] != signature:
            schedule.bad_signatures += 1
            return refusal("403 Forbidden", "SignatureDoesNotMatch", headers=date)
        return None

    def content(self, request, thing):
        if request.headers.get("if-match", thing.etag) != thing.etag:
            return refusal("412 Precondition Failed", "PreconditionFailed")
        headers = {"ETag": thing.etag, "Accept-Ranges": "bytes"}
        if request.range is None:
            if request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
                headers["x-amz-checksum-crc32"] = base64.b64encode(struct.pack(">I", zlib.crc32(thing.body))).decode()
            return self.headless(request, Answer("200 OK", thing.body, headers))
        first, last = request.range
        first = max(0, thing.size + first) if first < 0 else first
        last = thing.size - 1 if last is None else min(last, thing.size - 1)
        if first > last:
            return refusal("416 Range Not Satisfiable", "InvalidRange", headers={"Content-Range": f"bytes */{thing.size}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{thing.size}"
        return self.headless(request, Answer("206 Partial Content", thing.body[first:last + 1], headers))

    def headless(self, request, answer):
        if request.method == "HEAD":
            answer.body = b""
        return answer

    def listing(self, request, schedule):
        query = dict(urllib.parse.parse_qsl(request.query))
        keys = sorted(k for k in schedule.things if k.startswith(query.get("prefix", "")))
        text = "".join(f"<Contents><Key>{urllib.parse.quote(k)}</Key><ETag>{schedule.things[k].etag}</ETag><Size>{schedule.things[k].size}</Size></Contents>"
                       for k in keys)
        return Answer("200 OK", (f'<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>{text}<IsTruncated>false</IsTruncated>'
                                 "</ListBucketResult>").encode(), {"Content-Type": "application/xml"})

"""Random faults by schedule: what is within the retries ends with the calm bytes, what is planted as fatal ends in its own words.

STK_SCHEDULES: how many (default 100; `make test-s3` has 1,000).  STK_SCHEDULE: one of them alone, by its seed.  They run side by side,
since most of a schedule is pauses; what each meets is drawn from its seed."""
import asyncio
import concurrent.futures
import os
import random
import re
import time

import pytest
import servers
from fault_store import BLOB, FAULTS, TRANSIENT, WAITED, FaultStore, Schedule, Thing
from probe import Probe, is_whole

LANES = 24
MOST_FAULTS = 30      # of a schedule: below what a source allows before it fails fast
SETTLE_BYTES = 16 << 20  # that a process may grow between its first schedules and its last: caches of the allocator

# A fault of one object: what comes, and what the sample is told.
OF_ONE = {"no_such_key": "STK_ERR_MEDIA_MISSING", "ingress_404": "STK_ERR_MEDIA_MISSING", "access_denied": "STK_ERR_SYSTEM", "archived": None, "changed": "STK_ERR_MEDIA"}
# Of all: words that the error must have.
FATAL = {"no_such_bucket": "bucket", "invalid_key_id": "InvalidAccessKeyId|key", "expired": "ExpiredToken|expired", "elsewhere": "region",
         "skewed": "clock", "access_denied": "AccessDenied|denied|may not", "wrong_secret": "SignatureDoesNotMatch|secret", "internal_error": "500|InternalError"}


class Case:
    """A schedule, the requests made of it, and what must come of each."""

    def __init__(self, seed, bucket=None):
        draw = self.draw = random.Random(seed)
        self.seed, self.fatal, self.names, self.prime = seed, None, 0, False
        self.bucket = bucket or f"s{seed}"
        kind = draw.choices(["plain", "storm", "clock", "region", "credentials", "names", "waited", "fatal"], [60, 8, 6, 6, 5, 5, 2, 8])[0]
        self.kind = kind
        things = {f"{draw.choice(['a', 'b c', 'd+e', 'ü/f'])}/{i}": Thing(draw.randrange(1 << 19), draw.choice([0, 1, 100, 5000, 60000, 300000, 500000]))
                  for i in range(12)}
        self.schedule = Schedule(self.bucket, things)
        left = MOST_FAULTS
        for thing in things.values():
            if left > 0 and draw.random() < 0.5:
                thing.faults = draw.choices(TRANSIENT, k=min(left, draw.randrange(1, 4)))
                left -= len(thing.faults)
        getattr(self, "make_" + kind)(things)
        if kind == "plain" and draw.random() < 0.2:
            thing = things[draw.choice(list(things))]
            thing.always, thing.faults, self.prime = draw.choice(list(OF_ONE)), [], True
        self.gets = [self.draw_get(key, thing) for key, thing in things.items()]
        self.config = {"hedge": draw.random() < 0.5}

    def draw_get(self, key, thing):
        get = {"address": f"s3://{self.bucket}/{key}"}
        if thing.always == "changed" or self.draw.random() < 0.5:
            get |= {"etag": thing.etag, "size": thing.size}
        elif thing.size > 10 and self.draw.random() < 0.4:
            get |= {"offset": self.draw.randrange(thing.size), "size": self.draw.randrange(1, thing.size)}
        return get

    def make_plain(self, things):
        pass

    def make_storm(self, things):
        self.schedule.storm = self.draw.randrange(5, 30)
        for thing in things.values():
            thing.faults = thing.faults[:1]

    def make_clock(self, things):
        self.schedule.clock_s = self.draw.choice([-1, 1]) * self.draw.randrange(1200, 86400 * 3)

    def make_region(self, things):
        self.schedule.region = "eu-probe-7"

    def make_credentials(self, things):
        self.schedule.token = "token-first"
        self.schedule.expires = [self.draw.randrange(1, 20)]

    def make_names(self, things):
        self.names = self.draw.randrange(1, 24)

    def make_waited(self, things):
        things[self.draw.choice(list(things))].faults = [self.draw.choice(WAITED)]

    def make_fatal(self, things):
        self.fatal = self.draw.choice(list(FATAL))
        for thing in things.values():
            thing.faults = []
        if self.fatal == "wrong_secret":
            self.schedule.secret = "another secret"
        elif self.fatal == "internal_error":
            things[self.draw.choice(list(things))].always = self.fatal
        else:
            self.schedule.all_requests = self.fatal

    def expect(self, get, came):
        """What is wrong with what came; None: nothing."""
        key = get["address"].split("/", 3)[3]
        thing = self.schedule.things[key]
        if self.fatal:
            if not thing.always and not self.schedule.all_requests and self.fatal != "wrong_secret":
                return None if came["status"] in ("STK_OK", "STK_ERR_NETWORK") else "neither there nor stopped"
            if came["status"] != "STK_ERR_NETWORK":
                return "must stop the run"
            return None if re.search(FATAL[self.fatal], came["message"], re.I) else f"does not say {FATAL[self.fatal]}"
        if thing.always:
            wanted = OF_ONE[thing.always]
            if came["status"] in ("STK_OK", "STK_ERR_NETWORK") or wanted and came["status"] != wanted:
                return f"{thing.always} must be {wanted}"
            return None if came["changed"] == (thing.always == "changed") else "changed is wrong"
        body = thing.body[get.get("offset", 0):][:get["size"] if "size" in get else None]
        return None if is_whole(came, body) else "not the calm bytes"

    def run(self, store, probe):
        store.add(self.schedule)
        if self.names:
            probe.ask("names", fail=self.names)
        host = f"{self.bucket}.probe" if self.names else "127.0.0.1"
        probe.open(endpoint=f"http://{host}:{store.port}", addressing="path", **self.config)
        if self.prime:
            self.schedule.things["calm"] = Thing(0, 10)
            assert is_whole(probe.get(f"s3://{self.bucket}/calm"), BLOB[:10])
        came = probe.get_all(self.gets, seconds=150)
        wrong = [f"seed {self.seed} ({self.kind} {self.fatal or ''}): {get}: {why}: {c}; met {self.schedule.things[get['address'].split('/', 3)[3]].faults}"
                 for get, c in zip(self.gets, came) if (why := self.expect(get, c))]
        if self.schedule.bad_signatures and self.fatal != "wrong_secret":
            wrong.append(f"seed {self.seed}: {self.schedule.bad_signatures} bad signatures")
        wrong += [f"seed {self.seed}: the secret is told: {c}" for c in came if self.schedule.secret in c["message"] + c["file"]]
        return wrong, probe.ask("close")


ENVIRONMENT = servers.Server(0, "AKSCHEDULE", Schedule("", {}).secret).environment(AWS_ENDPOINT_URL_S3=None)


def run_lane(store, program, seeds):
    """One process for all of a lane's schedules, but for those with credentials of their own: what it holds must not grow."""
    wrong, after = [], []
    with Probe(program, ENVIRONMENT) as probe:
        for seed in seeds:
            case = Case(seed)
            if case.kind == "credentials":
                uri = f"{store.url}/credentials/{case.bucket}"
                own = ENVIRONMENT | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": uri}
                del own["AWS_ACCESS_KEY_ID"], own["AWS_SECRET_ACCESS_KEY"]
                with Probe(program, own) as other:
                    wrong += case.run(store, other)[0]
                    other.end()
                continue
            found, closed = case.run(store, probe)
            wrong += found
            after.append(closed)
            if closed["held"]:
                wrong.append(f"seed {seed}: {closed['held']} bytes are held after close")
        if after:
            probe.end()
    for name in ("files", "threads"):
        if after and after[-1][name] > min(closed[name] for closed in after):
            wrong.append(f"{name} after each close: {[closed[name] for closed in after]}")
    if len(after) > 8 and after[-1]["resident"] - after[len(after) // 4]["resident"] > SETTLE_BYTES:
        wrong.append(f"resident memory grows: {[closed['resident'] >> 20 for closed in after]}")
    return wrong


def test_random_fault_schedules(probe_program):
    one = os.environ.get("STK_SCHEDULE")
    seeds = [int(one)] if one else range(int(os.environ.get("STK_SCHEDULES", 100)))
    with FaultStore() as store, concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
        done = [lanes.submit(run_lane, store, probe_program, seeds[lane::LANES]) for lane in range(LANES)]
        wrong = [text for lane in done for text in lane.result()]
        for _ in range(100):
            if not store.open_connections:
                break
            time.sleep(0.1)
        if store.open_connections:
            wrong.append(f"{store.open_connections} connections are still open")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


# --- each fault for itself: one object meets it once, and comes whole ---

@pytest.fixture(scope="module")
def store():
    with FaultStore() as s:
        yield s


def open_at(store, probe, **more):
    return probe(ENVIRONMENT, endpoint=store.url, addressing="path", **more)


def test_a_handle_that_was_used_takes_no_header_of_its_last_answer(store, probe):
    """A sanitizer sees it where libcurl does (before 8.2)."""
    store.add(Schedule("again", {"first": Thing(0, 1000), **{f"{i}": Thing(i, 1000, ["space_first"]) for i in range(20)}}))
    p = open_at(store, probe)
    assert is_whole(p.get("s3://again/first"), BLOB[:1000])
    for i in range(20):
        assert is_whole(p.get(f"s3://again/{i}"), BLOB[i:i + 1000])


@pytest.mark.parametrize("fault", TRANSIENT + WAITED)
def test_one_fault_is_over_when_asked_again(store, probe, fault):
    things = {f"{how}/{size}": Thing(7, size, [fault]) for how in ("whole", "part") for size in (0, 1, 5000, 400000)}
    store.add(Schedule("one-" + fault.replace("_", "-"), things))
    bucket = "one-" + fault.replace("_", "-")
    gets = [{"address": f"s3://{bucket}/{key}"} | ({"offset": thing.size // 3, "size": thing.size // 3} if key.startswith("part") and thing.size else {})
            for key, thing in things.items()]
    came = open_at(store, probe).get_all(gets)
    for get, (key, thing), c in zip(gets, things.items(), came):
        body = thing.body[get.get("offset", 0):][:get.get("size")]
        assert is_whole(c, body), (key, c)


def test_what_stays_wrong_stops_the_run_after_its_retries(store, probe):
    """A store that fails for ever, and a name that never resolves; side by side, since the pauses take half a minute."""
    store.add(Schedule("stays", {"a": Thing(0, 10, always="internal_error")}))
    failing, nameless = open_at(store, probe), probe(ENVIRONMENT, endpoint="http://no-such-host.invalid:9", addressing="path")
    failing.tell("get", address="s3://stays/a")
    failing.process.stdin.flush()
    came = nameless.get_all([{"address": "s3://any/thing"}], seconds=180)[0]
    assert came["status"] == "STK_ERR_NETWORK" and "resolve host: no-such-host.invalid" in came["message"], came
    came = failing.wait(180)[0]
    assert came["status"] == "STK_ERR_NETWORK" and "500" in came["message"] and "stays" in came["message"], came
    assert 2 <= store.schedules["stays"].requests <= 12


def test_a_storm_is_waited_out_and_counted(store, probe):
    store.add(Schedule("storm", {f"{i}": Thing(i, 1000) for i in range(40)}, storm=60))
    p = open_at(store, probe)
    came = p.get_all([{"address": f"s3://storm/{i}"} for i in range(40)])
    assert all(is_whole(c, BLOB[i:i + 1000]) for i, c in enumerate(came))
    assert p.ask("metrics")["retries"]["throttle"] == 60


def test_late_answers_are_asked_for_again(store, probe):
    """Hedges: what is later than the rest is asked for twice, and the late answer is not waited for."""
    late = {i for i in range(300, 1200) if i % 97 == 0}
    store.add(Schedule("late", {f"{i}": Thing(i, 1000, ["no_first_byte"] if i in late else []) for i in range(1200)}))
    p = open_at(store, probe, hedge=True)
    for first in range(0, 1200, 100):
        came = p.get_all([{"address": f"s3://late/{i}", "size": 1000} for i in range(first, first + 100)])
        assert all(is_whole(c, BLOB[i:i + 1000]) for i, c in enumerate(came, first))
    metrics = p.ask("metrics")
    assert metrics["hedges_won"] >= len(late) // 2, metrics
    assert metrics["hedges_sent"] <= 0.05 * 1200 + 1, metrics


def test_a_store_that_comes_up_later_is_waited_for(probe):
    port = servers.free_port()
    p = probe(ENVIRONMENT, endpoint=f"http://127.0.0.1:{port}", addressing="path")
    p.tell("get", address="s3://later/a")
    p.process.stdin.flush()
    time.sleep(0.3)
    with FaultStore(port) as store:
        store.add(Schedule("later", {"a": Thing(0, 10)}))
        assert is_whole(p.wait()[0], BLOB[:10])


@pytest.mark.parametrize("key", ["a\r\nX-Injected: 1", "a\nb", "a\r", "a?x=1", "a#b", "a HTTP/1.1"])
def test_a_key_cannot_add_headers(store, probe, key):
    """It is asked for as it is, and the store sees one request with no header more."""
    seen = []
    decide = store.decide

    def spy(request, schedule, thing, body):
        seen.append(request)
        return decide(request, schedule, thing, body)
    store.add(Schedule("injected", {key: Thing(0, 10)}))
    store.decide = spy
    try:
        came = open_at(store, probe).get(f"s3://injected/{key}")
    finally:
        store.decide = decide
    assert is_whole(came, BLOB[:10]), came
    assert [r.key for r in seen] == [key] and "x-injected" not in seen[0].headers


def test_a_loop_that_waits_does_not_spin(store, probe, monkeypatch):
    """64 objects that come after two seconds: next to no CPU time (libcurl's timer is one-shot)."""
    async def late(out, answer, request, draw):
        await asyncio.sleep(2)
        return await FAULTS["calm"](out, answer, request, draw)
    monkeypatch.setitem(FAULTS, "late", late)
    store.add(Schedule("idle", {f"{i}": Thing(i, 1000, ["calm", "late"]) for i in range(64)}))
    p = open_at(store, probe)
    gets = [{"address": f"s3://idle/{i}"} for i in range(64)]
    p.get_all(gets)
    before = cpu_ticks(p)
    assert all(is_whole(c, BLOB[i:i + 1000]) for i, c in enumerate(p.get_all(gets)))
    assert cpu_ticks(p) - before <= 20  # of 10 ms; a loop that spins takes 200


def cpu_ticks(p):
    fields = open(f"/proc/{p.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])

"""The library's source as the tests see it: a store_probe process that takes one JSON object a line."""
import json
import subprocess

import xxhash


class Probe:
    """Gives dicts with status, got, total, xxh3, etag, changed, code, message: what store_probe.c prints."""

    def __init__(self, program, environment):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def tell(self, what, **more):
        self.process.stdin.write(json.dumps({"do": what} | more).encode() + b"\n")

    def ask(self, what, **more):
        self.tell(what, **more)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.stdin.close()
            raise AssertionError(f"store_probe ended at {what}: {self.process.stderr.read().decode(errors='replace')}")
        return json.loads(line)

    def open(self, **config):
        opened = self.ask("open", **config)
        assert opened["status"] == "STK_OK", opened
        return self

    def wait(self, seconds=60):
        return self.ask("wait", seconds=seconds)

    def get_all(self, requests, seconds=60):
        """All at once: requests are dicts of address, offset, size, etag, capacity."""
        for request in requests:
            self.tell("get", **request)
        return self.wait(seconds)

    def get(self, address, **more):
        return self.get_all([{"address": address} | more])[0]

    def end(self):
        """All that it holds is given back: gives its last words."""
        last = self.ask("close")
        self.process.stdin.close()
        said = self.process.stderr.read().decode(errors="replace")
        assert self.process.wait(30) == 0, said
        return last

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def is_whole(came, body):
    """The very bytes, and nothing else."""
    return came["status"] == "STK_OK" and came["got"] == len(body) and came["xxh3"] == f"{xxhash.xxh3_64_intdigest(body):016x}"

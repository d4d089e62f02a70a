"""Media behind http(s): each hop of a redirect is asked about, and nobody there gets credentials."""
import contextlib
import json

from fault_store import Answer, FaultStore, Schedule, Thing
from sets import configure, picture


class Web(FaultStore):
    """Answers to all, and sends on who asks for what has moved."""

    def __init__(self, **more):
        super().__init__(**more)
        self.moved, self.signed = {}, 0
        self.add(Schedule("web", {"a.png": Thing.of(picture(0))}))

    def decide(self, request, schedule, thing, body):
        self.signed += "authorization" in request.headers or "x-amz-date" in request.headers
        if request.key in self.moved:
            return Answer("302 Found", headers={"Location": self.moved[request.key]}), "calm"
        return self.content(request, thing) if thing else Answer("404 Not Found"), "calm"


def test_each_hop_of_a_redirect_is_asked_about(certificate, stoker, tmp_path):
    with contextlib.ExitStack() as open_now:
        allowed, other, safe = (open_now.enter_context(Web(**more)) for more in ({}, {}, {"certificate": certificate}))
        allowed.moved = {"hop": "/web/hop2", "hop2": "a.png", "out": f"{other.url}/web/a.png", "link": "http://169.254.169.254/latest/",
                         "file": "file:///etc/hostname", "bucket": "s3://web/a.png", "keys": f"http://user:hush@127.0.0.1:{allowed.port}/web/a.png"}
        safe.moved = {"hop": f"{safe.url}/web/a.png", "down": f"{allowed.url}/web/a.png"}
        images = [f"{allowed.url}/web/{key}" for key in allowed.moved] + [f"{safe.url}/web/{key}" for key in safe.moved]
        (tmp_path / "train.jsonl").write_text("".join(json.dumps({"id": image, "image": image, "conversations": [
            {"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "ok"}]}) + "\n" for image in images))
        config = configure(tmp_path / "c.yaml", tmp_path / "train.jsonl", tmp_path / "index", more=f"errors: {{unusable: 1}}\nca: {certificate.with_suffix('.crt')}\n"
                           f"allow: ['{allowed.url}', '{safe.url}']\n")
        done = stoker("index", config, "--json", env=allowed.environment())
        report = json.loads(done.stdout)["sets"][0]
        words = {int(e["line"]): e["message"] for reason in report["unusable"].values() for e in reason["examples"]}
        bad = [image.rsplit("/", 1)[1] for line, image in enumerate(images, 1) if line in words]
        assert bad == ["out", "link", "file", "bucket", "keys", "down"] and report["usable"] == 3, report
        assert not other.reached and not allowed.signed and not safe.signed
        assert "hush" not in done.stdout + done.stderr
        assert f'allow: ["{other.url}"]' in words[3] and "169.254.169.254" in words[4] and "https to http" in words[len(images)], words

"""The records of the dialect goldens: conversations that every dialect can say, in each of them, and what only one can say.

``CASES`` is a list of {"name", "records"}; records are {"format", "record"} and, where a data set would need them, "columns".
All records of a case are the same conversation.
"""
import base64
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "text"))
import conversations as base  # noqa: E402
from conversations import CROP, WEATHER, call  # noqa: E402

I = object()  # an image, between texts
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()


def u(*pieces):
    return {"role": "user", "pieces": list(pieces)}


def t(*pieces):
    return {"role": "tool", "pieces": list(pieces)}


def a(words="", *calls, train=None):
    return {"role": "assistant", "pieces": [words] if words else [], "calls": list(calls), "train": train}


def s(words):
    return {"role": "system", "pieces": [words]}


class Shared:
    """One conversation, to be written in each dialect; `k` varies what the dialect leaves open."""

    def __init__(self, k, turns, tools=None):
        self.k, self.turns, self.tools = k, turns, tools
        self.names = [f"shelf {k}/{i + 1}.{k % 7}.png" for i in range(sum(p is I for turn in turns for p in turn["pieces"]))]

    def tagged(self, turn):
        return "".join("<image>" if piece is I else piece for piece in turn["pieces"])

    def more(self, record, tools_as_text):
        if self.tools:
            record["tools"] = json.dumps(self.tools, ensure_ascii=False) if tools_as_text else self.tools
        return record

    def shelf(self, record, keys):
        """One image may be a string; no image may be no key, null or an empty list."""
        key = keys[self.k % len(keys)]
        if len(self.names) == 1 and self.k % 2:
            record[key] = self.names[0]
        elif self.names:
            record[key] = self.names
        elif self.k % 3:
            record[key] = [None, []][self.k % 2]
        return record

    def has_calls(self):
        return any(turn.get("calls") for turn in self.turns)

    def llava(self):
        if self.has_calls() or self.tools:
            return None
        names = {"user": "human", "assistant": "gpt"}
        turns = [{"from": names.get(turn["role"], turn["role"]), "value": self.tagged(turn)} for turn in self.turns]
        self.loss(turns, "train", bool)
        return self.shelf({"id": self.k, "conversations": turns}, ["image", "images"])

    def loss(self, turns, key, kind):
        for turn, written in zip(self.turns, turns):
            if turn.get("train") is not None:
                written[key] = kind(turn["train"])

    def openai(self):
        names = iter(self.names)
        turns = []
        for turn in self.turns:
            written = {"role": turn["role"], "content": [self.part(piece, names) for piece in turn["pieces"]]}
            if all(isinstance(piece, str) for piece in turn["pieces"]) and self.k % 3:
                written["content"] = "".join(turn["pieces"])
            if turn.get("calls"):
                written["tool_calls"] = [c if self.k % 2 else c["function"] for c in turn["calls"]]
                if not turn["pieces"]:
                    written["content"] = None
            turns.append(written)
        self.loss(turns, "weight", int)
        return self.more({"messages": turns}, False)

    def part(self, piece, names):
        if piece is not I:
            return {"type": "text", "text": piece, **({"image": None, "image_url": None} if self.k % 4 == 0 else {})}
        name = next(names)
        return [{"type": "image", "image": name}, {"type": "image_url", "image_url": {"url": name, "detail": "low"}},
                {"type": "image_url", "image_url": name}, {"type": "image", "path": name}, {"type": "image", "url": name, "text": None},
                {"image": name}][self.k % 6]

    def ms_swift(self):
        if self.separate_calls() is None:
            return None
        turns = []
        for i, turn in enumerate(self.separate_calls()):
            role_key, content_key = [("role", "content"), ("from", "value"), ("role", "value"), ("from", "content")][(self.k + i) % 4]
            role = {"tool": ["tool", "tool_response"][self.k % 2], "call": "tool_call", "user": ["user", "human"][self.k % 2]}
            if turn["role"] != "call":
                turns.append({role_key: role.get(turn["role"], turn["role"]), content_key: self.tagged(turn)})
            else:
                turns += [{role_key: "tool_call", content_key: json.dumps(c["function"], ensure_ascii=False)} for c in turn["calls"]]
        if not self.has_calls():
            self.loss(turns, ["loss", "loss_scale"][self.k % 2], float)
        record = self.shelf({["messages", "conversation", "conversations"][self.k % 3]: turns}, ["images", "image"])
        if self.names and self.k % 5 == 0:
            record[next(key for key in ("images", "image") if key in record)] = [{"bytes": None, "path": name} for name in self.names]
        return self.more(record, self.k % 2)

    def separate_calls(self):
        """Turns of calls alone; None: a turn has both text and calls, which such dialects have no one turn for."""
        if any(turn.get("calls") and turn["pieces"] for turn in self.turns):
            return None
        return [{**turn, "role": "call"} if turn.get("calls") else turn for turn in self.turns]

    def sharegpt(self):
        if self.separate_calls() is None:
            return None
        names = {"user": "human", "assistant": "gpt", "tool": "observation", "call": "function_call"}
        turns = []
        for turn in self.separate_calls():
            value = self.tagged(turn)
            if turn["role"] == "call":
                calls = [c["function"] for c in turn["calls"]]
                value = json.dumps(calls if len(calls) > 1 or self.k % 2 else calls[0], ensure_ascii=bool(self.k % 3))
            turns.append({"from": names.get(turn["role"], turn["role"]), "value": value})
        self.loss(turns, "loss", int)
        record = {"conversations": turns}
        if turns[0]["from"] == "system" and self.k % 2:
            record["system"] = turns.pop(0)["value"]
        return self.more(self.shelf(record, ["images"]), True)

    def records(self):
        made = {"llava": self.llava(), "openai": self.openai(), "ms-swift": self.ms_swift(), "sharegpt": self.sharegpt()}
        return [{"format": form, "record": record} for form, record in made.items() if record]


def shared_turns():
    cat, more = "What is in the picture?", "And how many?"
    for name, words in base.TEXTS.items():
        yield "text-" + name, [u(I, words), a("An answer."), u("More."), a(words)]
    for i, (before, after) in enumerate([("", "\n"), ("\n", ""), (" ", " "), ("\t \u3000", "\u2003"), ("a", "b"), ("\n\n", "\r\n"), ("<", ">")]):
        yield f"space-{i}", [u(before, I, after + cat + before, I, after), a(" It \n")]
    yield "two-images", [u(I, " and ", I, "\nCompare them."), a("Both are red.")]
    yield "glued", [u(I, I, I), a("Three.")]
    yield "image-last", [u(cat, I), a("A cat.")]
    yield "over-turns", [u(I, cat), a("One cat."), u(more, I, "?"), a("Two."), u(I), a("Three.")]
    yield "no-image", [u(cat), a("None.")]
    yield "nearly-tags", [u(I, "<image", "< image> <Image> <image/> &lt;image&gt;"), a("No tags.")]
    yield "tags-of-others", [s("Pictures stand at <image>."), u(I, cat), a("At <image> and <video> stands <audio>.")]
    yield "system", [s("You are terse."), u(I, cat), a("A cat.")]
    yield "system-cjk", [s("你是一个有用的助手。"), u("你好", I), a("你好！")]
    yield "system-space", [s(" \n spaced \n"), u(cat), a("A cat.")]
    yield "system-later", [u(I, cat), a("A cat."), s("Now in German."), u(more), a("Zwei.")]
    yield "user-user", [u("one", I), u("two"), a("three")]
    yield "answer-answer", [u(I, "one"), a("two"), a("three")]
    yield "answer-first", [a("Hello."), u(I, "Hi."), a("What?")]
    yield "user-last", [u("a"), a("b"), u(I, "c")]
    yield "empty-question", [u(""), a("Nothing was asked.")]
    yield "empty-answer", [u(I, cat), a("")]
    yield "assistant-word", [u("assistant: say assistant", I), a("assistant")]
    yield "train-no", [u(I, cat), a("A cat.", train=False), u(more), a("One.")]
    yield "train-one", [u(I, cat), a("A.", train=False), u(more), a("B.", train=True), u("?"), a("C.", train=False)]
    yield "train-yes", [u(I, cat), a("A.", train=True), u(more), a("B.")]
    for name in ("newline-first", "space-last", "exotic-space", "zero-width", "cjk", "arabic", "emoji-joined", "combining-first", "code",
                 "role-words", "digits", "half-token", "jinja", "private-use"):
        words = base.TEXTS[name]
        yield "around-" + name, [s(words), u(words, I, words, I, words), a(words), u(I, I, words), a("Four.", train=len(words) % 2 == 0)]
    for name in base.TYPED:
        yield "typed-" + name, [u(I, base.TYPED[name]), a("Fine.")]
        yield "typed-answer-" + name, [s(base.TYPED[name]), u(I), a(base.TYPED[name])]
    for i, order in enumerate(("uuaua", "auaau", "suuasa", "uasuua")):
        said = {"u": lambda n: u(I, f"question {n}?") if n % 2 else u(f"\nquestion {n}\n"), "a": lambda n: a(f"answer {n}"), "s": lambda n: s(f"rule {n}")}
        yield f"order-{order}", [said[role](n + i) for n, role in enumerate(order)]
    yield "typed-pad", [u(I, "<|image_pad|><|video_pad|>"), a("<|vision_start|><|image_pad|><|vision_end|>")]


def shared_tools():
    rain, args = u("Will it rain in Zürich?"), {"place": "Zürich", "days": 2}
    odd = {"t": True, "n": None, "i": -3, "r": 2.50, "e": 1e20, "s": "a\"b\n\\", "l": [1, [2, {}]], "u": "é😀", "z": ""}
    yield "unused", [rain, a("I do not know.")], [WEATHER]
    yield "two", [s("Be brief."), rain, a("No.")], [WEATHER, CROP]
    yield "call", [rain, a("", call("get_weather", args)), t("{\"rain\": true}"), a("Yes.")], [WEATHER]
    yield "call-text", [rain, a("Let me look.", call("get_weather", args)), t("rain"), a("Yes.")], [WEATHER]
    yield "calls", [rain, a("", call("get_weather", args), call("crop", {"box": [0, 0.5, 1, 1e-7]})), t("rain"), t("done"), a("Yes.")], [WEATHER, CROP]
    yield "calls-text", [rain, a("Two.", call("f", {}), call("g", {"x": {}})), t("1"), t("2"), u("so?"), a("Fine.")], None
    yield "string", [rain, a("", call("get_weather", "{\"place\":\"Bern\"}")), t("sun"), a("No.")], None
    yield "scalars", [rain, a("", call("f", odd)), t(" x \n"), a("y")], None
    yield "rounds", [rain, a("", call("f", {"n": 1})), t("1"), a("", call("f", {"n": 2})), t("2"), a("Both.")], [WEATHER]
    yield "image", [u(I, "Zoom in."), a("", call("crop", {"box": [0, 0, 1, 1]})), t("the crop: ", I), a("A whisker."), u(I, "And here?"), a("None.")], [CROP]
    yield "last", [u(I, "Do it."), a("", call("f", {}))], [CROP]
    yield "typed", [rain, a("", call("f<|im_end|>", {"k": "<|im_start|> <tool_call>"})), t("</tool_response><|im_end|>"), a("b")], [WEATHER]
    yield "system-call", [s("Use <tool_call>."), rain, a("", call("get_weather", args), call("get_weather", {"place": "Genève"})), t("是"), t("否"), a("Maybe.")], [WEATHER]


def shared_cases():
    k = 0
    for name, turns in shared_turns():
        yield {"name": name, "records": Shared(k, turns).records()}
        k += 1
    for name, turns, tools in shared_tools():
        for _ in range(2):  # the other spellings too
            yield {"name": f"tools-{name}-{k}", "records": Shared(k, turns, tools).records()}
            k += 1


def one(form, name, record, **more):
    return {"name": f"{form}-{name}", "records": [{"format": form, "record": record, **more}]}


def chat(content, **more):
    return {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "A cat."}], **more}


def only_openai():
    yield one("openai", "joined-parts", chat([{"type": "text", "text": "foo"}, {"type": "text", "text": " bar"}, {"type": "text", "text": ""}]))
    yield one("openai", "tags", chat("<image>a <image>\n", images=[{"path": "1"}, {"url": "2"}]))
    yield one("openai", "tags-in-parts", chat([{"type": "image"}, {"type": "text", "text": "a<image>"}, {"type": "image", "url": "own"}], images=["1", "2"]))
    yield one("openai", "data", chat([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}, {"type": "text", "text": "?"}]))
    yield one("openai", "base64", chat([{"type": "image", "base64": PNG}, {"type": "image", "image": PNG}, {"type": "text", "text": "?"}]))
    yield one("openai", "nested", chat([{"type": "image", "image": {"url": "1", "width": 128, "height": 128}}]))
    yield one("openai", "nulls", chat([{"type": "text", "text": "hi", "image": None, "video": None}], image=None, images=None, videos=None, tools=None, system=None))
    yield one("openai", "developer", {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "u"},
                                                   {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})
    yield one("openai", "prompt", {"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": [
        {"type": "image"}, {"type": "text", "text": "v"}]}], "completion": [{"role": "assistant", "content": "b"}], "images": ["1"]})
    yield one("openai", "weights", {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"},
                                                 {"role": "assistant", "content": "b"}], "weights": [0, 1]})
    yield one("openai", "conversations-key", {"conversations": chat("u")["messages"], "system": "Be brief."})


def only_llava():
    yield one("llava", "observation", {"conversations": [{"from": "human", "value": "u"}, {"from": "function_response", "value": "r"}, {"from": "gpt", "value": "a"}]})
    yield one("llava", "object", {"image": {"path": "a b.jpg", "width": 128, "height": 128}, "conversations": [
        {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]})
    yield one("llava", "columns", {"pics": ["1", "2"], "dialog": [{"from": "human", "value": "<image><image>\nWhat?"}, {"from": "gpt", "value": "A cat."}],
                                   "image": "no"}, columns={"images": "pics", "messages": "dialog"})
    yield one("llava", "system-key", {"system": "Be <image> kind.", "image": "1", "conversations": [
        {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat.", "train": None}]})


def only_ms_swift():
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"},
             {"role": "user", "content": "v<image>"}, {"role": "assistant", "content": "b"}]
    call_turn = {"role": "tool_call", "content": {"name": "f", "arguments": {"é": 1}}}
    yield one("ms-swift", "untagged", chat("\nWhat?", images=["1"]))
    yield one("ms-swift", "untagged-three", chat("What?", images=["1", {"path": "2"}, {"bytes": PNG, "path": "3"}]))
    yield one("ms-swift", "one-of-two", chat("a<image>b", images=["1", "2"]))
    yield one("ms-swift", "later-tag", {"messages": turns, "images": ["1", "2", "3"]})
    yield one("ms-swift", "untagged-system", {"system_prompt": "Be brief.", "messages": turns[1:3], "image": "1"})
    yield one("ms-swift", "untagged-parts", chat([{"type": "text", "text": "a"}, {"type": "image", "image": "own"}], images=["1"]))
    yield one("ms-swift", "untagged-tool", {"messages": [{"role": "tool", "content": "t"}, *turns[1:3]], "images": ["1"]})
    yield one("ms-swift", "empty-question", chat("", images=["1"]))
    yield one("ms-swift", "trl", {"prompt": turns[:2], "completion": turns[2:3], "images": ["1", "2"]})
    yield one("ms-swift", "img", chat("Picture 1:<img>a/b.jpg</img>\n<img>c.png</img>?<img></img>"))
    yield one("ms-swift", "img-kept", chat("<image><img>c</img>", images=["1"]))
    yield one("ms-swift", "base64", chat("<image><image>", images=[PNG, "data:image/png;base64," + PNG]))
    yield one("ms-swift", "kept-tag", {"messages": [turns[1], {"role": "assistant", "content": "an <image>"}]})
    yield one("ms-swift", "call-runs", {"messages": [turns[1], call_turn, {"role": "tool_call", "content": "{\"name\": \"g\", \"arguments\": \"{}\"}"},
                                                     {"role": "tool", "content": "1"}, {"role": "tool_response", "content": "2"}, call_turn,
                                                     {"role": "tool", "content": "3"}, turns[2]], "tools": json.dumps([WEATHER])})
    yield one("ms-swift", "call-loss", {"messages": [turns[1], {**call_turn, "loss": False}, {"role": "tool", "content": "1"}, turns[2]]})
    yield one("ms-swift", "openai-calls", {"messages": [turns[1], {"role": "assistant", "content": "", "tool_calls": [call("f", {})]},
                                                        {"role": "tool", "content": "1"}, turns[2]]})
    yield one("ms-swift", "text-then-call", {"messages": [turns[1], {"role": "assistant", "content": "Look."}, call_turn, {"role": "tool", "content": "1"}, turns[2]]})
    yield one("ms-swift", "loss-list", {"messages": turns, "images": ["1"], "loss": [0, 1, 0, 1, 1.0]})
    yield one("ms-swift", "loss-list-answers", {"messages": turns, "images": ["1"], "loss": [1, False]})
    yield one("ms-swift", "loss-null", {"messages": [{**turn, "loss": None} for turn in turns[:3]], "loss": [None, None, 1]})
    yield one("ms-swift", "objects-unused", chat("<image>u", images=["1"], objects={"ref": [], "bbox": [[1, 2, 3, 4]]}))
    yield one("ms-swift", "rejected", chat("u", rejected_response="no", label=True, channel="c", chat_template_kwargs={"x": 1}))
    yield one("ms-swift", "roles", {"conversation": [{"from": "human", "content": "u"}, {"role": "bot", "value": "a"}, {"from": "observations", "value": "o"},
                                                     {"role": "gpt", "content": "b"}]})


def only_sharegpt():
    ask = {"from": "human", "value": "u"}
    answer = {"from": "gpt", "value": "a"}

    def calls(value):
        return {"conversations": [ask, {"from": "function_call", "value": value}, {"from": "observation", "value": "r"}, answer]}

    yield one("sharegpt", "call-space", calls(" {\n  \"name\": \"f\",\n  \"arguments\": {\"b\": 1.0, \"a\": 1e5}\n}\n"))
    yield one("sharegpt", "call-keys", calls("{\"id\": 7, \"name\": \"f\", \"arguments\": []}"))
    yield one("sharegpt", "call-list", calls("[{\"name\": \"f\", \"arguments\": \"\"}]"))
    yield one("sharegpt", "call-escapes", calls("{\"name\": \"\\u00e9\", \"arguments\": {\"k\": \"\\ud83d\\ude00\\n\"}}"))
    yield one("sharegpt", "call-function", calls("{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}"))
    yield one("sharegpt", "tools-text", {**calls("{\"name\": \"f\", \"arguments\": {}}"), "tools": json.dumps([WEATHER], indent=1), "system": "s"})
    yield one("sharegpt", "tools-empty", {"conversations": [ask, answer], "tools": "", "system": "", "images": []})
    yield one("sharegpt", "columns", {"conversations": [{"from": "human", "value": "<image>u"}, answer], "pictures": ["1"], "instruction": "s", "api": "[{}]"},
              columns={"images": "pictures", "system": "instruction", "tools": "api"})
    yield one("sharegpt", "image-of-tool", {"conversations": [ask, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
                                                              {"from": "observation", "value": "<image>"}, answer], "images": ["1"]})
    yield one("sharegpt", "two-rounds", {"conversations": calls("{\"name\": \"f\", \"arguments\": {\"n\": 1}}")["conversations"] + [
        ask, {"from": "function_call", "value": "{\"name\": \"g\", \"arguments\": {\"n\": 2}}", "loss": 0}, {"from": "observation", "value": "<tool_response>"}, answer]})


CASES = [*shared_cases(), *only_openai(), *only_llava(), *only_ms_swift(), *only_sharegpt()]
assert len({case["name"] for case in CASES}) == len(CASES)

"""Records of the four dialects as conversations of transformers: a second reading of the rules, which shares no code with Stoker's.

``read(form, record)`` gives (messages, tools, addresses): messages in transformers' own form, images as parts without an
address, `train` of an answer where the record says it; the addresses of the images in order, as Stoker is to open them.
"""
import json
import re

ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant", "bot": "assistant", "system": "system",
         "developer": "system", "tool": "tool", "observation": "tool", "observations": "tool", "function_response": "tool",
         "tool_response": "tool", "function_call": "call", "tool_call": "call"}
FOLDER = "/m/"


def address(item):
    """What to open for a string or an object that names an image."""
    while isinstance(item, dict):
        if item.get("bytes") is not None:
            return "data:;base64," + item["bytes"]
        inner = next((item[key] for key in ("image", "url", "path", "image_url") if item.get(key) is not None), None)
        if inner is None:
            return "data:;base64," + item["base64"]
        item = inner
    if len(item) > 200 and re.fullmatch(r"[A-Za-z0-9+/=]*", item):
        return "data:;base64," + item
    return item if item.startswith(("data:", "/")) else FOLDER + item


class Reading:
    def __init__(self, form, record, columns):
        self.form = form
        self.record = {key: value for key, value in record.items() if value is not None}
        self.columns = columns
        shelf = self.column("images") or self.column("image") or []
        self.shelf = [address(item) for item in (shelf if isinstance(shelf, list) else [shelf])]
        self.addresses = []

    def column(self, name):
        return self.record.get(self.columns.get(name, name))

    def image(self, item=None):
        self.addresses.append(self.shelf.pop(0) if item is None else address(item))
        return {"type": "image"}

    def text(self, words, role):
        """Cut at tags, which only users and tools have."""
        if role in ("system", "assistant"):
            return [{"type": "text", "text": words}] if words else []
        pattern = r"(<image>)"
        if self.form == "ms-swift" and not self.has_shelf:
            pattern = r"(<image>|<img>.+?</img>)"
        parts = []
        for piece in re.split(pattern, words):
            if piece == "<image>":
                parts.append(self.image())
            elif pattern != r"(<image>)" and re.fullmatch(pattern, piece):
                parts.append(self.image(piece[5:-6]))
            elif piece:
                parts.append({"type": "text", "text": piece})
        return parts

    def part(self, part, role):
        part = {key: value for key, value in part.items() if value is not None}
        kind = part.get("type") or next(key for key in ("text", "image", "image_url") if key in part)
        if kind == "text":
            return self.text(part["text"], role)
        named = any(key in part for key in ("image", "url", "path", "image_url", "base64", "bytes"))
        return [self.image(part if named else None)]

    def content(self, content, role):
        if isinstance(content, str):
            return self.text(content, role)
        return [piece for part in content or [] for piece in self.part(part, role)]

    def message(self, turn):
        turn = {key: value for key, value in turn.items() if value is not None}
        role = ROLES[turn["role"] if "role" in turn else turn["from"]]
        content = turn.get("content", turn.get("value"))
        if role == "call":
            calls = json.loads(content) if isinstance(content, str) else content
            message = {"role": "assistant", "content": "", "tool_calls": calls if isinstance(calls, list) else [calls], "own": True}
        else:
            message = {"role": role, "content": self.content(content, role) or ""}
            if turn.get("tool_calls"):
                message["tool_calls"] = turn["tool_calls"]
        for key in ("train", "loss", "loss_scale", "weight"):
            if role in ("assistant", "call") and key in turn:
                message["train"] = bool(turn[key])
        return message

    def missing(self, turns):
        """ms-swift: how many images have no tag."""
        words = "\n".join(part if isinstance(part, str) else part.get("text", "<image>" if set(part) <= {"type"} else "")
                          for turn in turns for part in self.pieces(turn))
        return len(self.shelf) - words.count("<image>")

    @staticmethod
    def pieces(turn):
        content = turn.get("content", turn.get("value"))
        return content if isinstance(content, list) else [content] if isinstance(content, str) else []

    def turns(self):
        turns = next((self.column(key) for key in ("messages", "conversations", "conversation") if self.column(key) is not None), None)
        if turns is None:
            prompt = [{"loss": False, **turn} if turn["role"] == "assistant" else turn for turn in self.record["prompt"]]
            turns = prompt + self.record["completion"]
        turns = [dict(turn) for turn in turns]
        answers = [t for t in turns if ROLES[t.get("role") or t.get("from")] in ("assistant", "call")]
        for key in ("loss", "weights"):
            if key in self.record:
                told = turns if len(self.record[key]) == len(turns) else answers
                for turn, weight in zip(told, self.record[key]):
                    turn["loss"] = weight if weight is not None else turn.get("loss")
        return turns

    def run(self):
        turns = self.turns()
        self.has_shelf = bool(self.shelf)
        lead = max(0, self.missing(turns)) if self.form == "ms-swift" else 0
        first = next((i for i, turn in enumerate(turns) if ROLES[turn.get("role") or turn.get("from")] != "system"), None)
        messages = []
        system = self.column("system") or (self.column("system_prompt") if self.form == "ms-swift" else None)
        if system:
            messages.append({"role": "system", "content": [{"type": "text", "text": system}]})
        for i, turn in enumerate(turns):
            before = [self.image() for _ in range(lead)] if i == first else []
            message = self.message(turn)
            if before:
                message["content"] = before + list(message["content"])
            if message.get("own") and messages and messages[-1].get("own"):
                messages[-1]["tool_calls"] += message["tool_calls"]
            else:
                messages.append(message)
        for message in messages:
            message.pop("own", None)
        assert not self.shelf, self.record
        tools = self.column("tools")
        if isinstance(tools, str):
            tools = json.loads(tools) if tools else None
        return messages, tools, self.addresses


def read(form, record, columns=()):
    return Reading(form, record, dict(columns)).run()

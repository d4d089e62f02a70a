"""What the reference software makes of a conversation: transformers' own calls, and an oracle for what it lacks.

Ids under `reference` and `sanitize` are those of transformers.  Labels are its assistant mask, with generation marks put
into the published template's text around the answers.  transformers has no mask together with sanitize_control_tokens,
and nothing like `plain`; there the same functions of transformers are put together here, turn by turn.
"""
import hashlib
import json
import os
import pathlib
import re

import transformers
from tokenizers import Tokenizer
from transformers.utils import chat_template_utils as chat_utils

assert transformers.__version__ == "5.24.0", transformers.__version__

REASON_NO_ANSWER, REASON_UNTRAINED, REASON_TEMPLATE, REASON_CONTROL = 6, 7, 9, 10
TEMPLATES = {"qwen3-vl": "qwen3_vl", "qwen2.5-vl": "qwen2_5_vl", "qwen3.5": "qwen3_5_think", "qwen3.6": "qwen3_6",
             "qwen3.8": "qwen3_8", "qwen3.5-training": "qwen3_5_think_training", "qwen3.6-training": "qwen3_6_training"}
# No package brings the text of Qwen3-VL Thinking: it is read from a checkpoint's own file.
THINKING = "qwen3-vl-thinking"
THINKING_SHA256 = "84ed326ccec340f3c775d5a31c0aada290d59819c18e43650aabe14f1d42c839"
THINKING_FILE = os.environ.get("STK_THINKING_TEMPLATE")
NEVER_IN_ANSWERS = ("<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|audio_pad|>")


class Refused(Exception):
    """The record gives no sample: .args[0] is the reason."""


def package_template(file):
    import trl
    return (pathlib.Path(trl.__file__).parent / "chat_templates" / f"{file}.jinja").read_text(encoding="utf-8")


def thinking_template(path):
    """The text in chat_template.json or chat_template.jinja of a Qwen3-VL Thinking checkpoint."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    text = (json.loads(text)["chat_template"] if str(path).endswith(".json") else text).removesuffix("\n")
    assert hashlib.sha256(text.encode()).hexdigest() == THINKING_SHA256, f"{path} is no template of Qwen3-VL Thinking"
    return text


def published_template(name):
    return thinking_template(THINKING_FILE) if name == THINKING else package_template(TEMPLATES[name])


def with_generation_marks(name, template):
    """The published template with {% generation %} around each answer; what it renders stays the same."""
    def once(old, new, words, count=1):
        assert words.count(old) == count, (name, old, words.count(old))
        return words.replace(old, new)

    if name.endswith("-training"):
        return template
    if name == "qwen2.5-vl":  # its own training template; that it renders the same is checked with every conversation
        return package_template("qwen2_5_vl_training")
    head, answer = re.split(r"(?=    \{%- elif message\.role == \"assistant\" %\})", template)
    answer, tail = re.split(r"(?=    \{%- elif message\.role == \"tool\" %\})", answer)
    if name == "qwen3-vl":
        answer = once("{{- '<|im_start|>' + message.role + '\\n' }}", "{{- '<|im_start|>' + message.role + '\\n' }}{%- generation -%}",
                      answer)
    else:
        answer = once("{{- '<|im_start|>' + message.role + '\\n<think>\\n'", "{{- '<think>\\n'", answer)
        answer = once("{{- '<|im_start|>' + message.role + '\\n' + content }}", "{{- content }}", answer,
                      count=2 if name == THINKING else 1)
        answer = re.sub(r"(        \{%- if [^\n]*last_query_index)",
                        r"        {{- '<|im_start|>' + message.role + '\\n' }}{%- generation %}\n\1", answer, count=1)
    return head + once("{{- '<|im_end|>\\n' }}", "{{- '<|im_end|>\\n' }}{%- endgeneration %}", answer) + tail


class Reference:
    """One vocabulary and one template."""

    def __init__(self, folder, template_name):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.name = template_name
        self.template = published_template(template_name)
        self.marked_template = with_generation_marks(template_name, self.template)
        bare = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
        bare["added_tokens"] = []
        self.text_only = Tokenizer.from_str(json.dumps(bare))
        self.control = self.tokenizer._get_control_tokens(self.template)
        self.added = tuple(self.tokenizer.added_tokens_encoder)
        self.pads = {self.tokenizer.convert_tokens_to_ids(token): token for token in ("<|image_pad|>", "<|video_pad|>")}

    def messages(self, record, rules):
        messages = [{k: v for k, v in m.items() if k != "train"} for m in record["messages"]]
        if rules.get("system") is not None and (not messages or messages[0]["role"] != "system"):
            messages.insert(0, {"role": "system", "content": rules["system"]})
        return messages

    def render(self, messages, tools, template, spans):
        try:
            rendered, indices = chat_utils.render_jinja_template(
                [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=spans,
                **self.tokenizer.special_tokens_map)
        except Exception as error:  # jinja's own, TypeError, ValueError: whatever a template or its filters raise
            raise Refused(REASON_TEMPLATE, repr(error)) from error
        return rendered[0], indices[0] if spans else None

    def mark(self, messages, tools, rules):
        """Wrap typed control tokens in transformers' private marks, as control_tokens says."""
        allowed = rules.get("allow_control_tokens", [])
        everywhere = tuple(t for t in self.control if t not in allowed)
        answers = everywhere if rules["control_tokens"] == "sanitize" else tuple(t for t in everywhere if t in NEVER_IN_ANSWERS)
        turns_re, _ = chat_utils._get_control_token_patterns(everywhere)
        answers_re, _ = chat_utils._get_control_token_patterns(answers)
        messages = [chat_utils.mark_control_tokens(m, answers_re if m["role"] == "assistant" else turns_re) for m in messages]
        return messages, chat_utils.mark_control_tokens(tools, turns_re)

    def encode(self, rendered, marked):
        """Ids, their character ranges, and the text without marks."""
        if not marked:
            out = self.tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True)
            return out["input_ids"], out["offset_mapping"], rendered, list(range(len(rendered) + 1))
        _, markers_re = chat_utils._get_control_token_patterns(self.added)
        ids, ranges, clean, moved, at = [], [], "", [0] * (len(rendered) + 1), 0
        for i, piece in enumerate(markers_re.split(rendered)):
            if i % 2 == 0:
                pieces = self.tokenizer(piece, add_special_tokens=False, return_offsets_mapping=True) if piece else None
                got = zip(pieces["input_ids"], pieces["offset_mapping"]) if pieces else ()
            else:
                encoding = self.text_only.encode(piece or "", add_special_tokens=False)
                got = zip(encoding.ids, encoding.offsets)
            for number, (begin, end) in got:
                ids.append(number)
                ranges.append((begin + len(clean), end + len(clean)))
            clean += piece or ""
        # Where each character of the marked text stands in the clean one.
        at = clean_at = 0
        for match in markers_re.finditer(rendered):
            while at < match.start():
                moved[at] = clean_at
                at, clean_at = at + 1, clean_at + 1
            inside = len(match.group(1) or "")
            for k in range(match.end() - match.start()):
                moved[at + k] = clean_at + min(max(k - 1, 0), inside)
            at, clean_at = match.end(), clean_at + inside
        while at <= len(rendered):
            moved[at] = clean_at
            at, clean_at = at + 1, clean_at + 1
        return ids, ranges, clean, moved

    def run(self, record, rules):
        """{"rendered", "ids", "trained", "media_at"} of a record, or Refused."""
        roles = [m["role"] for m in record["messages"]]
        if "assistant" not in roles:
            raise Refused(REASON_NO_ANSWER)
        messages, tools = self.messages(record, rules), record.get("tools")
        marked = rules["control_tokens"] != "reference"
        if marked:
            messages, tools = self.mark(messages, tools, rules)
        rendered, _ = self.render(messages, tools, self.template, False)
        with_spans, spans = self.render(messages, tools, self.marked_template, True)
        assert with_spans == rendered
        ids, ranges, clean, moved = self.encode(rendered, marked)
        self.compare(record, rules, ids)
        media_at = self.media(record, ids)
        trained = self.labels(record, rules, ids, ranges, [(moved[a], moved[b]) for a, b in spans], media_at)
        if not any(trained):
            raise Refused(REASON_UNTRAINED)
        return {"rendered": clean, "ids": ids, "trained": trained, "media_at": media_at}

    def compare(self, record, rules, ids):
        """The whole call of transformers gives these ids."""
        if rules["control_tokens"] == "plain" or rules.get("allow_control_tokens"):
            return
        out = self.tokenizer.apply_chat_template(
            self.messages(record, rules), tools=record.get("tools"), chat_template=self.template, tokenize=True,
            return_dict=True, sanitize_control_tokens=rules["control_tokens"] == "sanitize")
        assert out["input_ids"] == ids

    def media(self, record, ids):
        kinds = [part["type"] for m in record["messages"] if isinstance(m["content"], list) for part in m["content"]
                 if part["type"] in ("image", "video")]
        media_at = [i for i, number in enumerate(ids) if number in self.pads]
        found = [self.pads[ids[i]][2:7] for i in media_at]
        if len(found) < len(kinds):
            raise Refused(REASON_TEMPLATE)
        if found != kinds:
            raise Refused(REASON_CONTROL)
        return media_at

    def labels(self, record, rules, ids, ranges, spans, media_at):
        answers = [m for m in record["messages"] if m["role"] == "assistant"]
        assert len(answers) == len(spans)
        rule = rules.get("labels", "answers")
        trained = scan(ids, self.tokenizer) if rule == "finetune" else [0] * len(ids)
        for k, (answer, (begin, end)) in enumerate(zip(answers, spans)):
            by_rule = rule == "answers" or (rule == "last" and k == len(answers) - 1)
            if "train" not in answer and not by_rule:
                continue
            for i, (first, last) in enumerate(ranges):
                if first < end and last > begin:
                    trained[i] = int(answer.get("train", True))
        if rule != "finetune":
            for i in media_at:
                trained[i] = 0
        return trained


def scan(ids, tokenizer):
    """The scan of qwen-vl-finetune (spec section 5.1), with the vocabulary's own ids."""
    opener, end_of_turn = tokenizer.convert_tokens_to_ids("assistant"), tokenizer.convert_tokens_to_ids("<|im_end|>")
    trained, i = [0] * len(ids), 0
    while i < len(ids):
        if ids[i] == opener and end_of_turn in ids[i + 2:]:
            end = ids.index(end_of_turn, i + 2)
            for k in range(i + 2, min(end + 2, len(ids))):
                trained[k] = 1
            i = end
        i += 1
    return trained

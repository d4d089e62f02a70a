"""The pipeline that people have: transformers' tokenizer, template and image processor, and plain collators.

Which records stand in a batch, and which of them are masked, is told; all else is made here.  OPTIONS make Stoker follow it.
"""
import importlib.machinery
import importlib.util
import pathlib

import numpy
import torch
from PIL import Image
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, Qwen3VLForConditionalGeneration
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

#: transformers' Pillow processor.
OPTIONS = {"profile": "pil-13"}

_TOOL = pathlib.Path(__file__).resolve().parents[1] / "tools/check-demo-digest"
_loader = importlib.machinery.SourceFileLoader("check_demo_digest", str(_TOOL))
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_demo_digest", _loader))
_loader.exec_module(demo)


class Plain(demo.Reference):
    def __init__(self, config_path):
        super().__init__(config_path)
        self.processor = Qwen2VLImageProcessorPil.from_pretrained(
            config_path.parent / self.config["model"], size={"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels})

    def pixels(self, address):
        """One that cannot be decoded, of a masked row, is a grey picture of its size."""
        place = address if address.startswith("data:") else str(self.manifest.parent / address)
        try:
            picture = load_image(place)
        except OSError:
            picture = Image.new("RGB", Image.open(place).size, (128, 128, 128))
        made = self.processor(images=[numpy.asarray(picture)], input_data_format="channels_last", return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0].numpy()

    def row(self, sample):
        """The reference's fields of a sample of a batch."""
        if sample.filler:
            return self.filler()
        row = self.sample(sample.line)
        return {**row, "labels": [-100] * len(row["labels"])} if sample.masked else row

    def collate(self, samples):
        """A batch of a sample a row, padded; positions are left to the model."""
        rows = [self.row(sample) for sample in sorted(samples, key=lambda sample: sample.row)]
        padding = {"input_ids": self.end_of_text, "labels": -100, "mm_token_type_ids": 0}
        batch = {name: pad_sequence([torch.tensor(row[name]) for row in rows], batch_first=True, padding_value=value) for name, value in padding.items()}
        batch["attention_mask"] = pad_sequence([torch.ones(len(row["input_ids"]), dtype=torch.long) for row in rows], batch_first=True)
        return {**batch, **self.pictures(rows)}

    def flatten(self, samples):
        """As qwen-vl-finetune's flatten collator: samples behind each other, the positions of each from 0.

        Its attention_mask of lengths is for an attention of its own; here a plane of text positions, and no cache, tell the model's own."""
        rows = [self.row(sample) for sample in sorted(samples, key=lambda sample: sample.offset)]
        batch = {name: torch.cat([torch.tensor(row[name]) for row in rows])[None] for name in ("input_ids", "labels")}
        planes = torch.cat([torch.tensor(row["position_ids"]) for row in rows], dim=1)
        text = torch.cat([torch.arange(len(row["input_ids"])) for row in rows])
        return {**batch, "position_ids": torch.cat([text[None], planes])[:, None], "use_cache": False, **self.pictures(rows)}

    def pictures(self, rows):
        values, grids = [p for row in rows for p in row["pixels"]], [torch.from_numpy(row["grid"]) for row in rows]
        return {"pixel_values": torch.cat(values), "image_grid_thw": torch.cat(grids)} if values else {}


def tiny_model(folder):
    """Qwen3-VL of the sample set's checkpoint folder, two layers of random weights."""
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(folder))

"""The pipeline that people have: transformers' tokenizer, template and image processor, and a plain collator.

Which records stand in a batch is told; all else is made here.  OPTIONS make Stoker follow it.
"""
import importlib.machinery
import importlib.util
import pathlib

import numpy
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, Qwen3VLForConditionalGeneration
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

#: transformers' Pillow processor.
OPTIONS = {"profile": "pil-13"}

_TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/check-demo-digest"
_loader = importlib.machinery.SourceFileLoader("check_demo_digest", str(_TOOL))
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_demo_digest", _loader))
_loader.exec_module(demo)


class Plain(demo.Reference):
    def __init__(self, config_path):
        super().__init__(config_path)
        self.processor = Qwen2VLImageProcessorPil.from_pretrained(
            config_path.parent / self.config["model"], size={"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels})

    def pixels(self, address):
        picture = load_image(address if address.startswith("data:") else str(self.manifest.parent / address))
        made = self.processor(images=[numpy.asarray(picture)], input_data_format="channels_last", return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0].numpy()

    def collate(self, lines):
        """The batch of some records, padded; positions are left to the model."""
        rows = [self.sample(line) for line in lines]
        padding = {"input_ids": self.end_of_text, "labels": -100, "mm_token_type_ids": 0}
        batch = {name: pad_sequence([torch.tensor(row[name]) for row in rows], batch_first=True, padding_value=value) for name, value in padding.items()}
        batch["attention_mask"] = pad_sequence([torch.ones(len(row["input_ids"]), dtype=torch.long) for row in rows], batch_first=True)
        pictures, grids = [p for row in rows for p in row["pixels"]], [torch.from_numpy(row["grid"]) for row in rows]
        return {**batch, "pixel_values": torch.cat(pictures), "image_grid_thw": torch.cat(grids)} if pictures else batch


def tiny_model(folder):
    """Qwen3-VL of the sample set's checkpoint folder, two layers of random weights."""
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(folder))

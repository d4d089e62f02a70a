"""The checkpoint's own processor, where torchvision, which its video part asks for, is not installed."""
from transformers import AutoTokenizer, Qwen3VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil


class Processor(Qwen3VLProcessor):
    """All of it but its constructor, which wants the video processor."""

    def __init__(self, folder, max_pixels, **size):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.image_processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self.image_processor.size = {"shortest_edge": self.image_processor.size["shortest_edge"], "longest_edge": max_pixels}
        self.chat_template = self.tokenizer.chat_template
        for name in ("image", "video", "vision_start", "vision_end"):
            token = f"<|{name}_pad|>" if name in ("image", "video") else f"<|{name}|>"
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", self.tokenizer.convert_tokens_to_ids(token))

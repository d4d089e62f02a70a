"""Random sizes beside torch's own antialiased bicubic kernel (spec-qwen3vl.md section 2.2): equal bytes.

torchvision's resize of uint8 gives what torch.nn.functional.interpolate gives, so torch is enough.
"""
import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import resize_cases

HF = 0


def torch_resize(pixels, width, height):
    source = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(source, size=(height, width), mode="bicubic", antialias=True)
    return out[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("level", ["none", "best"])
def test_random_sizes_equal_torch(build, tmp_path, level):
    resize_cases.compare(build, tmp_path, resize_cases.draw_cases(tmp_path, 300, 11), level, HF, torch_resize)

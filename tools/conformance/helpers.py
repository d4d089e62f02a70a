"""tools/make-image-goldens as a module: its drawings, its PNG, EXIF and WebP writers, its list of pictures."""
import importlib.machinery
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def image_goldens():
    loader = importlib.machinery.SourceFileLoader("make_image_goldens", str(ROOT / "tools" / "make-image-goldens"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module

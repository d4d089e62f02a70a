"""Sets of chats for the tests: a folder with a manifest and its media, the same on a store, and a configuration for each."""
import io
import json
import pathlib
import random

from fault_store import Schedule, Thing
from PIL import Image

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "sample"
TEMPLATE = (SAMPLE / "stoker.yaml").read_text().split("\ntemplate:\n")[1]


def picture(seed):
    draw = random.Random(seed)
    image = Image.new("RGB", (draw.randrange(40, 200), draw.randrange(40, 200)), tuple(draw.randrange(256) for _ in range(3)))
    for _ in range(20):
        x, y = draw.randrange(image.width), draw.randrange(image.height)
        image.paste(tuple(draw.randrange(256) for _ in range(3)), (x, y, x + draw.randrange(1, 60), y + draw.randrange(1, 60)))
    out = io.BytesIO()
    image.save(out, *((("JPEG",)) if seed % 3 else ("PNG",)))
    return out.getvalue()


def make_set(folder, count=300):
    """One picture a record, some with odd names; the manifest stands beside them."""
    (folder / "media").mkdir(parents=True)
    with open(folder / "train.jsonl", "w") as out:
        for i in range(count):
            name = f"media/{['', 'a b+', 'ü ', '100% '][i % 4]}{i:03d}.{'jpg' if i % 3 else 'png'}"
            (folder / name).write_bytes(picture(i))
            out.write(json.dumps({"id": str(i), "image": name, "conversations": [
                {"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": f"It is picture {i}."}]}) + "\n")
    return folder


def upload(server, folder, bucket, prefix=""):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            server.put(bucket, prefix + str(path.relative_to(folder)), path.read_bytes())


def configure(path, manifest, index, batch=8, more=""):
    """A configuration with the sample set's checkpoint folder and turns."""
    path.write_text(f"model: {SAMPLE / 'model'}\ndata:\n  - name: set\n    path: {manifest}\nindex_dir: {index}\nbatch: {batch}\nseed: 3\n"
                    f"max_pixels: 50176\n{more}\ntemplate:\n{TEMPLATE}")
    return path


def serve(store, bucket, folder, **more):
    """Every file of a folder as an object of a schedule of the fault store."""
    things = {str(p.relative_to(folder)): Thing.of(p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}
    return store.add(Schedule(bucket, things, **more))

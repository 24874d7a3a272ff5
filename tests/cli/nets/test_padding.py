"""Padding as PyTorch has it, and what plan and export say of it.

usage: DTRAIN=... MPIEXEC=... test_padding.py"""
import json

from checks import check, dtrain, finish, new_folder, sets, summary, write_json

EXTENT = 9


def config(name, *layers, extent=EXTENT, **train):
    write_json(name, {"data": {"format": "synthetic", "train_samples": 24, "test_samples": 12, "sharding": "global"}, "threads": 1, "report": False,
                      "model": {"input": [1, extent, extent], "layers": [*layers, {"type": "dense", "units": 10}]},
                      "train": {"epochs": 1, "batch": {"global": 4}, **train}})
    return name


def conv(kernel, stride, padding):
    return {"type": "conv2d", "filters": 3, "kernel": kernel, "stride": stride, "padding": padding}


def weights_of(name):
    dtrain("--config", name, "--run", name + "-run", code=0)
    return summary(name + "-run")["weights_xxh3"]


def test_equal_words():
    """A number that pads as "same" or "valid" does trains to the same bits; PyTorch's padding of an even image does not."""
    for extent, kernel, stride, number, word in ((9, 3, 1, 1, "same"), (9, 3, 2, 1, "same"), (11, 5, 1, 2, "same"), (9, 4, 3, 0, "valid")):
        hashes = [weights_of(config(f"{kernel}-{stride}-{padding}.json", conv(kernel, stride, padding), {"type": "flatten"}, extent=extent))
                  for padding in (number, word)]
        check(hashes[0] == hashes[1], f"kernel {kernel}, stride {stride}: padding {number} is not {word}")
    even = [weights_of(config(f"even-{padding}.json", conv(3, 2, padding), {"type": "flatten"}, extent=10)) for padding in (1, "same")]
    check(even[0] != even[1], "stride 2 on 10 pixels: padding 1 is same")


def test_resume():
    """A number comes back from a run's own configuration and checkpoint."""
    dtrain("--config", "3-2-1.json", "--run", "3-2-1.json-run", "--resume", *sets("train.epochs=2"), code=0)
    with open("3-2-1.json-run/config.json") as file:
        check(json.load(file)["model"]["layers"][0]["padding"] == 1, "the number in config.json")


def test_plan():
    """Strides and padding, and how to write in PyTorch what its Conv2d does not pad."""
    pool = {"type": "max_pool2d", "size": 3, "stride": 2}
    wide = config("wide.json", conv(3, 2, "same"), conv(2, 1, "same"), conv(3, 1, "same"), conv(5, 1, 2), pool, {"type": "flatten"}, extent=28)
    out = " ".join(dtrain("plan", "--config", wide, code=0).stdout.split())
    for text in ("conv2d 3 3x3 stride 2 same", "conv2d 3 2x2 same", "conv2d 3 5x5 padding 2", "max_pool2d 3 stride 2",
                 "conv1 pads unevenly: in PyTorch nn.ZeroPad2d((0, 1, 0, 1)) before nn.Conv2d without padding", "conv2 pads unevenly"):
        check(text in out, f"plan does not say {text}: {out}")
    check("conv3 pads" not in out and "conv4 pads" not in out, f"even padding is called uneven: {out}")
    dtrain("--config", wide, "--run", "wide", code=0)
    out = dtrain("export", "wide", "wide.safetensors", code=0).stdout
    check(out.count("nn.ZeroPad2d(") == 2, f"export: {out}")


new_folder()
test_equal_words()
test_resume()
test_plan()
finish()

"""batch_norm where a step has one value for each channel: it has no variance, so the running statistics stay as they are on every backend, and
a batch in which that happens in every step is refused: by rank 0's share, the smallest, or by all samples with sync.

usage: DTRAIN=... MPIEXEC=... test_one_sample.py MODULE; MODULE: of fake CUDA, or ''"""
import os
import sys

import checkpoint
from checks import check, checkpoint_of, dtrain, finish, new_folder, refused, sets, summary, write_json

DEVICES = ["ref", "cpu"]
if len(sys.argv) > 1 and sys.argv[1]:
    os.environ["DTRAIN_CUDA_MODULE"] = os.path.abspath(sys.argv[1])
    DEVICES.append("cuda")
FLAT = {"type": "flatten"}
# Three places in which a channel has one value of a sample.
PLACES = {
    "pooled": [{"type": "conv2d", "filters": 5, "kernel": 3}, {"type": "global_avg_pool"}, {"type": "batch_norm"}, FLAT],
    "units": [FLAT, {"type": "dense", "units": 7}, {"type": "batch_norm", "activation": "relu"}],
    "pixel": [{"type": "conv2d", "filters": 6, "kernel": 6}, {"type": "batch_norm"}, FLAT],
}


def configure(place, sync, n_train, **train):
    layers = [{**layer, **({"sync": sync} if layer["type"] == "batch_norm" else {})} for layer in PLACES[place]]
    write_json("c.json", {
        "data": {"format": "synthetic", "train_samples": n_train, "test_samples": 64, "sharding": "global"}, "report": False, "threads": 1,
        "model": {"input": [1, 6, 6], "layers": [*layers, {"type": "dense", "units": 10}]}, "train": {"epochs": 2, **train}})


def statistics(ranks, device, steps):
    """Running statistics of a run that stops after so many steps."""
    run = f"run-{len(os.listdir())}"
    dtrain("--config", "c.json", "--run", run, *sets(f"device={device}", f"train.max_steps={steps}"), ranks=ranks)
    header, data = checkpoint.split(checkpoint.read(checkpoint_of(run, steps)))
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if "running_" in name}


def test_left_out(place, sync, ranks, device):
    """The second step has what a full batch of 8 has left over."""
    for n_left, changes in (1, False), (2 * ranks, True):
        configure(place, sync, 8 + n_left, batch={"global": 8})
        first, second = (statistics(ranks, device, steps) for steps in (1, 2))
        differ = [name for name in first if first[name] != second[name]]
        check(len(first) == 2 and len(differ) == 2 * changes, f"{place} {device} sync {sync} np {ranks}, {n_left} left over: changed {differ}")


def test_refused():
    own, all_ranks, more = "a rank takes one sample at a time", "all ranks together take one sample", "take a larger batch"
    for place, sync, ranks, code, texts, train in (
            ("pooled", False, 2, 78, (own, "sync"), {"batch": {"global": 3}}),
            ("units", False, 4, 78, (own, "sync"), {"batch": {"global": 5}}),
            ("pixel", False, 3, 78, (own, "sync"), {"batch": {"global": 9}, "accumulate": 3}),
            ("pooled", False, 1, 78, (own, more), {"batch": {"global": 4}, "accumulate": 4}),
            ("units", True, 1, 78, (all_ranks, more), {"batch": {"global": 1}}),
            ("pooled", True, 4, 0, (), {"batch": {"global": 4}}),
            ("units", True, 2, 0, (), {"batch": {"global": 4}, "accumulate": 4}),
            ("pixel", False, 2, 0, (), {"batch": {"global": 4}}),
            ("units", False, 1, 0, (), {"batch": {"global": 3}, "accumulate": 2})):
        configure(place, sync, 24, **train)
        run = f"run-{len(os.listdir())}"
        for text in texts:
            refused(code, text, "--config", "c.json", "--run", run, ranks=ranks)
        if code == 0:
            dtrain("--config", "c.json", "--run", run, ranks=ranks)
            check(summary(run)["test_loss"] < 5, f"{place} {train}: {summary(run)['test_loss']}")


new_folder()
for name in DEVICES:
    test_left_out("pooled", False, 1, name)
    test_left_out("units", name != "ref", 2, name)
test_left_out("pixel", True, 2, "ref")
test_refused()
finish()

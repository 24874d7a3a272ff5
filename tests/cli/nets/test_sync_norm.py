"""batch_norm with sync: n ranks train as one process of PyTorch in float64 whose plain BatchNorm has the samples of all of them, whatever
share each rank has of a batch: gradients, weights and running statistics of each step, and a run that is resumed.

usage: DTRAIN=... MPIEXEC=... test_sync_norm.py MODULE; MODULE: of fake CUDA, or '' """
import os
import re
import sys

from checks import check, checkpoint_of, dtrain, finish, need, new_folder, records, sets, write_json

need("torch", "numpy")
import torch
import torch.nn.functional as F

import torch_nets
from torch_nets import difference

BATCH, EXTENT, N_CLASSES, N_TEST, LR, MOMENTUM, EPOCHS = 8, 12, 4, 40, 0.05, 0.9, 2
HAS_DOUBLE = len(sys.argv) > 1 and sys.argv[1] != ""
if HAS_DOUBLE:
    os.environ["DTRAIN_CUDA_MODULE"] = os.path.abspath(sys.argv[1])
torch.set_num_threads(1)


def conv(filters, kernel=3, **more):
    return {"type": "conv2d", "filters": filters, "kernel": kernel, "padding": "same", **more}


def norm(**more):
    return {"type": "batch_norm", "sync": True, **more}


END = [{"type": "avg_pool2d", "size": 2}, {"type": "flatten"}, {"type": "dense", "units": N_CLASSES}]
NETS = {
    "plain": [conv(5), norm(activation="tanh", momentum=0.3, epsilon=1e-3), *END],
    # Channels that fill no whole vector, one that follows another, and one whose gradient goes to two layers.
    "residual": [conv(19), norm(activation="relu", name="stem"), conv(19), norm(activation="tanh"), norm(name="two"),
                 {"type": "add", "inputs": ["stem", "two"], "activation": "tanh"}, *END],
    "dense": [{"type": "flatten"}, {"type": "dense", "units": 33}, norm(activation="tanh"), {"type": "dense", "units": N_CLASSES}],
}


def slices(n, k):
    """n things cut as evenly as can be: k ranges."""
    return [range(n * i // k, n * (i + 1) // k) for i in range(k)]


def steps_of(n_train, n_ranks, sharding, accumulate):
    """For each step of an epoch the samples of its micro-batches, of all ranks together."""
    if sharding == "global":
        batches = [range(begin, min(begin + BATCH, n_train)) for begin in range(0, n_train, BATCH)]
        shares = [[[batch[i] for i in part] for part in slices(len(batch), n_ranks)] for batch in batches]
    else:
        own = [range(rank, n_train, n_ranks) for rank in range(n_ranks)]
        sizes = [len(part) for part in slices(BATCH, n_ranks)]
        n_steps = max(-(-len(mine) // size) for mine, size in zip(own, sizes))
        shares = [[mine[step * size:(step + 1) * size] for mine, size in zip(own, sizes)] for step in range(n_steps)]
    return [[[share[i] for share in of_ranks for i in slices(len(share), accumulate)[m]] for m in range(accumulate)] for of_ranks in shares]


def torch_steps(net, data, epoch):
    """Tensors after each step."""
    images, labels = data
    momentum = {}
    for parts in epoch * EPOCHS:
        net.train()
        net.zero_grad()
        n = sum(map(len, parts))
        for part in filter(None, parts):
            (F.cross_entropy(net(images[part]), labels[part], reduction="sum") / n).backward()
        with torch.no_grad():
            for name, p in net.named_parameters():
                momentum[name] = MOMENTUM * momentum[name] + p.grad if name in momentum else p.grad.clone()
                p -= LR * momentum[name]
        yield net.tensors()


def run(folder, n_ranks, *arguments, **environment):
    return dtrain("--config", "config.json", "--run", folder, *arguments, ranks=n_ranks, env=environment).stderr


def checkpoint(folder, step):
    return torch_nets.read_weights(checkpoint_of(folder, step))


def configure(net, n_train, device, sharding, accumulate, dist):
    write_json("config.json", {
        "data": {"format": "idx", "dir": f"data{n_train}", "shuffle": False, "sharding": sharding},
        "model": {"input": [1, EXTENT, EXTENT], "layers": NETS[net]},
        "train": {"epochs": EPOCHS, "batch": {"global": BATCH}, "accumulate": accumulate,
                  "optimizer": {"type": "sgd", "lr": LR, "momentum": MOMENTUM}},
        "checkpoint": {"every_steps": 1, "keep": 100}, "distributed": dist, "device": device, "report": False, "threads": 1})


def test(net, n_ranks, n_train, device="cpu", sharding="global", accumulate=1, environment=(), **dist):
    configure(net, n_train, device, sharding, accumulate, dist)
    data = torch_nets.write_data(f"data{n_train}", n_train, N_TEST, EXTENT, N_CLASSES)
    module, start = torch_nets.begin({"input": [1, EXTENT, EXTENT], "layers": NETS[net]}, "start.safetensors")
    folder = "-".join(map(str, [net, n_ranks, n_train, device, sharding, accumulate, *dist.values(), len(environment)]))
    told = run(folder, n_ranks, "--weights", "start.safetensors", **dict(environment))
    if not os.path.exists(folder):
        return
    n_more = 2 * accumulate * sum(layer.get("sync", False) for layer in NETS[net])
    check(re.search(rf"^  batch_norm with sync: .* takes {n_more} more small allreduces a step$", told, re.M), f"{folder}: {told}")
    errors = [difference(checkpoint(folder, step + 1), expected, start) for step, expected in
              enumerate(torch_steps(module, data[0], steps_of(n_train, n_ranks, sharding, accumulate)))]
    check(errors[0][0] < 1e-4, f"{folder}: gradient differs by {errors[0]}")
    check(errors[-1][0] < 2e-3, f"{folder}: step {len(errors)} differs by {errors[-1]}")
    module.eval()
    with torch.no_grad():
        loss = F.cross_entropy(module(data[1][0]), data[1][1]).item()
    tested = records(folder, "epoch")[-1]["test_loss"]
    check(abs(tested - loss) < 1e-3 * loss, f"{folder}: test loss {tested}, expected {loss}")
    print(f"{folder}: gradient {errors[0][0]:.1e} ({errors[0][1]}), step {len(errors)} {errors[-1][0]:.1e} ({errors[-1][1]})")


def test_resume():
    """A run that was interrupted in the middle of an epoch has the same bits; one whose statistics are each rank's own has others."""
    configure("residual", 43, "cpu", "global", 1, {})
    run("whole", 3)
    run("parts", 3, *sets("train.max_steps=5"))
    run("parts", 3, "--resume")
    told = run("own", 3, *sets(*(f"model.layers.{i}.sync=false" for i in (1, 3, 4))))
    whole, parts, own = (checkpoint(folder, 12) for folder in ("whole", "parts", "own"))
    check(all((whole[key] == parts[key]).all() for key in whole), "resumed to other bits")
    check(any((whole[key] != own[key]).any() for key in whole), "sync changes nothing")
    check("batch_norm: each rank normalizes by its own samples; rank 0's running statistics are kept" in told, f"banner: {told}")
    check("with sync" not in told, f"banner: {told}")


new_folder()
test("plain", 2, 48)
test("residual", 3, 43, "ref")  # 3 samples at the end of an epoch
test("residual", 3, 41)  # one, which the last rank has
test("dense", 4, 42)
test("plain", 2, 41, sharding="shard")  # one on rank 0
test("residual", 3, 41, sharding="shard", accumulate=3)
test("plain", 2, 43, accumulate=3)  # micro-batches without a sample on any rank
test("dense", 2, 48, order="priority", allreduce="ring", bucket_mb=0)
test("residual", 3, 43, strategy="central")
test("residual", 4, 43, environment={"MPIR_CVAR_NUM_CLIQUES": "2"}.items())
test("plain", 2, 43, allreduce="mpi", bucket_mb=0)
if HAS_DOUBLE:
    test("plain", 2, 48, "cuda")
    test("residual", 3, 41, "cuda", accumulate=2)
test_resume()
finish()

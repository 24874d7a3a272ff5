"""Layers beyond a plain chain against PyTorch in float64: gradients, twelve steps of training, running statistics, evaluation.

usage: DTRAIN=... MPIEXEC=... test_torch_nets.py MODULE [NET...]; MODULE: of fake CUDA, or '' """
import os
import sys

from checks import check, checkpoint_of, dtrain, finish, need, new_folder, records, sets, write_json

need("torch", "numpy")
import torch
import torch.nn.functional as F

import torch_nets
from torch_nets import EXTENT, N_CLASSES, NETS, difference

N_STEPS, BATCH, N_TEST, LR, MOMENTUM = 12, 8, 40, 0.05, 0.9
EXTENTS, STEPS = {"resnet20": 32}, {"resnet20": 2}
torch.set_num_threads(1)
# An output near the kink of a ReLU, or two that a max pool compares, may fall on the other side, and then steps differ more and more, in
# PyTorch's float32 too. Their first gradient is held as exactly as that of the others.
KINKED = {"vgg": 0.1, "resnet20": 0.1}
DEVICES = ["ref", "cpu"]
if len(sys.argv) > 1 and sys.argv[1]:
    os.environ["DTRAIN_CUDA_MODULE"] = os.path.abspath(sys.argv[1])
    DEVICES.append("cuda")


def configuration(name, device):
    extent = EXTENTS.get(name, EXTENT)
    return {"data": {"format": "idx", "dir": f"data{extent}", "shuffle": False, "sharding": "global"},
            "model": {"input": [1, extent, extent], "layers": NETS[name]},
            "train": {"epochs": 1, "max_steps": STEPS.get(name, N_STEPS), "batch": {"global": BATCH},
                      "optimizer": {"type": "sgd", "lr": LR, "momentum": MOMENTUM}},
            "checkpoint": {"every_steps": 1, "keep": 100}, "device": device, "report": False, "threads": 1}


def torch_steps(net, data, n_ranks, n_steps):
    """Tensors after each step. Each rank normalizes its own part of the batch; rank 0's running statistics stay."""
    images, labels = data
    momentum = {}
    for step in range(n_steps):
        net.train()
        net.zero_grad()
        begin, kept = step * BATCH, None
        for rank in range(n_ranks):
            first, last = begin + BATCH * rank // n_ranks, begin + BATCH * (rank + 1) // n_ranks
            loss = F.cross_entropy(net(images[first:last]), labels[first:last], reduction="sum") / BATCH
            loss.backward()
            if rank == 0:
                kept = {name: value.clone() for name, value in net.named_buffers()}
            with torch.no_grad():
                for name, value in net.named_buffers():
                    value.copy_(kept[name])
        with torch.no_grad():
            for name, p in net.named_parameters():
                momentum[name] = p.grad.clone() if step == 0 else MOMENTUM * momentum[name] + p.grad
                p -= LR * momentum[name]
        yield net.tensors()


def test_net(name, device, n_ranks, sets):
    config = configuration(name, device)
    net, start = torch_nets.begin(config["model"], f"{name}.safetensors")
    write_json(f"{name}.json", config)
    folder = f"{name}-{device}-{n_ranks}"
    if dtrain("--config", f"{name}.json", "--weights", f"{name}.safetensors", "--run", folder, ranks=n_ranks).returncode != 0:
        return
    errors, rounded = [], []
    single = torch_nets.Net(config["model"])
    single.set(start)
    singles = torch_steps(single.float(), (sets[0][0].float(), sets[0][1]), n_ranks, STEPS.get(name, N_STEPS))
    for step, expected in enumerate(torch_steps(net, sets[0], n_ranks, STEPS.get(name, N_STEPS))):
        rounded.append(difference(next(singles), expected, start))
        path = checkpoint_of(folder, step + 1)
        got = torch_nets.read_weights(path)
        check(set(expected) <= set(got), f"{folder}: tensors {sorted(got)}")
        errors.append(difference(got, expected, start))
    check(errors[0][0] < 1e-4, f"{folder}: gradient differs by {errors[0]}")
    check(errors[-1][0] < KINKED.get(name, 2e-3), f"{folder}: the last step differs by {errors[-1]}, PyTorch's float32 by {rounded[-1]}")
    net.eval()
    with torch.no_grad():
        loss = F.cross_entropy(net(sets[1][0]), sets[1][1]).item()
    test = records(folder, "epoch")[-1]["test_loss"]
    check(abs(test - loss) < 1e-3 * abs(loss), f"{folder}: test loss {test}, expected {loss}")
    again = dtrain("eval", path).stdout.split()
    check("%.4f" % test == again[again.index("loss") + 1], f"{folder}: eval {again}, trained {test}")
    print(f"{folder}: gradient {errors[0][0]:.1e} ({errors[0][1]}), steps {errors[-1][0]:.1e} ({errors[-1][1]}), "
          f"PyTorch's float32 {rounded[0][0]:.1e} and {rounded[-1][0]:.1e}; "
          f"test loss {test:.4f} and {loss:.4f}")


def test_resume(name, device):
    """A run that was interrupted has the same bits."""
    write_json("resume.json", configuration(name, device))
    whole, parts = f"whole-{name}-{device}", f"parts-{name}-{device}"
    dtrain("--config", "resume.json", "--run", whole)
    dtrain("--config", "resume.json", "--run", parts, *sets("train.max_steps=5"))
    dtrain("--config", "resume.json", "--run", parts, "--resume")
    a, b = (torch_nets.read_weights(checkpoint_of(folder, N_STEPS)) for folder in (whole, parts))
    check(set(a) == set(b) and all((a[key] == b[key]).all() for key in a), f"{name}, {device}: resumed to other bits")


new_folder()
DATA = {extent: torch_nets.write_data(f"data{extent}", N_STEPS * BATCH, N_TEST, extent, N_CLASSES) for extent in (EXTENT, *EXTENTS.values())}
for net_name in sys.argv[2:] or NETS:
    for device_name in ["cpu"] if net_name in EXTENTS else DEVICES:
        test_net(net_name, device_name, 1, DATA[EXTENTS.get(net_name, EXTENT)])
for net_name in ("relu", "residual"):
    test_net(net_name, "cpu", 2, DATA[EXTENT])
for device_name in ("ref", "cpu"):
    test_resume("residual", device_name)
finish()

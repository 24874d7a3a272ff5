#!/usr/bin/env python3
"""The other programs that bench-cpu measures: a rank of PyTorch, or of Horovod with tf.keras, on the model of a config of dtrain.

They run under favourable conditions: the images as one tensor in memory, fused Adam if available, activations in place, a few
steps before the clock starts. Their speed, unlike dtrain's, depends on neither weights nor images: some steps stand for epochs.
"""
import argparse
import gzip
import json
import os
import struct
import sys
import time

N_WARM_UP, N_IMAGES = 8, 6400


def mnist(folder, part="train", n_images=N_IMAGES):
    """The first images (n, 1, 28, 28) as float32 in 0..1, and their labels."""
    import numpy

    arrays = []
    for name in (part + "-images-idx3-ubyte", part + "-labels-idx1-ubyte"):
        path = os.path.join(folder, name)
        with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
            raw = file.read()
        dims = struct.unpack(">%dI" % raw[3], raw[4 : 4 + 4 * raw[3]])
        arrays.append(numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(dims)[:n_images])
    return arrays[0][:, None].astype("float32") / 255, arrays[1].astype("int64")


def images_of(config):
    """Images and labels of the config's data section; generated images are noise here, because only their shape matters."""
    import numpy

    if config["data"]["format"] == "idx":
        return mnist(config["data"]["dir"])
    rng = numpy.random.default_rng(1)
    n_classes = config["model"]["layers"][-1]["units"]
    return rng.random((N_IMAGES, *config["model"]["input"]), "float32"), rng.integers(0, n_classes, N_IMAGES)


def torch_net(model):
    import torch
    from torch import nn

    class Graph(nn.Module):
        """Layers in order; one of a name is kept for those that take it as "input" or add it as "inputs"."""
        def __init__(self, modules, layers):
            super().__init__()
            self.stages = nn.ModuleList(modules)
            self.layers = layers

        def forward(self, x):
            kept = {}
            for stage, layer in zip(self.stages, self.layers):
                x = kept[layer["input"]] if "input" in layer else x
                for name in layer.get("inputs", ()):
                    x = x + kept[name]
                x = stage(x)
                if "name" in layer:
                    kept[layer["name"]] = x
            return x

    activations = {"relu": lambda: nn.ReLU(inplace=True), "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
    pools = {"max_pool2d": nn.MaxPool2d, "avg_pool2d": nn.AvgPool2d}
    stages, kept, x = [], {}, torch.zeros(2, *model["input"])

    def add(module):
        nonlocal x
        modules.append(module)
        x = module(x)

    for layer in model["layers"]:
        kind, modules = layer["type"], []
        x = kept[layer["input"]] if "input" in layer else x
        if kind == "conv2d":
            stride, padding = layer.get("stride", 1), layer.get("padding", "valid")
            if stride > 1 and padding == "same":  # of the same size; PyTorch knows the word for a stride of 1 alone
                padding = layer["kernel"] // 2
            add(nn.Conv2d(x.shape[1], layer["filters"], layer["kernel"], stride, padding))
        elif kind == "dense":
            add(nn.Linear(x.shape[1], layer["units"]))
        elif kind == "dropout":
            add(nn.Dropout(layer["rate"]))
        elif kind == "flatten":
            add(nn.Flatten())
        elif kind == "batch_norm":
            add(nn.BatchNorm2d(x.shape[1]))
        elif kind in activations:
            add(activations[kind]())
        elif kind != "add":
            add(pools[kind](layer["size"]))
        if "activation" in layer:
            add(activations[layer["activation"]]())
        kept[layer.get("name")] = x
        stages.append(nn.Sequential(*modules))
    if kept.keys() == {None}:
        return nn.Sequential(*(module for stage in stages for module in stage))
    return Graph(stages, model["layers"])


def torch_step(config, variant, n_ranks):
    """One training step, the loop of PyTorch's own MNIST example without the data loader."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, labels = (torch.from_numpy(a) for a in images_of(config))
    batch, bf16 = config["train"]["batch"]["per_rank"], "bf16" in variant
    layout = torch.channels_last if "channels_last" in variant else torch.contiguous_format
    net = torch_net(config["model"]).to(memory_format=layout)
    if n_ranks > 1:
        net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    rate = config["train"]["optimizer"]["lr"] * n_ranks
    try:
        optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=True)
    except (RuntimeError, TypeError):  # older versions fuse on GPUs only
        optimizer = torch.optim.Adam(net.parameters(), lr=rate)

    def step():
        rows = torch.randint(0, len(labels), (batch,))
        x = images[rows].contiguous(memory_format=layout)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = net(x)
        loss = F.cross_entropy(logits.float(), labels[rows])
        loss.backward()
        optimizer.step()
        return loss

    return step


def work_torch(config, args):
    import torch
    import torch.distributed

    rank, n_ranks = int(os.environ.get("PMI_RANK", 0)), int(os.environ.get("PMI_SIZE", 1))  # from MPICH's mpirun
    if n_ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method="file://" + args.meet, rank=rank, world_size=n_ranks)
    step = torch_step(config, args.variant, n_ranks)
    for i in range(N_WARM_UP):
        step()
        if i == 0:
            print("first step", flush=True)
    n, start = 0, time.perf_counter()
    while n < args.steps or time.perf_counter() - start < args.seconds:
        loss = step()
        n += 1
    seconds = time.perf_counter() - start
    if not torch.isfinite(loss):
        sys.exit("PyTorch's loss is not finite")
    if n_ranks > 1:
        torch.distributed.destroy_process_group()
    return rank == 0 and n * n_ranks / seconds


def shifted(x, most):
    """Each image moved by up to `most` pixels each way; what comes in is black."""
    import torch

    (n, _, h, w), black = x.shape, [most] * 4
    y, left = (torch.randint(2 * most + 1, (n, 1)) + torch.arange(size) for size in (h, w))
    return torch.nn.functional.pad(x, black)[torch.arange(n)[:, None, None], :, y[:, :, None], left[:, None, :]].permute(0, 3, 1, 2)


def recipe_torch(config, args):
    """Trains a config of one_cycle on MNIST to its end, every batch full; the clock runs during the steps alone."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    layout = torch.channels_last if "channels_last" in args.variant else torch.contiguous_format
    folder, train = args.data or config["data"]["dir"], config["train"]
    (x, y), (test_x, test_y) = ([torch.from_numpy(a) for a in mnist(folder, part, None)] for part in ("train", "t10k"))
    net = torch_net(config["model"]).to(memory_format=layout)
    options, batch = train["optimizer"], train["batch"]["global"]
    n_steps = train["epochs"] * (len(x) // batch)
    optimizer = torch.optim.Adam(net.parameters(), options["lr"], (options["beta1"], options["beta2"]), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options["lr"], n_steps, cycle_momentum=False)
    smoothing = train.get("label_smoothing", 0)
    most = max([change["shift"] for change in config["data"].get("augment", [])], default=0)
    start = time.perf_counter()
    for step in range(n_steps):
        at = step % (len(x) // batch) * batch
        order = torch.randperm(len(x)) if at == 0 else order
        rows = order[at : at + batch]
        optimizer.zero_grad(set_to_none=True)
        images = shifted(x[rows], most) if most else x[rows]
        F.cross_entropy(net(images.contiguous(memory_format=layout)), y[rows], label_smoothing=smoothing).backward()
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - start
    net.eval()
    with torch.no_grad():
        right = (net(test_x.contiguous(memory_format=layout)).argmax(1) == test_y).float().mean().item()
    print("accuracy %.4f, seconds %.3f" % (right, seconds))


def keras_net(model):
    from tensorflow.keras import Input, Sequential, layers

    c, h, w = model["input"]
    net = [Input((h, w, c))]
    for layer in model["layers"]:
        kind, activation = layer["type"], layer.get("activation")
        net.append({
            "conv2d": lambda l=layer, a=activation: layers.Conv2D(
                l["filters"], l["kernel"], l.get("stride", 1), l.get("padding", "valid"), activation=a),
            "dense": lambda l=layer, a=activation: layers.Dense(l["units"], activation=a),
            "max_pool2d": lambda l=layer: layers.MaxPooling2D(l["size"]),
            "dropout": lambda l=layer: layers.Dropout(l["rate"]),
            "flatten": layers.Flatten,
        }[kind]())
    return Sequential(net)


def work_horovod(config, args):
    """tf.keras and its fit, as in Horovod's tutorials, except that the images are in memory."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import horovod.tensorflow.keras as hvd
    from tensorflow.keras import losses, optimizers

    hvd.init()
    batch = config["train"]["batch"]["per_rank"]
    images, labels = images_of(config)
    images = images.transpose(0, 2, 3, 1).copy()
    net = keras_net(config["model"])
    net.compile(loss=losses.SparseCategoricalCrossentropy(from_logits=True), experimental_run_tf_function=False,
                optimizer=hvd.DistributedOptimizer(optimizers.legacy.Adam(config["train"]["optimizer"]["lr"] * hvd.size())))

    def fit(n_steps, callbacks=()):
        n = n_steps * batch
        net.fit(images[:n], labels[:n], batch_size=batch, epochs=1, verbose=0, callbacks=list(callbacks))

    say = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: i == 0 and print("first step", flush=True))
    fit(N_WARM_UP, [hvd.callbacks.BroadcastGlobalVariablesCallback(0), say])
    start = time.perf_counter()
    fit(args.steps)
    return hvd.rank() == 0 and args.steps * hvd.size() / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("torch", "horovod", "recipe"))
    parser.add_argument("config", help="a config of dtrain")
    parser.add_argument("--variant", default="f32", help="of PyTorch: f32 or bf16, with channels_last or without")
    parser.add_argument("--steps", type=int, default=50, help="at least so many, at most %d with Horovod" % (N_IMAGES // 128))
    parser.add_argument("--seconds", type=float, default=0, help="and for so long (PyTorch, one rank)")
    parser.add_argument("--meet", help="file at which PyTorch's ranks find each other")
    parser.add_argument("--data", help="of a recipe: folder of MNIST (default: the config's)")
    parser.add_argument("--seed", type=int, default=1, help="of a recipe")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    if args.peer == "recipe":
        return recipe_torch(config, args)
    steps_per_s = (work_torch if args.peer == "torch" else work_horovod)(config, args)
    if steps_per_s:
        print("images/s %.1f" % (steps_per_s * config["train"]["batch"]["per_rank"]))


if __name__ == "__main__":
    main()

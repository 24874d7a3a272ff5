"""The comparisons of bench-cpu: rows of its table, their ratios with goals, and the arithmetic of both.

A row is a contender, or one aspect of it, under one name; its speeds are images per second over all its ranks, one per round. Rows of
COSTS are seconds and megabytes instead.
"""
import collections
import json
import os
import statistics

GROUPS = ("cnn", "isa", "fashion", "mlp", "ranks", "shapes", "resnet", "start")
FIRST = 100  # steps
CNN = ("dtrain", "dtrain, first %d steps" % FIRST)
ROOFLINE = "dense f32 at FMA peak"
TORCH_F32 = ("PyTorch f32", "PyTorch f32 channels_last")
TORCH_BF16 = "PyTorch bf16 channels_last"
TORCH = (*TORCH_F32, TORCH_BF16)
PROTOTYPE, PROTOTYPE_V3 = "prototype", "prototype, x86-64-v3"  # programs of fixed shapes: optional
BF16 = "dtrain, bf16"  # on CPUs with AMX
COSTS = {program: (program + ", s to the first step", program + ", MB of a rank") for program in ("dtrain", "PyTorch", "Horovod", "limit")}
LIMITS = (0.3, 100)  # of dtrain
SETTINGS = (  # group, name, environment of dtrain, goals against PyTorch's f32 and against its best
    ("isa", "dtrain, x86-64-v3", {"DTRAIN_ISA": "x86-64-v3"}, 7.5, 4.2),
)
CONV5, RELU, POOL = {"type": "conv2d", "kernel": 5}, {"activation": "relu"}, {"type": "max_pool2d", "size": 2}
CONV3, SAME, FLAT = {"type": "conv2d", "kernel": 3}, {"padding": "same"}, {"type": "flatten"}


def dense(units, **more):
    return {"type": "dense", "units": units, **more}


SHAPES = (  # name, input, epochs of 50 steps, layers
    ("LeNet 5x5", [1, 28, 28], 4,
     [{**CONV5, **RELU, "filters": 20}, POOL, {**CONV5, **RELU, "filters": 50}, POOL, FLAT, dense(500, **RELU), dense(10)]),
    ("LeNet tanh", [1, 28, 28], 12,
     [{**CONV5, **SAME, "filters": 6, "activation": "tanh"}, {"type": "avg_pool2d", "size": 2},
      {**CONV5, "filters": 16, "activation": "tanh"}, {"type": "avg_pool2d", "size": 2}, FLAT,
      dense(120, activation="tanh"), dense(84, activation="tanh"), dense(10)]),
    ("3x32x32", [3, 32, 32], 2,
     [{**CONV3, **SAME, **RELU, "filters": 32}, {**CONV3, **RELU, "filters": 32}, POOL,
      {**CONV3, **SAME, **RELU, "filters": 64}, {**CONV3, **RELU, "filters": 64}, POOL, {"type": "dropout", "rate": 0.25}, FLAT,
      dense(512, **RELU), {"type": "dropout", "rate": 0.5}, dense(10)]),
    ("stride 2", [1, 28, 28], 8,
     [{**CONV5, **RELU, "filters": 32, "stride": 2}, {**CONV5, **RELU, "filters": 64, "stride": 2}, FLAT, dense(128, **RELU),
      dense(10)]),
    ("wide MLP", [1, 28, 28], 4, [FLAT, dense(2048, **RELU), dense(2048, **RELU), dense(10)]),
)
SHAPE_GOALS = (2.5, 2, 3, 2, 1.5)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "configs", "cifar-resnet20.json")) as config:
    RESNET = ("ResNet-20", [3, 32, 32], 1, json.load(config)["model"]["layers"])  # as a row of SHAPES
# mine / (times x the fastest of others) must be at_least this; None: no goal
Goal = collections.namedtuple("Goal", "group mine others at_least times", defaults=(None, 1))


def is_cost(row):
    return any(row in rows for rows in COSTS.values())


def all_goals(bf16=True):
    """Every ratio of interest, group by group; bf16: whether the core has its arithmetic."""
    found, torch = [], TORCH if bf16 else TORCH_F32
    for row, goals in zip(CNN, ((9, 5, 5), (None, None, None))):
        found += [Goal("cnn", row, others, goal) for others, goal in zip((TORCH[:1], torch, (ROOFLINE,)), goals)]
    found += [Goal("cnn", CNN[0], (PROTOTYPE,), 1)] + [Goal("cnn", BF16, (TORCH_BF16,), 5)] * bf16
    for group, row, _, f32, best in SETTINGS:
        found += [Goal(group, row, TORCH[:1], f32), Goal(group, row, torch, best), Goal(group, row, (PROTOTYPE_V3,), 1)]
    found += [Goal("fashion", "dtrain, Fashion-MNIST", others) for others in (TORCH[:1], torch, ("dtrain",))]
    found += [Goal("fashion", "dtrain, background of noise", TORCH[:1], 8), Goal("fashion", "dtrain, background of noise", ("dtrain",))]
    found.append(Goal("mlp", "dtrain, MLP", ("PyTorch f32, MLP",), 4))
    for n, ddp, horovod in ((2, 9.5, 12), (4, 9, 14)):
        row = "dtrain, %d ranks" % n
        found += [Goal("ranks", row, ("PyTorch DDP f32, %d ranks" % n,), ddp),
                  Goal("ranks", row, ("Horovod, %d ranks" % n,), horovod)]
    found += [Goal("ranks", "dtrain, 2 ranks", ("dtrain, half of it alone",), 0.97, 2),
              Goal("ranks", "dtrain, 2 ranks", ("dtrain, two halves apart",), 0.97)]
    for i in range(2):  # how many times dtrain's cost
        found += [Goal("start", COSTS[program][i], (COSTS["dtrain"][i],), goal)
                  for program, goal in (("PyTorch", None), ("Horovod", None), ("limit", 1))]
    resnet = tuple("%s, %s" % (variant, RESNET[0]) for variant in TORCH_F32)
    found += [Goal("resnet", "dtrain, " + RESNET[0], others, goal) for others, goal in ((resnet[:1], 2), (resnet, None))]
    for (name, _, _, layers), goal in zip(SHAPES, SHAPE_GOALS, strict=True):
        found.append(Goal("shapes", "dtrain, " + name, tuple("%s, %s" % (v, name) for v in torch_f32_variants(layers)), goal))
    return found


def torch_f32_variants(layers):
    return TORCH_F32 if any(layer["type"] == "conv2d" for layer in layers) else TORCH_F32[:1]


def out_size(layer, n):
    stride = layer.get("stride", layer["size"] if "size" in layer else 1)
    if layer.get("padding") == "same":
        return -(-n // stride)
    return (n - layer.get("kernel", layer.get("size"))) // stride + 1


def flops_per_image(model):
    """Multiplications and additions of a training step's products, zeros included: forward, for the gradients of the weights, and
    for those of the inputs (except of the first layer with weights, whose input is the image)."""
    c, h, w = model["input"]
    total, is_first = 0, True
    for layer in model["layers"]:
        products = 0
        if layer["type"] == "dense":
            products, (c, h, w) = 2 * c * h * w * layer["units"], (layer["units"], 1, 1)
        elif layer["type"] == "conv2d":
            h, w = out_size(layer, h), out_size(layer, w)
            products, c = 2 * c * layer["kernel"] ** 2 * layer["filters"] * h * w, layer["filters"]
        elif layer["type"] in ("max_pool2d", "avg_pool2d"):
            h, w = out_size(layer, h), out_size(layer, w)
        total += products * (2 if is_first else 3)
        is_first = is_first and products == 0
    return total


def roofline(peak_gflops, model):
    """Images per second of a core whose FMA units never wait, and that skips nothing."""
    return 1e9 * peak_gflops / flops_per_image(model)


def ratio(speeds, goal):
    """Ratios, round by round."""
    others = [speeds[name] for name in goal.others]
    return [mine / (goal.times * max(theirs)) for mine, theirs in zip(speeds[goal.mine], zip(*others))]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(speeds, wanted):
    for goal in wanted:
        if all(name in speeds for name in (goal.mine, *goal.others)):
            values = spread(ratio(speeds, goal))
            yield {"group": goal.group, "mine": goal.mine, "other": other_text(goal), **values, "goal": goal.at_least,
                   "met": None if goal.at_least is None else values["median"] >= goal.at_least}


def other_text(goal):
    others = goal.others[0] if len(goal.others) == 1 else "fastest of %d PyTorch variants" % len(goal.others)
    return ("%d x " % goal.times if goal.times > 1 else "") + others

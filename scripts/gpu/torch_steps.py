#!/usr/bin/env python3
"""Times PyTorch's training step on the network of configs/mnist.json, its data on the device: for each batch, precision and way a
line of JSON, {"name": "batch 128, bf16, eager", "us": [610.1, ...]}, of each round, or with "text", an error, instead; first the
versions.

eager     operation by operation, with the memory layout that is faster; the other ways take that one, too
graph     the whole step recorded as one CUDA graph
compile   network and loss by torch.compile, mode reduce-overhead
autotune  the same by mode max-autotune-no-cudagraphs, then the whole step recorded as one CUDA graph

What is compared most and what is quick comes first, so that stopping it loses little. Exit status 3: PyTorch, or its GPU, is not
there.
"""
import argparse
import json
import statistics
import sys
import time

WAYS = ("eager", "graph", "compile", "autotune")
FIRST = ((128, "bf16"), (4096, "bf16"))
OTHERS = tuple((batch, precision) for batch in (128, 4096, 1024) for precision in ("bf16", "tf32", "f32")
               if (batch, precision) not in FIRST)
N_ROUNDS = 7
ORDER = [(*case, way) for ways, cases in ((WAYS, FIRST), (WAYS[:2], OTHERS), (WAYS[2:], OTHERS)) for way in ways for case in cases]


def network(torch, layout):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
                        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    return net.to(layout)


class Bench:
    def __init__(self, torch, args):
        self.torch, self.args = torch, args
        n = 60000
        self.images = torch.rand(n, 1, 28, 28, device=args.device)
        self.labels = torch.randint(0, 10, (n,), device=args.device)
        self.order = torch.randperm(n, device=args.device)

    def synchronize(self):
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()

    def recorded(self, compute):
        """Records compute as one graph to replay; a few calls on another stream come first, as PyTorch requires."""
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(5):
                compute()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            compute()
        return graph.replay

    def step(self, batch, precision, way, layout):
        """Returns a function that trains one step on the samples whose numbers are in its tensor."""
        torch, device = self.torch, self.args.device
        net = network(torch, device).to(memory_format=layout)
        adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=device == "cuda")
        rows = self.order[:batch].clone()

        def loss_of(images, labels):
            return torch.nn.functional.cross_entropy(net(images), labels)

        if way in ("compile", "autotune"):
            torch._dynamo.reset()
            mode = "reduce-overhead" if way == "compile" else "max-autotune-no-cudagraphs"
            loss_of = torch.compile(loss_of, mode=mode, dynamic=False)

        def compute():
            adam.zero_grad(set_to_none=True)
            images = self.images[rows].contiguous(memory_format=layout)
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(images, self.labels[rows])
            loss.backward()
            adam.step()

        return self.recorded(compute) if way in ("graph", "autotune") else compute, rows

    def microseconds(self, batch, precision, way, layout):
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        go, rows = self.step(batch, precision, way, layout)
        n_batches, n_steps = len(self.order) // batch, self.args.n_steps or max(20, 12800 // batch)

        def take(n):
            start = time.perf_counter()
            for i in range(n):
                k = i % n_batches
                rows.copy_(self.order[k * batch : (k + 1) * batch])
                go()
            self.synchronize()
            return (time.perf_counter() - start) / n * 1e6

        take(min(30, n_steps))
        return [take(n_steps) for _ in range(N_ROUNDS)]


def measure(torch, args):
    bench, layouts = Bench(torch, args), {}
    for batch, precision, way in args.cases or ORDER:
        line = {"name": "batch %d, %s, %s" % (batch, precision, way)}
        try:
            found = []
            for layout in layouts.get((batch, precision)) or (torch.channels_last, torch.contiguous_format):
                found.append((bench.microseconds(batch, precision, way, layout), layout))
            rounds, layout = min(found, key=lambda f: statistics.median(f[0]))
            layouts[batch, precision] = [layout]
            line["us"] = rounds
        except Exception as error:  # one way may be unavailable
            line["text"] = "%s: %s" % (type(error).__name__, str(error).strip()[:300])
        print(json.dumps(line), flush=True)


def case(text):
    batch, precision, way = text.split(",")
    return int(batch), precision, way


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try this program without a GPU")
    parser.add_argument("--n-steps", type=int, default=0, help="in each round (default: by the batch)")
    parser.add_argument("cases", nargs="*", type=case, metavar="BATCH,PRECISION,WAY", help="default: all, the most wanted first")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        return 3
    if args.device == "cuda" and not torch.cuda.is_available():
        return 3
    torch.backends.cudnn.benchmark = True
    versions = "torch %s, CUDA %s, cuDNN %s" % (torch.__version__, torch.version.cuda, torch.backends.cudnn.version())
    print(json.dumps({"name": "versions", "text": versions}), flush=True)
    measure(torch, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())

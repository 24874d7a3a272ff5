"""What gpu-check found, as a table for people and as JSON: goals with pass or fail, ratios to PyTorch, shares of the peak."""

LIMITS = {"f32": 1e-5, "tf32": 5e-3, "bf16": 2e-2}  # by what gradients and losses may be off
STAGED_LIMIT = 1e-4  # and the loss of ten steps of two ranks
BATCHES = (128, 4096, 1024)
WAYS = ("eager", "graph", "compile", "autotune")  # of PyTorch: torch_steps.py
FLOP_PER_SAMPLE = 3 * 23984896 - 389376  # forward, and twice that backward but for the first layer's input
# Datasheets' bf16 rates in TFLOP/s, without sparsity; the first name that is in the GPU's counts.
PEAK_TFLOPS = {"B200": 2250, "H200 NVL": 835, "H200": 989, "H100 NVL": 835, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362,
               "L4": 121}


def at(figures, *names):
    for name in names:
        figures = figures.get(name) if isinstance(figures, dict) else None
    return figures


def step_us(figures, batch, precision):
    """dtrain's, as it runs by default."""
    return at(figures, "step_us", str(batch), precision, "default")


def peak(figures):
    """The bf16 rate that shares are of, and where it is from."""
    gpu = at(figures, "machine", "gpu") or ""
    for name, tflops in PEAK_TFLOPS.items():
        if name in gpu:
            return {"bf16_tflops": tflops, "source": "datasheet of the " + name}
    return {"bf16_tflops": at(figures, "gemm_tflops", "bf16"), "source": "measured: a large product of matrices"}


def share(figures, batch, precision, tflops):
    """Of that rate, in percent."""
    us = step_us(figures, batch, precision)
    return 100 * batch * FLOP_PER_SAMPLE / us / 1e6 / tflops if us and tflops else None


def pytorch_ratios(figures):
    """{batch: {precision: {way: PyTorch's time of a step / dtrain's}}}, with the best of PyTorch's ways as "best"."""
    found = {}
    for batch, precisions in (at(figures, "pytorch", "step_us") or {}).items():
        for precision, ways in precisions.items():
            own = step_us(figures, batch, precision)
            if own:
                times = {**ways, "best": min(ways.values())}
                found.setdefault(batch, {})[precision] = {way: us / own for way, us in times.items()}
    return found


def rows(figures, measured):
    """What was asked for, each {part, check, value, text, goal, pass}: None where nothing is required, or nothing was found.

    measured: False where a double was in the place of the GPU, and times, rates and accuracies mean nothing.
    """
    found = []

    def row(part, check, value, form="%s", goal="", holds=None, is_figure=False):
        if is_figure and not measured:
            value, text, holds = None, "not measured", None
        else:
            text = "missing" if value is None else "yes" if value is True else "no" if value is False else form % value
        found.append({"part": part, "check": check, "value": value, "text": text, "goal": goal,
                      "pass": holds(value) if holds and value is not None else None})

    def figure(*args, **more):
        row(*args, **more, is_figure=True)

    def true(part, check, value):
        row(part, check, value, "%s", "yes", bool)

    def within(part, check, value, limit):
        row(part, check, value, "%.1e", "<= %g" % limit, lambda v: v <= limit)

    true("build", "program, module and tests are built", at(figures, "build"))
    if measured:
        true("tests", "all tests with label gpu ran", at(figures, "tests"))
    for precision in LIMITS:
        figure("accuracy", "MNIST, 12 epochs, " + precision, at(figures, "accuracy", precision), "%.2f %%", ">= 98.9 %",
               lambda v: v >= 98.9)
    ratios = at(pytorch_ratios(figures), "128", "bf16") or {}
    figure("speed", "step, batch 128, bf16", step_us(figures, 128, "bf16"), "%.1f us", "<= 60 us", lambda v: v <= 60)
    figure("speed", "PyTorch eager / dtrain, batch 128, bf16", ratios.get("eager"), "%.2f", ">= 8", lambda v: v >= 8)
    figure("speed", "PyTorch's best / dtrain, batch 128, bf16", ratios.get("best"), "%.2f", ">= 1.5", lambda v: v >= 1.5)
    top = peak(figures)
    figure("speed", "batch 4096, bf16: share of the peak", share(figures, 4096, "bf16", top["bf16_tflops"]), "%.1f %%", ">= 25 %",
           lambda v: v >= 25)
    figure("speed", "peak, bf16 (%s)" % top["source"], top["bf16_tflops"], "%.0f TFLOP/s")
    for precision in LIMITS:
        rate = at(figures, "gemm_tflops", precision)
        figure("gemm", "rate of large products, " + precision, rate, "%.0f TFLOP/s")
        figure("gemm", "batch 4096, %s: share of that rate" % precision, share(figures, 4096, precision, rate), "%.1f %%")
    for precision, limit in LIMITS.items():
        within("agreement", "gradients as on the cpu, " + precision, at(figures, "gradients_off", precision), limit)
        within("agreement", "loss as on the cpu, " + precision, at(figures, "loss_off", precision), limit)
    for precision in LIMITS:
        true("same_bits", "same bits twice, " + precision, at(figures, "same_bits", precision))
    for precision, same in (at(figures, "same_bits_by_calls") or {}).items():
        true("same_bits", "same bits with and without graph, " + precision, same)
    true("ranks", "2 ranks share the GPU by host memory", at(figures, "staged", "by_host_memory"))
    within("ranks", "their loss as that of 2 ranks on the cpu", at(figures, "staged", "loss_off"), STAGED_LIMIT)
    row("nccl", "experiment: 2 ranks on the GPU by NCCL", at(figures, "nccl_on_one_gpu"))
    timed = [us for by in (at(figures, "pytorch", "step_us") or {}).values() for ways in by.values() for us in ways.values()]
    n_wanted = len(BATCHES) * len(LIMITS) * len(WAYS)
    figure("pytorch", "batches, precisions and ways that were timed", len(timed), "%%d of %d" % n_wanted)
    if measured:
        true("sanitizer", "compute-sanitizer finds nothing in 3 steps", at(figures, "sanitizer"))
    return found


def result(figures, problems, measured):
    """The whole JSON document."""
    checks = rows(figures, measured)
    passed = all(c["pass"] is not False for c in checks) and not any(why.startswith("failed") for _, _, why in problems)
    document = {"passed": passed, "measured": measured, "goals": [c for c in checks if c["goal"]],
                "experiments": {"nccl_on_one_gpu": at(figures, "nccl_on_one_gpu")},
                "problems": [dict(zip(("part", "what", "why"), p)) for p in problems], "machine": at(figures, "machine") or {}}
    if measured:
        document["peak"] = peak(figures)
        document["pytorch_time_by_dtrain_time"] = pytorch_ratios(figures)
        document["figures"] = figures
    return document


def steps_table(figures):
    """Microseconds per step of dtrain and PyTorch."""
    widths = (5, 9) + (9,) * (len(WAYS) + 2) + (11, 11)
    lines = [("batch", "precision", "dtrain", "by calls") + WAYS + ("eager/dt.", "best/dt.")]
    ratios = pytorch_ratios(figures)
    for batch in sorted(BATCHES):
        for precision in LIMITS:
            theirs = at(figures, "pytorch", "step_us", str(batch), precision) or {}
            own = [at(figures, "step_us", str(batch), precision, way) for way in ("default", "calls")]
            times = [*own, *(theirs.get(way) for way in WAYS)]
            by = [at(ratios, str(batch), precision, name) for name in ("eager", "best")]
            cells = ["%.1f" % t if t else "-" for t in times] + ["%.2f" % r if r else "-" for r in by]
            lines.append((batch, precision, *cells))
    text = ["us per step: dtrain by default and call by call; PyTorch eager, CUDA graph, torch.compile, autotuned + graph"]
    text += ["  ".join(str(v).rjust(w) for v, w in zip(line, widths)) for line in lines]
    for batch, precisions in (at(figures, "pytorch", "errors") or {}).items():
        for precision, ways in precisions.items():
            for way, error in ways.items():
                text.append("PyTorch, batch %s, %s, %s: %s" % (batch, precision, way, error.split("\n")[0][:80]))
    return "\n".join(text)


def table(figures, problems, measured):
    lines = []
    for c in rows(figures, measured):
        verdict = {True: "pass", False: "FAIL", None: "-"}[c["pass"]]
        long = "%(part)-10s %(check)s: %(text)s" % c
        lines.append("%(part)-10s %(check)-50s %(text)-15s %(goal)-10s " % c + verdict if len(c["text"]) <= 15 else long)
    alike = {}  # what failed for the same reason
    for part, what, why in problems:
        alike.setdefault((part, why), []).append(what)
    for (part, why), whats in alike.items():
        lines.append("%-10s %s%s" % (part, "".join(what + "; " for what in whats if what), why.replace("\n", "\n" + " " * 11)))
    machine = ["%s: %s" % pair for pair in (at(figures, "machine") or {}).items()]
    versions = ["PyTorch's %s: %s" % pair for pair in (at(figures, "pytorch", "versions") or {}).items()]
    return "\n".join([*machine, *versions, *lines, *([steps_table(figures)] if measured else [])])

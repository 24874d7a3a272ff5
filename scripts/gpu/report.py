"""The conclusions of gpu-check from its results: goals with pass or fail, ratios to PyTorch, and their text."""

LIMITS = {"f32": 1e-5, "tf32": 5e-3, "bf16": 2e-2}  # largest error of gradients and losses
RANKS_LIMIT = 1e-4  # and of the loss of ten steps of several ranks
BATCHES = (128, 4096, 1024)
WAYS = ("eager", "graph", "compile", "autotune")  # of PyTorch: torch_steps.py
CLOCKED = ("us", "us a step", "TFLOP/s", "%")  # units that depend on the GPU's clock
FLOP_PER_SAMPLE = 3 * 23984896 - 389376  # forward, and twice that backward, without the gradient of the first layer's input
# Datasheets' bf16 rates in TFLOP/s, without sparsity; the first name that is in the GPU's counts.
PEAK_TFLOPS = {"B200": 2250, "H200 NVL": 835, "H200": 989, "H100 NVL": 835, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362,
               "L4": 121}
# Parts whose rows are yes or no; they pass if all rows do.
YES_OR_NO = {"build": "it is built", "tests": "all tests with label gpu pass", "same_bits": "the same bits",
             "sanitizer": "compute-sanitizer finds nothing"}


def find(document, part, name):
    """The value of a row, or None."""
    rows = document["parts"].get(part, {}).get("rows", [])
    return next((row["value"] for row in rows if row["name"] == name and "value" in row), None)


def step_us(document, batch, precision):
    """The value of dtrain's default settings."""
    return find(document, "speed", "batch %s, %s, graph" % (batch, precision))


def peak(document):
    """The bf16 rate that counts as 100 %, and its source."""
    for name, tflops in PEAK_TFLOPS.items():
        if name in (document["probe"].get("GPU") or ""):
            return {"bf16_tflops": tflops, "source": "datasheet of the " + name}
    return {"bf16_tflops": find(document, "gemm", "bf16"), "source": "measured: a large product of matrices"}


def share(document, batch, precision, tflops):
    """The share of that rate, in percent."""
    us = step_us(document, batch, precision)
    return 100 * batch * FLOP_PER_SAMPLE / us / 1e6 / tflops if us and tflops else None


def ratios(document):
    """{batch: {precision: {way: PyTorch's time of a step / dtrain's}}}, with the best of PyTorch's ways as "best"."""
    found = {}
    for batch in BATCHES:
        for precision in LIMITS:
            own = step_us(document, batch, precision)
            times = {way: find(document, "pytorch", "batch %d, %s, %s" % (batch, precision, way)) for way in WAYS}
            times = {way: us for way, us in times.items() if us}
            if own and times:
                by = {way: us / own for way, us in {**times, "best": min(times.values())}.items()}
                found.setdefault(str(batch), {})[precision] = by
    return found


def goals(document):
    """Each {part, goal, value, unit, at_least or at_most, aim, pass, aim_met}: None if it was not measured, or does not count.

    Times, rates and accuracies of fake CUDA mean nothing.
    """
    found, measured = [], document["measured"]

    def goal(part, name, value, unit="", figure=True, at_least=None, at_most=None, aim=None):
        value = None if figure and not measured else value
        limits = {"at_least": at_least} if at_least is not None else {"at_most": at_most} if at_most is not None else {}

        def meets(limit):
            return None if value is None or limit is None else value >= limit if at_least is not None else value <= limit

        found.append({"part": part, "goal": name, "value": value, "unit": unit, **limits, "aim": aim,
                      "pass": meets(at_least if at_least is not None else at_most) if limits else value, "aim_met": meets(aim)})

    by = ratios(document).get("128", {}).get("bf16", {})
    goal("speed", "step, batch 128, bf16", step_us(document, 128, "bf16"), "us", at_most=60, aim=40)
    goal("speed", "PyTorch eager / dtrain, batch 128, bf16", by.get("eager"), "times", at_least=8, aim=12)
    goal("speed", "PyTorch's best / dtrain, batch 128, bf16", by.get("best"), "times", at_least=1.5, aim=2.5)
    part_of_peak = share(document, 4096, "bf16", peak(document)["bf16_tflops"])
    goal("speed", "batch 4096, bf16: share of the peak", part_of_peak, "%", at_least=25, aim=45)
    for precision in reversed(LIMITS):
        name = "MNIST, 12 epochs, " + precision
        goal("accuracy", name, find(document, "accuracy", name), "%", at_least=98.9)
    for name, most in (("nodes, mnist, bf16", 17), ("nodes, mnist-mlp, bf16", 9), ("longest chain, mnist, bf16", 14)):
        goal("profile", name, find(document, "profile", name), "nodes", at_most=most)
    for precision, limit in LIMITS.items():
        for what, unit in (("gradients", "of the largest"), ("loss", "of it")):
            name = "%s, %s" % (what, precision)
            goal("agreement", name + ", as on the cpu", find(document, "agreement", name), unit, figure=False, at_most=limit)
    for part in ("ranks", "nccl"):
        for row in document["parts"].get(part, {}).get("rows", []):
            if row.get("unit") == "of it":
                goal(part, row["name"] + " as on the cpu", row["value"], "of it", figure=False, at_most=RANKS_LIMIT)
            elif isinstance(row.get("value"), bool):
                goal(part, row["name"], row["value"], figure=False)
    for part, name in YES_OR_NO.items():
        about = document["parts"].get(part, {"state": "skipped", "rows": []})
        values = [row["value"] for row in about["rows"] if isinstance(row.get("value"), bool)]
        whole = about["state"] == "done" and not any("failed" in row for row in about["rows"])
        goal(part, name, all(values) if values and (whole or not all(values)) else None, figure=False)
    return found


def passed(document, all_goals):
    """Nothing failed or was cut off, and no goal was missed. Skipped rows do not count; without a GPU nothing passes."""
    parts = document["parts"].values()
    fine = all(part["state"] in ("done", "skipped") and not any("failed" in row for row in part["rows"]) for part in parts)
    return fine and bool(document["probe"].get("GPU")) and bool(parts) and all(each["pass"] is not False for each in all_goals)


def conclusions(document):
    all_goals = goals(document)
    found = {"passed": passed(document, all_goals), "goals": all_goals}
    return {**found, "peak": peak(document), "pytorch_time_by_dtrain_time": ratios(document)} if document["measured"] else found


def text_of(value, unit=""):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str):
        return value or "-"
    number = "%.3g" % value if abs(value) < 0.1 else "%d" % value if value == int(value) else "%.2f" % value
    return number + " " + unit if unit else number


def line(part, row):
    """The text of a measured row."""
    if "value" not in row:
        why = "failed: " + row["failed"] if "failed" in row else "skipped: " + row["skipped"]
        return "%-10s %s: %s" % (part, row["name"], why.replace("\n", "\n" + " " * 11))
    more = ["%s to %s" % (text_of(row["min"]), text_of(row["max"]))] if "min" in row else []
    more += ["%.1f times" % row["launches"]] if "launches" in row else []
    more += ["%.1f MB" % row["dram_mb"]] if "dram_mb" in row else []
    more += ["tensor pipe %.0f %%" % row["tensor_percent"]] if row.get("tensor_percent") is not None else []
    more += ["%d MHz, %d C" % (row["sm_mhz"], row["celsius"])] if "sm_mhz" in row else []
    return "%-10s %-45s %s" % (part, row["name"], "; ".join([text_of(row["value"], row["unit"]), *more]))


def limit_of(each):
    signs = {"at_most": "<= ", "at_least": ">= "}
    return next((sign + text_of(each[key]) for key, sign in signs.items() if key in each), "yes")


def verdict(each):
    return {True: "pass", False: "FAIL", None: "-"}[each["pass"]] + (", aim met" if each["aim_met"] else "")


def summary(document):
    """The goals, and the unfinished parts."""
    lines = [] if document["measured"] else ["on fake CUDA: times, rates and accuracies are not measured"]
    for each in document["goals"]:
        aim = "" if each["aim"] is None else "aim %s" % text_of(each["aim"])
        cells = (each["part"], each["goal"], text_of(each["value"], each["unit"]), limit_of(each), aim, verdict(each))
        lines.append("%-10s %-45s %-25s %-10s %-9s %s" % cells)
    for name, part in document["parts"].items():
        if part["state"] != "done":
            lines.append("%-10s %s: %s" % (name, part["state"], part["why"].replace("\n", "\n" + " " * 11)))
    if document["measured"]:
        lines += ["", "us per step: dtrain by its graph and call by call; PyTorch's ways"]
        lines += ["  ".join(cell.rjust(9) for cell in cells) for cells in steps(document)]
    return "\n".join(lines)


def steps(document):
    """Rows of microseconds per step, the first with their names."""
    yield ("batch", "precision", "dtrain", "by calls", *WAYS, "eager/dt.", "best/dt.")
    by = ratios(document)
    for batch in sorted(BATCHES):
        for precision in LIMITS:
            own = [find(document, "speed", "batch %d, %s, %s" % (batch, precision, way)) for way in ("graph", "calls")]
            theirs = [find(document, "pytorch", "batch %d, %s, %s" % (batch, precision, way)) for way in WAYS]
            times = ["%.1f" % us if us else "-" for us in own + theirs]
            slower = [by.get(str(batch), {}).get(precision, {}).get(name) for name in ("eager", "best")]
            yield (str(batch), precision, *times, *("%.2f" % ratio if ratio else "-" for ratio in slower))


def page(document):
    """docs/benchmarks/gpu.md, from results of a GPU."""
    def table(rows):
        head, *rest = [tuple(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
        return ["", *("| %s |" % " | ".join(row) for row in (head, ["---"] * len(head), *rest)), ""]

    lines = ["# Speed on GPUs", "", "Written by `scripts/gpu-check --page` from what it measured; [README.md](README.md) says how."]
    lines += table([("what", "there"), *((name, text_of(text)) for name, text in document["probe"].items())])
    lines += ["## Goals"]
    lines += table([("goal", "measured", "limit", "aim", ""),
                    *((each["goal"], text_of(each["value"], each["unit"]), limit_of(each), text_of(each["aim"]), verdict(each))
                      for each in document["goals"])])
    lines += ["## Microseconds per step"] + table(list(steps(document)))
    lines += ["## Everything", "", "Median, min and max; the SM clock and the temperature while it ran."]
    lines += table([("part", "what", "median", "min", "max", "SM clock, MHz", "C"),
                    *((name, row["name"], text_of(row["value"], row["unit"]),
                       *(text_of(row.get(key)) for key in ("min", "max", "sm_mhz", "celsius")))
                      for name, part in document["parts"].items() for row in part["rows"] if "value" in row)])
    missing = [(name, row["name"], row.get("failed") or row.get("skipped")) for name, part in document["parts"].items()
               for row in part["rows"] if "value" not in row]
    missing += [(name, part["state"], part["why"]) for name, part in document["parts"].items() if part["state"] != "done"]
    lines += ["## What is missing"] + table([("part", "what", "why"), *missing]) if missing else []
    return "\n".join(lines).rstrip() + "\n"

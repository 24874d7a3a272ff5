"""`dtrain accept`: "fine": a row for each check, all forms of the result, baselines, and what is refused; "wrong": each check fails where
something is wrong, and says so; "busy": other programs use the CPUs.
usage: DTRAIN=... MPIEXEC=... test_accept.py fine|wrong|busy WRONG_CLUSTER MODULE (wrong_cluster.c, fake_module.c)"""
import datetime
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as tree

from checks import DTRAIN, MPIEXEC, SOURCE, check, finish, new_folder, parts, read, read_json, refused, run, write, write_json
from shown import missing, samples
from terminal import Terminal

ROWS = "launch doctor example gradients sums links memory compute training checkpoint frozen".split()
COMMAND = "mpirun -np 4 dtrain accept --short"
WRONG, MODULE = (os.path.abspath(path) for path in sys.argv[2:])
GPUS = {"DTRAIN_CUDA_MODULE": MODULE, "FAKE_GPUS": "aaaaaaaa bbbbbbbb"}
os.environ.pop("DTRAIN_CUDA_MODULE", None)
os.environ["DTRAIN_TIMEOUT"] = "60"


def accept(ranks, *arguments, failing="", program=DTRAIN, json="result.json", **options):
    """The rows of an acceptance in which these checks fail and no others, by name; its JSON; and what it printed."""
    done = run(program, "accept", "--short", *arguments, *(json and ("--json", json)), ranks=ranks, code=1 if failing else 0, **options)
    rows = [(verdict, name) for verdict, name in re.findall(r"^(PASS|FAIL|MEASURED|SKIPPED) +(\w+) ", done.stderr, re.M)]
    check([name for _, name in rows] == ROWS, f"{arguments}: rows are {rows}: {done.stderr}")
    check([name for verdict, name in rows if verdict == "FAIL"] == failing.split(), f"{arguments}: {rows}, not {failing}: {done.stderr}")
    result = read_json(json) if json else {"parts": []}
    table = {row["check"]: row for part in parts(result, "table", "Checks") for row in part["rows"]}
    check(not json or [(row["verdict"], name) for name, row in table.items()] == rows, f"{arguments}: not the rows of {json}")
    return table, result, done


def verdicts(rows, verdict):
    return " ".join(name for name, row in rows.items() if row["verdict"] == verdict)


def figures(result, title):
    return parts(result, "figures", title)[0]["figures"]


def fine():
    for n in 1, 2, 3:  # of 3, one rank has no peer in each round; the ranks are compared if each has a CPU
        folder = ("--run", f"fine{n}") if n > 1 else ()
        program, compared = (WRONG, len(os.sched_getaffinity(0)) > 2) if n == 3 else (DTRAIN, False)
        rows, result, done = accept(n, *folder, "--junit", f"{n}.xml", json=f"{n}.json", program=program)
        check(os.path.exists(f"fine{n}/config.json") == (n > 1) and not os.path.exists("runs"), f"{n} ranks: the training's folder")
        check(verdicts(rows, "MEASURED") == "links " * (n > 1) + "memory" + " compute" * (not compared), f"{n} ranks: {rows}")
        check(verdicts(rows, "SKIPPED") == ("links frozen" if n == 1 else ""), f"{n} ranks: {rows}")
        warnings = rows["doctor"]["hint"].count("warning: ") if "hint" in rows["doctor"] else 0
        summary = "7 of 11 checks passed, 2 not compared, 2 skipped" if n == 1 else f"{8 + compared} of 11 checks passed, {3 - compared} not compared"
        summary = f"PASS: {summary}" + f", {warnings} warning{'s' * (warnings > 1)}" * (warnings > 0)
        check((result["verdict"], result["summary"], done.stdout.splitlines()[-1]) == ("PASS", summary, summary), result["summary"])
        check(rows["memory"]["hint"] == "nothing to compare with: 1 host, no --baseline", rows["memory"])
        check(rows["checkpoint"]["result"].startswith(f"every rank has read fine{n}/checkpoints/step-") if n > 1 else
              rows["checkpoint"]["result"] == "every rank has read the checkpoint of the training", rows["checkpoint"])
        for grid in parts(result, "grid"):
            values = [value for row in grid["values"] for value in row]
            check(len(values) == n * n and sum(value is None for value in values) == n, f"{n} ranks: {grid}")
            check(all(value is None or value > 0 for value in values), f"{n} ranks: {grid}")
        check(len(parts(result, "grid")) == 2 * (n > 1), f"{n} ranks: maps")
    check(re.fullmatch(r"frozen rank identified within [1-4]\.\d s on 1 host", rows["frozen"]["result"]), rows["frozen"])
    sample = dict(samples(os.path.join(SOURCE, "README.md")))[COMMAND]
    check(missing(sample, done.stderr) is None, f"README: {missing(sample, done.stderr)}")
    record = {name: figure["value"] for name, figure in figures(result, "Record").items()}
    when = datetime.datetime.strptime(record["date"] + "+0000", "%Y-%m-%dT%H:%M:%SZ%z")
    check(abs((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds()) < 3600, record)
    check(record["command"].endswith("accept --short --run fine3 --junit 3.xml --json 3.json"), record)
    check(record["version"] and record["commit"] and record["mpi"].startswith("MPICH") and record["launcher"] == "mpirun", record)
    check((record["device"], record["ranks"], record["ranks per host"]) == ("cpu", 3, 3), record)
    host, = parts(result, "table", "Hardware")[0]["rows"]
    check((host["ranks"], host["GPUs"], host["kernel"]) == (3, 0, "Linux " + os.uname().release) and host["CPUs"] > 0, host)
    suite = tree.parse("3.xml").getroot()
    check([case.get("name") for case in suite.findall("testcase")] == ROWS and suite.get("failures") == "0", "JUnit: rows")
    check(suite.get("skipped") == str(3 - compared) == str(len(suite.findall("testcase/skipped"))), "JUnit: skipped")
    check(all(float(case.get("time")) >= 0 for case in suite.findall("testcase")), "JUnit: times")
    about = {item.get("name"): item.get("value") for item in suite.find("properties")}
    check(record["date"] == about["date"] == suite.get("timestamp") + "Z" and about["command"] == record["command"], about)

    baselines()
    for text, *arguments in [("/proc/none: cannot create the folder: No such file or directory", "--run", "/proc/none"),
                             ("fine2: already holds a run (choose another --run; a training resumes with --resume)", "--run", "fine2"),
                             ("none/: No such file or directory", "--junit", "none/x.xml"),
                             ("3.xml: exists and is no JSON result of dtrain", "--json", "3.xml")]:
        refused(73, text, "accept", "--short", *arguments, ranks=1)
    for tolerance in "x", "-1":
        refused(64, "--tolerance", "accept", f"--tolerance={tolerance}", ranks=1)
    for fault in "nan:rank=9,step=1", "flip:rank=0,step=1,tensor=none", "drop:rank=0,step=1":
        refused(78, "", "accept", "--short", "--run", "impossible", "--inject", fault, ranks=1)
    check(not os.path.exists("runs") and not os.path.exists("impossible"), "a folder is left of what was refused")
    rows, _, _ = accept(2, env=GPUS)
    check(" 11 implementations, nccl, staged, " in " " + rows["sums"]["result"] and "(cuda)" in rows["gradients"]["result"], rows)
    stalls()


def baselines():
    """2.json, where what was measured is changed so far that no busy machine comes near; and a file of the older shape, written by hand."""
    def changed(file, change):
        result = read_json("2.json")
        change(figures(result, "Figures"), figures(result, "Record"), result)
        write_json(file, result)

    def high(figure, *_):
        figure["link bandwidth"]["value"], figure["link latency"]["value"] = 1e-3, 1e-4
        figure["memory bandwidth"]["value"] = figure["matrix products"]["value"] = 1e6

    changed("high.json", high)
    rows, _, done = accept(2, "--baseline", "high.json", "--inject", "nan:rank=1,step=9", "--junit", "nan.xml",
                           failing="links memory compute training checkpoint")
    check("diverged at step" in rows["training"]["result"], rows["training"])
    kept = re.search(r"^the training's folder is kept: (.*)", done.stderr, re.M)
    check(kept and os.path.exists(f"{kept[1]}/config.json"), "the folder of the training that failed")
    check("\ndtrain: accept: 5 of 11 checks failed (see the rows that begin with FAIL)\n" in done.stderr, done.stderr)
    failure = tree.parse("nan.xml").getroot().find("testcase[@name='training']/failure")
    check(failure is not None and failure.get("message").startswith("training diverged"), "JUnit: the failure")
    check(re.match(r"link latency [\d.]+ us, more than 10 % worse than the baseline's 0.0001; 1 pair: ", rows["links"]["result"]), rows["links"])
    check(re.match(r"memory bandwidth [\d.]+ GB/s, more than 10 % worse than the baseline's 1e\+06; ", rows["memory"]["result"]), rows["memory"])
    shutil.rmtree("runs")
    old = {"kind": "accept", "ranks_per_host": 2, "device": "cpu", "rows": [
        {"name": "links", "figures": {"bandwidth_gbs": 1e-3, "latency_us": 1e6}}, {"name": "memory", "figures": {"bandwidth_gbs": 1e6}}]}
    write_json("old.json", old)
    rows, result, _ = accept(2, "--baseline", "old.json", failing="memory")
    shutil.rmtree("runs")
    check((verdicts(rows, "MEASURED"), rows["links"]["verdict"]) == ("compute", "PASS"), rows)
    check(rows["compute"]["hint"].endswith(", not in the --baseline"), rows["compute"])
    held = figures(result, "Figures")
    check(abs(held["memory bandwidth"]["at_least"] - 9e5) < 1 and abs(held["link latency"]["at_most"] - 1.1e6) < 1, held)
    check("at_least" not in held["matrix products"], held)
    rows, _, _ = accept(2, "--baseline", "old.json", "--tolerance", "100")
    check(verdicts(rows, "MEASURED") == "compute", rows)
    refused(66, "nowhere.json: No such file", "accept", "--baseline", "nowhere.json", ranks=1)
    write("cut.json", read("2.json")[:100])
    write("other.json", "[1, 2]")
    changed("four.json", lambda _, record, result: record["ranks per host"].update(value=4))
    changed("gpu.json", lambda _, record, result: record["device"].update(value="cuda"))
    changed("text.json", lambda figure, *_: figure["memory bandwidth"].update(value="fast"))
    changed("zero.json", lambda figure, *_: figure["matrix products"].update(value=0))
    changed("none.json", lambda figure, *_: figure.clear())
    write_json("old-zero.json", {**old, "rows": [{"name": "links", "figures": {"latency_us": 0}}]})
    for file, text in [("cut", ":1:"), ("other", " no baseline (give a file that dtrain accept --json wrote)"),
                       ("four", " was measured with 4 ranks on a host, here are 2 "),
                       ("gpu", ' was measured on the device "cuda", here it is "cpu" '), ("text", " the memory bandwidth is no measurement"),
                       ("zero", " the matrix products is no measurement"), ("none", " has no figures "),
                       ("old-zero", " the link latency is no measurement")]:
        refused(65, text, "accept", "--baseline", f"{file}.json", ranks=2)


def stalls():
    """A rank that stalls ends the program; what was measured before has been told."""
    env = {"DTRAIN_TIMEOUT": "3"}
    done = run(DTRAIN, "accept", "--short", "--run", "lost", "--inject", "drop:rank=1,step=20", ranks=2, code=76, env=env)
    check(re.search(r"^MEASURED +compute", done.stderr, re.M) and not done.stdout, done)
    done = run(DTRAIN, "accept", "--short", "--run", "stopped", "--inject", "stop:rank=1,step=20", ranks=3, code=76, env=env)
    check(re.search("stalled for .* rank 1 ", done.stderr), done.stderr)
    subprocess.run(["pkill", "-KILL", "-f", f"{os.getcwd()}/stopped"], check=False)


def wrong():
    """A baseline of this machine, so far below that no busy machine comes near. Then the wrong cluster, row by row."""
    _, result, _ = accept(2, json="2.json")
    for name, figure in figures(result, "Figures").items():
        figure["value"] *= 1000 if name == "link latency" else 0.001
    write_json("low.json", result)
    os.mkfifo("deaf")  # a file that cannot be written hides neither the verdict nor the next file
    broken = {"program": WRONG, "env": {"WRONG": "example gradients sums checkpoint frozen"}}
    rows, _, done = accept(2, "--baseline", "low.json", "--html", "deaf", "--csv", "rows.csv",
                           failing="example gradients sums checkpoint frozen", **broken)
    check(re.search("^dtrain: deaf: nobody reads from it", done.stderr, re.M), done.stderr)
    hints = ",hint" * any("hint" in row for row in rows.values())  # the doctor has warnings where other programs run
    check(read("rows.csv").splitlines()[0] == 'check,"time, s",result,verdict' + hints, read("rows.csv"))
    check(verdicts(rows, "PASS") == "launch doctor links memory compute training", rows)
    for name, pattern in [("example", "^weights after the step, input 1, rank 0: got "),
                          ("gradients", r"rank 1 \(.*\): [1-9]\d* of 92 derivatives differ"), ("sums", ": 2 of 100003 sums are wrong on some rank$"),
                          ("checkpoint", r"rank 1 \(.*\): nowhere: "), ("frozen", "did not name rank 1 .*: somebody is late$")]:
        check(re.search(pattern, rows[name]["result"]), rows[name])
    rows, _, _ = accept(2, failing="launch doctor sums", program=WRONG, env={"WRONG": "nccl version", **GPUS})
    check(re.match(r"rank 1 \(.*\) has dtrain 9", rows["launch"]["result"]) and rows["sums"]["result"].startswith("nccl: 2 of 100003 sums"), rows)
    rows, _, _ = accept(3, failing="launch", program=WRONG, env={"WRONG": "uneven"})
    check(re.match("lonely has 1 rank, .* has 2$", rows["launch"]["result"]) and "mpirun -ppn" in rows["launch"]["hint"], rows["launch"])

    rows, result, _ = accept(4, "--html", "slow.html", failing="links memory compute", program=WRONG,
                             env={"WRONG": "bandwidth memory compute", "ONE_EACH": "1"})
    leave_out = "leave it out: mpirun -hosts, sbatch -x node2"
    check((rows["links"]["result"], rows["links"]["hint"]) == ("node2: 5 GB/s, 50 % below the median of the hosts", leave_out), rows["links"])
    check((rows["memory"]["result"], rows["memory"]["hint"]) == ("node2: 10 GB/s, 50 % below the median of the hosts", leave_out), rows["memory"])
    check(re.match(r".*node2.* 10 GFLOP/s, 50 % below the median of the (hosts|ranks)$", rows["compute"]["result"]), rows["compute"])
    hosts = {row["host"]: row for row in parts(result, "table", "Hosts")[0]["rows"]}
    check({host: row["failed checks"] for host, row in hosts.items()} ==
          {"node0": "", "node1": "", "node2": "links, memory, compute", "node3": ""}, hosts)
    check((hosts["node2"]["memory"], hosts["node0"]["memory"]) == (10, 20), hosts)
    check(read("slow.html").count(' odd"') == 6, "the page: pairs that are marked")  # three of six, both ways

    terminal = Terminal(MPIEXEC, "-n", "3", WRONG, "accept", "--short", columns=60,
                        env={**os.environ, "TERM": "xterm", "WRONG": "latency gradients", "ONE_EACH": "1"})
    terminal.end()
    shown = re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", terminal.text).replace("\r", "\n").split("\nAcceptance of ")[0]
    check(re.search(r"FAIL +links +[\d.]+ s  node2: messages take 3\.0 us,\n+ +3\.0 times the median of the\n", shown), shown)
    check(max(map(len, shown.splitlines())) <= 60, shown)


def busy():
    """The doctor's warnings, in full and in every form; of two hosts neither is the outlier. Then the same warning beside what bench measures."""
    rows, result, done = accept(2, "--junit", "busy.xml", program=WRONG, env={"WRONG": "busy memory", "ONE_EACH": "1"})
    check(verdicts(rows, "MEASURED") == "links memory compute", rows)
    check(re.match("nothing to compare with: 2 (hosts|ranks), no --baseline", rows["compute"]["hint"]), rows["compute"])
    load = ("warning: load: load 15.2 on 4 CPUs of node0: others use them "
            "(wait for them to end, or ask for whole nodes: sbatch --exclusive)")
    case = tree.parse("busy.xml").getroot().find("testcase[@name='doctor']/system-out")
    for where, text in ("JSON", rows["doctor"]["hint"]), ("stderr", done.stderr), ("stdout", done.stdout), ("JUnit", case.text):
        check(load in text, f"a busy host: {where}: {text}")
    check(re.search(r", [1-9] warnings?$", result["summary"]), result["summary"])

    config = f"{SOURCE}/configs/synthetic.json"
    for command in (["allreduce", "-b", "8", "-e", "8", "-n", "1"], ["model", "--config", config], ["scaling", "--config", config]):
        run(WRONG, "bench", *command, "--set", "device=cpu", "--json", "bench.json", ranks=2, code=0, env={"WRONG": "busy"})
        load, = (part["figures"]["load"] for part in parts(read_json("bench.json"), "figures") if "load" in part["figures"])
        check(load["verdict"] == "WARN" and re.match(r"load 15\.2 on 4 CPUs of .*: others use them$", load["value"]), f"{command}: {load}")


new_folder()
{"fine": fine, "wrong": wrong, "busy": busy}[sys.argv[1]]()
finish()

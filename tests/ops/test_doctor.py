"""`dtrain doctor` as its users see it: rows and verdicts, folders that are not there, and nothing left behind.
usage: DTRAIN=... MPIEXEC=... test_doctor.py MODULE NVML (fake_module.c, fake_nvml.c)"""
import os
import re
import resource
import shutil
import sys

from checks import DTRAIN, SOURCE, check, finish, new_folder, parts, read, read_json, run, write

MODULE, NVML = (os.path.abspath(path) for path in sys.argv[1:])
SYNTHETIC = ("--config", f"{SOURCE}/configs/synthetic.json")
os.environ.pop("DTRAIN_CUDA_MODULE", None)


def doctor(code, ranks, *arguments, **options):
    """The findings by name, as (verdict, result, hint), the whole result and what it printed."""
    done = run(DTRAIN, "doctor", *arguments, "--json", "doctor.json", ranks=ranks, code=code, **options)
    result = read_json("doctor.json")
    rows = {row["check"]: (row["verdict"], row["result"], row.get("hint", "")) for row in parts(result, "table", "Checks")[0]["rows"]}
    check(len(rows) == 17 and (result["verdict"] == "FAIL") == (code == 69), result)
    check(all(bool(hint) == (verdict in ("WARN", "FAIL")) for verdict, _, hint in rows.values()), f"a finding without a hint: {rows}")
    return rows, result, done


def finds(rows, name, verdict, pattern):
    check(rows[name][0] == verdict and re.search(pattern, rows[name][1]), f"{name}: {rows[name]} is not {verdict} {pattern}")


new_folder()
findings, whole, printed = doctor(0, 2, *SYNTHETIC, "--run", "runs/night", "--junit", "doctor.xml")
check([row["rank"] for row in parts(whole, "table", "Ranks")[0]["rows"]] == [0, 1], whole)
check(whole["summary"] == printed.stdout.splitlines()[-1] and re.match(r"PASS: 1\d of 17 checks passed, ", whole["summary"]), whole["summary"])
record = {name: figure["value"] for name, figure in parts(whole, "figures", "Record")[0]["figures"].items()}
check((record["ranks"], record["launcher"]) == (2, "mpirun") and "doctor --config " in record["command"] and record["commit"], record)
check(f'timestamp="{record["date"][:-1]}"' in read("doctor.xml"), "JUnit: the date")
finds(findings, "versions", "PASS", "dtrain .* on MPICH .*, started by mpirun$")
finds(findings, "data", "PASS", "training samples")
finds(findings, "runs", "PASS", "")
check(os.path.exists("doctor.xml") and not os.path.exists("runs"), "something is left behind")
check(not [name for name in os.listdir() if name.startswith(".tmp-")], "a temporary file is left behind")

findings, _, printed = doctor(69, 2, "--config", f"{SOURCE}/configs/mnist.json", "--data", "nowhere")
check(findings["data"][0] == "FAIL", findings["data"])
check("dtrain: doctor: 1 of 17 checks failed (each says above how to mend it)\n" in printed.stderr, printed.stderr)
findings, whole, _ = doctor(69, 1, "--run", "/proc/none")
check(findings["runs"][0] == "FAIL", findings["runs"])
finds(findings, "data", "SKIPPED", r"not checked \(give --config\)$")
finds(findings, "environment", "SKIPPED", "one rank")
check(re.match(r"FAIL: 1 of 17 checks failed, [4-9] skipped", whole["summary"]), whole["summary"])
few = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
findings, _, _ = doctor(69, 1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, few)))
check(findings["limits"][0] == "FAIL", findings["limits"])
if len(os.sched_getaffinity(0)) < 5:
    check(doctor(0, 5)[0]["cores"][0] == "WARN", "more ranks than cores")

write("ucx.conf", "")  # doctor and runs warn of a file in the current folder that configures UCX
finds(doctor(0, 1)[0], "environment", "WARN", r"UCX obeys ./ucx.conf in the working folder of rank 0")
printed = run(DTRAIN, *SYNTHETIC, "--run", "conf", "--set", "train.max_steps=1", ranks=2, code=0)
check(printed.stderr.count("dtrain: warning: UCX obeys ./ucx.conf, ") == 1, "a run does not warn of ucx.conf")
os.remove("ucx.conf")
run(DTRAIN, "doctor", "--config", "nowhere.json", ranks=1, code=66)

# GPUs, with fakes of CUDA's module and of NVIDIA's management library.
os.mkdir("lib")
shutil.copy(NVML, "lib/libnvidia-ml.so.1")
FAKES = {"LD_LIBRARY_PATH": os.path.abspath("lib"), "DTRAIN_CUDA_MODULE": MODULE}
for exit_code, health, expected in [  # "ECC THROTTLE NVLINKS LANES MIG": two ranks, a GPU each
        (0, "0 1 12 16 0", {"gpu health": ("PASS", "driver 580.1; no ECC errors, no throttling$"),
                            "gpu links": ("PASS", "12 NVLinks, PCIe 4 x16$")}),
        (69, "2 1 0 16 0", {"gpu health": ("FAIL", r"rank 0 \(.*\): 2 ECC errors of GPU-aaaaaaaa-0000 were not corrected$"),
                            "gpu links": ("PASS", "no NVLink: PCIe 4 x16$")}),
        (0, "0 28 12 8 0", {"gpu health": ("WARN", "hardware slowdown slows GPU-aaaaaaaa-0000 down$"),
                            "gpu links": ("WARN", "GPU-aaaaaaaa-0000 has 8 of 16 PCIe lanes$")}),
        (0, "0 0 12 16 1", {"gpu health": ("WARN", "GPU-aaaaaaaa-0000 is in MIG mode")})]:
    findings, _, _ = doctor(exit_code, 2, env={**FAKES, "FAKE_NVML": health, "FAKE_GPUS": "aaaaaaaa bbbbbbbb"})
    for check_name, what in expected.items():
        finds(findings, check_name, *what)
findings, _, _ = doctor(0, 1, env={**FAKES, "FAKE_NVML": "0 0 0 16 0", "FAKE_GPUS": "-"})
finds(findings, "gpus", "WARN", "has 2, which no rank uses: ")
write("lib/libnvidia-ml.so.1", "broken")
finds(doctor(0, 2, env={**FAKES, "FAKE_GPUS": "aaaaaaaa bbbbbbbb"})[0], "gpu health", "SKIPPED", "not checked: ")
finish()

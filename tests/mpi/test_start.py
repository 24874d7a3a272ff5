"""What a process is started with: left-over numbers of launchers, and surroundings in which MPI cannot start. A command works, or says in one
line why it does not, and ends with the code of that.

usage: DTRAIN=... MPIEXEC=... test_start.py"""
import os
import subprocess

from checks import DTRAIN, MPIEXEC, SOURCE, check, dtrain, finish, new_folder, refused

CONFIG = ["--config", f"{SOURCE}/configs/linear.json"]
LEFT_OVER = [{"WORLD_SIZE": "8", "RANK": "7"}, {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2"}, {"SLURM_NTASKS": "6"},
             {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}, {"PMI_SIZE": "5", "PMI_RANK": "4"}]
SMALL = ["--config", f"{SOURCE}/configs/linear.json", "--set", "train.epochs=1", "--run", "r"]
ONE, TWO = f"exec {DTRAIN} plan {' '.join(CONFIG)}", f"rm -rf r; exec {MPIEXEC} -n 2 {DTRAIN} {' '.join(SMALL)}"
SHM = "mount -t tmpfs -o size={} tmpfs /dev/shm; "
# Title, whether it takes a mount namespace, the commands, the code, a text of the one line of an error
STARTS = [("20 files", False, f"ulimit -n 20; {ONE}", 71, "raise ulimit -n"),
          ("24 files, a training", False, f"ulimit -n 24; exec {DTRAIN} {' '.join(SMALL)}", 71, "raise ulimit -n"),
          ("2 MiB of shared memory, plan", True, SHM.format("2m") + ONE, 0, ""),
          ("3 MiB of shared memory, 2 ranks", True, SHM.format("3m") + TWO, 0, ""),
          ("a read-only /dev/shm", True, SHM.format("64m") + "mount -o remount,ro /dev/shm; " + TWO, 0, ""),
          ("a full /dev/shm", True, SHM.format("1m") + "head -c 2m /dev/zero >/dev/shm/x 2>/dev/null; " + TWO, 69, "/dev/shm has"),
          ("no /proc, a training", True, f"umount -l /proc; exec {DTRAIN} {' '.join(SMALL)}", 69, "without /proc")]

new_folder()
for numbers in LEFT_OVER:
    for command in (["plan", *CONFIG], ["doctor"]):
        dtrain(*command, env=numbers, code=0 if command[0] == "plan" else None)
    refused(69, "start it with", *SMALL, env=numbers)
    done = dtrain("lab", "lr", env=numbers, code=0)  # never starts MPI
    check("lr" in done.stdout, f"lab lr with {numbers} prints nothing")
done = dtrain("help", ranks=2, code=0)
check(done.stdout.count("\nCommands\n") == 1, f"help of two ranks: {done.stdout}")
namespaces = subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
for title, needs_namespace, commands, code, text in STARTS:
    if needs_namespace and not namespaces:
        print("skipped:", title, "(no mount namespaces)")
        continue
    done = subprocess.run([*["unshare", "-m"] * needs_namespace, "bash", "-c", commands], check=False, capture_output=True, encoding="utf-8",
                          stdin=subprocess.DEVNULL, timeout=120, env=dict(os.environ))
    lines = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
    check(done.returncode == code, f"{title}: exit code {done.returncode}, not {code}: {done.stderr}")
    check(code == 0 or (len(lines) == 1 and text in lines[0]), f"{title}: {done.stderr}")
finish()

"""Finds the GPU, CUDA's libraries and tools, PyTorch and MPI, and samples the GPU's clock and temperature during measurements.

look() returns {name: text}; the text begins with the path or version needed to use it; None: missing.
"""
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

# Queries the driver itself: a container may have it without nvidia-smi. In a separate process, because it may hang or crash.
ASK_DRIVER = """
import ctypes
cuda, n, text = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(100)
assert cuda.cuInit(0) == 0
cuda.cuDeviceGetCount(ctypes.byref(n))
assert cuda.cuDeviceGetName(text, 100, 0) == 0
print(text.value.decode())
print(n.value)
cuda.cuDriverGetVersion(ctypes.byref(n))
print("serves CUDA %d.%d" % (n.value // 1000, n.value % 1000 // 10))
"""
ASK_PYTORCH = """
import torch
print("%s, CUDA %s, cuDNN %s, %s" % (torch.__version__, torch.version.cuda, torch.backends.cudnn.version(),
                                    "sees the GPU" if torch.cuda.is_available() else "sees no GPU"))
"""
LIMIT_S = 30
LIBRARY_FOLDERS = ("lib64", "lib", "targets/*-linux/lib", "lib/*-linux-gnu")
HEADER_FOLDERS = ("include", "targets/*-linux/include", "include/*-linux-gnu")


def look(c):
    """Takes half a minute at most. Prints each line when known."""
    deadline, found = time.monotonic() + LIMIT_S, {}

    def ask(*command):
        """Its output lines, or none if it is missing, fails, or takes too long."""
        try:
            done = subprocess.run(command, env=c.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=max(1, deadline - time.monotonic()))
            return done.stdout.strip().splitlines() if done.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired):
            return []

    def note(name, text):
        found[name] = text
        print("probe      %-17s %s" % (name, text or "not there"), flush=True)

    toolkit, wheels = toolkit_of(c.env), wheels_of(ask(c.args.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    gpu, n_gpus, serves = (ask(sys.executable, "-c", ASK_DRIVER) + [None, "0", None])[:3]
    smi = ask("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit,memory.total", "--format=csv,noheader")
    if c.args.dry_run:
        gpu, n_gpus = "Fake GPU", c.env.get("FAKE_DEVICES", "1")
    note("GPU", gpu)
    note("GPUs", n_gpus if gpu else None)
    note("driver", ", ".join([*([serves] if serves else []), *smi[:1]]) or None)
    note("nvcc", tool("nvcc", c.env, toolkit, ask))
    for name, (header, library) in LIBRARIES.items():
        roots = [toolkit, *wheels] if name == "cuBLAS" else [*wheels, toolkit]
        place = find(header, library, [c.env.get(name.upper() + "_ROOT"), *roots, "/usr/local", "/usr"])
        note(name, place and "%s, %s" % place)
    note("PyTorch", ", ".join(ask(c.args.python, "-c", ASK_PYTORCH)[-1:]) or None)
    for name in ("ncu", "compute-sanitizer"):
        note(name, tool(name, c.env, toolkit, ask))
    note("cmake", tool("cmake", c.env, toolkit, ask))
    launchers = [shutil.which(name, path=c.env["PATH"]) for name in ("mpiexec.hydra", "mpiexec.mpich", "mpiexec")]
    note("mpicc", next(filter(None, (shutil.which(name, path=c.env["PATH"]) for name in ("mpicc.mpich", "mpicc"))), None))
    note("mpiexec", next(filter(None, launchers), None))
    note("cores", str(os.cpu_count()))
    return found


LIBRARIES = {"cuBLAS": ("cublas_v2.h", "libcublas"), "cuDNN": ("cudnn.h", "libcudnn"), "NCCL": ("nccl.h", "libnccl")}


def toolkit_of(env):
    nvcc = shutil.which("nvcc", path=env["PATH"])
    folders = [env.get("CUDAToolkit_ROOT"), env.get("CUDA_HOME"), nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))),
               "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    return next((folder for folder in folders if folder and os.path.exists(os.path.join(folder, "bin", "nvcc"))), None)


def wheels_of(site):
    """Folders of Python packages with CUDA libraries: nvidia/cublas, nvidia/cu13, ..."""
    return sorted(glob.glob(os.path.join(site[0], "nvidia", "*"))) if site else []


def find(header, library, roots):
    """(folder of the header, file of the library) in the first root that has both."""
    for root in filter(None, roots):
        headers = [f for folder in HEADER_FOLDERS for f in glob.glob(os.path.join(root, folder, header))]
        files = [f for folder in LIBRARY_FOLDERS for f in sorted(glob.glob(os.path.join(root, folder, library + ".so*")))]
        if headers and files:
            return os.path.dirname(headers[0]), files[0]
    return None


def tool(name, env, toolkit, ask):
    """A tool's path, and the version it reports."""
    places = env["PATH"] + "".join(":%s/%s" % (toolkit, folder) for folder in ("bin", "compute-sanitizer") if toolkit)
    places += "".join(":" + folder for folder in sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True))
    path = shutil.which(name, path=places)
    versions = [line for line in ask(path, "--version") if re.search(r"\d+\.\d+", line)] if path else []
    return ", ".join([path, *versions[:1]]) if path else None


def path_of(text):
    """The version in a line of look()."""
    return text.split(", ")[0]


def use_libraries(c):
    """For a program built elsewhere: adds the folders that look() has found to the library path."""
    found = [os.path.dirname(c.probe[name].split(", ")[1]) for name in LIBRARIES if c.probe[name]]
    c.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*dict.fromkeys(found), c.env.get("LD_LIBRARY_PATH")]))


def libraries_for_build(c, folder):
    """CMake's arguments for libraries outside the toolkit, and environment variables.

    CMake searches CUDA::cublas by the name without a version, which wheels lack: `folder` gets links by all names.
    """
    arguments, env = [], {}
    for name in ("cuDNN", "NCCL"):
        header, _ = c.probe[name].split(", ")
        arguments.append("-D%s_ROOT=%s" % (name.upper(), os.path.dirname(header)))
    header, library = c.probe["cuBLAS"].split(", ")
    if library.endswith(".so"):
        return arguments, env
    for kind, files in (("lib", glob.glob(os.path.join(os.path.dirname(library), "libcublas*.so.*"))),
                        ("include", glob.glob(os.path.join(header, "cublas*.h")))):
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
        for file in files:
            names = {os.path.basename(file), re.sub(r"\.so\..*", ".so", os.path.basename(file))}
            for link in (os.path.join(folder, kind, name) for name in names):
                if os.path.lexists(link):
                    os.remove(link)
                os.symlink(file, link)
    arguments.append("-DCMAKE_LIBRARY_PATH=" + os.path.join(folder, "lib"))
    env["CPATH"] = ":".join(filter(None, [os.path.join(folder, "include"), c.env.get("CPATH")]))
    return arguments, env


class Clocks:
    """Samples nvidia-smi's data of the first GPU, twice a second, while this process runs."""

    def __init__(self, env):
        first = env.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        command = ["nvidia-smi", "-i", first, "--query-gpu=clocks.sm,temperature.gpu,utilization.gpu",
                   "--format=csv,noheader,nounits", "-lms", "500"]
        self.samples = []  # (time, MHz, degrees Celsius, percent utilization)
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            numbers = re.fullmatch(r"(\d+), (\d+), (\d+)\s*", line)
            if numbers:
                self.samples.append((time.monotonic(), *map(int, numbers.groups())))

    def between(self, start, end):
        """The median clock under load, and the highest temperature; empty without samples."""
        seen = [s for s in self.samples if start <= s[0] <= end]
        busy = [s for s in seen if s[3] > 0] or seen
        return {"sm_mhz": statistics.median(s[1] for s in busy), "celsius": max(s[2] for s in busy)} if busy else {}

    def close(self):
        self.process.kill()
        self.process.wait()


def clocks(env):
    return Clocks(env) if shutil.which("nvidia-smi", path=env["PATH"]) else None

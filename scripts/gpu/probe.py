"""Finds the GPU, CUDA's libraries and tools, PyTorch and MPI."""
import glob
import os
import shutil
import subprocess
import sys
import time

# Queries the driver itself: a container may have it without nvidia-smi. In a separate process, because it may hang or crash.
ASK_DRIVER = """
import ctypes
cuda, n, text = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(100)
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetName(text, 100, 0) == 0
print(text.value.decode())
cuda.cuDeviceGetCount(ctypes.byref(n))
print(n.value)
"""
ASK_PYTORCH = """
import torch
sees = "sees the GPU" if torch.cuda.is_available() else "sees no GPU"
print("%s, CUDA %s, cuDNN %s, %s" % (torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), sees))
"""
LIMIT_S = 30
LIBRARIES = {"cuBLAS": ("cublas_v2.h", "libcublas"), "cuDNN": ("cudnn.h", "libcudnn"), "NCCL": ("nccl.h", "libnccl")}
LIBRARY_FOLDERS = ("lib64", "lib", "targets/*-linux/lib", "lib/*-linux-gnu")
HEADER_FOLDERS = ("include", "targets/*-linux/include", "include/*-linux-gnu")
PROGRAMS = {"cmake": ("cmake",), "mpicc": ("mpicc.mpich", "mpicc"), "mpiexec": ("mpiexec.hydra", "mpiexec.mpich", "mpiexec")}


def look(c):
    """Takes half a minute at most. Notes in c.there the text about each thing, None where it is missing; each is a row."""
    deadline = time.monotonic() + LIMIT_S

    def ask(*command):
        """Its output lines, or none if it is missing, fails, or takes too long."""
        try:
            done = subprocess.run(command, env=c.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=max(1, deadline - time.monotonic()))
            return done.stdout.strip().splitlines() if done.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired):
            return []

    def note(name, text):
        c.there[name] = text
        c.say(name, text or "missing", "", "")

    gpu, n_gpus = (ask(sys.executable, "-c", ASK_DRIVER) + [None, "0"])[:2]
    if c.args.dry_run:
        gpu, n_gpus = "Fake GPU", c.env.get("FAKE_DEVICES", "1")
    smi = ask("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit,memory.total", "--format=csv,noheader")
    toolkit, site = toolkit_of(c.env), ask(c.args.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    wheels = wheels_of(site)
    note("GPU", gpu)
    note("GPUs", n_gpus if gpu else None)
    note("driver", smi[0] if smi else None)
    for name, (header, library) in LIBRARIES.items():
        roots = [toolkit, *wheels] if name == "cuBLAS" else [*wheels, toolkit]
        note(name, find(header, library, [c.env.get(name.upper() + "_ROOT"), *roots, "/usr/local", "/usr"]))
    note("PyTorch", (ask(c.args.python, "-c", ASK_PYTORCH) or [None])[-1])
    for name in ("nvcc", "ncu", "compute-sanitizer"):
        note(name, tool(name, c.env, toolkit))
    for name, names in PROGRAMS.items():
        note(name, next(filter(None, (shutil.which(each, path=c.env["PATH"]) for each in names)), None))


def toolkit_of(env):
    nvcc = shutil.which("nvcc", path=env["PATH"])
    folders = [env.get("CUDAToolkit_ROOT"), env.get("CUDA_HOME"), nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))),
               "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    return next((folder for folder in folders if folder and os.path.exists(os.path.join(folder, "bin", "nvcc"))), None)


def wheels_of(site):
    """Folders of Python packages with CUDA libraries: nvidia/cublas, nvidia/cu13, ..."""
    return sorted(glob.glob(os.path.join(site[0], "nvidia", "*"))) if site else []


def find(header, library, roots):
    """"FOLDER OF THE HEADER, LIBRARY" in the first root that has both."""
    for root in filter(None, roots):
        headers = [f for folder in HEADER_FOLDERS for f in glob.glob(os.path.join(root, folder, header))]
        files = [f for folder in LIBRARY_FOLDERS for f in sorted(glob.glob(os.path.join(root, folder, library + ".so*")))]
        if headers and files:
            return "%s, %s" % (os.path.dirname(headers[0]), files[0])
    return None


def tool(name, env, toolkit):
    places = env["PATH"] + "".join(":%s/%s" % (toolkit, folder) for folder in ("bin", "compute-sanitizer") if toolkit)
    places += "".join(":" + folder for folder in sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True))
    return shutil.which(name, path=places)


def use_libraries(c):
    """For a program built elsewhere: adds the folders that look() has found to the library path."""
    found = [os.path.dirname(c.there[name].split(", ")[1]) for name in LIBRARIES if c.there[name]]
    c.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*dict.fromkeys(found), c.env.get("LD_LIBRARY_PATH")]))

"""Collects, on a connected machine, the files for one without a network; used there if MPICH is missing."""
import glob
import os
import shutil
import subprocess
import sys

from gpu.check import HERE, TOP

PACKAGES = ("mpich libmpich12 libmpich-dev libucx0 libhwloc15 libnuma1 libibverbs1 librdmacm1 ibverbs-providers libnl-3-200 "
            "libnl-route-3-200 libslurm38 libgfortran5 libcjson1 libcjson-dev zlib1g zlib1g-dev libpng16-16 libpng-dev "
            "libxxhash-dev libzip4 libzip-dev").split()
MAX_BYTES = 40 << 20


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True)
    data = subprocess.check_output([os.path.join(HERE, "get-data"), "--no-install"], cwd=TOP, text=True).strip()
    if "fashion" in data:
        sys.exit("gpu-check: the goal is one of MNIST's digits, which get-data did not find (DTRAIN_DATA names their folder)")
    shutil.copytree(os.path.join(TOP, data), os.path.join(folder, "mnist"), dirs_exist_ok=True)
    for path in glob.glob(os.path.join(folder, "mnist", "*-ubyte")):
        if os.path.exists(path + ".gz"):
            os.remove(path)
        else:
            subprocess.run(["gzip", "-nf", path], check=True)
    n = sum(os.path.getsize(p) for p in glob.glob(folder + "/**", recursive=True) if os.path.isfile(p))
    print("%s: %.1f MiB" % (folder, n / (1 << 20)))
    return 0 if n <= MAX_BYTES else 1


def unpack(folder, root):
    """Corrects the paths inside two packages' files."""
    for package in glob.glob(os.path.join(folder, "*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    for path in [root + "/usr/bin/mpicc.mpich", *glob.glob(root + "/usr/lib/*/cmake/cJSON/*.cmake")]:
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace("/usr", root + "/usr"))


def use(c):
    folder, root = c.args.offline, os.path.join(c.args.offline, "root")
    if shutil.which("mpicc.mpich") or not glob.glob(os.path.join(folder, "*.deb")):
        return
    if not os.path.exists(root):
        unpack(folder, root)
    libraries = ":".join(glob.glob(root + "/usr/lib/*-linux-gnu") + glob.glob(root + "/lib/*-linux-gnu"))
    headers = ":".join([root + "/usr/include", *glob.glob(root + "/usr/include/*-linux-gnu")])
    for name, value in {"PATH": root + "/usr/bin", "LD_LIBRARY_PATH": libraries, "LIBRARY_PATH": libraries, "CPATH": headers,
                        "CMAKE_PREFIX_PATH": root + "/usr"}.items():
        c.env[name] = value + (":" + c.env[name] if c.env.get(name) else "")
    os.environ["PATH"] = c.env["PATH"]  # where subprocess looks for programs

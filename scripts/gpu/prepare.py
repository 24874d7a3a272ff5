"""Builds the programs and packs them, with the libraries that a bare machine lacks, into one folder that can be carried there."""
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
MOST = 56 << 20  # bytes: with the sources beside it they stay under 64 MiB
# Of glibc and the compiler, which every machine has; of CUDA, which is in its toolkit or PyTorch's packages, and of the driver.
THERE = re.compile(r"lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|nss.*|cublas.*|cudnn.*|nccl|cuda|cudart|nvrtc.*)\.so|ld-linux")
ONE_SET = re.compile(r"lib(mpich|uc[a-z])\.so")  # of one version each, whatever the machine has


def build(folder):
    """For Hopper's chips, unless CUDAARCHS names others."""
    chips = os.environ.get("CUDAARCHS", "90-real")
    for command in (["cmake", "--preset", "release", "-B", folder, "-DDTRAIN_WITH_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=" + chips],
                    ["cmake", "--build", folder, "--target", "dtrain", "dtrain_cuda", "gpu_tests"]):
        subprocess.run(command, cwd=TOP, check=True)
    return folder


def collect(build_folder, tree):
    """What kit.py finds where it unpacks the bundle."""
    bins, own, others, configs = (os.path.join(tree, name) for name in ("bin", "lib", "lib-if-missing", "configs"))
    for folder in (bins, own, others, configs):
        os.makedirs(folder)
    launchers = [shutil.which(name) or sys.exit("gpu-check: no %s of MPICH here" % name) for name in ("mpiexec.hydra", "hydra_pmi_proxy")]
    programs = [os.path.join(build_folder, "dtrain"), *glob.glob(os.path.join(build_folder, "tests", "gpu", "gpu_*")), *launchers]
    for path in (*programs, os.path.join(build_folder, "libdtrain_cuda.so")):
        shutil.copy(path, bins)
    linked = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    for path in set(re.findall(r"=> (/\S+)", linked)):
        name = os.path.basename(path)
        if not THERE.match(name):
            shutil.copy(path, own if ONE_SET.match(name) else others)
    subprocess.run([shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-O3", "-arch=sm_90", "-o", os.path.join(bins, "edges"),
                    os.path.join(HERE, "edges.cu")], check=True)
    subprocess.run(["strip", "-g", *glob.glob(tree + "/bin/*"), *glob.glob(tree + "/lib*/*")], stderr=subprocess.DEVNULL)  # what can be
    for path in glob.glob(TOP + "/configs/*.json") + [TOP + "/tests/cuda/lenet.json", TOP + "/tests/cuda/three_convs.json"]:
        shutil.copy(path, configs)
    with open(os.path.join(tree, "commit"), "w") as file:
        subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=TOP, stdout=file)


def prepare(out, build_folder, data):
    shutil.rmtree(out, ignore_errors=True)
    tree = os.path.join(out, "tree")
    collect(build_folder or build(os.path.join(TOP, "build", "gpu")), tree)
    os.rename(shutil.make_archive(os.path.join(out, "bundle"), "gztar", tree), os.path.join(out, "bundle.tgz"))
    shutil.rmtree(tree)
    os.makedirs(os.path.join(out, "mnist"))
    images = glob.glob(os.path.join(data, "*-ubyte.gz"))
    for path in images:
        shutil.copyfile(path, os.path.join(out, "mnist", os.path.basename(path)))
    shutil.copy(os.path.join(os.path.dirname(HERE), "gpu-check"), out)
    shutil.copytree(HERE, os.path.join(out, "gpu"), ignore=shutil.ignore_patterns("__pycache__"))
    n = sum(os.path.getsize(path) for path in glob.glob(out + "/**", recursive=True) if os.path.isfile(path))
    print("%s: %.1f MiB%s" % (out, n / (1 << 20), "" if images else ", without MNIST, which is not in %s (--data DIR)" % data))
    return 0 if n <= MOST else "gpu-check: that is more than %d MiB" % (MOST >> 20)

"""The recipes of packaging/, as far as a machine without a network can try them: they name what the build needs, by the list of
scripts/lib.sh, and files and options that there are; the folders that they copy configure; the module file is loaded by Lmod from an
installation, if Lmod is here. No image or package of theirs is built.

usage: DTRAIN=... MPIEXEC=... test_recipes.py BUILD_DIR CMAKE"""
import glob
import os
import re
import shutil
import sys
import types

import checks
from checks import SOURCE, check, finish, new_folder, run

BUILD, CMAKE = os.path.abspath(sys.argv[1]), sys.argv[2]
# Names in Spack and EasyBuild of the Debian packages in scripts/lib.sh; None: comes with the system, the compiler or the MPI.
NAMES = {
    "gcc": ("c", None), "libc6-dev": (None, None), "cmake": ("cmake", "CMake"), "ninja-build": ("ninja", "Ninja"),
    "mpich": ("mpich", None), "libmpich-dev": ("mpich", None), "libcjson-dev": ("cjson", "cJSON"), "zlib1g-dev": ("zlib-api", "zlib"),
    "libpng-dev": ("libpng", "libpng"), "libjpeg-dev": ("libjpeg-turbo", "libjpeg-turbo"), "libxxhash-dev": ("xxhash", "xxHash"),
    "libzip-dev": ("libzip", "libzip"),
    "libhwloc-dev": ("hwloc", "hwloc"),
    "libprotobuf-c-dev": ("protobuf-c", None), "protobuf-c-compiler": ("protobuf-c", None),  # EasyBuild has none: an optional one
}
LMOD = "/usr/share/lmod/lmod/init/bash"


def read(*path):
    return checks.read(os.path.join(SOURCE, *path))


def build_packages():
    return run("bash", "-c", '. scripts/lib.sh; printf "%s\\n" "${BUILD_PACKAGES[@]}"', cwd=SOURCE, code=0).stdout.split()


def sources_of_image(text, instruction):
    """What a line of the Dockerfile or of the definition's first %files copies, without its target."""
    lines = [line.split() for line in re.findall(instruction, text, re.M)]
    return [word for line in lines for word in line[:-1] if word != "."]


class Recorder:
    """Stands for a class of Spack: takes what a package says of itself at its head."""
    def __init__(self):
        self.depends, self.versions = [], []

    def module(self):
        module = types.ModuleType("spack.package")
        for name in ("license", "variant", "generator", "conflicts"):
            setattr(module, name, lambda *_, **__: None)
        module.depends_on = lambda spec, **_: self.depends.append(re.match(r"[a-z0-9-]+", spec)[0])
        module.version = lambda text, **_: self.versions.append(text)
        return module


class Spec(dict):
    """Of dtrain+cuda cuda_arch=80."""
    variants = {"cuda_arch": types.SimpleNamespace(value=("80",))}

    def satisfies(self, text):
        return text == "+cuda"


def check_spack(version):
    recorder = Recorder()
    base = type("CMakePackage", (), {"define": lambda self, name, value: "-D%s=%s" % (name, value)})
    modules = {"spack.package": recorder.module(), "spack": types.ModuleType("spack")}
    for kind, name in (("cmake", "CMakePackage"), ("cuda", "CudaPackage")):
        module = modules["spack_repo.builtin.build_systems." + kind] = types.ModuleType(kind)
        setattr(module, name, base if kind == "cmake" else type(name, (), {}))
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[name] = types.ModuleType(name)
    sys.modules.update(modules)
    scope = {}
    exec(compile(read("packaging", "spack", "package.py"), "package.py", "exec"), scope)
    package = scope["Dtrain"]()
    package.spec = Spec(mpich=types.SimpleNamespace(mpicc="/mpicc"))
    wanted = ["-DDTRAIN_TESTS=False", "-DDTRAIN_WITH_CUDA=ON", "-DMPI_C_COMPILER=/mpicc", "-DCMAKE_CUDA_ARCHITECTURES=('80',)"]
    check(package.cmake_args() == wanted, "Spack's arguments are %s" % package.cmake_args())
    check(recorder.versions == [version], "Spack knows the versions %s, not %s" % (recorder.versions, version))
    for deb in build_packages():
        check(NAMES[deb][0] in recorder.depends + [None], "Spack's package does not depend on %s (%s)" % (NAMES[deb][0], deb))


def easyconfig(path):
    """Its assignments; names that EasyBuild knows are their own text."""
    names = {"SOURCE_TAR_GZ": "SOURCE_TAR_GZ", "SHLIB_EXT": "so", "SYSTEM": "SYSTEM"}
    scope = dict(names)
    exec(compile(read(path), path, "exec"), scope)
    return scope


def check_easybuild(version, prefix):
    path = os.path.join("packaging", "easybuild", "dtrain-%s-gmpich-2025b.eb" % version)
    config = easyconfig(path)
    check(config["version"] == version, "%s is of version %s" % (path, config["version"]))
    named = [row[0] for row in config["dependencies"] + config["builddependencies"]]
    for deb in build_packages():
        check(NAMES[deb][1] in named + [None], "%s does not depend on %s (%s)" % (path, NAMES[deb][1], deb))
    for kind, exists in (("files", os.path.isfile), ("dirs", os.path.isdir)):
        for name in config["sanity_check_paths"][kind]:
            check(exists(os.path.join(prefix, name)), "%s expects %s, which is not installed" % (path, name))
    for command in config["sanity_check_commands"]:
        run("sh", "-c", command % {"installdir": prefix}, code=0, env={"PATH": os.path.join(prefix, "bin") + ":" + os.environ["PATH"]})
    library = easyconfig(glob.glob(os.path.join(SOURCE, "packaging", "easybuild", "cJSON-*"))[0])
    check(("cJSON", library["version"]) in config["dependencies"], "cJSON is of another version than dtrain's easyconfig wants")


def check_options():
    """Options of CMake that any recipe gives are options here."""
    known = read("CMakeLists.txt")
    recipes = ["packaging/Dockerfile", "packaging/dtrain.def", "packaging/spack/package.py"]
    recipes += glob.glob("packaging/easybuild/*.eb", root_dir=SOURCE)
    for path in recipes:
        for option in set(re.findall(r"DTRAIN_[A-Z_]+", read(path))):
            check(re.search(r"(option|set)\(%s " % option, known), "%s gives %s, which CMakeLists.txt does not know" % (path, option))


def check_images(folder):
    docker, definition = read("packaging", "Dockerfile"), read("packaging", "dtrain.def")
    copied = sources_of_image(definition.split("Bootstrap:")[1], r"^    ((?:\S+ )+/src/)$")
    for path in sources_of_image(docker, r"^COPY (?!--from)(.*)$") + copied:
        check(os.path.exists(os.path.join(SOURCE, path)), "an image copies %s, which is not there" % path)
    for name, text in (("Dockerfile", docker), ("dtrain.def", definition)):
        check("${BUILD_PACKAGES[@]}" in text, "%s does not install what scripts/lib.sh lists" % name)
        check(not set(re.findall(r"[a-z0-9-]+", text)) & (set(build_packages()) - {"cmake", "mpich"}), "%s lists packages itself" % name)
        check(set(re.findall(r"--preset (\w+)", text)) == {"release"}, "%s has another preset" % name)
    for path in copied:
        full, to = os.path.join(SOURCE, path), os.path.join(folder, path)
        shutil.copytree(full, to) if os.path.isdir(full) else shutil.copy(full, to)
    run(CMAKE, "-S", folder, "-B", folder + "/build", "-G", "Ninja", "-DDTRAIN_TESTS=OFF", "-DDTRAIN_WITH_CUDA=OFF", code=0)


def check_module(prefix, version):
    if not os.path.exists(LMOD):
        print("Lmod is not installed")
        return
    script = ". %s; module use '%s/share/dtrain/modulefiles'; module load dtrain/%s; command -v dtrain; man -w dtrain dtrain-config; " \
             "module help dtrain 2>&1; module unload dtrain; command -v dtrain || echo unloaded" % (LMOD, prefix, version)
    done = run("env", "-u", "MANPATH", "-u", "MODULEPATH", "-u", "BASH_ENV", "PATH=/usr/local/bin:/usr/bin:/bin", "bash", "--norc", "-c",
               "exec 2>&1; " + script)
    manual = ["%s/share/man/%s\n" % (prefix, page) for page in ("man1/dtrain.1", "man5/dtrain-config.5")]
    for text in (prefix + "/bin/dtrain\n", *manual, prefix + "/share/dtrain.", "\nunloaded"):
        check(text in done.stdout, "module load dtrain: no %r in:\n%s" % (text, done.stdout))


new_folder()
number = re.search(r"project\(dtrain VERSION (\S+)", read("CMakeLists.txt"))[1]
for package in set(build_packages()) - set(NAMES):
    sys.exit("scripts/lib.sh has %s: say in NAMES here what Spack and EasyBuild call it, and name it in their recipes" % package)
installed = os.path.join(os.getcwd(), "prefix")
run(CMAKE, "--install", BUILD, "--prefix", installed, code=0)
check_spack(number)
check_easybuild(number, installed)
check_options()
os.mkdir("src")
check_images(os.path.abspath("src"))
check_module(installed, number)
finish()

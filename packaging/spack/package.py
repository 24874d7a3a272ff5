from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Dtrain(CMakePackage, CudaPackage):
    """Data-parallel trainer for small CNN and MLP models on MPI ranks."""

    license("Apache-2.0")

    # From the sources at hand: spack develop --path SOURCE_DIR dtrain@0.1.0
    version("0.1.0")

    variant("hwloc", default=True, description="dtrain doctor knows cores and NUMA nodes")
    variant("protobuf", default=True, description="ONNX files and event files of TensorBoard")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpich@3.4:")
    depends_on("cjson@1.7:")
    depends_on("libpng")
    depends_on("libjpeg-turbo")
    depends_on("zlib-api")
    depends_on("libzip")
    depends_on("xxhash@0.8:")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("protobuf-c@1.3:", when="+protobuf")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("DTRAIN_TESTS", False),
            self.define("DTRAIN_WITH_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("MPI_C_COMPILER", self.spec["mpich"].mpicc),
        ]
        if self.spec.satisfies("+cuda"):
            architectures = self.spec.variants["cuda_arch"].value
            if "none" not in architectures:
                args.append(self.define("CMAKE_CUDA_ARCHITECTURES", architectures))
        return args

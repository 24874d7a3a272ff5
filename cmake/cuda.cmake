# libdtrain_cuda.so, the cuda backend, which the program loads where there is a GPU. It is a module, and not linked into the program,
# because the libraries of CUDA cost 80 ms and 220 MB at every start. Sets DTRAIN_CUDA to whether it is built.
#
# Nothing here links libcuda: a program that does so cannot start without a driver.
set(DTRAIN_CUDA FALSE)
if(NOT DTRAIN_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DTRAIN_WITH_CUDA is \"${DTRAIN_WITH_CUDA}\"; it may be AUTO, ON or OFF")
endif()
if(DTRAIN_WITH_CUDA STREQUAL "OFF")
  return()
endif()

# dt_cuda_needs(<package> <version> <name> <how to say where it is>): a line for each that is missing; with ON that is an error.
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_SOURCE_DIR}/cmake")
set(missing FALSE)
macro(dt_cuda_needs package version name hint)
  find_package(${package} ${version} QUIET)
  if(NOT ${package}_FOUND)
    set(missing TRUE)
    if(DTRAIN_WITH_CUDA STREQUAL "ON")
      message(SEND_ERROR "${name} ${version} or newer is not found (${hint})")
    else()
      message(STATUS "${name} ${version} or newer is not found: built without the backend cuda (${hint})")
    endif()
  endif()
endmacro()
# CMake 3.25.1, Debian 12's, stumbles over CUDA 13, which has no nvToolsExt any more, unless a project asks for less than 3.25.
set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
dt_cuda_needs(CUDAToolkit 12.0 "The CUDA toolkit" "-DCUDAToolkit_ROOT=DIR says where it is")
set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
if(CUDAToolkit_FOUND)
  dt_cuda_needs(CUDNN 9.0 cuDNN "-DCUDNN_ROOT=DIR says where it is")
  dt_cuda_needs(NCCL 2.18 NCCL "-DNCCL_ROOT=DIR says where it is")
endif()
if(missing)
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} "${CUDAToolkit_NVCC_EXECUTABLE}") # it is seldom on the PATH
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
endif()
if(DTRAIN_WITH_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA) # an nvcc that refuses the installed gcc must not stop those who never asked for it
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "nvcc cannot compile: built without the backend cuda (-DDTRAIN_WITH_CUDA=ON shows why; "
      "the environment's CUDAHOSTCXX names a compiler that it accepts)")
    return()
  endif()
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

set(DTRAIN_CUDA TRUE)
file(GLOB DTRAIN_CUDA_KERNELS CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/cuda" cuda/kernels/*.cu cuda/layers/*.cu)
set(DTRAIN_CUDA_SOURCES
  block_plan.c
  branch.c
  cudnn/conv_plan.c
  cuda_backend.c
  cuda_block.c
  cuda_check.c
  cuda_memory.c
  cudnn/engine_trial.c
  nccl_allreduce.c
  packed.c
  probe.c
  step_graph.c
  ${DTRAIN_CUDA_KERNELS})
list(TRANSFORM DTRAIN_CUDA_KERNELS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/cuda/")
list(TRANSFORM DTRAIN_CUDA_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/cuda/")
# dt_error and the like are the program's own: the first error's text has one place.
add_library(dtrain_cuda MODULE ${DTRAIN_CUDA_SOURCES})
target_link_libraries(dtrain_cuda PRIVATE dt_flags CUDA::cudart_static CUDA::cublas CUDNN::cudnn NCCL::nccl)
target_link_options(dtrain_cuda PRIVATE LINKER:--exclude-libs,ALL)
# The folders by name: CMake leaves the toolkit's out, but not every machine has it in ld.so.conf.
set(folders "${CUDAToolkit_LIBRARY_DIR}")
foreach(library CUDNN_LIBRARY NCCL_LIBRARY)
  get_filename_component(folder "${${library}}" DIRECTORY)
  list(APPEND folders "${folder}")
endforeach()
list(REMOVE_DUPLICATES folders)
# As installed from the first link on: a BUILD_RPATH would be filled up with a colon for the install's to fit in, which names the
# working folder.
set_target_properties(dtrain_cuda PROPERTIES C_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  INSTALL_RPATH "${folders}" BUILD_WITH_INSTALL_RPATH ON)
add_dependencies(dtrain dtrain_cuda) # who builds the program can install both
install(TARGETS dtrain_cuda LIBRARY DESTINATION lib/dtrain COMPONENT cuda)

# What an installation has, and the packages that are made of it: `cpack --config build/release/CPackConfig.cmake` (packaging/README.md).
set(share "${CMAKE_INSTALL_DATADIR}")
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dtrain)
install(TARGETS dtrain)
install(FILES configs/mnist.json configs/mnist-fast.json configs/mnist-99.4.json configs/mnist-mlp.json configs/linear.json configs/synthetic.json configs/dtrain.schema.json
  DESTINATION "${share}/dtrain/configs")
install(PROGRAMS scripts/dtrain.sbatch scripts/get-data scripts/check-samples DESTINATION "${share}/dtrain")
install(FILES scripts/lib.sh DESTINATION "${share}/dtrain") # get-data reads it

install(FILES docs/man/dtrain.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES docs/man/dtrain-config.5 DESTINATION "${CMAKE_INSTALL_MANDIR}/man5")
install(FILES packaging/completions/dtrain.bash DESTINATION "${share}/bash-completion/completions" RENAME dtrain)
install(FILES packaging/completions/_dtrain DESTINATION "${share}/zsh/site-functions")
install(FILES packaging/completions/dtrain.fish DESTINATION "${share}/fish/vendor_completions.d")
configure_file(packaging/dtrain.lua.in modulefiles/${PROJECT_VERSION}.lua @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/modulefiles/${PROJECT_VERSION}.lua" DESTINATION "${share}/dtrain/modulefiles/dtrain")
install(FILES README.md LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json")

set(CPACK_PACKAGE_NAME dtrain)
set(CPACK_PACKAGE_VENDOR "The dtrain authors")
set(CPACK_PACKAGE_CONTACT "The dtrain authors <dtrain@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_SYSTEM_NAME "Linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL dtrain)
if(DTRAIN_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DTRAIN_PACKAGE_DEPENDS "libzip4 | libzip4t64 | libzip5") # loaded, not linked
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DTRAIN_PACKAGE_NAME dtrain)
set(CPACK_DEBIAN_DTRAIN_PACKAGE_RECOMMENDS "mpich")
set(CPACK_DEBIAN_DTRAIN_PACKAGE_SUGGESTS "dtrain-cuda, python3, dataset-fashion-mnist")
set(CPACK_COMPONENT_DTRAIN_DESCRIPTION
  "dtrain trains a convolutional network or a multilayer perceptron on any number
of MPI ranks, shows the arithmetic of batches and learning rates, and checks
that all replicas stay equal. Lessons show what happens between the ranks;
other commands accept a cluster and measure it.")
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME dtrain-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "dtrain (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_COMPONENT_CUDA_DESCRIPTION
  "The module with which dtrain trains on NVIDIA GPUs. It needs cuBLAS, cuDNN and
NCCL of the versions that it was built with, which come from NVIDIA's own
repository.")
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_CURRENT_SOURCE_DIR}/packaging/cpack_project.cmake")
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_SOURCE_DIR}/packaging/debian.cmake")
include(CPack)

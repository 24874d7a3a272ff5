# What Debian's policy wants of the files of a package: cpack runs it on each component's before they are packed.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

function(gzip file)
  execute_process(COMMAND gzip -9n "${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Copyright and changes of the package `name`, which lies in `usr`.
function(write_docs usr name)
  set(doc "${usr}/share/doc/${name}")
  file(WRITE "${doc}/copyright" "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: dtrain

Files: *
Copyright: 2026, The dtrain authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the full text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
")
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # heeds SOURCE_DATE_EPOCH
  file(WRITE "${doc}/changelog.Debian" "dtrain (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}; its changes are in changelog.gz of the package dtrain.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  gzip("${doc}/changelog.Debian")
endfunction()

set(usr "${CPACK_TEMPORARY_DIRECTORY}/dtrain/usr")
write_docs("${usr}" dtrain)
file(REMOVE "${usr}/share/doc/dtrain/LICENSE") # in copyright
file(RENAME "${usr}/share/doc/dtrain/CHANGELOG.md" "${usr}/share/doc/dtrain/changelog")
gzip("${usr}/share/doc/dtrain/changelog")
file(REMOVE_RECURSE "${usr}/share/dtrain/modulefiles") # to unload one would take /usr/bin off the PATH
file(GLOB pages "${usr}/share/man/man*/*")
foreach(page IN LISTS pages)
  gzip("${page}")
endforeach()
file(RENAME "${usr}/share/zsh/site-functions" "${usr}/share/zsh/vendor-completions") # where Debian's zsh looks

set(usr "${CPACK_TEMPORARY_DIRECTORY}/cuda/usr")
if(EXISTS "${usr}")
  write_docs("${usr}" dtrain-cuda)
  file(RPATH_REMOVE FILE "${usr}/lib/dtrain/libdtrain_cuda.so") # NVIDIA's packages tell ld.so where their libraries are
endif()

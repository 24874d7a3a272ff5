# libprotobuf-c and its compiler, for event files of TensorBoard and models in ONNX: without them a build refuses both, with the cure.
# The schemas are ours (cli/sinks/tensorboard.proto, cli/commands/onnx.proto); C is generated from them into the build folder.
find_path(PROTOBUF_C_INCLUDE_DIR protobuf-c/protobuf-c.h)
find_library(PROTOBUF_C_LIBRARY protobuf-c)
find_program(PROTOC_C protoc-c)

if(PROTOBUF_C_INCLUDE_DIR AND PROTOBUF_C_LIBRARY AND PROTOC_C)
  set(DTRAIN_HAS_PROTOBUF ON)
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/proto")
  file(MAKE_DIRECTORY "${generated}")
  add_library(dt_proto STATIC)
  foreach(schema cli/commands/onnx cli/sinks/tensorboard)
    cmake_path(GET schema PARENT_PATH folder)
    cmake_path(GET schema FILENAME name)
    add_custom_command(OUTPUT "${generated}/${name}.pb-c.c" "${generated}/${name}.pb-c.h"
      COMMAND "${PROTOC_C}" --c_out=${generated} --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/${folder} ${name}.proto
      DEPENDS ${schema}.proto VERBATIM)
    target_sources(dt_proto PRIVATE "${generated}/${name}.pb-c.c" "${generated}/${name}.pb-c.h")
  endforeach()
  target_include_directories(dt_proto SYSTEM PUBLIC "${generated}" "${PROTOBUF_C_INCLUDE_DIR}")
  target_link_libraries(dt_proto PUBLIC "${PROTOBUF_C_LIBRARY}")
  target_sources(dt_cli PRIVATE cli/commands/onnx.c cli/sinks/tensorboard.c)
  target_link_libraries(dt_cli PRIVATE dt_proto)
else()
  target_sources(dt_cli PRIVATE cli/commands/no_protobuf.c)
endif()

# The messages of tf.Example, generated when the library is built and private to this layer.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated/format)
add_custom_command(
  OUTPUT ${generated}/example.pb.cc ${generated}/example.pb.h
  COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
  COMMAND protobuf::protoc --cpp_out=${generated} -I ${CMAKE_CURRENT_SOURCE_DIR} example.proto
  DEPENDS example.proto COMMENT "Generating example.pb" VERBATIM)
# The code is not ours: no warnings, no sanitizers. They come after the layer's own options.
set_source_files_properties(${generated}/example.pb.cc PROPERTIES
  COMPILE_OPTIONS "-w;-fno-sanitize=all")
target_sources(lockstep_format PRIVATE ${generated}/example.pb.cc ${generated}/example.pb.h)
target_include_directories(lockstep_format SYSTEM PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
# The messages use the lite runtime, which is a part of libprotobuf. The part alone would be a
# second copy of it beside the whole one that libtorch loads.
target_link_libraries(lockstep_format PRIVATE protobuf::libprotobuf)

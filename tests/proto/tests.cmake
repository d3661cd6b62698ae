# proto
set(PROTO_TESTS ${CMAKE_CURRENT_LIST_DIR})
tandem_test(test_frame unit SOURCES ${PROTO_TESTS}/test_frame.c LINK proto)
tandem_test(test_wire_rows unit SOURCES ${PROTO_TESTS}/test_wire_rows.c LINK proto m)
tandem_test(test_codec unit SOURCES ${PROTO_TESTS}/test_codec.c ${PROTO_TESTS}/random_message.c LINK proto m)
tandem_test(test_no_alloc unit SOURCES ${PROTO_TESTS}/test_no_alloc.c ${PROTO_TESTS}/random_message.c LINK proto m)
set_source_files_properties(${PROTO_TESTS}/test_no_alloc.c PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)

# The same program on both transports.
tandem_test(test_link link SOURCES ${PROTO_TESTS}/test_link.c LINK proto Threads::Threads TIMEOUT 60)
foreach(ranks 1 2 3 5)
  tandem_mpi_test(test_link_mpi_${ranks} link ${ranks} COMMAND test_link)
endforeach()
tandem_test(test_link_emulate link SOURCES ${PROTO_TESTS}/test_link_emulate.c LINK proto Threads::Threads TIMEOUT 60)
tandem_mpi_test(test_link_emulate_mpi link 2 COMMAND test_link_emulate)
set_tests_properties(test_link_emulate test_link_emulate_mpi PROPERTIES RUN_SERIAL TRUE)

# Benchmarks are built and run by hand.
add_executable(link_latency ${CMAKE_CURRENT_SOURCE_DIR}/bench/link_latency.c)
target_link_libraries(link_latency PRIVATE proto m Threads::Threads tandem_flags)

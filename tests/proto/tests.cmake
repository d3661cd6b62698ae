# proto
set(PROTO_TESTS ${CMAKE_CURRENT_LIST_DIR})
tandem_test(test_frame unit SOURCES ${PROTO_TESTS}/test_frame.c LINK proto)
tandem_test(test_codec unit SOURCES ${PROTO_TESTS}/test_codec.c ${PROTO_TESTS}/random_message.c LINK proto m)
tandem_test(test_no_alloc unit SOURCES ${PROTO_TESTS}/test_no_alloc.c ${PROTO_TESTS}/random_message.c LINK proto m)
set_source_files_properties(${PROTO_TESTS}/test_no_alloc.c PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)

# The same program on both transports.
tandem_test(test_link link SOURCES ${PROTO_TESTS}/test_link.c LINK proto Threads::Threads TIMEOUT 60)
foreach(ranks 1 2 3 5)
  tandem_mpi_test(test_link_mpi_${ranks} link ${ranks} COMMAND test_link)
endforeach()

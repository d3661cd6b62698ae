# proto
tandem_test(test_frame unit SOURCES proto/test_frame.c LINK proto)
tandem_test(test_wire_rows unit SOURCES proto/test_wire_rows.c LINK proto m)
tandem_test(test_codec unit SOURCES proto/test_codec.c proto/random_message.c LINK proto m)
tandem_test(test_no_alloc unit SOURCES proto/test_no_alloc.c proto/random_message.c LINK proto m)
set_source_files_properties(proto/test_no_alloc.c PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)

# The same program on both transports.
tandem_test(test_link link SOURCES proto/test_link.c LINK proto Threads::Threads TIMEOUT 60)
foreach(ranks 1 2 3 5)
  tandem_mpi_test(test_link_mpi_${ranks} link ${ranks} COMMAND test_link)
endforeach()
tandem_test(test_link_emulate link SOURCES proto/test_link_emulate.c LINK proto Threads::Threads TIMEOUT 60)
tandem_mpi_test(test_link_emulate_mpi link 2 COMMAND test_link_emulate)
set_tests_properties(test_link_emulate test_link_emulate_mpi PROPERTIES RUN_SERIAL TRUE)

# Benchmarks are built and run by hand.
add_executable(link_latency bench/link_latency.c)
target_link_libraries(link_latency PRIVATE proto m Threads::Threads tandem_flags)

# e2e: the whole program, as a user starts it. Each script gets the program and the folder of these two helpers.
add_executable(make_model ${CMAKE_CURRENT_LIST_DIR}/make_model.c)
target_link_libraries(make_model PRIVATE tandem_flags)
add_executable(json_pick ${CMAKE_CURRENT_LIST_DIR}/json_pick.c)
target_link_libraries(json_pick PRIVATE tandem_flags PkgConfig::JANSSON)
add_executable(schema_check ${CMAKE_CURRENT_LIST_DIR}/schema_check.c)
target_link_libraries(schema_check PRIVATE tandem_flags PkgConfig::JANSSON)
add_executable(peak ${CMAKE_CURRENT_LIST_DIR}/peak.c)
target_link_libraries(peak PRIVATE tandem_flags)
add_executable(split_model ${CMAKE_CURRENT_LIST_DIR}/split_model.c)
target_link_libraries(split_model PRIVATE worker)

# tandem_script(NAME label seconds SCRIPT [ARGUMENT]) - alone on the machine, because some scripts watch the clock.
function(tandem_script name label seconds script)
  add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${script}
    $<TARGET_FILE:tandem> $<TARGET_FILE_DIR:make_model> ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} RUN_SERIAL TRUE)
endfunction()

tandem_script(e2e_generate end-to-end 600 test_generate.sh)
tandem_script(e2e_counts end-to-end 300 test_counts.sh)
tandem_script(e2e_hostile end-to-end 300 test_hostile.sh)
# No mpirun in it: by this label run.sh takes it under the sanitizers, too.
set_tests_properties(e2e_hostile PROPERTIES LABELS "end-to-end;unit")
tandem_script(e2e_split end-to-end 120 test_split.sh)
tandem_script(e2e_synth end-to-end 120 test_synth.sh)
tandem_script(e2e_memory end-to-end 600 test_memory.sh)
foreach(isa generic avx2 avx512 amx)
  tandem_script(e2e_hash_mpi_${isa} end-to-end 900 test_hash.sh ${isa})
endforeach()
tandem_script(e2e_faults faults 600 test_faults.sh)
tandem_script(e2e_trace end-to-end 120 test_trace.sh)
tandem_script(e2e_bench end-to-end 120 test_bench.sh)
tandem_script(e2e_scaling end-to-end 300 test_scaling.sh)

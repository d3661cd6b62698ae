# coordinator
tandem_test(test_sampler unit SOURCES coordinator/test_sampler.c LINK coordinator_sample worker m)
tandem_test(test_tokenizer unit SOURCES coordinator/test_tokenizer.c LINK coordinator_text PkgConfig::JANSSON)
tandem_test(test_pretokenize unit SOURCES coordinator/test_pretokenize.c LINK coordinator_text)
tandem_test(test_detokenizer unit SOURCES coordinator/test_detokenizer.c LINK coordinator_text)
tandem_test(test_stop_matcher unit SOURCES coordinator/test_stop_matcher.c LINK coordinator_text)
tandem_test(test_line unit SOURCES coordinator/test_line.c coordinator/fake_stages.c coordinator/line_jobs.c
  LINK coordinator_line worker TIMEOUT 120)
tandem_test(test_options unit SOURCES coordinator/test_options.c LINK coordinator_front)
tandem_test(test_front unit SOURCES coordinator/test_front.c LINK coordinator_front PkgConfig::JANSSON)
tandem_test(test_capacity unit SOURCES coordinator/test_capacity.c LINK coordinator_line)
tandem_test(test_clock_pair unit SOURCES coordinator/test_clock_pair.c LINK coordinator_line)
tandem_test(test_batch unit SOURCES coordinator/test_batch.c LINK coordinator_front PkgConfig::JANSSON)
tandem_test(test_planner unit SOURCES coordinator/test_planner.c LINK coordinator_line m)
tandem_test(test_cluster_file unit SOURCES coordinator/test_cluster_file.c LINK coordinator_front PkgConfig::JANSSON m)
tandem_test(test_cpu_share unit SOURCES coordinator/test_cpu_share.c LINK coordinator_line)
tandem_test(test_soak unit SOURCES coordinator/test_soak.c coordinator/fake_stages.c coordinator/line_jobs.c
  coordinator/real_stages.c
  LINK coordinator_line worker TIMEOUT 300)
tandem_test(test_cost_model unit SOURCES coordinator/test_cost_model.c LINK coordinator_line m)
tandem_test(test_block_allocator unit SOURCES coordinator/test_block_allocator.c LINK coordinator_line)
tandem_test(test_prefix_index unit SOURCES coordinator/test_prefix_index.c LINK coordinator_line)
tandem_test(test_scheduler unit SOURCES coordinator/test_scheduler.c LINK coordinator_line)
tandem_test(test_line_no_alloc unit SOURCES coordinator/test_line_no_alloc.c coordinator/fake_stages.c
  coordinator/line_jobs.c coordinator/real_stages.c LINK coordinator_line worker)
set_tests_properties(test_line_no_alloc PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
set_source_files_properties(coordinator/test_scheduler.c coordinator/test_line_no_alloc.c PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)

# Benchmarks are built and run by hand.
add_executable(scheduler_cost bench/scheduler_cost.c)
target_link_libraries(scheduler_cost PRIVATE coordinator_line tandem_flags)

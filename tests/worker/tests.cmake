# worker
tandem_test(test_score_select unit SOURCES worker/test_score_select.c LINK worker m)
tandem_test(test_watch unit SOURCES worker/test_watch.c LINK worker)
tandem_test(test_exec unit SOURCES worker/test_exec.c LINK worker)
tandem_test(test_quantise unit SOURCES worker/test_quantise.c LINK worker m)
tandem_test(test_gguf_write unit SOURCES worker/test_gguf_write.c LINK worker)
# It watches the clock, so nothing else runs meanwhile.
tandem_test(test_ledger unit SOURCES worker/test_ledger.c LINK coordinator_line worker Threads::Threads m)
set_tests_properties(test_ledger PROPERTIES RUN_SERIAL TRUE)
tandem_test(test_synth unit SOURCES worker/test_synth.c LINK worker m)
tandem_test(test_weights_pull unit SOURCES worker/test_weights_pull.c LINK coordinator_line worker Threads::Threads m)
tandem_test(test_weights_cache unit SOURCES worker/test_weights_cache.c LINK worker)

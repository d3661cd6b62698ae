# engine

# The model half: files, families, plans.
tandem_test(test_fault unit SOURCES engine/test_fault.c LINK engine_base)
tandem_test(test_log unit SOURCES engine/test_log.c LINK engine_base PkgConfig::JANSSON)
tandem_test(test_gguf unit SOURCES engine/test_gguf.c LINK engine_model PkgConfig::JANSSON)
target_link_options(test_gguf PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
tandem_test(test_quant_formats unit SOURCES engine/test_quant_formats.c LINK engine_model m)
tandem_test(test_families unit SOURCES engine/test_families.c LINK engine_model)
tandem_test(test_model unit SOURCES engine/test_model.c LINK engine_model)
target_link_options(test_model PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
tandem_test(test_plan unit SOURCES engine/test_plan.c LINK engine_model)
tandem_test(test_plan_work unit SOURCES engine/test_plan_work.c LINK engine_model m)
tandem_test(test_memory unit SOURCES engine/test_memory.c LINK engine_model)
tandem_test(test_fmath unit SOURCES engine/test_fmath.c LINK engine_base m)

# The compute half: kernels, KV cache, one stage.
foreach(kernels test_kernels test_kernels_rows test_kernels_attention test_matmul_blas)
  tandem_test(${kernels} kernels SOURCES engine/${kernels}.c LINK engine_compute)
endforeach()
tandem_test(test_barrier unit SOURCES engine/test_barrier.c LINK engine_compute Threads::Threads)
tandem_test(test_speed unit SOURCES engine/test_speed.c LINK engine_compute m)
tandem_test(test_attend unit SOURCES engine/test_attend.c LINK engine_compute)
tandem_test(test_kv_cache unit SOURCES engine/test_kv_cache.c LINK engine_compute)
tandem_test(test_stage unit SOURCES engine/test_stage.c LINK engine_compute PkgConfig::JANSSON TIMEOUT 300)
tandem_test(test_same_bits unit SOURCES engine/test_same_bits.c LINK engine_compute PkgConfig::JANSSON TIMEOUT 300)
tandem_test(test_families_golden unit SOURCES engine/test_families_golden.c LINK engine_compute PkgConfig::JANSSON TIMEOUT 600)
tandem_test(test_formats_golden unit SOURCES engine/test_formats_golden.c LINK engine_compute PkgConfig::JANSSON TIMEOUT 300)
tandem_test(test_gguf_parts unit SOURCES engine/test_gguf_parts.c LINK worker PkgConfig::JANSSON m)
tandem_test(test_digest unit SOURCES engine/test_digest.c LINK worker)
tandem_test(test_weight_source unit SOURCES engine/test_weight_source.c LINK worker)
# Two threads a team, beside whatever else ctest runs: a thread that waits must not spin.
set_tests_properties(test_attend test_stage test_same_bits test_families_golden test_formats_golden test_gguf_parts test_digest PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)

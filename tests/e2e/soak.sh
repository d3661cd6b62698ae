#!/bin/sh
# soak.sh - the long soak of the scheduler: 200 requests a line by default, for fake and real stages, over 1, 2 and 4
# stages, with a KV pool that is too small for them (tests/coordinator/test_soak.c; the usual test run has 30).
#
#   sh tests/e2e/soak.sh [BUILD_FOLDER] [REQUESTS] [SEED]
set -eu
build=${1:-build/release}
export TANDEM_SOAK_REQUESTS="${2:-200}" TANDEM_SOAK_SEED="${3:-6}"
if [ ! -x "$build/tests/test_soak" ]; then
    echo "soak.sh: $build/tests/test_soak is not there: build with the tests first, or name the build folder" >&2
    exit 1
fi
exec "$build/tests/test_soak"

# shellcheck shell=sh
# mpi_env - sourced before mpirun on one machine: lets root run it, as in a container, and keeps it quiet there.

if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Containers often forbid a process to read another's memory; large messages then go through shared memory instead.
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"

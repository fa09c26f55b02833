#!/bin/bash
#SBATCH --ntasks-per-node=1 --exclusive --no-requeue
# One unit: a step of one launcher a node. Where a test lets a unit rejoin, a step that failed is followed by another
# one of the same allocation, as soon as the test opens the gate for it.
unit=${SLURM_ARRAY_TASK_ID-job}
while :; do
    srun -l --kill-on-bad-exit="$KILL_ON_BAD_EXIT" "$NVRX_PYTHON" "$HERE/launch.py"
    status=$?
    echo "STEP ended with $status"
    if [ "$status" -eq 0 ] || [ "$REJOIN" != "$unit" ]; then
        exit "$status"
    fi
    until [ -e "$LAB/gate/again.$unit" ]; do sleep 0.05; done
done

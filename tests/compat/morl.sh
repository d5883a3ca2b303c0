#!/usr/bin/env bash
# A learner of morl-baselines on CIRLTumour-v0 with VectorReward, in a fresh virtual environment (some 2 GB; PyTorch
# first, and held): MO-PPO learns for a weight and stays within the reward space that it was told.
#
#   tests/compat/morl.sh [VENV]      VENV has morl-baselines already; without one it is made and removed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${1:-}
if [ -z "$venv" ]; then
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet ${TORCH:-torch==2.13.0}
    "$venv/bin/pip" install --quiet morl-baselines scipy "torch==2.13.0"
fi
OMP_NUM_THREADS=1 PYTHONPATH=$root "$venv/bin/python" "$root/tests/compat/morl.py"

#!/usr/bin/env bash
# Run one of the examples, or a benchmark with pip lines, as its head says: these in a fresh virtual environment, then
# the script.
#
#   tests/compat/examples.sh d3rlpy_offline                 every pip line of the head
#   tests/compat/examples.sh imitation_baselines 1          only the first (2: the second) of its recipes
#   tests/compat/examples.sh torchrl_collector 1 --steps 5000    options for the script
#   tests/compat/examples.sh tianshou_drqn 1 --limit 240    a benchmark
#   PYTHON=python3.12 TORCH="torch==2.13.0 --index-url URL" tests/compat/examples.sh rl_zoo
#
# Not part of `make test`: it needs a network and takes minutes. Everything is made in a temporary folder and removed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script="$root/examples/${1:?which example? e.g. d3rlpy_offline}.py"
[ -e "$script" ] || script="$root/benchmarks/$1.py"
[ -e "$script" ] || { echo "error: neither examples/ nor benchmarks/ has $1.py" >&2; exit 1; }
recipe=${2:-1}
shift; shift || true

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Built from a copy: building would leave its folders in the checkout.
mkdir "$folder/source"
cp -R "$root"/{pyproject.toml,README.md,LICENSE,cirl_gym,agents,irl} "$folder/source"
"${PYTHON:-python3}" -m venv "$folder/venv"
torch=${TORCH:-torch==2.13.0}
echo "${torch%% *}" >"$folder/held"
export PIP_CONSTRAINT="$folder/held" PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1

# A recipe is a run of indented lines that begin with "pip install"; the head may have several.
recipes='
    /^    pip install / { if (!inside) count++; inside = 1; if (count == wanted) print substr($0, 17); next }
    { inside = 0 }'
awk -v wanted="$recipe" "$recipes" "$script" >"$folder/recipe"
[ -s "$folder/recipe" ] || { echo "error: $script has no recipe $recipe" >&2; exit 1; }
while read -r line; do
    echo "pip install $line"
    line=${line/#torch==2.13.0/$torch}
    eval "requirements=(${line/#cirl-gym/\"\$folder/source\"})" # eval: a requirement may be quoted
    "$folder/venv/bin/python" -m pip install --quiet "${requirements[@]}"
done <"$folder/recipe"
"$folder/venv/bin/python" -m pip list --format=freeze | grep -iE '^(gymnasium|stable.baselines3|numpy|pandas|torch)='

cd "$folder"
"$folder/venv/bin/python" "$script" "$@"

#!/bin/bash
# The runs behind docs/guides/upgrade.md: three packages on three releases of Triton, without a GPU, in a minimum of time.
# bash tests/strangers/upgrades.sh FOLDER, a new one. Needs warpwave, torch 2.13 (CPU) and pytest, and pip's package index.
set -u
out=$(realpath -m "$1")
releases="--triton 3.6.0 --triton 3.8.0 --triton 3.9.0"
mkdir -p "$out" && cd "$(dirname "$0")/../.." || exit 1

source_of() { # NAME VERSION: the source distribution, unpacked
    [ -d "$out/$1-$2" ] || { pip download --quiet --no-deps --no-binary :all: --dest "$out" "$1==$2" && tar -xf "$out/$1-$2.tar.gz" -C "$out"; }
}
run() { # NAME KERNELS OPTIONS...
    name=$1 kernels=$2
    shift 2
    # shellcheck disable=SC2086 # a list of options
    warpwave run cpu --targets .ci/targets.yml --kernels "$kernels" --quick --budget 30m "$@" $releases --out "$out/runs/$name" --no-report
    for minor in 6 8; do
        warpwave upgrade --from "3.$minor.0" --to 3.9.0 --read "$out/runs/$name" --kernels "$kernels" --markdown "$out/$name-from-3-$minor.md"
    done
}

source_of cut_cross_entropy 25.1.1
source_of conch_triton_kernels 1.3
run bundled kernels --timeout 1500
run cut-cross-entropy "$out/cut_cross_entropy-25.1.1" --install --timeout 600
# Their tests take minutes each in the interpreter: the code of what they launch, and no test.
tests=$(printf -- '--test tests/%s_test.py ' rms_norm gemma_rms_norm silu_and_mul gelu_tanh_and_mul rotary_embedding scaled_gemm)
# shellcheck disable=SC2086
run conch "$out/conch_triton_kernels-1.3" --install --stage compile --timeout 400 $tests

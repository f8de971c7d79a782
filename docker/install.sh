#!/bin/sh
# The environment of an image, in two steps that the Dockerfiles call: `install.sh system`, then `install.sh packages`.
# Nothing of warpwave and no kernel gets in: both are mounted when a container runs, so an edit of theirs needs no build.
set -eu

here=$(dirname "$0")
venv=/opt/warpwave
ca=$here/ca-bundle.crt
python=${BASE_PYTHON:-python3}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# What Triton needs when it compiles its launchers: a C compiler and Python's headers; what we need: a Python that can make a venv.
has_python() {
    "$python" - 2>/dev/null <<'EOF'
import sys, ensurepip, os, sysconfig, venv
assert sys.version_info >= (3, 10)
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
EOF
}

system() {
    # Some runtimes give a tmpfs the mode of the folder below it: in an image without a proper /tmp nobody but root could write there.
    mkdir -p /tmp && chmod 1777 /tmp
    packages=
    command -v cc >/dev/null || command -v gcc >/dev/null || packages="gcc libc6-dev"
    has_python || packages="$packages python3 python3-venv python3-dev"
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null || fail "This base image lacks: $packages." "It has no apt-get, so they cannot be added here." \
        "Use a base image based on Debian or Ubuntu, or one that has a C compiler and Python 3.10 or later with headers and venv."
    if [ -s "$ca" ]; then
        printf 'Acquire::https::CaInfo "%s";\n' "$ca" > /etc/apt/apt.conf.d/99build-ca
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    # shellcheck disable=SC2086 # a list of names
    apt-get install --yes --no-install-recommends $packages
    # The compile stage's workers use it where it is: docs/no-gpu.md.
    apt-get install --yes --no-install-recommends libjemalloc2 || echo "Without jemalloc: compiling takes a sixth longer."
    rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/99build-ca
    has_python || fail "The Python of this base image is not usable: $(command -v "$python" || echo none)." \
        "It is older than 3.10, or not the distribution's own and without headers or venv." "Name another one with the build argument BASE_PYTHON."
}

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir "$@"
}

# Requirements locked by hash, of this target and the base's Python; `nox -s update_pins` makes them. They are for the versions of
# targets.yml: with another one (a build argument) or a wheelhouse, which is the caller's own choice of files, they say nothing.
locked() {
    lock=$here/locks/py$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')$1.txt
    if [ -z "$wheels" ] && grep -q "^$2==$3 " "$lock" 2>/dev/null; then return 0; fi
    printf 'not locked by hash: %s %s\n' "$2" "$3"
    return 1
}

# A torch index is asked for torch alone and is the only one asked: with a second index, whoever publishes the higher version wins.
# A wheelhouse that is not empty is the only source of everything.
from_torch_index() {
    if [ -n "$wheels" ]; then pip install --no-index --find-links "$wheels" "$@"; else pip install --index-url "$TORCH_INDEX" "$@"; fi
}
from_default_index() {
    if [ -n "$wheels" ]; then pip install --no-index --find-links "$wheels" "$@"; else pip install "$@"; fi
}
# What a toolchain names (docker/targets.yml), over the base's own, from the index that has it.
from_toolchain_index() {
    if [ -z "$wheels" ] && [ -n "${TRITON_INDEX:-}" ]; then pip install --index-url "$TRITON_INDEX" "$@"; else from_default_index "$@"; fi
}

packages() {
    wheels=
    [ -z "$(ls -A "$here/wheelhouse" 2>/dev/null)" ] || wheels=$here/wheelhouse
    if [ -s "$here/pip.conf" ]; then export PIP_CONFIG_FILE="$here/pip.conf"; fi
    if [ -s "$ca" ]; then export PIP_CERT="$ca" SSL_CERT_FILE="$ca"; fi
    "$python" -m venv "$venv"
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')

    if [ "${TORCH:-index}" = base ]; then
        # The vendor's own torch and triton stay what they are. The base's Python may itself be a venv, whose packages
        # --system-site-packages would not find; a line in a .pth file does.
        found=$("$python" -c 'import os, torch, triton; print(os.path.dirname(os.path.dirname(torch.__file__)))') ||
            fail "TORCH=base: $(command -v "$python" || echo "$python") of the base image has no torch and triton." \
                "They are in another Python of the image, or not in it." "Name that Python with the build argument BASE_PYTHON, or leave TORCH out."
        printf 'import site; site.addsitedir("%s")\n' "$found" > "$site/base.pth"
    else
        : "${TORCH_VERSION:?}" "${TRITON_VERSION:?}" "${TORCH_INDEX:?}"
        # Every vendor's build of torch asks for a Triton of its own (triton, triton-rocm, pytorch-triton-rocm). Both vendors get the
        # same upstream release here, or the comparison would be one of compilers too; so torch's requirements are installed
        # without those.
        if locked -torch torch "$TORCH_VERSION"; then
            from_torch_index --require-hashes --no-deps --requirement "$lock"
        else
            from_torch_index --no-deps "torch==$TORCH_VERSION"
            "$venv/bin/python" - > /tmp/torch-requirements.txt <<'EOF'
import importlib.metadata, re
print(*[line for line in importlib.metadata.requires("torch") or () if not re.match(r"(pytorch-)?triton", line)], sep="\n")
EOF
            from_torch_index --requirement /tmp/torch-requirements.txt
            rm /tmp/torch-requirements.txt
        fi
    fi
    if [ "${TORCH:-index}" != base ] && [ -z "${TOOLCHAIN:-}" ] && locked '' triton "$TRITON_VERSION"; then
        from_default_index --require-hashes --no-deps --requirement "$lock"
    else
        # shellcheck disable=SC2086 # a list of requirements
        if [ -n "${TOOLCHAIN:-}" ]; then
            from_toolchain_index --no-deps $TOOLCHAIN
        elif [ "${TORCH:-index}" != base ]; then from_default_index --no-deps "triton==$TRITON_VERSION"; fi
        from_default_index 'pytest>=8,<10' 'numpy>=1.26,<3'
        # shellcheck disable=SC2086 # a list of requirements
        if [ -n "${EMULATOR:-}" ]; then from_default_index $EMULATOR; fi
    fi
    "$venv/bin/python" -c 'import numpy, pytest, torch, triton; print("torch", torch.__version__, "triton", triton.__version__)'
}

case ${1:-} in
    system) system ;;
    packages) packages ;;
    *) fail "install.sh: unknown step '${1:-}'." "It is called by the Dockerfiles." "Use: install.sh system|packages" ;;
esac

# What the other scripts share: find the project, become root, install what is missing.
# To be sourced by bash with `set -euo pipefail`.
# shellcheck shell=bash

project=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$project/.venv

say() { printf '==> %s\n' "$*"; }

# The lab makes network namespaces, so all of it runs as root.
become_root() {
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "root is needed for the lab's network namespaces: run this as root" >&2; exit 3; }
        say "becoming root: the lab makes network namespaces"
        exec sudo -- "$0" "$@"
    fi
}

# One clear line where the lab cannot run, before anything is installed.
require_lab() {
    [ "$(id -u)" -eq 0 ] || { echo "the lab cannot run here: root is needed for network namespaces" >&2; exit 3; }
    unshare --net true 2>/dev/null || { echo "the lab cannot run here: this machine allows no network namespaces" >&2; exit 3; }
    [ -c /dev/net/tun ] || { echo "the lab cannot run here: there is no /dev/net/tun" >&2; exit 3; }
}

# Install those of the named Debian packages that are missing.
install_packages() {
    local missing=() package
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing Debian packages: ${missing[*]}"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

# A virtual environment with this checkout in it; made again when what it needs has changed, or when $PYTHON is another version.
# The interpreter is $PYTHON, else Debian's, else the first one in PATH.
# $1: the extras to install, like [test]
install_python() {
    local extras=$1 python wanted mark
    wanted=$(sha256sum "$project/pyproject.toml" | cut -d' ' -f1)$extras
    mark=$venv/.installed-for
    if [ -n "${PYTHON:-}" ] && [ "$("$PYTHON" --version)" != "$("$venv/bin/python" --version 2>/dev/null)" ]; then
        rm -rf -- "$venv"
    fi
    if [ -x "$venv/bin/autotest" ] && grep -qxF -- "$wanted" "$mark" 2>/dev/null; then
        return
    fi
    python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
        echo "$python is not there, is older than 3.11, or has no module venv: apt-get install python3-venv, or PYTHON=INTERPRETER $0" >&2
        exit 3
    }
    say "installing the Python environment in $venv"
    # an interrupted installation may have left an environment without pip
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --editable "$project$extras"
    grep -qxF -- "$wanted" "$mark" 2>/dev/null || echo "$wanted" >>"$mark"
}

# Under sudo what is made in the checkout belongs to the user, not to root.
give_back() {
    if [ -n "${SUDO_UID:-}" ]; then
        find "$project" -user root -exec chown -h "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" -- {} +
    fi
}

# What the lab and autotest need; mmdebstrap, clang and the like build the guest image.
# dpdk-dev is there for its dpdk-testpmd, which interface vhost-user needs: 34 MB to load, 170 MB on disk, with all that it brings.
# shellcheck disable=SC2034
lab_packages=(
    iproute2 procps tmux socat openssh-client openssh-server luajit qemu-system-x86 qemu-utils
    mmdebstrap debian-archive-keyring clang libbpf-dev linux-libc-dev e2fsprogs lz4 dpdk-dev
    python3 python3-venv
)

# What only the tests need, and what benchmarks are compared with.
# shellcheck disable=SC2034
test_packages=(chromium cpio fish lua-check zsh) benchmark_packages=(netsniff-ng)

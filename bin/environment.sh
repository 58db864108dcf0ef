# Sourced by bin/quickstart and bin/test: finds a Python, makes the virtual environment, installs fsnl there.
#
#   PYTHON      the Python to use (default: the first of python3, python3.14 ... 3.10 that is new enough)
#   FSNL_VENV   the environment's folder (default: .venv in the checkout); one that exists is used as it is
#
# In the environment's folder:
#   fsnl-made-by-bin        its own path: it was made here, so it may be made anew when it is broken or moved
#   fsnl-installing         an install began and did not end: nothing in it is to be trusted
#   fsnl-installed[-dev]    what was installed, from which setup.cfg, by which Python

command_name=bin/$(basename "$0")
checkout=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${FSNL_VENV:-$checkout/.venv}
case $venv in
    /*) ;;
    *) venv=$PWD/$venv ;;
esac
# With either set, another folder's modules would be imported in place of the environment's.
unset PYTHONPATH PYTHONHOME
# pip exits normally after Ctrl-C: the shell has to stop by itself.
trap 'exit 130' INT
trap 'exit 143' TERM

# What a command does stands at its head.
case ${1:-} in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
esac

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "$command_name: $*"
    exit 1
}

# step_begin NAME, step_end [NOTE]: one line per step, with its seconds.
step_begin() {
    step_started=$SECONDS
    printf '%-22s' "$1" >&2
}

step_end() {
    printf '%4d s  %s\n' $((SECONDS - step_started)) "${1:-}" >&2
}

python_version() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null
}

is_new_enough() {
    case $1 in
        3.[0-9].*) return 1 ;;
        3.[0-9]*) return 0 ;;
        *) return 1 ;;
    esac
}

# Sets base_python: new enough, and able to make environments with pip in them.
find_python() {
    local candidate version too_old='' without_venv=''
    local candidates=(python3 python3.14 python3.13 python3.12 python3.11 python3.10 python)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(python_version "$candidate") || continue
        if ! is_new_enough "$version"; then
            too_old="$too_old${too_old:+, }$candidate is $version"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            without_venv=${without_venv:-$candidate}
        else
            base_python=$candidate
            return
        fi
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv has no venv module; install it (on Debian and Ubuntu: apt install python3-venv)"
    elif [ -n "$too_old" ]; then
        fail "needs Python 3.10 or newer, but $too_old; install one, or name it: PYTHON=/path/to/python3"
    elif [ -n "${PYTHON:-}" ]; then
        fail "PYTHON=$PYTHON does not run; name a Python 3.10 or newer, or unset PYTHON"
    fi
    fail "found no Python; install Python 3.10 or newer, or name it: PYTHON=/path/to/python3"
}

# The environment has a Python that runs and is new enough, and a pip. Sets python_is.
is_healthy() {
    [ -f "$venv/pyvenv.cfg" ] &&
        python_is=$("$python" -c 'import importlib.util, sys
print("%d.%d.%d" % sys.version_info[:3])
sys.exit(importlib.util.find_spec("pip") is None)' 2>/dev/null) &&
        is_new_enough "$python_is"
}

is_ours() {
    [ -f "$venv/fsnl-made-by-bin" ]
}

is_moved() {
    is_ours && [ "$(cat "$venv/fsnl-made-by-bin")" != "$venv" ]
}

make_environment() {
    local log
    if [ -e "$venv" ] && ! is_ours && [ -n "$(ls -A "$venv" 2>/dev/null || echo file)" ]; then
        fail "$venv exists, and is no virtual environment with pip and Python 3.10 or newer; remove it, or set FSNL_VENV to another folder"
    fi
    find_python
    step_begin 'virtual environment'
    rm -rf "$venv"
    mkdir -p "$venv" || fail "cannot make $venv; set FSNL_VENV to a folder that can be written"
    printf '%s\n' "$venv" >"$venv/fsnl-made-by-bin"
    log=$venv/fsnl-venv.log
    if ! "$base_python" -m venv "$venv" >"$log" 2>&1; then
        step_end failed
        tail -n 15 "$log" >&2
        fail "$base_python could not make a virtual environment in $venv"
    fi
    python_is=$(python_version "$python")
    step_end "Python $python_is in $venv"
}

stamp() {
    printf '%s\n' "$checkout" "$python_is"
    cat "$checkout/setup.cfg" "$checkout/pyproject.toml"
}

explain_pip_failure() {
    local log=$1
    say "the last lines of $log:"
    grep -vE "is ignored: it is|: started$|: finished with status 'done'$|Retrying \(Retry" "$log" | tail -n 12 | sed 's/^/    /' >&2
    if grep -q 'No space left on device' "$log"; then
        fail "pip failed: the disk is full (torch alone takes several GB)"
    elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError|Connection (aborted|broken|timed out)' "$log"; then
        fail "pip failed: it could not reach its package index; check the network, or pip's proxy and index settings"
    fi
    fail "pip failed; its log is $log"
}

# Editable installs from pyproject.toml need pip 21.3; the first Pythons 3.10 brought an older one.
update_old_pip() {
    if ! "$python" -c 'import pip, re, sys
sys.exit([int(part) for part in re.findall("[0-9]+", pip.__version__)[:2]] < [21, 3])'; then
        "$python" -m pip install --upgrade 'pip>=21.3' >"$1" 2>&1 || explain_pip_failure "$1"
    fi
}

# install_fsnl [EXTRA]
install_fsnl() {
    local extra=${1:-} log=$venv/fsnl-pip.log
    step_begin "install fsnl${extra:+[$extra]}"
    update_old_pip "$log"
    : >"$venv/fsnl-installing"
    if ! "$python" -m pip install --disable-pip-version-check --no-input \
        --editable "$checkout${extra:+[$extra]}" >"$log" 2>&1; then
        step_end failed
        # Until this line nothing is changed: what was there before is still whole.
        grep -q '^Installing collected packages' "$log" || rm -f "$venv/fsnl-installing"
        explain_pip_failure "$log"
    fi
    rm -f "$venv"/fsnl-installed*
    stamp >"$venv/fsnl-installed"
    if [ -n "$extra" ]; then
        stamp >"$venv/fsnl-installed-$extra"
    fi
    rm -f "$venv/fsnl-installing"
    step_end
}

# ensure_environment [EXTRA]: sets python, the environment's own; installs only what is not there yet.
ensure_environment() {
    local extra=${1:-}
    python=$venv/bin/python
    if ! is_healthy || is_moved || { is_ours && [ -e "$venv/fsnl-installing" ]; }; then
        make_environment
    fi
    if [ -e "$venv/fsnl-installing" ] || ! stamp | cmp -s - "$venv/fsnl-installed${extra:+-$extra}"; then
        if [ ! -e "$venv/fsnl-installed" ]; then
            say "The first install takes minutes: torch is large. Its log: $venv/fsnl-pip.log"
        fi
        install_fsnl "$extra"
    fi
}

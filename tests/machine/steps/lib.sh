# What all steps share; it stands before each.
set -eu
export LC_ALL=C.UTF-8 SYSTEMD_PAGER= PAGER=cat
# A single quotation of what went wrong, and the end.
fail() {
    echo "FAILED: $*"
    exit 1
}
# until_done WHAT COMMAND...: waits until a command succeeds. The test's limit is that of the whole step.
until_done() {
    local what=$1
    shift
    echo "waiting: $what"
    until "$@" >/dev/null 2>&1; do
        sleep 1
    done
}
# events PROCNAME DIRECTORY...: counts the events of a program in traces.
events() {
    local program=$1
    shift
    usertrace view --no-symbols "$@" 2>/dev/null | grep -c " $program:" || true
}
recordings=/var/lib/usertrace

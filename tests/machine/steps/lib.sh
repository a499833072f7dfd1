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
# events PROGRAM DIRECTORY...: counts the events of a program in traces, up to 1000: reading all of them can take minutes.
events() {
    local program=$1
    shift
    usertrace view --symbols never ${since:+--from "$since"} "$@" 2>/dev/null | grep -m 1000 -c "[ :]$program:(" || true
}
recordings=/var/lib/usertrace

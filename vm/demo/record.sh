# In the guest: makes a trace by hand, records a real program into it, and looks at what came.
set -eu
say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
do_() {
    printf '$ %s\n' "$*"
    eval "$*"
}
workload=$1

say "the control file system"
do_ cat /sys/kernel/ltt/abi
do_ mkdir /sys/kernel/ltt/demo
do_ 'ls /sys/kernel/ltt/demo /sys/kernel/ltt/demo/main'
do_ 'echo 1 >/sys/kernel/ltt/demo/start'

say "Debian's sqlite3, as it came, records its use of memory"
sh "$workload" >/tmp/workload.sql
do_ 'wc -l /tmp/workload.sql'
do_ 'usertrace record --trace demo --malloc --output /out/recorded --json=/out/recorded.json -- sqlite3 /tmp/shop.db ".read /tmp/workload.sql"'

say "done with the trace"
do_ rmdir /sys/kernel/ltt/demo

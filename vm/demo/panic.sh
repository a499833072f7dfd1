# In the guest: the same program again, without an end, and a kernel panic in the middle of it.
set -eu
workload=$1
mkdir /sys/kernel/ltt/demo
echo 1 >/sys/kernel/ltt/demo/start
sh "$workload" >/tmp/workload.sql
{ while :; do cat /tmp/workload.sql; done; } |
    usertrace record --quiet --trace demo --malloc --output /out/interrupted -- sqlite3 /tmp/shop.db >/dev/null &

# Bytes of events that sqlite3 has written so far, on all processors.
written() { awk '$1 == "ring" && $3 == "main" { sum += $6 } END { print sum + 0 }' /sys/kernel/ltt/demo/stats; }
until [ "$(written)" -gt 2000000 ]; do sleep 0.1; done
echo "sqlite3 has written $(written) bytes of events; now the kernel panics"
echo c >/proc/sysrq-trigger

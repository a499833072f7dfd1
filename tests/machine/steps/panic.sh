# Panics the kernel under load.
sed -i 's/^#*USE_KDUMP=.*/USE_KDUMP=1/' /etc/default/kdump-tools
until_done "the crash kernel is loaded" grep -q 1 /sys/kernel/kexec_crash_loaded
redis-cli set last-key-before-the-panic 1 >/dev/null
(while :; do redis-benchmark -q -n 500 -t set >/dev/null; done) &
(while :; do su postgres -c 'pgbench -n -t 10 postgres' >/dev/null; done) &
(while :; do ab -q -n 50 http://127.0.0.1/ >/dev/null; done) &
sync
seen() { usertrace list | grep -q redis; }
until_done "redis is traced" seen
# After this connection has ended.
systemd-run --quiet --collect --on-active=2 sh -c 'echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger'

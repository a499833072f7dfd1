# Events in reserved memory, before somebody presses the button.
cat /sys/kernel/ltt/reserved
LD_PRELOAD=/usr/lib/usertrace/libusertrace_malloc.so numbered 1000000 500 0
redis-benchmark -q -n 500 -t set
sync

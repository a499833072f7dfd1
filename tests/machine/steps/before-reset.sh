# Events in reserved memory, before somebody presses the button.
cat /sys/kernel/ltt/reserved
LD_PRELOAD=/usr/lib/usertrace/libusertrace_malloc.so numbered 1000000 500 0
# Its events leave memory once they were read, as it has ended.
until_done "the recorder has read the events of a process that ended" \
    sh -c "usertrace view $recordings/services 2>/dev/null | grep -q 'size = 1000499,'"
sync
redis-benchmark -q -n 500 -t set

# A load on all services, until chunks have rotated.
chunks() { ls -d $recordings/services/*Z-?????? 2>/dev/null | wc -l; }
su postgres -c 'pgbench --quiet -i -s 1 postgres' >/dev/null 2>&1
round=0
since=$(date +%s)
while :; do
    redis-benchmark -q -n 1000 -t set,get,lpush >/dev/null
    su postgres -c 'pgbench -n -t 20 -c 2 postgres' >/dev/null
    ab -q -n 100 -c 4 http://127.0.0.1/ >/dev/null
    round=$((round + 1))
    [ "$(chunks)" -lt 2 ] || break
done
echo "$round rounds, $(chunks) chunks"
usertrace list
for program in redis-server postgres nginx; do
    count=$(events "$program" $recordings/services)
    echo "$program: $count events"
    [ "$count" -gt 0 ] || fail "no events of $program"
done
# Finished chunks are complete by themselves; another reader takes the last one.
for chunk in $recordings/services/*Z-??????; do
    last=$chunk
done
babeltrace2 "$last" >/dev/null
journalctl -b -u usertrace --no-pager | tail -n 5

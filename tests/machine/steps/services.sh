# Services of Debian, as the distribution ships their units. Each does the same with and without tracing, and its events are
# recorded.

ask() { bash -c "exec 3<>/dev/tcp/127.0.0.1/$1; printf '$2' >&3; timeout 60 head -n $3 <&3"; }

# smoke UNIT: prints what the service answers.
smoke() {
    case $1 in
    redis-server) redis-cli set key 42 && redis-cli get key ;;
    postgresql@17-main) su postgres -c "psql -At -c 'select 6 * 7'" ;;
    nginx | apache2) curl -s http://127.0.0.1/ | sha256sum ;;
    memcached) ask 11211 'set a 0 0 1\r\n7\r\nget a\r\n' 4 ;;
    mariadb) mariadb -N -e 'select 6 * 7' ;;
    haproxy) curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8404/ ;;
    chrony) chronyc -n sources | head -n 3 ;;
    dnsmasq) dig +short +time=60 @127.0.0.1 -p 5300 host.example ;;
    unbound) dig +short +time=60 @127.0.0.1 localhost ;;
    rsyslog) logger -t smoke "$1" && until grep -q smoke /var/log/syslog; do sleep 1; done ;;
    exim4) ask 25 'QUIT\r\n' 1 | cut -c 1-4 ;;
    systemd-resolved) resolvectl query localhost | sed '/^--/d' ;;
    systemd-logind) loginctl show-seat seat0 -p Id ;;
    systemd-journald) logger -t smoke-journal x && until journalctl -t smoke-journal | grep -q x; do sleep 1; done ;;
    esac
}

# program UNIT: prints how its events name it.
program() {
    case $1 in
    postgresql@17-main) echo postgres ;;
    mariadb) echo mariadbd ;;
    chrony) echo chronyd ;;
    rsyslog) echo rsyslogd ;;
    systemd-resolved) echo systemd-resolve ;;
    systemd-journald) echo systemd-journal ;;
    *) echo "$1" ;;
    esac
}

cat >>/etc/haproxy/haproxy.cfg <<'END'
frontend test
    bind 127.0.0.1:8404
    http-request return status 204
END
printf 'port=5300\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\naddress=/host.example/192.0.2.1\n' >/etc/dnsmasq.d/test.conf

# enable, disable UNIT: as docs/how-to/services.md says.
enable() {
    case $1 in
    postgresql@*) echo "LD_PRELOAD = '/usr/lib/usertrace/libusertrace_malloc.so'" >>/etc/postgresql/17/main/environment ;;
    *) usertrace service enable --malloc --pthread --dl "$1" ;;
    esac
}
disable() {
    case $1 in
    postgresql@*) sed -i /LD_PRELOAD/d /etc/postgresql/17/main/environment ;;
    *) usertrace service disable "$1" ;;
    esac
}
has_libraries() { grep -q libusertrace_malloc "/proc/$(systemctl show -P MainPID "$1")/maps"; }

failures=
for unit in redis-server postgresql@17-main nginx memcached apache2 mariadb haproxy chrony dnsmasq unbound rsyslog exim4 \
    systemd-resolved systemd-logind systemd-journald; do
    problem=
    # Both want port 80.
    [ "$unit" != apache2 ] || systemctl stop nginx
    was=$(systemctl is-active "$unit" || true)
    systemctl restart "$unit" || { failures="$failures $unit(untraced)"; continue; }
    until_done "$unit answers" smoke "$unit"
    untraced=$(smoke "$unit" 2>&1)
    enable "$unit" || { failures="$failures $unit(enable)"; continue; }
    if systemctl restart "$unit"; then
        until_done "$unit answers, traced" timeout 600 sh -c "systemctl is-active $unit"
        tries=0
        traced=$(smoke "$unit" 2>&1 || true)
        while [ "$traced" != "$untraced" ] && [ $tries -lt 60 ]; do
            tries=$((tries + 1))
            sleep 1
            traced=$(smoke "$unit" 2>&1 || true)
        done
        [ "$traced" = "$untraced" ] || problem="answers \"$traced\", untraced \"$untraced\""
        has_libraries "$unit" || problem="$problem; has no library"
        tries=0
        while [ "$(events "$(program "$unit")" $recordings/services)" = 0 ] && [ $tries -lt 60 ]; do
            tries=$((tries + 1))
            sleep 1
        done
        count=$(events "$(program "$unit")" $recordings/services)
        [ "$count" -gt 0 ] || problem="$problem; no events"
    else
        problem="does not start: $(systemctl show -P Result "$unit"), $(journalctl -b -u "$unit" --no-pager | tail -n 3)"
    fi
    filter=$(systemctl show -P SystemCallFilter "$unit" | cut -c 1-30)
    exposure=$(systemd-analyze security --no-pager "$unit" 2>/dev/null | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    echo "RESULT $unit: ${problem:-same answers, $count events}; exposure $exposure; filter ${filter:-none}"
    [ -z "$problem" ] || failures="$failures $unit"
    disable "$unit"
    [ ! -e "/etc/systemd/system/$unit.service.d" ] || failures="$failures $unit(drop-in)"
    if [ "$was" = active ]; then systemctl restart "$unit"; else systemctl stop "$unit"; fi
done
! journalctl -b --no-pager -k | grep -i 'type=1326\|SECCOMP' || fail "a filter killed a service"
[ -z "$failures" ] || fail "$failures"
usertrace list

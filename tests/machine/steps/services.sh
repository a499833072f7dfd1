# Services of Debian, as the distribution ships their units. Each does the same with and without tracing: it gives the same
# answers, ends the same way, and logs no further errors. A second trace counts the events of the same processes, and
# tests/machine/complete compares the two. Arguments: the services.

# talk PORT LINES TEXT: sends a text, and prints so many lines of the answer.
talk() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/$1; printf "$3" >&3; head -n "$2" <&3' talk "$@"; }

# smoke UNIT: prints what the service answers, which is the same each time.
smoke() {
    case $1 in
    redis-server)
        redis-cli del list >/dev/null
        seq 100 | sed 's/^/rpush list /' | redis-cli | tail -n 1
        redis-cli lrange list 0 -1 | sha256sum
        ;;
    postgresql@17-main)
        echo 'create temporary table numbers as select n, md5(n::text) as text from generate_series(1, 500) as n;
            create index on numbers (text);
            select count(*), min(text), max(text) from numbers;' | su postgres -c 'psql -qAt'
        ;;
    nginx | apache2)
        for path in / / /none; do
            curl -s "http://127.0.0.1$path" -o /root/page -w '%{http_code}\n'
            sha256sum </root/page
        done
        ;;
    memcached) talk 11211 4 'set a 0 0 1\r\n7\r\nget a\r\n' ;;
    mariadb)
        echo 'create or replace table mysql.smoke (n int primary key, text varchar(40));
            insert into mysql.smoke select seq, md5(seq) from mysql.seq_1_to_100;
            select count(*), min(text), max(text) from mysql.smoke;
            drop table mysql.smoke;' | mariadb -N
        ;;
    haproxy) curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8404/ ;;
    chrony) chronyc -n tracking | head -n 2 && chronyc -n activity ;;
    dnsmasq) for host in a b c; do dig +short +time=60 @127.0.0.1 -p 5300 $host.example; done ;;
    unbound) dig +short +time=60 @127.0.0.1 localhost && dig +time=60 @127.0.0.1 a.localhost | grep -o 'status: [A-Z]*' ;;
    rsyslog)
        text="smoke $(date +%s%N)"
        logger -t smoke "$text"
        wait_while_it_runs "$1" grep -q "$text" /var/log/syslog
        echo logged
        ;;
    exim4)
        # It listens some time after systemd has started it.
        wait_while_it_runs "$1" talk 25 1 'QUIT\r\n' >/dev/null
        talk 25 6 'EHLO test\r\nMAIL FROM:<root@machine>\r\n' | cut -c 1-3 | sort -u
        rm -f /var/mail/smoke
        printf 'Subject: smoke\n\ntext\n' | /usr/sbin/sendmail -odf smoke@localhost
        wait_while_it_runs "$1" grep -q '^text$' /var/mail/smoke
        echo delivered
        ;;
    systemd-resolved) resolvectl query localhost | sed '/^--/d' && resolvectl query 127.0.0.1 | sed '/^--/d' ;;
    systemd-logind) loginctl show-seat seat0 -p Id && loginctl list-users --no-legend | grep -o root ;;
    systemd-networkd) networkctl status lo | sed -n 's/^ *Address: //p' && networkctl list --no-legend | wc -l ;;
    systemd-journald)
        text="smoke $(date +%s%N)"
        logger -t smoke "$text"
        wait_while_it_runs "$1" sh -c "journalctl -b -t smoke -o cat --no-pager | grep -q '$text'"
        echo logged
        ;;
    *) fail "there is no smoke test of $1" ;;
    esac
}
# wait_while_it_runs UNIT COMMAND...: waits until a command succeeds. Fails if the service does not run.
wait_while_it_runs() {
    local unit=$1
    shift
    until "$@" 2>/dev/null; do
        is_up "$unit" || return 1
        sleep 1
    done
}
# is_up UNIT: fails if the service has ended, or systemd starts it again and again.
is_up() {
    case $(systemctl is-active "$1" || true) in
    failed | inactive) return 1 ;;
    esac
    [ "$(systemctl show -P NRestarts "$1")" -lt 3 ]
}

grep -q 'frontend test' /etc/haproxy/haproxy.cfg ||
    printf 'frontend test\n    bind 127.0.0.1:8404\n    http-request return status 204\n' >>/etc/haproxy/haproxy.cfg
printf 'port=5300\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\naddress=/example/192.0.2.1\n' >/etc/dnsmasq.d/test.conf
# The image has no dns-root-data, and so no key to validate answers with.
rm -f /etc/unbound/unbound.conf.d/root-auto-trust-anchor-file.conf
# It is the machine's system logger, to which the journal forwards.
systemctl --quiet enable rsyslog
id smoke >/dev/null 2>&1 || useradd --create-home smoke

# enable, disable UNIT: as docs/how-to/services.md says.
enable() {
    case $1 in
    postgresql@*) echo "LD_PRELOAD = '/usr/lib/usertrace/libusertrace_malloc.so'" >>/etc/postgresql/17/main/environment ;;
    *) usertrace service enable --malloc --pthread --dl "$1" >/dev/null ;;
    esac
}
disable() {
    case $1 in
    postgresql@*) sed -i /LD_PRELOAD/d /etc/postgresql/17/main/environment ;;
    *) usertrace service disable "$1" >/dev/null ;;
    esac
}
main_pid() { systemctl show -P MainPID "$1"; }
has_libraries() { grep -q libusertrace_malloc "/proc/$1/maps"; }
# can_stop UNIT: whether the machine can be without it.
can_stop() {
    case $1 in
    systemd-*) return 1 ;;
    esac
}
starts() {
    systemctl reset-failed "$1" 2>/dev/null || true
    systemctl restart "$1"
}
# answers UNIT: waits until the service answers or has failed, and prints what it answers.
answers() {
    until (smoke "$1") >/root/answer 2>/root/error; do
        is_up "$1" || break
        sleep 1
    done
    cat /root/answer /root/error
}
# ends UNIT: stops it, and prints how it ended.
ends() {
    can_stop "$1" || return 0
    systemctl stop "$1" 2>/dev/null
    systemctl show -P Result -P ExecMainCode -P ExecMainStatus "$1" | tr '\n' ' '
}
# errors UNIT SINCE: what it has logged as an error, and what AppArmor has denied, without numbers.
errors() {
    {
        journalctl -b -u "$1" -p err --since "@$2" -o cat --no-pager -q
        journalctl -b -k --since "@$2" -o cat --no-pager -q | sed -n 's/.*apparmor="DENIED"/denied/p'
    } | tr -d '0-9' | sort -u
}
# has_events PID: whether events of that process are recorded.
has_events() {
    local traces
    # shellcheck disable=SC2086,SC2046 # a word for each trace
    traces=$(ls -d $recordings/services/*/*-"$1"-* 2>/dev/null) && [ -n "$(usertrace view --symbols never $traces 2>/dev/null | head -n 1)" ]
}

usertrace destroy counts >/dev/null 2>&1 || true
mkdir /sys/kernel/ltt/counts /sys/kernel/ltt/counts/kinds
cd /sys/kernel/ltt/counts
echo count >kinds/mode
echo '$ctx.vpid' >kinds/key
echo 1 >kinds/filter
echo '0 libc:* pthread:*' >filter
echo 1 >start
cd /

failures=
passed=0
for unit; do
    problem=
    # Both want port 80.
    [ "$unit" != apache2 ] || systemctl stop nginx
    was=$(systemctl is-active "$unit" || true)
    began=$(date +%s)
    starts "$unit" || problem="does not start untraced"
    untraced=$(answers "$unit")
    untraced_end=$(ends "$unit")
    untraced_errors=$(errors "$unit" "$began")
    [ -n "$untraced" ] || problem="$problem; answers nothing untraced"
    # Times in the journal are whole seconds here.
    sleep 1

    since=$(date +%s)
    enable "$unit" || problem="$problem; cannot be enabled"
    starts "$unit" || problem="$problem; does not start traced"
    pid=$(main_pid "$unit")
    traced=$(answers "$unit")
    [ "$traced" = "$untraced" ] || problem="$problem; answers \"$traced\", untraced \"$untraced\""
    has_libraries "$pid" || problem="$problem; has no library"
    exposure=$(systemd-analyze security --no-pager "$unit" 2>/dev/null | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    filter=$(systemctl show -P SystemCallFilter "$unit")
    profile=$(cat "/proc/$pid/attr/current" 2>/dev/null || true)
    traced_end=$(ends "$unit")
    traced_errors=$(errors "$unit" "$since")
    [ "$traced_end" = "$untraced_end" ] || problem="$problem; ends with \"$traced_end\", untraced \"$untraced_end\""
    [ "$traced_errors" = "$untraced_errors" ] || problem="$problem; logs \"$traced_errors\", untraced \"$untraced_errors\""
    disable "$unit" || problem="$problem; cannot be disabled"
    # A socket may have started it again meanwhile, with the libraries.
    if [ "$was" = active ] || ! can_stop "$unit"; then systemctl restart "$unit"; else systemctl stop "$unit" 2>/dev/null; fi
    [ ! -e "/etc/systemd/system/$unit.service.d" ] || problem="$problem; its drop-in is left"
    # The process has ended, and the recorder takes what there is.
    [ -n "$problem" ] || until_done "events of $unit" has_events "$pid"
    [ "$filter" != '~' ] || filter=
    echo "RESULT $unit: ${problem:-same answers, events recorded}; exposure $exposure, filter ${filter:+yes}, AppArmor ${profile:-none}, $(($(date +%s) - began)) s"
    if [ -n "$problem" ]; then failures="$failures $unit"; else passed=$((passed + 1)); fi
done
! journalctl -b --no-pager -k -q | grep 'type=1326' || failures="$failures; a filter killed a service"
usertrace list
# All that was traced has ended. The counters are in the recording after the recorder's end.
quiet() { [ "$(usertrace status services --json | jq '.processes | length')" = 0 ]; }
until_done "the recorder has taken all" quiet
systemctl stop usertrace
[ -z "$failures" ] || fail "$failures"
echo "$passed services passed"

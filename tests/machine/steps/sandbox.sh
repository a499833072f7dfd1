# Settings of units, each with a service whose program writes 100 events, which are recorded. All services run at once.
library=/usr/lib/usertrace/libusertrace_malloc.so
failures=
: >/root/tried
number=1000000
program=/usr/local/bin/numbered
rm -f /etc/systemd/system/probe-*.service
# try RESULT EVENTS HOW SETTING...: makes a service with these settings, which should end so and have so many events. HOW is
# how it gets the library: enable, as usertrace service does; or preload, by a variable alone.
try() {
    local result=$1 expected=$2 how=$3 setting unit
    shift 3
    number=$((number + 1000))
    unit=probe-$number
    {
        printf '[Service]\nType=oneshot\nExecStart=%s %s 100 0\n' "$program" $number
        [ "$how" = enable ] || printf 'Environment=LD_PRELOAD=%s\n' "$library"
        for setting; do printf '%s\n' "$setting"; done
    } >/etc/systemd/system/$unit.service
    # Another name of the same root directory: systemd is reloaded once for all of them.
    [ "$how" != enable ] || usertrace service enable --root /. --malloc $unit >/dev/null
    echo "$number $result $expected $how $*" >>/root/tried
}
# An event of a process that has ended is in the recording when its buffers are gone.
quiet() { [ "$(usertrace status services --json | jq '.processes | length')" = 0 ]; }
has_ended() { [ -z "$(systemctl list-units --no-legend --state=activating 'probe-*')" ]; }

try success 100 enable
# What happens without the drop-in's filter: systemd refuses calls that it does not know, and does not kill for them. The
# program runs untraced.
try success 0 preload SystemCallFilter=@system-service
try success 0 preload SystemCallFilter=@system-service SystemCallErrorNumber=EPERM
try success 100 preload SystemCallFilter=~@mount
try success 100 enable SystemCallFilter=@system-service
try success 100 enable SystemCallFilter=@system-service SystemCallErrorNumber=EPERM
try success 100 enable 'SystemCallFilter=~@mount @process'
for setting in MemoryDenyWriteExecute=yes PrivateUsers=yes ProtectKernelTunables=yes ProtectSystem=strict ProtectHome=yes \
    PrivateTmp=yes PrivateNetwork=yes PrivateDevices=yes ProtectProc=invisible ProcSubset=pid NoNewPrivileges=yes \
    DynamicUser=yes RestrictNamespaces=yes RestrictAddressFamilies=none LockPersonality=yes RestrictRealtime=yes \
    RestrictSUIDSGID=yes SystemCallArchitectures=native CapabilityBoundingSet= PrivateMounts=yes ProtectControlGroups=yes \
    ProtectClock=yes ProtectHostname=yes ProtectKernelLogs=yes ProtectKernelModules=yes KeyringMode=private RemoveIPC=yes \
    IPAddressDeny=any DevicePolicy=closed UMask=0777 PrivateIPC=yes PrivatePIDs=yes LimitMEMLOCK=0 LimitNOFILE=16 TasksMax=1 \
    MemoryMax=32M MemoryHigh=4M TemporaryFileSystem=/usr/lib/usertrace; do
    try success 100 enable "$setting"
done
# A capability that a service keeps without root does not make its program ignore LD_PRELOAD.
try success 100 enable User=nobody AmbientCapabilities=CAP_NET_BIND_SERVICE
try success 100 enable SystemCallFilter=@system-service MemoryDenyWriteExecute=yes PrivateUsers=yes \
    ProtectKernelTunables=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes PrivateNetwork=yes PrivateDevices=yes \
    ProtectProc=invisible ProcSubset=pid NoNewPrivileges=yes DynamicUser=yes RestrictNamespaces=yes LockPersonality=yes \
    RestrictRealtime=yes RestrictSUIDSGID=yes SystemCallArchitectures=native CapabilityBoundingSet=

# Only some files may be mapped as code: the drop-in adds the library.
execute="ExecPaths=/usr/local/bin/numbered /usr/lib/x86_64-linux-gnu /usr/lib64"
try success 0 preload NoExecPaths=/ "$execute"
try success 100 enable NoExecPaths=/ "$execute"

# A root directory with nothing but the program and what it is linked with: the drop-in adds the library.
root=/srv/root
rm -rf $root
for file in $program $(ldd $program $library | grep -o '/[^ ]*\.so[^ :]*' | sort -u); do
    mkdir -p "$root${file%/*}"
    cp -L "$file" "$root$file"
done
rm -rf $root/usr/lib/usertrace
try success 0 preload RootDirectory=$root
try success 100 enable RootDirectory=$root

# profile NAME TEXT: loads a profile of AppArmor. A name that is a path attaches it to that program.
profile() {
    printf '#include <tunables/global>\nprofile %s {\n%s\n}\n' "$1" "$2" >/root/profile
    apparmor_parser --replace /root/profile
}
bare='  /usr/local/bin/* mr,
  /usr/lib/x86_64-linux-gnu/** mr,
  /etc/ld.so.* r,'
# Debian's own abstraction allows libraries below /usr/lib. Without it, the program starts, and the dynamic linker says that
# it cannot load the library.
profile probe-base '  #include <abstractions/base>
  /usr/local/bin/* mr,'
profile probe-bare "$bare"
profile probe-library "$bare
  /usr/lib/usertrace/*.so mr,"
try success 100 enable AppArmorProfile=probe-base
try success 0 enable AppArmorProfile=probe-bare
try success 100 enable AppArmorProfile=probe-library
# As the profiles of Debian's packages, which the program's path chooses.
program=/usr/local/bin/attached
cp /usr/local/bin/numbered $program
profile $program '  #include <abstractions/base>
  /usr/local/bin/* mr,'
try success 100 enable

systemctl daemon-reload
since=$(date +%s)
# shellcheck disable=SC2046 # a word for each unit
systemctl start $(sed 's/^\([0-9]*\).*/probe-\1/' /root/tried) 2>/root/said || true
until_done "all services have ended" has_ended
until_done "the recorder has taken all" quiet
# Reads the recording once: a line for each service, with its number of events.
usertrace view --symbols never --from "$since" -e libc:malloc --where 'size >= 1001000 && size < 2000000' $recordings/services |
    sed -n 's/.*[{ ]size = \([0-9]*\)[0-9][0-9][0-9],.*/\1000/p' | sort | uniq -c | sed 's/^ *//' >/root/counts
while read -r number result expected how settings; do
    found="$(systemctl show -P Result probe-$number) $(sed -n "s/ $number\$//p" /root/counts)"
    [ "${found#* }" ] || found="${found}0"
    echo "RESULT $how ${settings:-(no setting)}: $found events"
    [ "$found" = "$result $expected" ] || {
        failures="$failures; $how $settings: $found, expected $result $expected"
        journalctl -b -u probe-$number --no-pager | tail -n 3
    }
done </root/tried
rm -rf /etc/systemd/system/probe-*
systemctl daemon-reload

# The drop-in refuses nothing that the unit allows.
printf '[Service]\nExecStart=/usr/local/bin/numbered 1 1 0\nSystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n' \
    >/etc/systemd/system/probe.service
systemctl daemon-reload
filter() { systemctl show -P SystemCallFilter probe | tr -d '~' | tr ' ' '\n' | sort; }
filter >/root/allowed
usertrace service enable --malloc probe >/dev/null
filter >/root/refused
[ -s /root/allowed ] && [ -s /root/refused ] && [ -z "$(comm -12 /root/allowed /root/refused)" ] ||
    failures="$failures; the filters overlap: $(comm -12 /root/allowed /root/refused | tr '\n' ' ')"
usertrace service disable probe >/dev/null

# A limit that the buffers do not fit into: the program goes on, and what is missing is reported.
printf '[Service]\nType=oneshot\nExecStart=/usr/local/bin/numbered 100 100000 0\nMemoryMax=2M\nMemorySwapMax=0\n' \
    >/etc/systemd/system/probe.service
since=$(date +%s)
usertrace service enable --malloc probe >/dev/null
systemctl start probe || true
found=$(systemctl show -P Result probe)
until_done "the recorder has taken all" quiet
usertrace view --symbols never --from "$since" -e libc:malloc --where 'size >= 100 && size < 100100' $recordings/services 2>/root/said |
    grep -c '"numbered"' >/root/seen || true
seen=$(cat /root/seen)
tail -n 3 /root/said | cut -c 1-200
echo "RESULT enable MemoryMax=2M: $found, $seen of 100000 events"
[ "$found" = success ] || failures="$failures; MemoryMax=2M: $found"
[ "$seen" = 100000 ] || grep -q discarded /root/said || failures="$failures; MemoryMax=2M: a silent loss"
usertrace service disable probe >/dev/null
rm /etc/systemd/system/probe.service

# Containers without a network, with the machine's own root file system: with podman's own seccomp profile, and without it.
for profile in unconfined default; do
    number=$((number + 1000))
    since=$(date +%s)
    option=
    [ $profile = default ] || option="--security-opt seccomp=$profile"
    # shellcheck disable=SC2086 # two words
    podman run --rm --network none $option --env LD_PRELOAD=$library --rootfs /:O sh -c \
        "grep Seccomp: /proc/self/status; exec numbered $number 100 0" || failures="$failures; podman, seccomp=$profile"
    until_done "the recorder has taken all" quiet
    found=$(usertrace view --symbols never --from "$since" -e libc:malloc --where "size >= $number && size < $((number + 100))" \
        $recordings/services 2>/dev/null | grep -c . || true)
    echo "RESULT podman, seccomp=$profile: $found events"
    case $profile,$found in
    unconfined,100 | default,0) ;;
    *) failures="$failures; podman, seccomp=$profile: $found events" ;;
    esac
done

# Programs with filters of their own, which kill for calls that they do not know: of gettid and prctl in chronyd and in
# OpenSSH's process for whoever has not logged in yet. enable says so. Without contexts, events need no call.
usertrace destroy services
usertrace start plain -e 'libc:*,pthread:*'
sed 's,^ExecStart=.*,& -p 2222,; /^Alias=/d' /usr/lib/systemd/system/ssh.service >/etc/systemd/system/second-ssh.service
systemctl daemon-reload
asks_chrony() { chronyc -n activity; }
asks_ssh() { ssh-keyscan -T 300 -p 2222 -t ed25519 127.0.0.1 2>/dev/null | grep ed25519; }
is_recorded() { ls -d $recordings/plain/*/*-"$1"-*; }
for unit in chrony second-ssh; do
    usertrace service enable --malloc --pthread $unit 2>&1 | grep 'a system call filter of its own' ||
        failures="$failures; enable says nothing of the filter of $unit"
    systemctl restart $unit
    pid=$(systemctl show -P MainPID $unit)
    until asks_${unit#second-} >/root/answer 2>&1 || [ "$(systemctl is-active $unit)" = failed ]; do sleep 1; done
    usertrace service disable $unit >/dev/null
    systemctl stop $unit
    found=$(systemctl show -P Result $unit)
    [ "$found" != success ] || until_done "$unit is recorded" is_recorded "$pid"
    echo "RESULT $unit with its own filter, no contexts: $found"
    [ "$found" = success ] || failures="$failures; $unit: $found"
done
# With contexts, too: nobody could log in otherwise. The trace starts after sshd.
usertrace destroy plain
usertrace service enable --malloc --pthread second-ssh >/dev/null 2>&1
systemctl restart second-ssh
usertrace start full -e 'libc:*,pthread:*' --context procname,vtid,callstack
asks_ssh >/root/answer || failures="$failures; second-ssh does not answer with contexts"
is_auth_recorded() { ls -d $recordings/full/*/sshd-auth-*; }
until_done "sshd-auth is recorded" is_auth_recorded
usertrace service disable second-ssh >/dev/null
systemctl stop second-ssh
found=$(systemctl show -P Result second-ssh)
echo "RESULT second-ssh with its own filter, with contexts: $found"
[ "$found" = success ] || failures="$failures; second-ssh with contexts: $found"
! journalctl -b -k -q --no-pager --since "@$since" | grep 'type=1326' || failures="$failures; a filter killed a program"
[ -z "$failures" ] || fail "$failures"

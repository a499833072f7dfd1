# Traces services by drop-ins. Arguments: their names.
for unit; do
    usertrace service enable --malloc --pthread "$unit"
done
usertrace service list
for unit; do
    case $unit in
    *@) systemctl restart "$unit*" ;;
    *) systemctl restart "$unit" ;;
    esac
done
for unit; do
    usertrace service status "$unit"
    usertrace service status "$unit" | grep -q 'has the libraries' || {
        systemctl status "$unit*" || true
        fail "$unit is not traced"
    }
    ! usertrace service enable --malloc "$unit" || fail "$unit can be enabled twice"
done

# PostgreSQL has a file of its own for variables.
! usertrace service enable --malloc postgresql || fail "a unit without a program can be enabled"
! usertrace service enable --malloc postgresql@ || fail "a unit that passes no variables on can be enabled"
echo "LD_PRELOAD = '/usr/lib/usertrace/libusertrace_malloc.so'" >>/etc/postgresql/17/main/environment
systemctl restart postgresql@17-main
grep -q libusertrace_malloc "/proc/$(systemctl show -P MainPID postgresql@17-main)/maps" || fail "PostgreSQL is not traced"

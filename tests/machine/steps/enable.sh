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

#!/bin/sh
# nginx.sh PORT ROOT [DIR]: nginx in the foreground, for GET and PUT of files below ROOT at http://127.0.0.1:PORT/.
#
# Prints `listening tcp://127.0.0.1:PORT` once it can be reached. The process becomes nginx itself, so that its CPU time
# is nginx's; SIGTERM ends it. What nginx needs meanwhile is in a directory below DIR, which is ROOT if not given: an
# upload is moved from there to its name, which costs nothing on one file system. That directory is removed at the end.
set -eu

fail() {
    echo "nginx.sh: $1" >&2
    exit 2
}

[ $# -eq 2 ] || [ $# -eq 3 ] || fail "usage: nginx.sh PORT ROOT [DIR]"
port=$1
case $port in
'' | *[!0-9]* | ??????*) fail "PORT is a number from 1 to 65535, not '$port'" ;;
esac
[ "$port" -ge 1 ] && [ "$port" -le 65535 ] || fail "PORT is a number from 1 to 65535, not '$port'"
[ -d "$2" ] || fail "ROOT is no directory: $2"
[ -d "${3-$2}" ] || fail "DIR is no directory: $3"
root=$(cd "$2" && pwd -P)
dir=$(cd "${3-$2}" && pwd -P)
case $root$dir in
*[!A-Za-z0-9/._-]*) fail "a path for nginx has letters, digits and / . _ - only: $root $dir" ;;
esac

PATH=$PATH:/usr/sbin:/sbin
command -v nginx >/dev/null || fail "nginx is not installed; Debian's package is nginx-light"
nginx -V 2>&1 | grep -q http_dav_module || fail "this nginx has no http_dav_module, which PUT needs"

# `baseline nginx` hands the text over; otherwise it is the file beside this one.
template=${BASELINE_NGINX_CONF-$(cat "$(dirname "$0")/nginx.conf")}
unset BASELINE_NGINX_CONF
scratch=$(mktemp -d "$dir/.nginx-XXXXXX")
printf '%s\n' "$template" |
    sed -e "s|{port}|$port|" -e "s|{root}|$root|" -e "s|{dir}|$scratch|" >"$scratch/nginx.conf"

clean() {
    cat "$scratch/alive"
    rm -rf "$scratch"
}

announce() {
    until [ -s "$scratch/nginx.pid" ]; do
        [ -d "$scratch" ] || return 0
        sleep 0.02
    done
    echo "listening tcp://127.0.0.1:$port"
}

# Whoever reads this pipe sees its end when nginx has ended, by whatever signal. Forked twice: nginx has no children.
mkfifo "$scratch/alive"
(
    trap '' TERM INT HUP
    clean &
    announce &
) </dev/null
exec 9>"$scratch/alive"
exec nginx -e stderr -p "$scratch" -c "$scratch/nginx.conf"

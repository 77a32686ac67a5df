# The steps that an operator takes with the service, run inside the container. A step is a function. Its output says why it fails.
exec 2>&1
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
run() { # NAME: on failure, the result has the last line of its output
    (set -e; "$1") >/tmp/said 2>&1 # not in a condition: there `set -e` has no effect
    if [ $? -eq 0 ]; then echo "$1 ok" >>/results/steps
    else echo "$1 FAILED $(tail -n 1 /tmp/said)" >>/results/steps; echo "== $1"; cat /tmp/said; journalctl -q -n 20 -u 'trajd*' --no-pager; fi
}
until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ $SECONDS -lt $end ] || { echo "waited in vain for: $*"; return 1; }; sleep 0.1; done
}
logged() { until_true 10 eval "journalctl -q -u $1 --no-pager | grep -i '$2' >/dev/null"; } # messages reach the journal after a moment
property() { systemctl show -P "$2" "$1"; }
is() { [ "$(property "$1" "$2")" = "$3" ] || { echo "$1: $2 is $(property "$1" "$2"), not $3"; return 1; }; }
as() { runuser -u "$1" -- "${@:2}"; }
receives() { as "$1" trajctl recv train --count 3 --job "$1$RANDOM" --endpoint "$2" >/dev/null; }

install() { rm -f /var/lib/man-db/auto-update; dpkg -i /srv/trajd.deb; systemctl cat trajd trajd@lab >/dev/null; [ "$(property trajd UnitFileState)" = disabled ]; }
users() { id trajd; useradd -m -G trajd member; useradd -m stranger; chown -R member: /home/member; }
start() { systemctl start trajd; is trajd ActiveState active; is trajd SubState running; }
status_line() { until_true 10 eval '[[ $(property trajd StatusText) == *"1 feed,"* ]]'; }
directories() {
    [ "$(stat -c '%U %G %a' /run/trajd/main)" = "trajd trajd 750" ] || { stat /run/trajd/main; return 1; }
    [ "$(stat -c '%U %a' /var/lib/trajd/main)" = "trajd 750" ] || { stat /var/lib/trajd/main; return 1; }
    [ "$(stat -c '%U %a' /var/cache/trajd)" = "trajd 750" ] || { stat /var/cache/trajd; return 1; }
}
member_reads() { receives member /run/trajd/main; }
stranger_does_not() {
    ! as stranger trajctl recv train --count 1 --endpoint /run/trajd/main 2>/tmp/refusal || return 1
    cat /tmp/refusal; grep -i "permission denied" /tmp/refusal
}
metrics() { # a request over the socket unit; also where the daemon does not run
    systemctl start trajd-metrics.socket
    scrape() { exec 5<>/dev/tcp/127.0.0.1/7879; printf 'GET /metrics HTTP/1.1\r\nHost: localhost:7879\r\n\r\n' >&5; timeout 20 cat <&5 >/tmp/scraped; exec 5>&-; }
    scrape; grep -q '^HTTP/1.1 200 OK' /tmp/scraped || { head -3 /tmp/scraped; return 1; }
    grep -q '^trajd_feed_slots{feed="train",state="free"} ' /tmp/scraped && tail -n 1 /tmp/scraped | grep -qx '# EOF'
    systemctl stop trajd
    scrape; grep -q '^HTTP/1.1 503 ' /tmp/scraped || { head -3 /tmp/scraped; return 1; }
    systemctl stop trajd-metrics.socket; systemctl start trajd
}
second_config() { systemctl start trajd@lab; is trajd@lab ActiveState active; receives root /run/trajd/lab; systemctl stop trajd@lab; [ ! -e /run/trajd/lab ]; }
reload() { # a worker reads on while a feed is added and removed; a bad configuration is rejected, and the service goes on
    local pid; pid=$(property trajd MainPID)
    as member trajctl bench train --seconds 60 --endpoint /run/trajd/main >/dev/null & local worker=$!
    until_true 10 eval '[[ $(property trajd StatusText) == *"1 worker,"* ]]'
    cp /etc/trajd/trajd.yaml /tmp/before.yaml
    sed '1,/^  train:/d; s/global_batch: 8/global_batch: 4/' /tmp/before.yaml | sed '1i\  probe:' >>/etc/trajd/trajd.yaml
    systemctl reload trajd
    logged trajd "reloaded: new feeds: probe"
    as member trajctl recv probe --count 1 --endpoint /run/trajd/main >/dev/null
    sed -i 's/global_batch: 8/global_batch: 2/' /etc/trajd/trajd.yaml
    ! systemctl reload trajd || return 1
    logged trajd "reload refused.*feeds.train: was changed, and workers read it"
    cp /tmp/before.yaml /etc/trajd/trajd.yaml
    until_true 10 systemctl reload trajd
    is trajd ActiveState active
    [ "$(property trajd MainPID)" = "$pid" ]
    kill $worker # fails if the worker has ended
}
killed_comes_back() {
    local before; before=$(property trajd MainPID)
    as member trajctl recv train --count 1 --job goes_on --endpoint /run/trajd/main >/dev/null
    kill -KILL "$before"
    until_true 15 eval '[ "$(property trajd MainPID)" != '"$before"' ] && [ "$(property trajd SubState)" = running ]'
    receives member /run/trajd/main
}
watchdog() {
    local before; before=$(property trajd MainPID)
    kill -STOP "$before"
    until_true 30 eval '[ "$(property trajd MainPID)" != '"$before"' ] && [ "$(property trajd SubState)" = running ]'
    logged trajd "watchdog timeout"
    receives member /run/trajd/main
}
stop_with_worker() {
    as member trajctl bench train --seconds 60 --endpoint /run/trajd/main >/dev/null & local worker=$!
    until_true 10 eval '[[ $(property trajd StatusText) == *"1 worker,"* ]]'
    systemctl stop trajd
    is trajd Result success
    is trajd ActiveState inactive
    kill $worker 2>/dev/null || true
    [ ! -e /run/trajd/main ]
}
wrong_config_is_not_retried() {
    sed -i 's/global_batch/global_bach/' /etc/trajd/lab.yaml
    ! systemctl start trajd@lab || return 1
    is trajd@lab ExecMainStatus 78
    is trajd@lab NRestarts 0
    logged trajd@lab "lab.yaml:.*did you mean global_batch"
}
preprocess() { # a member of the group drops a file, which is published; a bad file goes to quarantine
    [ "$(stat -c '%U %G %a' /srv/trajd)" = "trajd trajd 750" ]
    systemctl enable --now trajd-preprocess@lab.path trajd-preprocess@lab.timer
    systemctl start trajd-preprocess@lab # as the timer does
    [ "$(stat -c '%U %G %a' /srv/trajd/lab/inbox)" = "trajd trajd 2770" ] || { stat /srv/trajd/lab/inbox; return 1; }
    ! as stranger ls /srv/trajd/lab || return 1
    as member cp /srv/demo.hdf5 /srv/trajd/lab/inbox/one.hdf5.partial
    as member mv /srv/trajd/lab/inbox/one.hdf5.partial /srv/trajd/lab/inbox/one.hdf5
    until_true 20 test -e /srv/trajd/lab/outbox/one.hdf5.manifest.json
    as member sh -c 'cd /srv/trajd/lab/outbox && sha256sum -c one.hdf5.sha256'
    as member sh -c 'echo nothing >/srv/trajd/lab/inbox/bad.hdf5'
    until_true 20 test -e /srv/trajd/lab/quarantine/bad.hdf5
    as member grep -q '"state":"refused"' /srv/trajd/lab/quarantine/bad.hdf5.report.json
    until_true 20 is trajd-preprocess@lab ActiveState inactive
    is trajd-preprocess@lab Result success
}
preprocess_killed() { # killed during its work; the next run does the rest
    local n count=24
    mkdir /srv/many; for n in $(seq $count); do cp /srv/demo.hdf5 "/srv/many/many$n.hdf5"; done
    as member cp /srv/many/* /srv/trajd/lab/inbox/
    until_true 20 eval 'ls /srv/trajd/lab/outbox/many*.manifest.json'
    systemctl kill -s KILL trajd-preprocess@lab
    until_true 10 is trajd-preprocess@lab ActiveState failed
    [ "$(ls /srv/trajd/lab/outbox/many*.manifest.json | wc -l)" -lt $count ]
    as member touch "/srv/trajd/lab/inbox/many$count.hdf5" # as for any new file
    until_true 60 eval '[ "$(ls /srv/trajd/lab/outbox/many*.manifest.json | wc -l)" = '$count' ]'
    until_true 20 is trajd-preprocess@lab ActiveState inactive
    is trajd-preprocess@lab Result success
    as member sh -c 'cd /srv/trajd/lab/outbox && sha256sum -c *.sha256 >/dev/null'
    [ -z "$(ls /srv/trajd/lab/outbox/.trajd)" ]
    systemctl disable --now trajd-preprocess@lab.path trajd-preprocess@lab.timer
}
user_unit() {
    loginctl enable-linger member
    until_true 20 test -S "/run/user/$(id -u member)/bus"
    systemctl --user -M member@ start trajd || { journalctl -q -n 30 --no-pager _UID=$(id -u member); return 1; }
    receives member "/run/user/$(id -u member)/trajd/main"
    systemctl --user -M member@ stop trajd
}
upgrade() { # after the upgrade the service runs the new program
    local before; systemctl start trajd; before=$(property trajd MainPID)
    dpkg -i /srv/trajd.deb
    is trajd ActiveState active
    [ "$(property trajd MainPID)" != "$before" ]
    receives member /run/trajd/main
}
remove() {
    systemctl enable trajd
    dpkg -r trajd
    [ "$(property trajd ActiveState)" = inactive ]
    ! command -v trajd trajctl || return 1
    [ -f /etc/trajd/trajd.yaml ] && [ -f /srv/trajd/lab/outbox/one.hdf5 ] # files of the operator
    dpkg -P trajd
    [ ! -e /var/lib/trajd ] && [ ! -e /var/cache/trajd ]
    [ -z "$(find /usr /etc/systemd -name '*trajd*' -newer /srv/trajd.deb -not -path '*/driver*' | grep -v '/trajd.service.d')" ]
}

for step in install users start status_line directories member_reads stranger_does_not metrics second_config reload killed_comes_back watchdog stop_with_worker \
            wrong_config_is_not_retried preprocess preprocess_killed user_unit upgrade remove; do
    run $step
done

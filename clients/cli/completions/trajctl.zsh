#compdef trajctl trajd
# The words come from the programs themselves, so this file needs no update.

_trajctl_feeds() {
    local -a where
    local i=${words[(i)--endpoint]}
    (( i < $#words )) && where=(--endpoint $words[i+1])
    compadd -- ${(f)"$(trajctl names --feeds $where 2>/dev/null)"}
}

_trajctl_places() {
    local place
    for place in "$@"; do
        case $place in
        FEED) _trajctl_feeds ;;
        COMMAND) compadd -- ${(f)"$(trajctl names)"} ;;
        DIR|*ENDPOINT*) _files -/ ;;
        *FILE*|CONFIG|IN*|OUT*) _files ;;
        *:*) ;;
        -*|*[a-z]*) compadd -- $place ;;
        esac
    done
}

_trajctl() {
    local previous=$words[CURRENT-1] command=$words[2]
    local -a places
    if (( CURRENT == 2 )); then
        compadd -- ${(f)"$(trajctl names)"} --help --version
        return
    fi
    if [[ $words[CURRENT] == --*=* ]]; then
        previous=${words[CURRENT]%%=*}
        compset -P '*='
    fi
    if [[ $previous == --layout ]]; then
        compadd -- ${(f)"$(trajctl names --layouts 2>/dev/null)"}
        return
    fi
    [[ $previous == -* ]] && places=(${(f)"$(trajctl names $command $previous 2>/dev/null)"})
    (( $#places )) || places=(${(f)"$(trajctl names $command 2>/dev/null)"})
    _trajctl_places $places
}

_trajd() {
    case $words[CURRENT-1] in
    --config) _files ;;
    --log-format) compadd -- text json ;;
    --log-level) compadd -- ${(s:|:)"$(trajd --help | sed -n 's/.*--log-level \([a-z|]*\).*/\1/p')"} ;;
    *) compadd -- ${(uf)"$(trajd --help | grep -o -- '--[a-z-]*')"} --help ;;
    esac
}

case $service in
trajd) _trajd "$@" ;;
*) _trajctl "$@" ;;
esac

# Completion for trajctl and trajd. The words come from the programs themselves, so this file needs no update.

_trajctl_endpoint() { # prints the --endpoint of the command line, if it has one
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        [ "${COMP_WORDS[i - 1]}" = --endpoint ] && printf -- '--endpoint\n%s\n' "${COMP_WORDS[i]}"
    done
}

_trajctl_words() { # prints the words that may replace the placeholders
    local placeholder line
    for placeholder in "$@"; do
        case $placeholder in
        FEED)
            local -a where=()
            while IFS= read -r line; do where+=("$line"); done < <(_trajctl_endpoint)
            trajctl names --feeds "${where[@]}" 2>/dev/null ;;
        COMMAND) trajctl names ;;
        *[a-z]*) case $placeholder in *:*) ;; *) printf '%s\n' "$placeholder" ;; esac ;;
        -*) printf '%s\n' "$placeholder" ;;
        esac
    done
}

_trajctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local places words
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(trajctl names) --help --version" -- "$current")
        return
    fi
    [ "$current" = = ] && current= # --option=VALUE comes as three words
    [ "$previous" = = ] && previous=${COMP_WORDS[COMP_CWORD - 2]}
    places=
    case $previous in -*) places=$(trajctl names "$command" "$previous" 2>/dev/null) ;; esac
    if [ "$previous" = --layout ]; then
        words=$(trajctl names --layouts 2>/dev/null)
    else
        [ -n "$places" ] || places=$(trajctl names "$command" 2>/dev/null)
        words=$(_trajctl_words $places)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    case " $(echo $places) " in
    *" DIR "* | *ENDPOINT*) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current") ;;
    *FILE* | *CONFIG* | *" OUT "* | *" IN"*) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
    esac
}

_trajd() {
    local current=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --config | --log-file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    --log-format) mapfile -t COMPREPLY < <(compgen -W "text json" -- "$current") ;;
    --log-level) mapfile -t COMPREPLY < <(compgen -W "$(trajd --help | sed -n 's/.*--log-level \([a-z|]*\).*/\1/p' | tr '|' ' ')" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$(trajd --help | grep -o -- '--[a-z-]*' | sort -u) --help" -- "$current") ;;
    esac
}

complete -o filenames -F _trajctl trajctl
complete -o filenames -F _trajd trajd

# The driver for bash. The shell is an interactive one without a terminal: only such a shell gives up a
# command at SIGINT and goes on with everything it had. Its commands come from a pipe that it fills itself
# (descriptor 0 of the shell, never of a cell), so the line that runs a cell is there again after it was
# given up. A cell is read by `source` at the top level: in a function its `declare`s would be lost, and `eval`
# knows no line numbers and lets the shell talk of jobs and terminals.
#
# Requests come on 250 and events go out on 251: a cell may want 3 and 4 for itself. Both are close-on-exec,
# which bash gives only to a copy of a descriptor that it has put aside during a redirection.
exec 2>&9 9>&- 5<&3 6>&4
{ for __atoll_n in {10..40}; do [[ /proc/self/fd/$__atoll_n -ef /proc/self/fd/5 ]] && exec 250<&$__atoll_n; done; } 3<&-
{ for __atoll_n in {10..40}; do [[ /proc/self/fd/$__atoll_n -ef /proc/self/fd/6 ]] && exec 251>&$__atoll_n; done; } 4>&-
exec 3<&- 4>&- 5<&- 6>&-
export -n PS1 PS2
unset ATOLL_DRIVER HISTFILE MAILCHECK __atoll_n
set +H +o history
shopt -u checkwinsize
trap '' INT

__atoll_id= __atoll_code= __atoll_status=0 __atoll_flags= __atoll_last=0 __atoll_errexit= __atoll_watched=

# Text as the inside of a JSON string. Only paths come here.
__atoll_text() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//[[:cntrl:]]/?}
    printf '%s' "$text"
}

# Length in bytes, whatever the locale.
__atoll_bytes() {
    local LC_ALL=C
    __atoll_count=${#1}
}

# NAME=value sets and exports, NAME alone unsets; each ends in a NUL byte.
__atoll_variables() {
    local __atoll_left=$1 __atoll_entry __atoll_count
    while (( __atoll_left > 0 )); do
        IFS= LC_ALL=C builtin read -r -d '' -u 250 __atoll_entry || exit 0
        __atoll_bytes "$__atoll_entry"
        (( __atoll_left -= __atoll_count + 1 ))
        [[ ${__atoll_entry%%=*} =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
        if [[ $__atoll_entry == *=* ]]; then builtin export "$__atoll_entry"; else builtin unset -v "$__atoll_entry"; fi
    done 2>/dev/null
}

# Says how the cell before ended, if there was one.
__atoll_report() {
    [[ $__atoll_id ]] || return 0
    local error=null
    case $__atoll_status in
        0) ;;
        interrupt) error='{"type":"Interrupt","message":"the cell was interrupted"}' ;;
        *) error="{\"type\":\"ExitStatus\",\"message\":\"exit status $__atoll_status\"}" ;;
    esac
    builtin printf '{"event":"done","id":%s,"result":null,"error":%s}\n' "$__atoll_id" "$error" >&251
    __atoll_id=
}

# In an interactive shell an unset variable under `set -u` gives up only the command it is in. The cell is
# made one command where that matters; elsewhere it is not, since aliases work from the next command on.
__atoll_wrap() {
    local first=:
    __atoll_watched=
    if [[ $__atoll_code =~ set[[:space:]]+[-+] ]]; then
        if [[ $__atoll_code =~ set[[:space:]]+[-+]([a-zA-Z]*e|o[[:space:]]+errexit) && ! $(trap -p DEBUG) ]]; then
            __atoll_watched=1
            first="trap '{ __atoll_watch; } 2>/dev/null' DEBUG"
        fi
    elif [[ $__atoll_flags != *u* ]]; then
        return 0
    fi
    __atoll_code="{ $first; $__atoll_code"$'\n'"}"
}

# Says how a text could go on, for a person who types; in a shell of its own, so that nothing of it stays.
__atoll_complete() {
    local word=${2##*[[:space:]\;\|\&\(\)\<\>=\`\"\']} before what= list= status=complete said
    before=${2%"$word"}
    before=${before%"${before##*[![:space:]]}"}
    if [[ $word == '$'* ]]; then what=v
    elif [[ ! $before || $before == *[\;\|\&\(\`] ]]; then what=c; fi
    while IFS= builtin read -r said; do
        list+=${list:+,}\"$(__atoll_text "$said")\"
    done < <(
        if [[ $what == v ]]; then compgen -v -P '$' -- "${word#\$}"
        elif [[ $word ]]; then { if [[ $what == c ]]; then compgen -c -- "$word"; fi; compgen -f -- "$word"; }
        fi | LC_ALL=C sort -u | head -n 1000
    )
    said=$(LC_ALL=C "$BASH" -n <<<"$2" 2>&1) || status=invalid
    if [[ $said == *'unexpected end of file'* || $said == *'unexpected EOF'* || $2 == *\\ ]]; then status=incomplete; fi
    builtin printf '{"event":"completion","id":%s,"prefix":"%s","matches":[%s],"status":"%s"}\n' \
        "$1" "$(__atoll_text "$word")" "$list" "$status" >&251
}

# Waits for the next cell.
__atoll_next() {
    local op id length
    __atoll_report
    while IFS=' ' builtin read -r -u 250 op id length; do
        [[ $id =~ ^[0-9]{1,19}$ && $length =~ ^[0-9]{1,8}$ ]] || continue
        if [[ $op == variables ]]; then
            __atoll_variables "$length"
        elif [[ $op == complete ]]; then
            IFS= LC_ALL=C builtin read -r -N "$length" -u 250 __atoll_code || (( length == 0 )) || exit 0
            ( __atoll_complete "$id" "$__atoll_code" )
        elif [[ $op == execute ]]; then
            IFS= LC_ALL=C builtin read -r -N "$length" -u 250 __atoll_code || (( length == 0 )) || exit 0
            __atoll_id=$id
            __atoll_wrap
            return 0
        fi
    done 2>/dev/null
    builtin exit 0 2>/dev/null
}

# After a cell: SIGINT does nothing, and the options are such that the driver works.
__atoll_rest() {
    trap '' INT
    if [[ $__atoll_watched ]]; then trap - DEBUG; fi
    set +xveu
}

# A cell that was given up never came to say how it ended.
__atoll_given_up() {
    if [[ $__atoll_status == running ]]; then __atoll_status=${__atoll_last/130/interrupt}; fi
    __atoll_flags+=$-
}

# The options that the cell before left, and SIGINT, are back for this one.
__atoll_begin() {
    local flags=$__atoll_flags
    __atoll_flags=
    if [[ $flags == *u* ]]; then set -u; fi
    if [[ $flags == *v* ]]; then set -v; fi
    trap - INT
    if [[ $flags == *x* ]]; then set -x; fi
}

# `set -e` would end the shell, and with it the variables. So a cell that speaks of it is watched: the option
# is taken back at once and remembered, and a failure gives up the cell instead. A shell that the cell
# forked ends as it would anywhere. Who sets an ERR trap of his own gets bash as it is.
__atoll_watch() {
    if [[ $BASH_COMMAND =~ ^trap\ .*\ ERR ]]; then
        if [[ $__atoll_errexit ]]; then builtin set -e; fi
        __atoll_errexit=
        trap - DEBUG
    elif [[ $BASH_COMMAND =~ ^set\ \+([a-zA-Z]*e|o\ errexit) ]]; then
        __atoll_errexit=
    elif [[ $- == *e* && $(trap -p ERR) == *__atoll_failed* ]]; then
        builtin set +e
        __atoll_errexit=1
    fi
}

__atoll_failed() {
    [[ $__atoll_id && ( $__atoll_errexit || $- == *e* ) ]] || return 0
    if [[ $BASHPID != "$$" ]]; then builtin exit "$1"; fi
    __atoll_flags=$- __atoll_errexit=1 __atoll_status=$1
    builtin set +exv
    builtin kill -INT "$$"
    : # the signal is noticed by the next command
}
# What `set -x` would say of the driver goes nowhere.
trap '{ __atoll_failed $?; } 2>/dev/null' ERR
set -E

# display TYPE [FILE]: shows a file, or what comes on stdin.
display() {
    local type=$1 copy
    if (( $# < 1 || $# > 2 )) || ! [[ $type =~ ^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64}$ ]]; then
        builtin echo 'usage: display TYPE [FILE], as in: display image/png plot.png' >&2
        return 2
    fi
    copy=$(mktemp) || return
    if (( $# == 2 )); then cat -- "$2"; else cat; fi >"$copy" || { rm -f -- "$copy"; return 1; }
    builtin printf '{"event":"display","type":"%s","file":"%s"}\n' "$type" "$(__atoll_text "$copy")" >&251
}

# The line that the shell runs again and again. It puts a copy of itself back before anything else. There
# are a few copies: a SIGINT that comes while the shell reads one loses that one.
__atoll_line='__atoll_last=$?; builtin printf "%s\n" "eval \"\$__atoll_line\"" >&0
{ trap "" INT; __atoll_given_up; __atoll_rest; } 2>/dev/null
__atoll_next
{ __atoll_status=running; __atoll_begin; } 2>/dev/null; source /dev/fd/252 </dev/null 252<<<"$__atoll_code"; { __atoll_status=$?; __atoll_flags=$-; __atoll_rest; } 2>/dev/null'
builtin printf '%s\n' 'eval "$__atoll_line"'{,,,} >&0
builtin printf '{"event":"ready","interpreter":"bash %s"}\n' "${BASH_VERSION%%(*}" >&251

# Completes sonobuoy in bash 4 and later; `sonobuoy __complete` knows the words.
_sonobuoy() {
    local line=${COMP_LINE:0:COMP_POINT} program=${1/#\~/$HOME}
    local words=() rest word out prefix= value tail strip= i
    type -P "$program" >/dev/null || program=sonobuoy
    # Bash cuts at = and : as well; what no blank separates is one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        rest=${line#"${line%%[![:space:]]*}"}
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$rest
        if ((i == 0)) || [[ $rest != "$line" ]]; then
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
        line=${rest#"$word"}
    done
    i=$((${#words[@]} - 1))
    word=${words[i]//[\"\'\\]/}
    out=$("$program" __complete "${words[@]:1:i-1}" "$word" 2>/dev/null) || return
    [[ $word == -*=* ]] && prefix=${word%%=*}=
    value=${word#"$prefix"}
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == :* ]] || COMPREPLY+=("$prefix${line%%$'\t'*}")
    done <<<"$out"
    case ${out##*$'\n'} in
    :0)
        compopt -o filenames -o default 2>/dev/null
        rest=$(compgen -f -- "$value")
        ;;
    :16)
        compopt -o filenames -o dirnames 2>/dev/null
        rest=$(compgen -d -- "$value")
        ;;
    *) rest= ;;
    esac
    while IFS= read -r line; do
        [[ -z $line ]] || COMPREPLY+=("$prefix$line")
    done <<<"$rest"
    # Only what bash takes for the word is replaced.
    tail=${2//[\"\'\\]/}
    [[ $word == *"$tail" ]] && strip=${word%"$tail"}
    COMPREPLY=("${COMPREPLY[@]#"$strip"}")
}
complete -F _sonobuoy sonobuoy

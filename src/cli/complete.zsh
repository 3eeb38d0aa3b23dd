#compdef sonobuoy
# Completes sonobuoy in zsh; `sonobuoy __complete` knows the words.
_sonobuoy() {
    local program=${${(Q)words[1]}/#\~/$HOME} word=${(Q)PREFIX} line ret=1
    local -a lines described
    whence -p -- $program >/dev/null || program=sonobuoy
    lines=("${(@f)$($program __complete "${(@Q)words[2,CURRENT-1]}" "$word" 2>/dev/null)}")
    [[ $word == -*=* ]] && compset -P 1 '*='
    for line in "${(@)lines[1,-2]}"; do
        # _describe parts name and description at the first colon that has no backslash.
        line=${line//\\/\\\\}
        line=${line//:/\\:}
        described+=("${line/$'\t'/:}")
    done
    (($#described)) && _describe sonobuoy described && ret=0
    case $lines[-1] in
    :0) _files && ret=0 ;;
    :16) _files -/ && ret=0 ;;
    esac
    return ret
}
# In a folder of fpath this file is the function itself; read as a script, it only declares it.
if [[ $funcstack[1] == _sonobuoy ]]; then
    _sonobuoy "$@"
else
    compdef _sonobuoy sonobuoy
fi

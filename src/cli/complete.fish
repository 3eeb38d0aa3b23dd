# Completes sonobuoy in fish; `sonobuoy __complete` knows the words.
function __sonobuoy_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l word (string replace -ra '["\']' '' -- "$typed")
    set -l program (string replace -r '^~(?=/)' $HOME -- $words[1])
    set -e words[1]
    command -sq $program; or set program sonobuoy
    set -l lines (command $program __complete $words "$word" 2>/dev/null)
    set -l prefix (string match -r -- '^-[^=]*=' "$word")
    # A command without a name makes fish offer files, in whatever way the path is quoted.
    set -l path "'' "(string replace -r -- '^-[^=]*=' '' "$typed")
    set -l end $lines[-1]
    set -e lines[-1]
    switch "$end"
        case :0
            set -a lines (complete -C "$path")
        case :16
            set -a lines (complete -C "$path" | string match '*/')
    end
    for line in $lines
        printf "%s\n" "$prefix$line"
    end
end
complete -c sonobuoy -e
complete -c sonobuoy -f -a '(__sonobuoy_complete)'

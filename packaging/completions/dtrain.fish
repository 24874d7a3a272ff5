# Completions of dtrain for fish: the program says what may follow.
function __dtrain_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' "$current")
    for line in ($words[1] __complete $words[2..] "$current" 2>/dev/null)
        switch $line
            case :file
                __fish_complete_path (string replace -- "$option" '' "$current") | string replace -r '^' -- "$option"
            case :folder
                __fish_complete_directories (string replace -- "$option" '' "$current") | string replace -r '^' -- "$option"
            case '*'
                echo $line
        end
    end
end
complete -c dtrain -f -a '(__dtrain_complete)'

# The part of the completions that knows no command.

# The words behind the program, without the one that is being typed; options of train need no command.
function __dtrain_words
    set -l words (commandline -opc)
    set -e words[1]
    test (count $words) -gt 0; and test $words[1] = help; and set -e words[1]
    test (count $words) -gt 0; and printf '%s\n' $words
end

function __dtrain_first # no command yet
    test (count (__dtrain_words)) -eq 0
end

function __dtrain_second # its first word
    set -l words (__dtrain_words)
    test (count $words) -eq 1; and test $words[1] = $argv[1]
end

function __dtrain_on # one of these commands, of which some have two words
    set -l words (__dtrain_words) ''
    string match -q -- '-*' $words[1]; or test -z $words[1]; and set words train
    contains -- $words[1] $argv; or contains -- "$words[1] $words[2]" $argv
end

function __dtrain_keys
    set -l key (string replace -r '^--set=' '' -- (commandline -ct) | string replace -r '=.*' '')
    if string match -q -- '*=*' (string replace -r '^--set=' '' -- (commandline -ct))
        for value in (__dtrain_key_values $key)
            echo $key=$value
        end
    else
        __dtrain_all_keys
    end
end

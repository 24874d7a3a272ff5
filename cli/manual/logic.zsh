# The part of the completions that knows no command; what it asks for is generated before it. A command is taken off the words, so that
# _arguments sees its options alone.
_dtrain() {
  local command=train
  local -i n=0 help=0
  local -a described
  if [[ $words[2] == help ]] && (( CURRENT > 2 )); then
    help=1
    shift words
    (( CURRENT -= 1 ))
  fi
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _dtrain_words ''
    _describe command described
    return
  fi
  if [[ $words[2] != -* ]]; then
    command=$words[2] n=1
    _dtrain_words $command
    if (( $#described && CURRENT == 3 )) && [[ $words[3] != -* ]]; then
      _describe command described
      return
    elif (( $#described )); then
      command+=" $words[3]" n=2
    fi
  fi
  (( help )) && return
  words[2,n+1]=()
  (( CURRENT -= n ))
  _dtrain_arguments
}

_dtrain_set() { # KEY=VALUE
  local key
  local -a values
  if compset -P '*='; then
    key=${${IPREFIX%=}##*=}
    _dtrain_key_values $key
    compadd -a values
  else
    _dtrain_keys
    _describe key values -S '='
  fi
}

_dtrain "$@"

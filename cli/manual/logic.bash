# The part of the completions that knows no command; what it asks for is generated before it. Bash hands over what is typed in pieces,
# split at = and : where COMP_WORDBREAKS has them, and puts what is chosen in the place of the last piece.
_dtrain() {
  local words=() command=train current previous='' text i start=0
  COMPREPLY=()
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((${#words[@]})) && [[ ${COMP_WORDS[i]} == [=:]* || ${words[-1]} == *[=:] ]]; then
      words[-1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  [[ ${words[0]-} != help ]] || { command=help start=1; }
  current=${words[-1]-}
  ((${#words[@]} < 2)) || previous=${words[-2]}
  if ((${#words[@]} == start + 1)) && [[ $current != -* ]]; then
    _dtrain_offer "$(_dtrain_words '')"
    return
  fi
  if [[ ${words[start]-} != -* ]]; then
    text=$(_dtrain_words "${words[start]}")
    if [[ -n $text ]] && ((${#words[@]} == start + 2)) && [[ $current != -* ]]; then
      _dtrain_offer "$text"
      return
    fi
    command=${words[start]}${text:+ ${words[start + 1]-}}
  fi
  ((start == 0)) || return
  if [[ $current == --*=* ]]; then
    previous=${current%%=*}
    current=${current#*=}
  fi
  text=$(_dtrain_value "$previous")
  case ${text%% *} in
    file) _dtrain_offer_files -f ;;
    folder) _dtrain_offer_files -d ;;
    names) _dtrain_offer "${text#names }" ;;
    key)
      if [[ $current == *=* ]]; then
        text=${current%%=*}
        _dtrain_offer "$(for i in $(_dtrain_key_values "$text"); do echo "$text=$i"; done)"
      else
        compopt -o nospace
        _dtrain_offer "$(_dtrain_keys)"
      fi
      ;;
    any) ;;
    *)
      text=$(_dtrain_options "$command")
      if [[ $current == -* ]]; then
        _dtrain_offer "${text#files }"
      elif [[ $text == 'files '* ]]; then
        _dtrain_offer_files -f
      fi
      ;;
  esac
}

# Of these words those that begin with what is typed; what Bash has split off is not said again.
_dtrain_offer() {
  local typed=$current breaks=${COMP_WORDBREAKS//[!=:]/} i
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$typed")
  [[ -n $breaks && $typed == *[$breaks]* ]] || return 0
  typed=${typed%"${typed##*["$breaks"]}"}
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=${COMPREPLY[i]#"$typed"}
  done
}

_dtrain_offer_files() {
  compopt -o filenames
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
}

complete -F _dtrain dtrain

# shellcheck shell=bash
# Completions of dtrain for bash: the program says what may follow.
_dtrain() {
  local words=() i typed
  for ((i = 1; i <= COMP_CWORD; i++)); do # bash splits words at = and :
    if ((i > 1)) && [[ ${COMP_WORDS[i]} == [=:]* || ${COMP_WORDS[i - 1]} == *[=:] ]]; then
      words[-1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  typed=${words[-1]}
  mapfile -t COMPREPLY < <("$1" __complete "${words[@]}" 2>/dev/null | cut -f 1)
  case ${COMPREPLY[0]-} in
    :file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    :folder) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    *=) compopt -o nospace ;;&
    *) COMPREPLY=("${COMPREPLY[@]#"${typed%"$2"}"}") ;;
  esac
}
complete -F _dtrain dtrain
# Behind a launcher: from the program's name on.
_dtrain_launched() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == dtrain || ${COMP_WORDS[i]} == */dtrain ]]; then
      COMP_WORDS=("${COMP_WORDS[@]:i}")
      COMP_CWORD=$((COMP_CWORD - i))
      _dtrain "${COMP_WORDS[0]}" "$2" "$3"
      return
    fi
  done
}
complete -o bashdefault -o default -F _dtrain_launched mpirun mpiexec srun

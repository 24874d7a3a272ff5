# shellcheck shell=bash
# Completions of dtrain for bash, made by `cmake --build build/release --target docs`.

_dtrain_words() { # [FIRST]: the words that may follow
  case $1 in
    '') echo train eval predict export plan report compare watch doctor accept sweep slurm bench lab help ;;
    bench) echo blocks scaling allreduce ;;
    lab) echo gradtape linear lr shards batch model-parallel pipeline server compression stragglers allreduce reduce ;;
  esac
}

_dtrain_options() { # COMMAND: its options, behind "files" where it takes names of files
  case $1 in
    'train') echo --config --data --run --resume --set --inject --weights --help --version --help-config --print-config ;;
    'eval') echo --config --data --set --checkpoint --weights --help --version --help-config ;;
    'predict') echo files --config --set --checkpoint --weights --invert --help --version --help-config ;;
    'export') echo --config --set --checkpoint --weights --onnx --help --version --help-config ;;
    'plan') echo --config --data --set --help --version --help-config ;;
    'report') echo files --data --html --help --version --help-config ;;
    'compare') echo files --help --version --help-config ;;
    'watch') echo files --help --version --help-config ;;
    'doctor') echo --config --data --run --set --help --version --help-config ;;
    'accept') echo --run --inject --json --junit --baseline --short --html --help --version --help-config ;;
    'sweep') echo --config --data --run --resume --set --help --version --help-config ;;
    'slurm') echo --config --data --run --set --nodes --ntasks-per-node --cpus-per-task --gpus-per-node --time --partition --account --script --help --version --help-config ;;
    'bench blocks') echo --config --data --set --json --help --version --help-config ;;
    'bench scaling') echo --config --data --set --json --html --help --version --help-config ;;
    'bench allreduce') echo --set --json --algorithms --minbytes --maxbytes --stepfactor --iters --warmup_iters --check --latency --bandwidth --help --version --help-config ;;
    'lab gradtape') echo --html --help --version --help-config ;;
    'lab linear') echo --batch --html --help --version --help-config ;;
    'lab lr') echo --html --help --version --help-config ;;
    'lab shards') echo --ranks --html --help --version --help-config ;;
    'lab batch') echo --html --help --version --help-config ;;
    'lab model-parallel') echo --config --ranks --html --help --version --help-config ;;
    'lab pipeline') echo --ranks --html --help --version --help-config ;;
    'lab server') echo --html --help --version --help-config ;;
    'lab compression') echo --html --help --version --help-config ;;
    'lab stragglers') echo --html --help --version --help-config ;;
    'lab allreduce') echo --algorithm --ranks --elements --html --help --version --help-config ;;
    'lab reduce') echo --html --help --version --help-config ;;
    'help') echo --help --version --help-config ;;
  esac
}

_dtrain_value() { # OPTION: what its value is; nothing where the next word is not its value
  case $1 in
    --config) echo file ;;
    --data) echo folder ;;
    --run) echo folder ;;
    --resume) [[ ${words[-1]} != *=* ]] || echo file ;;
    --set) echo key ;;
    --inject) echo names slow jitter kill stop flip nan drop ;;
    --checkpoint) echo file ;;
    --weights) echo file ;;
    --invert) echo names auto yes no ;;
    --onnx) echo file ;;
    --json) echo file ;;
    --junit) echo file ;;
    --baseline) echo file ;;
    --algorithms) echo names auto shared_memory mpi nccl staged hierarchical ring tree recursive_doubling halving_doubling all_to_all master_worker ;;
    --minbytes | -b) echo any ;;
    --maxbytes | -e) echo any ;;
    --stepfactor | -f) echo any ;;
    --iters | -n) echo any ;;
    --warmup_iters | -w) echo any ;;
    --check | -c) echo any ;;
    --latency) echo any ;;
    --bandwidth) echo any ;;
    --algorithm) echo names ring tree recursive_doubling halving_doubling all_to_all master_worker ;;
    --ranks) echo any ;;
    --elements) echo any ;;
    --batch) echo names 1 16 all ;;
    --html) echo file ;;
    --nodes) echo any ;;
    --ntasks-per-node) echo any ;;
    --cpus-per-task) echo any ;;
    --gpus-per-node) echo any ;;
    --time) echo any ;;
    --partition) echo any ;;
    --account) echo any ;;
    --script) echo file ;;
  esac
}

_dtrain_keys() { # of the configuration
  echo \
    data.format= \
    data.dir= \
    data.sharding= \
    data.shuffle= \
    data.train_samples= \
    data.test_samples= \
    data.slope= \
    data.intercept= \
    data.noise= \
    data.seed= \
    model.input= \
    model.layers= \
    model.loss= \
    train.epochs= \
    train.max_steps= \
    train.seed= \
    train.batch.per_rank= \
    train.batch.global= \
    train.accumulate= \
    train.optimizer.type= \
    train.optimizer.lr= \
    train.optimizer.momentum= \
    train.optimizer.nesterov= \
    train.optimizer.beta1= \
    train.optimizer.beta2= \
    train.optimizer.epsilon= \
    train.optimizer.weight_decay= \
    train.optimizer.clip_norm= \
    train.lr_scaling= \
    train.warmup_epochs= \
    train.early_stopping.metric= \
    train.early_stopping.patience= \
    train.early_stopping.min_delta= \
    train.schedule.type= \
    train.schedule.step_epochs= \
    train.schedule.gamma= \
    train.schedule.metric= \
    train.schedule.factor= \
    train.schedule.patience= \
    train.schedule.min_delta= \
    train.schedule.min_lr= \
    distributed.average= \
    distributed.broadcast= \
    distributed.init_per_rank= \
    distributed.strategy= \
    distributed.parameter_server.servers= \
    distributed.parameter_server.mode= \
    distributed.parameter_server.max_staleness= \
    distributed.pipeline.schedule= \
    distributed.pipeline.micro_batches= \
    distributed.pipeline.cut= \
    distributed.allreduce= \
    distributed.across= \
    distributed.compression.type= \
    distributed.compression.ratio= \
    distributed.compression.rounding= \
    distributed.compression.error_feedback= \
    distributed.order= \
    distributed.overlap= \
    distributed.bucket_mb= \
    distributed.check_every= \
    distributed.timeout_s= \
    checkpoint.every_epochs= \
    checkpoint.every_steps= \
    checkpoint.keep= \
    checkpoint.best= \
    log.every_s= \
    log.every_steps= \
    trace.steps= \
    device= \
    precision= \
    cuda.graph= \
    cuda.deterministic= \
    report= \
    tensorboard= \
    threads=
}

_dtrain_key_values() { # KEY: the values that have names
  case $1 in
    data.format) echo idx synthetic linear ;;
    data.sharding) echo shard global replicate ;;
    data.shuffle) echo true false ;;
    model.loss) echo softmax_cross_entropy mean_squared_error ;;
    train.optimizer.type) echo sgd adam adamw ;;
    train.optimizer.nesterov) echo true false ;;
    train.lr_scaling) echo none linear sqrt ;;
    train.early_stopping.metric) echo none test_loss test_accuracy ;;
    train.schedule.type) echo constant step cosine plateau ;;
    train.schedule.metric) echo none test_loss test_accuracy ;;
    distributed.average) echo true false ;;
    distributed.broadcast) echo true false ;;
    distributed.init_per_rank) echo true false ;;
    distributed.strategy) echo allreduce parameter_server central pipeline ;;
    distributed.parameter_server.mode) echo sync async ;;
    distributed.pipeline.schedule) echo gpipe 1f1b ;;
    distributed.allreduce) echo auto shared_memory mpi nccl staged hierarchical ring tree recursive_doubling halving_doubling all_to_all master_worker ;;
    distributed.across) echo ring tree recursive_doubling halving_doubling all_to_all master_worker ;;
    distributed.compression.type) echo none fp16 bf16 int8 onebit topk ;;
    distributed.compression.rounding) echo nearest stochastic ;;
    distributed.compression.error_feedback) echo true false ;;
    distributed.order) echo backward priority ;;
    distributed.overlap) echo true false ;;
    checkpoint.best) echo none test_loss test_accuracy ;;
    device) echo auto cpu ref cuda ;;
    precision) echo f32 tf32 bf16 ;;
    cuda.graph) echo true false ;;
    cuda.deterministic) echo true false ;;
    report) echo true false ;;
    tensorboard) echo true false ;;
  esac
}

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

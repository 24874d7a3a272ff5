# Completions of dtrain for fish, made by `cmake --build build/release --target docs`.

function __dtrain_all_keys
    printf '%s\t%s\n' data.format= 'idx: MNIST\'s four files; synthetic: generated images; linear: y = slope * x + intercept'
    printf '%s\t%s\n' data.dir= 'folder of the IDX files, raw or .gz, relative to the working directory; only idx reads it'
    printf '%s\t%s\n' data.sharding= 'shard: each rank keeps its share; global: same batches at any -np; replicate: each goes through all'
    printf '%s\t%s\n' data.shuffle= 'a new order in every epoch'
    printf '%s\t%s\n' data.train_samples= 'use at most so many training samples; 0: all there are, or 6000 generated ones'
    printf '%s\t%s\n' data.test_samples= 'use at most so many test samples; 0: all there are, or 1000 generated ones'
    printf '%s\t%s\n' data.slope= 'the slope to be learned'
    printf '%s\t%s\n' data.intercept= 'the intercept to be learned'
    printf '%s\t%s\n' data.noise= 'standard deviation of the noise added to generated samples'
    printf '%s\t%s\n' data.seed= 'generated samples are a function of this alone'
    printf '%s\t%s\n' model.input= '[channels, height, width] of an image, or [n] for n features'
    printf '%s\t%s\n' model.layers= 'the layers in order; the last one gives the outputs'
    printf '%s\t%s\n' model.loss= 'cross-entropy of the softmax for classes; mean squared error for format linear'
    printf '%s\t%s\n' train.epochs= 'times through the training samples'
    printf '%s\t%s\n' train.max_steps= 'stop after so many steps in all; 0: no limit'
    printf '%s\t%s\n' train.seed= 'initial weights, batches and dropout are a function of this'
    printf '%s\t%s\n' train.batch.per_rank= 'samples per rank and step: the batch is this times the ranks; 128 when neither is given'
    printf '%s\t%s\n' train.batch.global= 'samples per step over all ranks, however many there are; the rate is then not scaled'
    printf '%s\t%s\n' train.accumulate= 'gradient accumulation: micro-batches per step, to save memory'
    printf '%s\t%s\n' train.optimizer.type= 'the rule of the update'
    printf '%s\t%s\n' train.optimizer.lr= 'learning rate, before scaling and schedule'
    printf '%s\t%s\n' train.optimizer.momentum= 'share of the last update kept'
    printf '%s\t%s\n' train.optimizer.nesterov= 'look ahead; needs momentum > 0'
    printf '%s\t%s\n' train.optimizer.beta1= 'decay of the mean of the gradients'
    printf '%s\t%s\n' train.optimizer.beta2= 'decay of the mean of their squares'
    printf '%s\t%s\n' train.optimizer.epsilon= 'added to the root of the mean square'
    printf '%s\t%s\n' train.optimizer.weight_decay= 'pull of the weights towards 0: in the gradient, with adamw beside it'
    printf '%s\t%s\n' train.optimizer.clip_norm= 'clip the mean gradient to this global L2 norm; 0: off'
    printf '%s\t%s\n' train.lr_scaling= 'the rate when batch is per_rank: none: unchanged; linear: times the ranks; sqrt: times their root'
    printf '%s\t%s\n' train.warmup_epochs= 'epochs, also fractions, over which the rate grows from unscaled to scaled'
    printf '%s\t%s\n' train.early_stopping.metric= 'stop when this no longer improves from epoch to epoch; none: never'
    printf '%s\t%s\n' train.early_stopping.patience= 'after so many epochs without improvement'
    printf '%s\t%s\n' train.early_stopping.min_delta= 'only what is better than the best by more than this is an improvement'
    printf '%s\t%s\n' train.schedule.type= 'how the rate goes down; plateau: when the test samples no longer gain'
    printf '%s\t%s\n' train.schedule.step_epochs= 'epochs between two reductions'
    printf '%s\t%s\n' train.schedule.gamma= 'what each multiplies the rate by'
    printf '%s\t%s\n' train.schedule.metric= 'what has to improve from epoch to epoch'
    printf '%s\t%s\n' train.schedule.factor= 'what a plateau multiplies the rate by'
    printf '%s\t%s\n' train.schedule.patience= 'epochs without improvement that are a plateau'
    printf '%s\t%s\n' train.schedule.min_delta= 'only what is better than the best by more than this is an improvement'
    printf '%s\t%s\n' train.schedule.min_lr= 'cosine: rate at the end; plateau: it goes no lower'
    printf '%s\t%s\n' distributed.average= 'average gradients over the ranks; off: replicas drift apart'
    printf '%s\t%s\n' distributed.broadcast= 'begin with rank 0\'s weights on every rank'
    printf '%s\t%s\n' distributed.init_per_rank= 'each rank draws other initial weights: shows what the broadcast is for'
    printf '%s\t%s\n' distributed.strategy= 'allreduce: every rank has the weights and steps; parameter_server: some ranks hold the weights and step for the others; central: rank 0 does, and works too; pipeline: each rank has some of the layers'
    printf '%s\t%s\n' distributed.parameter_server.servers= 'the last so many ranks are servers, each tensor whole on one of them; the others are workers'
    printf '%s\t%s\n' distributed.parameter_server.mode= 'sync: a server adds the gradients of all workers and steps once; async: it steps with each worker\'s when they come, which is not repeatable'
    printf '%s\t%s\n' distributed.parameter_server.max_staleness= 'async: steps that a worker may be ahead of the slowest'
    printf '%s\t%s\n' distributed.pipeline.schedule= 'gpipe: all micro-batches forward, then all backward; 1f1b: one forward, one backward, as soon as possible'
    printf '%s\t%s\n' distributed.pipeline.micro_batches= 'parts of a batch, which several ranks work on at once'
    printf '%s\t%s\n' distributed.pipeline.cut= 'the blocks that the ranks behind the first begin with, such as ["conv2", "fc1"], by their names in dtrain plan; []: so that the largest part is small'
    printf '%s\t%s\n' distributed.allreduce= 'how gradients are added over the ranks; auto: nccl on GPUs, else shared_memory where a host\'s ranks have it, else mpi; hierarchical: shared memory in each host, an algorithm between hosts; staged: from GPUs through host memory'
    printf '%s\t%s\n' distributed.across= 'the algorithm between hosts'
    printf '%s\t%s\n' distributed.compression.type= 'what gradients are sent as: 16 bits (fp16, bf16), 8, the sign (onebit; of dense layers), the largest alone (topk)'
    printf '%s\t%s\n' distributed.compression.ratio= 'share of the gradients that is sent'
    printf '%s\t%s\n' distributed.compression.rounding= 'stochastic: up or down by chance, right on average (QSGD)'
    printf '%s\t%s\n' distributed.compression.error_feedback= 'what compression loses is added to the next step\'s gradients'
    printf '%s\t%s\n' distributed.order= 'backward: gradients travel as they are made, and a step ends when all weights are new; priority: those of the first layers overtake, and the next forward pass waits for each layer\'s weights when it comes to it'
    printf '%s\t%s\n' distributed.overlap= 'send gradients while the backward pass still runs'
    printf '%s\t%s\n' distributed.bucket_mb= 'MiB of gradients sent together; a bucket ends with a block; 0: every block by itself'
    printf '%s\t%s\n' distributed.check_every= 'steps between comparisons of the replicas; 0: never'
    printf '%s\t%s\n' distributed.timeout_s= 'seconds until a collective counts as stalled'
    printf '%s\t%s\n' checkpoint.every_epochs= 'epochs between checkpoints; 0: none before the end'
    printf '%s\t%s\n' checkpoint.every_steps= 'steps between checkpoints; 0: only by epochs'
    printf '%s\t%s\n' checkpoint.keep= 'how many of them stay; older ones are removed'
    printf '%s\t%s\n' checkpoint.best= 'keep checkpoints/best.safetensors, too: of the epoch in which this was best'
    printf '%s\t%s\n' log.every_s= 'seconds between progress lines when stderr is no terminal; 0: none'
    printf '%s\t%s\n' log.every_steps= 'steps between "step" records in metrics.jsonl; auto: every step at first, some hundreds in a run; 0: none'
    printf '%s\t%s\n' trace.steps= 'first:last, such as 10:30: steps of which trace.json tells what every rank did when'
    printf '%s\t%s\n' device= 'cpu: vector kernels; ref: plain loops, slow, to compare with; cuda: a GPU; auto: a GPU if every rank has one, else cpu'
    printf '%s\t%s\n' precision= 'tf32: products of numbers with 10 bits of fraction, on GPUs; bf16: 7 bits, of activations too on GPUs, and of the inputs of convolutions forward on CPUs with AMX; weights and sums are always f32'
    printf '%s\t%s\n' cuda.graph= 'record a step as a CUDA graph and launch that; off: call by call, to debug and to time its parts'
    printf '%s\t%s\n' cuda.deterministic= 'take cuDNN\'s first engine for a convolution instead of timing a few: the same bits in every run, which CPUs always give'
    printf '%s\t%s\n' report= 'write report.html, a page about the run, into its folder when it ends'
    printf '%s\t%s\n' tensorboard= 'write events for TensorBoard into its folder: what metrics.jsonl has, histograms of weights and gradients, the confusion'
    printf '%s\t%s\n' threads= 'threads per rank; 0: the cores it may use, shared among the ranks of the host'
end

function __dtrain_key_values
    switch $argv[1]
        case data.format
            printf '%s\n' idx synthetic linear
        case data.sharding
            printf '%s\n' shard global replicate
        case data.shuffle
            printf '%s\n' true false
        case model.loss
            printf '%s\n' softmax_cross_entropy mean_squared_error
        case train.optimizer.type
            printf '%s\n' sgd adam adamw
        case train.optimizer.nesterov
            printf '%s\n' true false
        case train.lr_scaling
            printf '%s\n' none linear sqrt
        case train.early_stopping.metric
            printf '%s\n' none test_loss test_accuracy
        case train.schedule.type
            printf '%s\n' constant step cosine plateau
        case train.schedule.metric
            printf '%s\n' none test_loss test_accuracy
        case distributed.average
            printf '%s\n' true false
        case distributed.broadcast
            printf '%s\n' true false
        case distributed.init_per_rank
            printf '%s\n' true false
        case distributed.strategy
            printf '%s\n' allreduce parameter_server central pipeline
        case distributed.parameter_server.mode
            printf '%s\n' sync async
        case distributed.pipeline.schedule
            printf '%s\n' gpipe 1f1b
        case distributed.allreduce
            printf '%s\n' auto shared_memory mpi nccl staged hierarchical ring tree recursive_doubling halving_doubling all_to_all master_worker
        case distributed.across
            printf '%s\n' ring tree recursive_doubling halving_doubling all_to_all master_worker
        case distributed.compression.type
            printf '%s\n' none fp16 bf16 int8 onebit topk
        case distributed.compression.rounding
            printf '%s\n' nearest stochastic
        case distributed.compression.error_feedback
            printf '%s\n' true false
        case distributed.order
            printf '%s\n' backward priority
        case distributed.overlap
            printf '%s\n' true false
        case checkpoint.best
            printf '%s\n' none test_loss test_accuracy
        case device
            printf '%s\n' auto cpu ref cuda
        case precision
            printf '%s\n' f32 tf32 bf16
        case cuda.graph
            printf '%s\n' true false
        case cuda.deterministic
            printf '%s\n' true false
        case report
            printf '%s\n' true false
        case tensorboard
            printf '%s\n' true false
    end
end

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
complete -c dtrain -f
complete -c dtrain -n '__dtrain_first' -a train -d 'train a model; the word may be left out'
complete -c dtrain -n '__dtrain_first' -a eval -d 'measure a checkpoint on the test samples'
complete -c dtrain -n '__dtrain_first' -a predict -d 'classify PNG images with a checkpoint'
complete -c dtrain -n '__dtrain_first' -a export -d 'write a trained model for other runtimes, as ONNX'
complete -c dtrain -n '__dtrain_first' -a plan -d 'show layers, parameters, memory and shards'
complete -c dtrain -n '__dtrain_first' -a report -d 'a page about a run, or about several side by side'
complete -c dtrain -n '__dtrain_first' -a compare -d 'results of runs, and where their configurations differ'
complete -c dtrain -n '__dtrain_first' -a watch -d 'a run while it is under way, from its folder'
complete -c dtrain -n '__dtrain_first' -a doctor -d 'check this allocation and report problems'
complete -c dtrain -n '__dtrain_first' -a accept -d 'PASS or FAIL for what a cluster must be able to do'
complete -c dtrain -n '__dtrain_first' -a sweep -d 'a training for each combination of values'
complete -c dtrain -n '__dtrain_first' -a slurm -d 'write the batch script of a job, and have Slurm check it'
complete -c dtrain -n '__dtrain_first' -a bench
complete -c dtrain -n '__dtrain_second bench' -a blocks -d 'time each block, beside the core\'s peak'
complete -c dtrain -n '__dtrain_second bench' -a scaling -d 'time training steps of 1, 2, 4, ... ranks'
complete -c dtrain -n '__dtrain_second bench' -a allreduce -d 'time allreduces, in nccl-tests\' columns'
complete -c dtrain -n '__dtrain_first' -a lab
complete -c dtrain -n '__dtrain_second lab' -a gradtape -d 'Horovod\'s worked example: gradients, mean, step, broadcast'
complete -c dtrain -n '__dtrain_second lab' -a linear -d 'what averaging and broadcasting are for: a line on two ranks'
complete -c dtrain -n '__dtrain_second lab' -a lr -d 'why the learning rate grows with the batch; warm-up'
complete -c dtrain -n '__dtrain_second lab' -a shards -d 'how ranks share the data, and shards that harm'
complete -c dtrain -n '__dtrain_second lab' -a batch -d 'the batch size against steps and samples to an accuracy'
complete -c dtrain -n '__dtrain_second lab' -a model-parallel -d 'four ways to share a model: bytes, and who works'
complete -c dtrain -n '__dtrain_second lab' -a pipeline -d 'who waits in a pipeline, and what each stage holds'
complete -c dtrain -n '__dtrain_second lab' -a server -d 'parameter servers beside an allreduce: bytes, bits, staleness'
complete -c dtrain -n '__dtrain_second lab' -a compression -d 'fewer bytes for gradients, and the accuracy they cost'
complete -c dtrain -n '__dtrain_second lab' -a stragglers -d 'who waits for a slow rank, or for ranks late by chance'
complete -c dtrain -n '__dtrain_second lab' -a allreduce -d 'show an allreduce round by round; no mpirun'
complete -c dtrain -n '__dtrain_second lab' -a reduce -d 'show Reduce and Allreduce of 1 to 5 on five ranks'
complete -c dtrain -n '__dtrain_first' -a help -d 'list the commands; help COMMAND: its options and examples'
complete -c dtrain -n '__dtrain_on train eval predict export plan doctor sweep slurm "bench blocks" "bench scaling" "lab model-parallel"' -l config -r -F -d 'the configuration, JSON (see --help-config)'
complete -c dtrain -n '__dtrain_on train eval plan report doctor sweep slurm "bench blocks" "bench scaling"' -l data -x -a '(__fish_complete_directories)' -d 'folder of the IDX files, in place of data.dir'
complete -c dtrain -n '__dtrain_on train doctor accept sweep slurm' -l run -x -a '(__fish_complete_directories)' -d 'the run\'s files; default runs/<config name>/<UTC time>'
complete -c dtrain -n '__dtrain_on train sweep' -l resume -F -d 'resume from this file or run, or from the newest checkpoint in --run; fresh start if it has none'
complete -c dtrain -n '__dtrain_on train eval predict export plan doctor sweep slurm "bench blocks" "bench scaling" "bench allreduce"' -l set -x -a '(__dtrain_keys)' -d 'change a key of the configuration; may be given many times'
complete -c dtrain -n '__dtrain_on train accept' -l inject -x -a 'slow jitter kill stop flip nan drop' -d 'inject a fault to see how the run reacts (see docs/distributed.md); may be given many times'
complete -c dtrain -n '__dtrain_on eval predict export' -l checkpoint -r -F -d 'a .safetensors file of an earlier run, or its folder: the best checkpoint or the newest'
complete -c dtrain -n '__dtrain_on train eval predict export' -l weights -r -F -d 'load weights from this .safetensors file (e.g. saved by PyTorch with matching names and shapes)'
complete -c dtrain -n '__dtrain_on predict' -l invert -x -a 'auto yes no' -d 'invert the image; auto: only if its background differs from the training images\''
complete -c dtrain -n '__dtrain_on export' -l onnx -r -F -d 'write the model to this file, which other runtimes load'
complete -c dtrain -n '__dtrain_on accept "bench blocks" "bench scaling" "bench allreduce"' -l json -r -F -d 'also write the measurements to this file'
complete -c dtrain -n '__dtrain_on accept' -l junit -r -F -d 'also write the rows to this file, as JUnit XML'
complete -c dtrain -n '__dtrain_on accept' -l baseline -r -F -d 'compare with an earlier run\'s --json FILE: a tenth worse fails'
complete -c dtrain -n '__dtrain_on accept' -l short -d 'measure for about ten seconds in all'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l algorithms -x -a 'auto shared_memory mpi nccl staged hierarchical ring tree recursive_doubling halving_doubling all_to_all master_worker' -d 'allreduce algorithms, such as ring,tree; default all'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l minbytes -s b -x -d 'the smallest allreduce, default 8; K, M and G are powers of 1024'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l maxbytes -s e -x -d 'the largest, default 32M, at most 1G'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l stepfactor -s f -x -d 'each size is N times the one before, default 2'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l iters -s n -x -d 'timed allreduces of each size, default 20'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l warmup_iters -s w -x -d 'untimed ones before them, default 5'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l check -s c -x -d 'allreduces of each size whose values are checked, default 1'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l latency -x -d 'as if each message took so many microseconds; algorithms alone'
complete -c dtrain -n '__dtrain_on "bench allreduce"' -l bandwidth -x -d 'as if a rank\'s link carried so many GB/s; algorithms alone'
complete -c dtrain -n '__dtrain_on "lab allreduce"' -l algorithm -x -a 'ring tree recursive_doubling halving_doubling all_to_all master_worker' -d 'the allreduce algorithm, default ring; any of the table that it prints'
complete -c dtrain -n '__dtrain_on "lab shards" "lab model-parallel" "lab pipeline" "lab allreduce"' -l ranks -x -d 'how many ranks, default 4, at most 8'
complete -c dtrain -n '__dtrain_on "lab allreduce"' -l elements -x -d 'floats on each rank, default as many as ranks'
complete -c dtrain -n '__dtrain_on "lab linear"' -l batch -x -a '1 16 all' -d 'samples of a rank\'s step, default all that it has'
complete -c dtrain -n '__dtrain_on report accept "bench scaling" "lab gradtape" "lab linear" "lab lr" "lab shards" "lab batch" "lab model-parallel" "lab pipeline" "lab server" "lab compression" "lab stragglers" "lab allreduce" "lab reduce"' -l html -r -F -d 'write a page with pictures to this file'
complete -c dtrain -n '__dtrain_on slurm' -l nodes -x -d 'nodes of the job, default 1'
complete -c dtrain -n '__dtrain_on slurm' -l ntasks-per-node -x -d 'ranks on each, default 4, or one for each GPU'
complete -c dtrain -n '__dtrain_on slurm' -l cpus-per-task -x -d 'cores, and so threads, of a rank, default 1'
complete -c dtrain -n '__dtrain_on slurm' -l gpus-per-node -x -d 'GPUs of each node, default none'
complete -c dtrain -n '__dtrain_on slurm' -l time -x -d 'the job\'s time limit, default 01:00:00'
complete -c dtrain -n '__dtrain_on slurm' -l partition -x -d 'partition to run in, default the cluster\'s'
complete -c dtrain -n '__dtrain_on slurm' -l account -x -d 'account to charge, default the cluster\'s'
complete -c dtrain -n '__dtrain_on slurm' -l script -r -F -d 'write the script to this new file, default stdout'
complete -c dtrain -n '__dtrain_on train eval predict export plan report compare watch doctor accept sweep slurm "bench blocks" "bench scaling" "bench allreduce" "lab gradtape" "lab linear" "lab lr" "lab shards" "lab batch" "lab model-parallel" "lab pipeline" "lab server" "lab compression" "lab stragglers" "lab allreduce" "lab reduce" help' -l help -s h -d 'print the commands, or the options and examples of one'
complete -c dtrain -n '__dtrain_on train eval predict export plan report compare watch doctor accept sweep slurm "bench blocks" "bench scaling" "bench allreduce" "lab gradtape" "lab linear" "lab lr" "lab shards" "lab batch" "lab model-parallel" "lab pipeline" "lab server" "lab compression" "lab stragglers" "lab allreduce" "lab reduce" help' -l version -d 'print version, MPI, instruction set and build'
complete -c dtrain -n '__dtrain_on train eval predict export plan report compare watch doctor accept sweep slurm "bench blocks" "bench scaling" "bench allreduce" "lab gradtape" "lab linear" "lab lr" "lab shards" "lab batch" "lab model-parallel" "lab pipeline" "lab server" "lab compression" "lab stragglers" "lab allreduce" "lab reduce" help' -l help-config -d 'print every key of the configuration'
complete -c dtrain -n '__dtrain_on train' -l print-config -d 'print the configuration with all defaults filled in'
complete -c dtrain -n '__dtrain_on predict report compare watch' -F

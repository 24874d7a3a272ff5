/* The command line: what is understood, what is refused and in which words; --help and the man page
 * name the same options. */
#include "cli/args.h"
#include "cli/config/config.h"
#include "cli/suggest.h"
#include "tests/lib/temporary.h"

#define MAX_WORDS 16

/* Splits at blanks; argv[0] is the program. */
static int split(const char *line, char *buffer, char *argv[MAX_WORDS])
{
    int argc = 1;
    argv[0] = buffer;
    strcpy(buffer, "dtrain");
    char *copy = buffer + sizeof "dtrain";
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        CHECK(argc < MAX_WORDS - 1);
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return argc;
}

/* Each is DT_USAGE, with the needle in its message. */
static const char *const bad[][2] = {
    {"", "--config FILE is required (see dtrain train --help)"},
    {"train", "--config FILE is required"},
    {"plan", "--config FILE is required"},
    {"--print-config", "--config FILE is required"},
    {"eval", "eval: RUN is required (dtrain eval RUN"},
    {"eval a b", "eval: 'b' is one word too many (dtrain eval RUN)"},
    {"eval a --weights w --config c", "(dtrain eval --config FILE --weights FILE)"},
    {"predict", "predict: RUN is required (dtrain predict RUN IMAGE"},
    {"predict a.png", "predict: IMAGE is required (dtrain predict RUN IMAGE"},
    {"export a", "export: FILE.onnx is required (dtrain export RUN FILE.onnx"},
    {"export a b.pb", "export: expected FILE.onnx or FILE.safetensors, got 'b.pb'"},
    {"eval --checkpoint", "--checkpoint needs a value (write RUN)"},
    {"--confg x", "unknown option '--confg' (did you mean '--config'?)"},
    {"--CONFIG x", "unknown option '--CONFIG' (did you mean '--config'?)"},
    {"--confg=x", "unknown option '--confg' (did you mean '--config'?)"},
    {"--conf x", "unknown option '--conf' (did you mean '--config'?)"},
    {"--xyzzy", "unknown option '--xyzzy' (see dtrain --help)"},
    {"--=x", "unknown option '--'"},
    {"--train.epochs=3", "(a key of the configuration: --set train.epochs=3)"},
    {"train.optimizer.lr=0.1", "(a key needs --set: --set train.optimizer.lr=0.1)"},
    {"--config a lr=0.1", "(a key needs --set: --set train.optimizer.lr=0.1)"},
    {"train --config a lr=0.1", "(a key needs --set: --set train.optimizer.lr=0.1)"},
    {"--config a --momentum=0.9",
     "(a key of the configuration: --set train.optimizer.momentum=0.9)"},
    {"eval a --epochs 3", "(for the key write --set train.epochs=3)"},
    {"--config a --batch-size 64", "(a key of the configuration: --set train.batch.per_rank=64)"},
    {"--config a --seed", "(a key of the configuration: --set train.seed=VALUE)"},
    {"--config a --set train.epochs 3",
     "--set: expected key.path=value, got 'train.epochs' (write --set train.epochs=3)"},
    {"-np 2 --config a", "unknown option '-np' (write mpirun -np 2 dtrain ...)"},
    {"-n 2 --config a", "unknown option '-n' (write mpirun -np 2 dtrain ...)"},
    {"--config a --nproc_per_node 2", "(write mpirun -np 2 dtrain ...)"},
    {"--config a --gpu 0", "unknown option '--gpu' (write --set device=cuda)"},
    {"--config a --num-workers=4", "(write --set threads=4)"},
    {"--config a --output DIR", "(write --run DIR)"},
    {"--config a --dry-run", "(write dtrain plan)"},
    {"-v", "unknown option '-v' (write dtrain --version)"},
    {"version", "unknown command 'version' (write dtrain --version)"},
    {"fit --config a", "unknown command 'fit' (write dtrain train)"},
    {"test a", "unknown command 'test' (write dtrain eval)"},
    {"--config a --resume runs/4", "unknown command 'runs/4' (write --resume=runs/4)"},
    {"train --config a --resume runs/4", "unexpected argument 'runs/4' (write --resume=runs/4)"},
    {"train a.json", "unexpected argument 'a.json' (for a configuration write --config a.json)"},
    {"-x y", "unknown option '-x' (options begin with two dashes"},
    {"-c x", "unknown option '-c' (did you mean '--config'?)"},
    {"train --config a -d x", "unknown option '-d' (did you mean '--data'?)"},
    {"-config x", "unknown option '-config' (did you mean '--config'?)"},
    {"--config", "--config needs a value (write --config FILE)"},
    {"--config --run x", "--config needs a value"},
    {"--config=", "--config needs a value"},
    {"--config x --set", "--set needs a value (write --set KEY.PATH=VALUE)"},
    {"--config x --resume=", "--resume needs a value"},
    {"--config x --resume", "--resume: no run is named (add --run DIR"},
    {"--config a --config b", "--config is given twice"},
    {"--config a --resume --resume=b", "--resume is given twice"},
    {"--help=yes", "--help takes no value (remove '=yes')"},
    {"--config a --print-config=1", "--print-config takes no value"},
    {"trian --config a", "unknown command 'trian' (did you mean 'train'?)"},
    {"run --config a", "unknown command 'run' (did you mean 'runs'?)"},
    {"go --config a",
     "unknown command 'go' (one of train, init, plan, eval, predict, export, report, runs, "
     "doctor, accept, bench, sweep, slurm, lab, help)"},
    {"bench", "unknown command 'bench' (one of bench model, bench allreduce, bench scaling)"},
    {"bench --config a", "unknown command 'bench' (one of"},
    {"bench modle --config a", "unknown command 'bench modle' (did you mean 'bench model'?)"},
    {"lab nonsense", "unknown command 'lab nonsense' (one of lab gradtape, "},
    {"lab lr --batch 16", "--batch does not belong to lab lr"},
    {"lab rduce", "unknown command 'lab rduce' (did you mean 'lab reduce'?)"},
    {"lab reduce --ranks 4", "--ranks does not belong to lab reduce"},
    {"lab allreduce --config a", "--config does not belong to lab allreduce"},
    {"bench model", "--config FILE is required"},
    {"bench model --config a -b 8", "unknown option '-b'"},
    {"bench model --config a --minbytes 8", "--minbytes does not belong to bench model"},
    {"bench model --config a b", "unexpected argument 'b' (bench model takes options only"},
    {"bench allreduce --config a", "--config does not belong to bench allreduce"},
    {"bench allreduce --data a", "--data does not belong to bench allreduce"},
    {"bench allreduce -b", "--minbytes needs a value (write --minbytes BYTES)"},
    {"bench allreduce -b 8 --minbytes=8", "--minbytes is given twice"},
    {"bench allreduce -b8", "unknown option '-b8' (options begin with two dashes"},
    {"help x", "unknown command 'x' (one of train"},
    {"help config x", "help: 'x' is no key (see dtrain help config)"},
    {"help lr x", "help: 'x' is one word too many"},
    {"report --follow a b", "report: --follow shows one run"},
    {"train --config a --json b", "--json does not belong to train"},
    {"mnist.json", "unknown command 'mnist.json' (for a configuration write --config mnist.json)"},
    {"--config a --resume b.safetensors",
     "unknown command 'b.safetensors' (write --resume=b.safetensors)"},
    {"b.safetensors", "(to resume from it write --resume=b.safetensors, to measure it dtrain eval"},
    {"train --config a b", "unexpected argument 'b' (train takes options only"},
    {"eval a --config b", "--config and --set go with --weights"},
    {"eval --weights w", "eval: --weights FILE needs --config FILE"},
    {"--config a --weights w --resume=c", "--resume=FILE and --weights both say where to begin"},
    {"eval a --set b=c", "--config and --set go with --weights"},
    {"predict a --data b c.png", "--data does not belong to predict"},
    {"eval --run a", "--run does not belong to eval (write dtrain eval a)"},
    {"init --run a", "--run does not belong to init (see dtrain init --help)"},
    {"train --config a --checkpoint b", "unexpected argument 'b' (train takes options only"},
    {"plan --config a --resume", "--resume does not belong to plan"},
    {"plan --config a --print-config", "--print-config does not belong to plan"},
    {"--config a --print-config --ema", "--ema does not belong to --print-config"},
};

static void test_bad(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char buffer[200], *argv[MAX_WORDS];
        struct dt_args args;
        dt_error_clear();
        const enum dt_status status =
            dt_args_parse(split(bad[i][0], buffer, argv), argv, &dt_program, &args);
        CHECK_MESSAGE(status == DT_USAGE && strstr(dt_error_text(), bad[i][1]) != NULL,
                      "'%s' gives %d \"%s\", expected \"%s\"", bad[i][0], (int)status,
                      dt_error_text(), bad[i][1]);
    }
}

static struct dt_args parse(const char *line, char buffer[200])
{
    char *argv[MAX_WORDS];
    struct dt_args args;
    dt_error_clear();
    CHECK_MESSAGE(dt_args_parse(split(line, buffer, argv), argv, &dt_program, &args) == DT_OK,
                  "'%s': %s", line, dt_error_text());
    return args;
}

/* What is given: the command, options in the order of their list, and paths. */
static const char *const parsed[][2] = {
    {"--config a.json --data=d --set x=1 --run r --resume --set=y=2=3",
     "train config=a.json data=d run=r resume set=x=1 set=y=2=3"},
    {"train --config a --resume=c.safetensors", "train config=a resume=c.safetensors"},
    {"--config a plan --set -x=1", "plan config=a set=-x=1"},
    {"predict c a.png -- --b.png -", "predict c a.png --b.png -"},
    {"predict --config c a.png --weights w --set threads=1",
     "predict config=c set=threads=1 weights=w a.png"},
    {"eval c --data d", "eval data=d c"},
    {"bench model --config c --json j", "bench model config=c json=j"},
    {"--config a --epochs 3 --set b=c --lr=0.1 --batch 8 --epochs 4",
     "train config=a set=train.epochs=3 set=b=c set=train.optimizer.lr=0.1 "
     "set=train.batch.per_rank=8 set=train.epochs=4"},
    {"sweep --config a --lr 0.1,0.2", "sweep config=a set=train.optimizer.lr=0.1,0.2"},
    {"lab linear --batch all", "lab linear batch=all"},
    {"report a b", "report a b"},
    {"--set distributed.allreduce=mpi bench allreduce -b 1K -e 2M",
     "bench allreduce set=distributed.allreduce=mpi minbytes=1K maxbytes=2M"},
    /* that it is no number of sums is for dt_bench_options_read to say */
    {"bench allreduce -f 3 --iters 4 -w -5 -c 6",
     "bench allreduce stepfactor=3 iters=4 warmup_iters=-5 check=6"},
};

static void test_parsed(void)
{
    for (size_t i = 0; i < sizeof parsed / sizeof parsed[0]; i++) {
        char buffer[200], text[300];
        struct dt_args args = parse(parsed[i][0], buffer);
        size_t n = (size_t)snprintf(text, sizeof text, "%s", args.command->word);
        for (int v = 0; v < DT_N_VALUES; v++) {
            for (int k = 0; k < args.values[v].n; k++) {
                const char *given = args.values[v].texts[k];
                n += (size_t)snprintf(text + n, sizeof text - n, " %s%s%s",
                                      v < DT_N_OPTIONS ? dt_options[v].name : "",
                                      v < DT_N_OPTIONS && given != NULL ? "=" : "",
                                      given == NULL ? "" : given);
            }
        }
        CHECK_TEXT(text, parsed[i][1]);
        dt_args_free(&args);
    }
}

/* Old forms: what they mean now, and the new form that is printed. */
static void test_old_forms(void)
{
    static const char *const rows[][2] = {
        {"compare a b", "dtrain report a b"},
        {"watch", "dtrain report --follow"},
        {"watch a", "dtrain report a --follow"},
        {"scale --config a", "dtrain bench scaling --config a"},
        {"bench blocks --config a", "dtrain bench model --config a"},
        {"eval --checkpoint a --data b", "dtrain eval a --data b"},
        {"predict a.png --checkpoint=c", "dtrain predict c a.png"},
        {"export --onnx a.onnx --checkpoint b", "dtrain export b a.onnx"},
        {"export --safetensors a.safetensors --checkpoint b", "dtrain export b a.safetensors"},
        {"--help-config", "dtrain help config"},
        {"watch --help", "dtrain help report"},
        {"--help-config train.epochs", "dtrain help train.epochs"},
        {"--help-config train", "dtrain help config train"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buffer[200];
        struct dt_args args = parse(rows[i][0], buffer);
        CHECK_TEXT(args.now, rows[i][1]);
        dt_args_free(&args);
        args = parse(rows[i][1] + sizeof "dtrain", buffer);
        CHECK(args.now == NULL);
        dt_args_free(&args);
    }
}

static void test_informative(void)
{
    const struct {
        const char *line;
        const char *word;
    } cases[] = {
        {"--version --help", "help"},
        {"--version", "--version"},
        {"--print-config --config a", "--print-config"},
        {"train --print-config --config a --set b=c --run d --resume", "--print-config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[200];
        struct dt_args args = parse(cases[i].line, buffer);
        CHECK_TEXT(args.command->word, cases[i].word);
        dt_args_free(&args);
    }
}

static void test_suggestions(void)
{
    const char *const cases[][3] = {
        /* word, candidate, expected */
        {"lr", "LR", "LR"},
        {"rl", "lr", "lr"},
        {"ephocs", "epochs", "epochs"},
        {"kernal", "kernel", "kernel"},
        {"seeds", "seed", "seed"},
        {"x", "seed", NULL},
        {"", "a", NULL},
        {"momentun", "momentum", "momentum"},
        {"abcdef", "uvwxyz", NULL},
        {"gloabl", "global", "global"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dt_suggestion s = {.word = cases[i][0]};
        dt_suggest_offer(&s, cases[i][1]);
        CHECK_TEXT(s.best == NULL ? "" : s.best, cases[i][2] == NULL ? "" : cases[i][2]);
    }
    struct dt_suggestion nearest = {.word = "stepp"};
    dt_suggest_offer(&nearest, "stop");
    dt_suggest_offer(&nearest, "step");
    dt_suggest_offer(&nearest, "steep");
    CHECK_TEXT(nearest.best, "step");
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct dt_suggestion too_long = {.word = longest};
    dt_suggest_offer(&too_long, longest);
    CHECK(too_long.best == NULL);
}

/* Help of every command, and of all. */
static void test_width_of_help(void)
{
    FILE *out = print_begin();
    dt_args_help(out, &dt_program, NULL);
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            dt_args_help(out, &dt_program, (*c)->word);
        }
    }
    for (const char *line = print_end(); *line != '\0'; line += strcspn(line, "\n") + 1) {
        const int width = (int)strcspn(line, "\n");
        CHECK_MESSAGE(width <= 80, "%d columns: %.*s", width, width, line);
    }
}

/* True if the usage names the option, by its long name or its letter. */
static bool is_named(const char *usage, const struct dt_option_entry *option)
{
    char name[40], letter[] = {'[', '-', option->letter, ' ', '\0'};
    const size_t n = (size_t)snprintf(name, sizeof name, "--%s", option->name);
    const char *at = strstr(usage, name);
    while (at != NULL && (at[n] == '-' || at[n] == '_' || (at[n] >= 'a' && at[n] <= 'z'))) {
        at = strstr(at + n, name);
    }
    return at != NULL || (option->letter != '\0' && strstr(usage, letter) != NULL);
}

/* A command's usage names exactly its options. */
static void check_usage(const struct dt_command *c)
{
    const char *usage = strstr(c->usage, "dtrain"); /* -np before it is mpirun's */
    for (int o = 0; o < DT_N_OPTIONS; o++) {
        const bool has = c->options[o].need != DT_NOT_TAKEN && o != DT_OPTION_PRINT_CONFIG;
        CHECK_MESSAGE(dt_options[o].use == DT_COMMON || has == is_named(usage, &dt_options[o]),
                      "%s: --%s is %s option, and its usage %s", c->word, dt_options[o].name,
                      has ? "an" : "no", usage);
    }
    static const char *const words[] = {"(RUN", " [RUN]", " [FOLDER]", " [FILE]"};
    bool paths = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        paths = paths || strstr(usage, words[i]) != NULL;
    }
    CHECK(paths == dt_command_takes(c, DT_PATHS));
    CHECK(strstr(c->examples, c->word) != NULL || c == dt_program.commands[0]);
    CHECK(c->meaning[0] != '\0');
}

/* Every row has a function, and one that the program can call. */
static void test_usage(void)
{
    int n = 0;
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++, n++) {
        CHECK(((*c)->alone != NULL) != ((*c)->together != NULL));
        if (dt_command_has_word(*c)) {
            check_usage(*c);
        }
    }
    CHECK(n > 20); /* with the lessons */
}

/* Help explains an option for its command, and not for others. */
static void test_meanings(void)
{
    static const char *const rows[][3] = {
        {"eval", "needs --config", "load weights from"},
        {"train", "load weights from", "needs --config"},
        {"lab reduce", "write the result as a page", "report.html"},
        {"report", "what the model learned", "in place of data.dir"},
        {"lab allreduce", "at most 64", "at most 8"},
        {"lab shards", "at most 8", "at most 64"},
        {"bench", "bench scaling: ", "Commands"},
        {"lab", "\n  lab allreduce", "--elements"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dt_args_help(print_begin(), &dt_program, rows[i][0]);
        const char *help = print_end();
        CHECK_HAS(help, rows[i][1]);
        CHECK(strstr(help, rows[i][2]) == NULL);
    }
}

/* Whose help is asked for, and that it is about nothing else. */
static void test_help_of(void)
{
    static const struct {
        const char *line, *about, *says, *silent;
    } cases[] = {
        {"help", NULL, "Commands\n", "--run DIR"},
        {"--help", NULL, "Exit status\n", "--minbytes"},
        {"help help", NULL, "bench allreduce", "--minbytes"},
        {"help train", "train", "--resume[=RUN]", "--minbytes"},
        {"train --help", "train", "--weights FILE", "--json"},
        {"-h eval", "eval", "RUN:last", "--run"},
        {"help bench", "bench", "--minbytes, -b BYTES", "--run DIR"},
        {"bench --help", "bench", "dtrain bench model: ", "RUN"},
        {"bench model --help", "bench model", "--json FILE", "--minbytes"},
        {"help bench allreduce", "bench allreduce", "--iters, -n N", "--data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[200];
        struct dt_args args = parse(cases[i].line, buffer);
        CHECK_TEXT(args.command->word, "help");
        CHECK_TEXT(args.about == NULL ? "" : args.about,
                   cases[i].about == NULL ? "" : cases[i].about);
        dt_args_help(print_begin(), &dt_program, args.about);
        const char *help = print_end();
        CHECK_HAS(help, cases[i].says);
        CHECK(strstr(help, cases[i].silent) == NULL);
        dt_args_free(&args);
    }
}

/* Keys whose help is asked for. */
static void test_help_of_keys(void)
{
    static const char *const rows[][3] = {
        {"help config", "Layers: objects of the list model.layers", "Commands"},
        {"help config train", "train.optimizer.lr", "data.dir"},
        {"help train.optimizer.lr", "learning rate, before", "momentum"},
        {"help train.optimizer", "train.optimizer.momentum", "train.epochs"},
        {"help train.optimizer", "weight_decay\n                             0           >= 0",
         "weight_decay  0"},
        {"help conv2d", "output channels", "train.epochs"},
        {"help batch-size", "train.batch.per_rank", "epochs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buffer[200];
        struct dt_args args = parse(rows[i][0], buffer);
        CHECK_TEXT(args.command->word, "help");
        dt_config_help(print_begin(), args.key);
        const char *help = print_end();
        CHECK_HAS(help, rows[i][1]);
        CHECK(strstr(help, rows[i][2]) == NULL);
        dt_args_free(&args);
    }
}

/* Completion of a line by the TAB key; its last word is behind the last blank. */
static void test_complete(void)
{
    static const char *const rows[][2] = {
        {"tra", "train\ttrain a model (default command)\n"},
        {"bench a", "allreduce\ttime allreduces, in nccl-tests' columns\n"},
        {"be", "bench\n"},
        {"predict c ", ":file\n"},
        {"eval ", ":file\n"},
        {"eval c --data ", ":folder\n"},
        {"train --config c ", ""},
        {"la", "lab\t"},
        {"lab lr", "lr\t"},
        {"--config=", ":file\n"},
        {"--set cuda.gr", "cuda.graph=\t"},
        {"--set=cuda.graph=", "--set=cuda.graph=true\n--set=cuda.graph=false\n"},
        {"predict --invert a", "auto\n"},
        {"slurm --partition x", ""},
        {"nonsense --con", ""},
        {"help trai", "train\t"},
        {"help train ", ""},
        {"lab allreduce --algorithm tr", "tree\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buffer[200], *argv[MAX_WORDS], empty[] = "";
        int argc = split(rows[i][0], buffer, argv);
        if (rows[i][0][strlen(rows[i][0]) - 1] == ' ') {
            argv[argc++] = empty;
        }
        dt_complete(print_begin(), &dt_program, argc - 1, argv + 1);
        const char *text = print_end();
        const size_t n_wanted = strlen(rows[i][1]);
        const bool begins = strncmp(text, rows[i][1], n_wanted) == 0;
        CHECK_MESSAGE(begins && (text[n_wanted] == '\0' || rows[i][1][n_wanted - 1] == '\t'),
                      "'%s' offers \"%s\", expected \"%s\"", rows[i][0], text, rows[i][1]);
    }
}

int main(void)
{
    test_complete();
    test_meanings();
    test_help_of();
    test_help_of_keys();
    test_bad();
    test_parsed();
    test_old_forms();
    test_informative();
    test_suggestions();
    test_width_of_help();
    test_usage();
    return 0;
}

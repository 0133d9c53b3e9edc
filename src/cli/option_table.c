/* Every setting of the program. */
#include "cli/options.h"

#include <limits.h>

static const char *const apis[] = {"openai", "anthropic", NULL};
static const char *const restores[] = {"auto", "replay", "fresh", "ask", NULL};
static const char *const formats[] = {"json", "sqlite", "rlmflow-python", NULL};
static const char *const runtimes[] = {"subprocess", NULL};

enum {
    SETTINGS = FOR_RUN | FOR_RESUME | FOR_CONFIG,
    ANYWHERE = FOR_RUN | FOR_RESUME | FOR_CONFIG | FOR_DOCTOR,
    SHOWN = FOR_RUN | FOR_RESUME | FOR_REPLAY | FOR_DEMO | FOR_CONFIG,
};

#define COUNT(option_name, commands_, fallback_, help_)                                 \
    {                                                                                   \
        .name = option_name, .kind = OPTION_NUMBER, .group = "limits", .argument = "N", \
        .fallback = fallback_, .help = help_, .commands = commands_, .max = INT_MAX     \
    }
#define TIME(option_name, fallback_, help_)                                              \
    {                                                                                    \
        .name = option_name, .kind = OPTION_TIME, .group = "limits", .argument = "TIME", \
        .fallback = fallback_, .help = help_, .commands = SETTINGS                       \
    }
#define MODEL_TIME(option_name, fallback_, help_)                                       \
    {                                                                                   \
        .name = option_name, .kind = OPTION_TIME, .group = "model", .argument = "TIME", \
        .fallback = fallback_, .help = help_, .commands = ANYWHERE, .max = INT_MAX      \
    }

/* clang-format off */
const struct option option_table[OPT_COUNT] = {
    [OPT_INPUT] = {.name = "input", .group = "task", .argument = "NAME=VALUE", .list = true,
        .help = "an input: a text, NAME=@FILE (bytes if it is not UTF-8; @FILE,encoding=latin-1 makes it "
                "text), NAME=@DIR (a mapping of names to contents), NAME=@@x (the text \"@x\")",
        .commands = FOR_RUN, .only_flag = true},
    [OPT_CONTINUE] = {.name = "continue", .group = "task", .argument = "RUN",
        .help = "QUERY is a follow-up to this run, which has ended; it goes on in the same place",
        .commands = FOR_RUN, .only_flag = true},
    [OPT_FROM] = {.name = "from", .group = "task", .argument = "RUN@NODE",
        .help = "make a new run that is RUN up to a node, and go on from there, with QUERY if one is given. "
                "NODE is a node's id, AGENT:SEQ, AGENT:turnN (after the agent's Nth reply and its code), or "
                "SEQ or turnN of the root", .commands = FOR_RUN, .only_flag = true},
    [OPT_SCHEMA] = {.name = "schema", .group = "task", .argument = "FILE",
        .help = "a JSON schema that the answer must fit; the answer is then JSON",
        .commands = FOR_RUN, .only_flag = true},
    [OPT_MODEL] = {.name = "model", .group = "model", .argument = "NAME",
        .help = "the model as the server knows it, or script:FILE for replies from a file",
        .commands = ANYWHERE},
    [OPT_BASE_URL] = {.name = "base-url", .group = "model", .argument = "URL", .url = true,
        .help = "the server: the part before /chat/completions or /v1/messages; if unset, OPENAI_BASE_URL or "
                "ANTHROPIC_BASE_URL, else the provider's own", .commands = ANYWHERE},
    [OPT_API] = {.name = "api", .group = "model", .kind = OPTION_CHOICE, .argument = "openai|anthropic",
        .choices = apis, .help = "what the server speaks; if unset, anthropic for a model named claude* "
        "without --base-url, or if only ANTHROPIC_* variables are set, else openai", .commands = ANYWHERE},
    [OPT_CHILD_MODEL] = {.name = "child-model", .group = "model", .argument = "NAME",
        .help = "the model of sub-agents; if unset, the same", .commands = ANYWHERE},
    [OPT_TEMPERATURE] = {.name = "temperature", .group = "model", .kind = OPTION_REAL, .argument = "T",
        .help = "sent to the model; if unset, the server decides", .commands = ANYWHERE},
    [OPT_REASONING_EFFORT] = {.name = "reasoning-effort", .group = "model", .argument = "WORD",
        .help = "low, medium, high, ... as the model knows it", .commands = ANYWHERE},
    [OPT_MAX_OUTPUT_TOKENS] = {.name = "max-output-tokens", .group = "model", .kind = OPTION_NUMBER,
        .argument = "N", .fallback = "8192", .max = INT_MAX, .help = "the most tokens of one reply",
        .commands = SETTINGS},
    [OPT_HEADER] = {.name = "header", .group = "model", .argument = "NAME=VALUE", .list = true,
        .secret = true, .help = "added to each request; kept out of the run's files", .commands = ANYWHERE},
    [OPT_BODY] = {.name = "body", .group = "model", .argument = "JSON",
        .help = "an object whose members are added to the body of each request", .commands = ANYWHERE},
    [OPT_PRICE] = {.name = "price", .group = "model", .argument = "[MODEL=]IN/OUT", .list = true,
        .help = "dollars for a million tokens in and out, for models that the built-in table lacks",
        .commands = ANYWHERE},
    [OPT_PROXY] = {.name = "proxy", .group = "model", .argument = "URL", .url = true,
        .help = "used even for what NO_PROXY names; if unset, HTTPS_PROXY and the like",
        .commands = ANYWHERE},
    [OPT_CA_FILE] = {.name = "ca-file", .group = "model", .argument = "FILE",
        .help = "certificates to trust; if unset, CURL_CA_BUNDLE, SSL_CERT_FILE, else the system's",
        .path = true, .commands = ANYWHERE},
    [OPT_CONNECT_TIMEOUT] = MODEL_TIME("connect-timeout", "10s",
        "time to connect to the model's server; 0: no limit"),
    [OPT_FIRST_BYTE_TIMEOUT] = MODEL_TIME("first-byte-timeout", "600s",
        "time until a reply begins; 0: no limit"),
    [OPT_IDLE_TIMEOUT] = MODEL_TIME("idle-timeout", "120s",
        "time between the bytes of a reply that has begun; 0: no limit"),
    [OPT_RUNTIME] = {.name = "runtime", .group = "session", .kind = OPTION_CHOICE, .argument = "NAME",
        .choices = runtimes, .fallback = "subprocess",
        .help = "where agent code runs. subprocess: a plain child process without isolation, which can do "
                "what you can do", .commands = SETTINGS},
    [OPT_PYTHON] = {.name = "python", .group = "session", .argument = "PATH", .fallback = "python3",
        .help = "the interpreter of the sessions, 3.8 or newer", .path = true,
        .commands = ANYWHERE | FOR_REPLAY | FOR_DEMO},
    [OPT_CWD] = {.name = "cwd", .group = "session", .argument = "DIR",
        .help = "the working directory of the sessions; if unset, the current one", .path = true,
        .commands = SETTINGS},
    [OPT_COLLECT] = {.name = "collect", .group = "session", .argument = "DIR",
        .help = "copy the files that agents wrote in their working directory to DIR, which must be new or "
                "empty; without --cwd that working directory is a fresh one, and DIR itself when the run is "
                "resumed", .path = true, .stays = true, .commands = FOR_RUN, .only_flag = true},
    [OPT_SPARE] = {.name = "spare", .group = "session", .kind = OPTION_NUMBER, .argument = "N",
        .fallback = "0", .max = 1000, .help = "interpreters that are started ahead of need",
        .commands = SETTINGS},
    [OPT_APPROVE] = {.name = "approve", .group = "session", .argument = "none|all|match:REGEX",
        .fallback = "none",
        .help = "ask on the terminal before code runs: before all of it, or where a PCRE2 expression is found "
                "in it. You run it, edit it, or refuse it with a reason that the model is told. Without a "
                "terminal the run stops with exit code 3, and `rlmflow resume` asks again",
        .commands = SETTINGS},
    [OPT_RESTORE] = {.name = "restore", .group = "session", .kind = OPTION_CHOICE,
        .argument = "auto|replay|fresh|ask", .choices = restores, .fallback = "auto",
        .help = "what becomes of a session that ends before its agent (the run was stopped, the worker "
                "died). replay: a new session runs its cells again, with the recorded answers to their "
                "calls; fresh: a new session, and the model is told which variables are gone; auto: replay "
                "where cells can change nothing outside (a sandbox), else fresh; ask: you are asked",
        .commands = FOR_RUN | FOR_RESUME, .only_flag = true},
    [OPT_EXECUTE] = {.name = "execute", .group = "replay", .kind = OPTION_SWITCH,
        .help = "run all code again; if unset, code that could change things outside its session is not "
                "run, and its output is taken from the record",
        .commands = FOR_REPLAY, .only_flag = true},
    [OPT_IGNORE_OUTPUT] = {.name = "ignore-output", .group = "replay", .kind = OPTION_SWITCH,
        .help = "name the cells that print something else, but do not count that as a difference",
        .commands = FOR_REPLAY, .only_flag = true},
    [OPT_MAX_DEPTH] = COUNT("max-depth", SETTINGS, "2", "levels of sub-agents; 0: none"),
    [OPT_MAX_ITERS] = COUNT("max-iters", SETTINGS, "20", "turns of one agent"),
    [OPT_CHILD_MAX_ITERS] = COUNT("child-max-iters", SETTINGS, "0", "turns of a sub-agent; 0: as --max-iters"),
    [OPT_MAX_BUDGET] = {.name = "max-budget", .group = "limits", .kind = OPTION_NUMBER, .argument = "TOKENS",
        .help = "tokens of all agents together, in and out", .commands = SETTINGS},
    [OPT_MAX_COST] = {.name = "max-cost", .group = "limits", .kind = OPTION_MONEY, .argument = "DOLLARS",
        .help = "cost of all agents together", .commands = SETTINGS},
    [OPT_MAX_TIME] = {.name = "max-time", .group = "limits", .kind = OPTION_TIME, .argument = "TIME",
        .help = "time of the whole run", .commands = SETTINGS},
    [OPT_EXEC_TIMEOUT] = TIME("exec-timeout", "120s",
        "time of one cell of code, not counting what it waits for models and sub-agents"),
    [OPT_CPU_TIME] = TIME("cpu-time", "300s", "processor time of one cell of code"),
    [OPT_MAX_OUTPUT_LENGTH] = COUNT("max-output-length", SETTINGS, "4000",
        "characters of a cell's output that the model sees; 0: all"),
    [OPT_MAX_QUERY_CHARS] = COUNT("max-query-chars", SETTINGS, "2000", "characters of a sub-agent's query"),
    [OPT_MAX_MESSAGES] = COUNT("max-messages", SETTINGS, "0", "messages that the model sees; 0: all"),
    [OPT_WORKERS] = COUNT("workers", SETTINGS | FOR_DEMO, "8", "model calls at a time"),
    [OPT_MAX_LIVE] = COUNT("max-live", SETTINGS, "64", "agents whose code runs at a time"),
    [OPT_MAX_AGENTS] = COUNT("max-agents", SETTINGS, "1000", "agents of the whole run"),
    [OPT_MAX_INPUT_SIZE] = {.name = "max-input-size", .group = "limits", .kind = OPTION_SIZE,
        .argument = "SIZE", .fallback = "4g",
        .help = "size of one input, or of one file of a directory that is an input", .commands = SETTINGS},
    [OPT_CUT] = {.name = "cut", .group = "result", .kind = OPTION_SWITCH,
        .help = "if the run's journal is damaged before its end, give up what follows the damage",
        .commands = FOR_RESUME, .only_flag = true},
    [OPT_OUTPUT] = {.name = "output", .letter = 'o', .group = "result", .argument = "PATH",
        .help = "keep the run there, a path that does not exist; if unset, under the state directory",
        .commands = FOR_RUN | FOR_DEMO, .only_flag = true},
    [OPT_SYNC] = {.name = "sync", .group = "result", .kind = OPTION_SWITCH,
        .help = "wait before each step until the disk has what was recorded", .commands = SETTINGS},
    [OPT_JSON] = {.name = "json", .group = "result", .kind = OPTION_SWITCH,
        .help = "stdout is JSON Lines: one event a line and the result last, or for `runs` one run a line",
        .only_flag = true, .commands = FOR_RUN | FOR_RESUME | FOR_DEMO | FOR_VIEW | FOR_RUNS},
    [OPT_QUIET] = {.name = "quiet", .letter = 'q', .group = "result", .kind = OPTION_SWITCH,
        .help = "no progress on stderr", .commands = SHOWN},
    [OPT_LOG_FILE] = {.name = "log-file", .group = "result", .argument = "FILE",
        .help = "append all events to FILE as lines with their time", .commands = SHOWN},
    [OPT_AGENT] = {.name = "agent", .group = "view", .argument = "ID",
        .help = "one agent's trajectory, node by node", .commands = FOR_VIEW, .only_flag = true},
    [OPT_NODE] = {.name = "node", .group = "view", .argument = "NODE",
        .help = "one node in full: its id, AGENT:SEQ, AGENT:turnN, or SEQ or turnN of the root",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_USAGE] = {.name = "usage", .group = "view", .kind = OPTION_SWITCH,
        .help = "where tokens and money went, by agent and by turn, dearest first",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_TIMELINE] = {.name = "timeline", .group = "view", .kind = OPTION_SWITCH,
        .help = "when each agent waited for its model, ran code or waited for a session or for others; with --agent, each step",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_CONVERSATION] = {.name = "conversation", .group = "view", .kind = OPTION_SWITCH,
        .help = "with --agent: the messages of its last turn, as its model saw them",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_DIFF] = {.name = "diff", .group = "view", .argument = "RUN2",
        .help = "where another run went another way; exit code 1 if it did",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_HTML] = {.name = "html", .group = "view", .argument = "FILE",
        .help = "write the run as one HTML file that works offline (-: stdout); a file that exists is replaced",
        .commands = FOR_VIEW, .only_flag = true},
    [OPT_OLDER_THAN] = {.name = "older-than", .group = "prune", .argument = "TIME",
        .help = "remove runs in which nothing was written for that long: 30d, 2w, 12h",
        .commands = FOR_RUNS, .only_flag = true},
    [OPT_KEEP_SIZE] = {.name = "keep-size", .group = "prune", .kind = OPTION_SIZE, .argument = "SIZE",
        .help = "remove the oldest runs until the rest takes no more than that: 5g",
        .commands = FOR_RUNS, .only_flag = true},
    [OPT_DRY_RUN] = {.name = "dry-run", .group = "prune", .kind = OPTION_SWITCH,
        .help = "only say what would be removed", .commands = FOR_RUNS, .only_flag = true},
    [OPT_TARGET] = {.name = "output", .letter = 'o', .group = "result", .argument = "PATH",
        .help = "where to, a path that does not exist; -: stdout, for JSON and packs",
        .commands = FOR_EXPORT | FOR_PACK | FOR_UNPACK, .only_flag = true},
    [OPT_FORMAT] = {.name = "format", .group = "result", .kind = OPTION_CHOICE,
        .argument = "json|sqlite|rlmflow-python", .choices = formats, .fallback = "json",
        .help = "json: one document; sqlite: a database to query; rlmflow-python: the directory that the "
                "Python project of that name saves", .commands = FOR_EXPORT, .only_flag = true},
};

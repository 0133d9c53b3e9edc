/* rlmflow: an engine for recursive agents that write Python.
 *
 * A language model writes Python, the engine runs it in a session, shows the model what was printed
 * and goes on until the code calls done(answer). The code may launch sub-agents, which are agents of
 * their own. Every step is a node of one durable graph.
 *
 * Conventions. A function that can fail returns int: 0 is success, a negative value is one of
 * `enum rlm_code`, a positive value is an outcome that is documented at the function. The last
 * parameter of such a function is `rlm_error **err` (NULL allowed): set if and only if the result is
 * negative; free it with rlm_error_free. Text is WTF-8 (UTF-8 that may hold lone surrogates) and may
 * contain NUL; `struct rlm_str` carries its length. Pointers that a getter returns are borrowed.
 * Option structs start with RLM_..._INIT, so that members added later keep their defaults.
 *
 * Threads: a loop and everything made on it belong to one thread.
 */
#ifndef RLMFLOW_H
#define RLMFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RLM_VERSION "0.1.0"
#define RLM_API     __attribute__((visibility("default")))

/* The version of the library, as RLM_VERSION of its build. */
RLM_API const char *rlm_version(void);

/* A piece of text: not owned, not necessarily NUL-terminated. */
struct rlm_str {
    const char *ptr;
    size_t len; /* bytes */
};

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct rlm_error rlm_error;

enum rlm_code {
    RLM_E_NOMEM = -1,     /* out of memory */
    RLM_E_INVAL = -2,     /* an argument, option or input is wrong */
    RLM_E_IO = -3,        /* a system call failed; see rlm_error_errno */
    RLM_E_EXISTS = -4,    /* the path or name is taken */
    RLM_E_NOT_FOUND = -5, /* no such file, run, model, node */
    RLM_E_PARSE = -6,     /* text that is not what it should be (JSON, a script, a configuration) */
    RLM_E_CORRUPT = -7,   /* a run whose journal is damaged before its end */
    RLM_E_VERSION = -8,   /* written by a newer version */
    RLM_E_BUSY = -9,      /* a living process holds the run */
    RLM_E_CANCELED = -10, /* cancelled by the caller */
    RLM_E_TIMEOUT = -11,  /* a time limit passed */
    RLM_E_LIMIT = -12,    /* a size or number limit passed */
    RLM_E_UNREACHABLE = -13, /* a server could not be reached, or the stream broke */
    RLM_E_AUTH = -14,        /* a server refused the key */
    RLM_E_RATE_LIMIT = -15,  /* a server said: too many requests */
    RLM_E_SERVER = -16,      /* a server failed or answered nonsense */
    RLM_E_CONTEXT = -17,     /* the prompt is longer than the model's context */
    RLM_E_PROTOCOL = -18,    /* a session sent what it must not send */
    RLM_E_SESSION = -19,     /* a session could not be opened or ended by itself */
    RLM_E_BUDGET = -20,      /* max_budget or max_cost does not allow it */
    RLM_E_SCHEMA = -21,      /* a value does not fit its JSON schema */
    RLM_E_UNSUPPORTED = -22, /* not possible here; the message says what is missing */
};

RLM_API int rlm_error_code(const rlm_error *err);  /* 0 for NULL */
RLM_API int rlm_error_errno(const rlm_error *err); /* 0 when no system call was involved */
RLM_API const char *rlm_error_message(const rlm_error *err); /* "" for NULL; borrowed */
RLM_API void rlm_error_free(rlm_error *err);                 /* NULL allowed */

/* ---- the loop -------------------------------------------------------------------------------- */

typedef struct rlm_loop rlm_loop;

RLM_API int rlm_loop_new(rlm_loop **ret_loop, rlm_error **err);
/* Everything made on the loop must have been freed. NULL allowed. */
RLM_API void rlm_loop_free(rlm_loop *loop);
/* To embed it in another loop: poll `fd` for reading for at most `timeout` milliseconds (-1: no
 * limit), then dispatch. rlm_loop_dispatch never blocks; it returns true while work is left. */
RLM_API int rlm_loop_fd(const rlm_loop *loop);
RLM_API int rlm_loop_timeout(const rlm_loop *loop);
RLM_API bool rlm_loop_dispatch(rlm_loop *loop);

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef struct rlm_graph rlm_graph;

enum rlm_node_type {
    RLM_USER_QUERY,         /* content: the task or a follow-up */
    RLM_LLM_OUTPUT,         /* content: the reply; code: what was found in it; model, usage */
    RLM_EXEC_ACTION,        /* code: as it is run */
    RLM_EXEC_OUTPUT,        /* content = output: what was printed */
    RLM_SUPERVISING_OUTPUT, /* output so far; agents: the children waited for; call_id */
    RLM_RESUME_ACTION,      /* agents: the children that ended; call_id */
    RLM_ERROR_OUTPUT,       /* content: what the model is told; error: the kind; output */
    RLM_DONE_OUTPUT,        /* result: the answer; reason: why the agent ended; output */
};

/* What calls of models used. */
struct rlm_usage {
    int64_t calls;
    int64_t input_tokens;  /* all that the provider bills as input, cached ones included */
    int64_t cached_tokens; /* of the input, those read from a prompt cache */
    int64_t output_tokens;
    int64_t cost_nano; /* 1e-9 US dollars; 0 when a price is unknown */
    int64_t estimated; /* calls whose usage is the engine's bound, not the provider's word */
};

/* One entry of a trajectory. Texts that do not apply are empty. Owned by its graph. */
struct rlm_node {
    enum rlm_node_type type;
    uint32_t seq;    /* position in the trajectory */
    char id[20];     /* "n_" and 16 hexadecimal digits */
    int64_t time_us; /* microseconds since 1970 */
    struct rlm_str content;
    struct rlm_str code;
    struct rlm_str output;
    struct rlm_str error; /* "exec", "no_code", "exec_timeout", "session_died", ... */
    struct rlm_str result;
    struct rlm_str
        reason; /* "answered", "max_iters", "budget", "cost", "time", "terminated", "failed" */
    struct rlm_str model;
    struct rlm_usage usage;
    const char *const *agents; /* n_agents agent ids */
    size_t n_agents;
    int64_t call_id;         /* supervising_output, resume_action: the launch; llm_output: the
                                  model call; 0: none */
    struct rlm_str metadata; /* a JSON object, or empty */
};

/* Loads the graph of a run for looking at it: reads `journal`, takes no lock. A directory that the Python
 * project of the same name has saved is loaded too; it can be neither resumed nor replayed. A damaged end is not an
 * error: what can be read is loaded and `*ret_note` (may be NULL; free it) says what is missing, else
 * it is NULL. RLM_E_NOT_FOUND, RLM_E_PARSE (no run), RLM_E_VERSION, RLM_E_IO. */
RLM_API int
rlm_graph_load(const char *path, rlm_graph **ret_graph, char **ret_note, rlm_error **err);
/* Frees a root with all its descendants. NULL allowed. */
RLM_API void rlm_graph_free(rlm_graph *root);

RLM_API const char *rlm_graph_id(const rlm_graph *g);
RLM_API const char *rlm_graph_agent_id(const rlm_graph *g);
RLM_API int rlm_graph_depth(const rlm_graph *g);
RLM_API struct rlm_str rlm_graph_query(const rlm_graph *g);
RLM_API struct rlm_str rlm_graph_inputs(const rlm_graph *g); /* JSON object */
RLM_API struct rlm_str rlm_graph_model(const rlm_graph *g);
RLM_API struct rlm_str rlm_graph_output_schema(const rlm_graph *g);
RLM_API rlm_graph *rlm_graph_parent(const rlm_graph *g); /* NULL for the root */
RLM_API size_t rlm_graph_node_count(const rlm_graph *g);
RLM_API const struct rlm_node *rlm_graph_node(const rlm_graph *g, size_t index); /* NULL: no such */
RLM_API const struct rlm_node *rlm_graph_current(const rlm_graph *g); /* the last, or NULL */
RLM_API size_t rlm_graph_child_count(const rlm_graph *g);
RLM_API rlm_graph *rlm_graph_child(const rlm_graph *g, size_t index); /* in order of creation */
/* In the whole tree; NULL when there is no such agent. */
RLM_API rlm_graph *rlm_graph_agent(const rlm_graph *root, const char *agent_id);
/* The last node is a done_output. */
RLM_API bool rlm_graph_finished(const rlm_graph *g);
/* The answer: the result of a done_output with reason "answered"; empty otherwise. */
RLM_API struct rlm_str rlm_graph_result(const rlm_graph *g);
/* Why it ended; empty while it runs. */
RLM_API struct rlm_str rlm_graph_reason(const rlm_graph *g);
RLM_API int rlm_graph_turns(const rlm_graph *g);
RLM_API struct rlm_usage rlm_graph_usage(const rlm_graph *g, bool with_children);
RLM_API size_t rlm_graph_agent_count(const rlm_graph *root); /* agents of the tree, the root too */
RLM_API const char *rlm_node_type_tag(enum rlm_node_type type); /* "user_query", ... */

/* ---- edits of graphs ------------------------------------------------------------------------- */

/* Of a graph at rest: one that rlm_graph_load, rlm_graph_open, rlm_graph_fork or rlm_graph_apply made,
 * never that of a run that is going on. Nodes that are taken out stay readable until the root is freed,
 * agents that are taken out do not. What has been spent stays in the sums of the agent (a removed
 * child's in its parent's). Of a graph from rlm_graph_open each edit is journaled before it is made. An
 * edit that fails changes nothing, and adds RLM_E_NOMEM, RLM_E_IO and RLM_E_LIMIT to what is named below.
 * After a done_output only a user_query can stand: an edit that would break that is RLM_E_INVAL.
 *
 * The sessions of a run know nothing of its graph: an edited run that goes on shows its model the
 * edited conversation, and has the variables of the cells whose exec_action is still there. */

struct rlm_event;

/* Opens the run at `path` to be edited, and holds it until the graph is freed. RLM_E_BUSY (a living
 * process holds it), RLM_E_CORRUPT, and those of rlm_graph_load. */
RLM_API int rlm_graph_open(const char *path, rlm_graph **ret_graph, rlm_error **err);
/* `edited` gets each edit of the tree as an event, when it is made: what rlm_graph_apply takes. */
RLM_API void rlm_graph_on_edit(rlm_graph *root,
                               void (*edited)(void *arg, const struct rlm_event *event),
                               void *arg);
/* The node that `place` names: a node's id; AGENT:SEQ; AGENT:turnN, the last node of the agent's Nth turn;
 * or SEQ or turnN of the root. RLM_E_NOT_FOUND. */
RLM_API int rlm_graph_find(rlm_graph *root,
                           const char *place,
                           rlm_graph **ret_agent,
                           const struct rlm_node **ret_node,
                           rlm_error **err);

/* Copies `node` to the end; its seq, and its id and time where they are empty, are filled in. `*ret_node`
 * (may be NULL) is the graph's copy. */
RLM_API int rlm_graph_append_node(rlm_graph *g,
                                  const struct rlm_node *node,
                                  const struct rlm_node **ret_node,
                                  rlm_error **err);
enum rlm_inject { RLM_INJECT_AFTER, RLM_INJECT_BEFORE, RLM_INJECT_REPLACE };
/* Puts a copy of `node` at the node `node_id` of `g`; NULL: after the last, before the first.
 * RLM_E_NOT_FOUND (no such node), RLM_E_INVAL (nothing to replace). */
RLM_API int rlm_graph_inject(rlm_graph *g,
                             enum rlm_inject where,
                             const char *node_id,
                             const struct rlm_node *node,
                             const struct rlm_node **ret_node,
                             rlm_error **err);
/* Takes one node out; children that it launched stay. RLM_E_NOT_FOUND. */
RLM_API int rlm_graph_remove_node(rlm_graph *g, const char *node_id, rlm_error **err);
/* Takes an agent with its descendants out of the tree. RLM_E_INVAL for the root. */
RLM_API int rlm_graph_remove_child(rlm_graph *child, rlm_error **err);
/* Goes back to where the node was the last of `g`: what follows goes, with the children that it launched.
 * The agents above go back to where they waited for `g`, for they have not yet heard of its end. 1: there
 * was nothing to take out. RLM_E_NOT_FOUND. One that fails on its way may have changed agents above. */
RLM_API int rlm_graph_rewind(rlm_graph *g, const char *node_id, rlm_error **err);

/* A place to come back to: the end of one agent's trajectory. */
struct rlm_graph_checkpoint {
    size_t position; /* nodes before it */
    char digest[65]; /* of the agent and all of these nodes: texts, usage, ids, order */
};

RLM_API int rlm_graph_checkpoint(const rlm_graph *g,
                                 struct rlm_graph_checkpoint *ret_checkpoint,
                                 rlm_error **err);
/* Rewinds to the checkpoint. RLM_E_INVAL when nodes before it are gone or changed in any way since, or
 * it is of another agent. 1: there was nothing to take out. */
RLM_API int
rlm_graph_revert(rlm_graph *g, const struct rlm_graph_checkpoint *checkpoint, rlm_error **err);
/* A hash of `g` with its descendants: of all that the graphs hold but their graph ids and the usage of
 * calls that stand at no node. */
RLM_API int rlm_graph_digest(const rlm_graph *g, char ret_digest[65], rlm_error **err);

/* A copy of the whole tree with a graph id of its own, in memory, rewound to the node `node_id` of the
 * agent of `g`; NULL: as it is. RLM_E_NOT_FOUND. */
RLM_API int
rlm_graph_fork(const rlm_graph *g, const char *node_id, rlm_graph **ret_root, rlm_error **err);
/* Takes what came of a branch back in: appends one node to `g` (an exec_output, or a user_query after a
 * done_output) with `summary`, or when that is empty with the branch's result; its metadata name the
 * branch and the code that ran there. Only this text comes over: no variables, no children, no usage.
 * RLM_E_INVAL when `branch` shares no node with `g`, has none of its own, or code of `g` is under way. */
RLM_API int rlm_graph_merge(rlm_graph *g,
                            const rlm_graph *branch,
                            struct rlm_str summary,
                            const struct rlm_node **ret_node,
                            rlm_error **err);

/* Makes the change that an event tells of. The sequence of events of a run, from RLM_EVENT_GRAPH_CREATED
 * on, makes the run's graph of none (`*graph` NULL). 1: the event is no change of a graph.
 * RLM_E_INVAL (out of order), RLM_E_NOT_FOUND (no such agent or node). */
RLM_API int rlm_graph_apply(rlm_graph **graph, const struct rlm_event *event, rlm_error **err);
/* The same with a line of `rlmflow run --json` or `rlmflow view --json`. RLM_E_PARSE. */
RLM_API int rlm_graph_apply_json(rlm_graph **graph, struct rlm_str line, rlm_error **err);

/* A new run at `path` (which must not exist) that is the run `journal` up to a node (see rlm_graph_find; of
 * an agent below the root: up to the moment at which that node came), with a graph id of its own; that
 * one is only read. A `query` that is not empty becomes a user_query behind the node. rlm_flow_resume goes
 * on with it. RLM_E_NOT_FOUND, RLM_E_EXISTS, RLM_E_INVAL (there is nothing to do after the node, or code is
 * under way there and a query is given), RLM_E_IO, and those of rlm_graph_load. */
RLM_API int rlm_run_fork(
    const char *journal, const char *node, const char *path, struct rlm_str query, rlm_error **err);

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct rlm_model rlm_model;

enum rlm_api { RLM_API_OPENAI, RLM_API_ANTHROPIC };

/* A price in US dollars for a million tokens; negative: unknown. */
struct rlm_price {
    double input, cached_input, cache_write, output;
};

struct rlm_model_options {
    size_t size; /* sizeof, set by RLM_MODEL_OPTIONS_INIT */
    enum rlm_api api;
    const char *name; /* as the server knows it */
    const char
        *base_url; /* the part before /chat/completions or /v1/messages; NULL: the provider's own */
    const char *key;    /* NULL: none is sent. Kept in memory only, never journaled or logged */
    double temperature; /* negative: not sent */
    const char *reasoning_effort; /* "low", "medium", "high", ...; NULL: not sent */
    const char *const *headers;   /* "Name: value"..., NULL-terminated, added to each request */
    const char *body_json;        /* a JSON object whose members are added to each request's body */
    const char *proxy;            /* NULL: HTTPS_PROXY and the like of the environment */
    const char *ca_file;          /* NULL: CURL_CA_BUNDLE, else SSL_CERT_FILE, else the system's */
    bool no_stream;               /* ask for one answer instead of a stream */
    int connect_timeout_ms;       /* 10,000; of this and the next two, 0: no limit */
    int first_byte_timeout_ms;    /* 600,000: until a reply begins */
    int idle_timeout_ms;          /* 120,000: between the bytes of a reply that has begun */
    struct rlm_price price;       /* all negative: the built-in table by name */
    int max_output_tokens;        /* of one reply; 0: what the flow says, which it never passes */
};

#define RLM_MODEL_OPTIONS_INIT                                                                    \
    {                                                                                             \
        .size = sizeof(struct rlm_model_options), .temperature = -1, .connect_timeout_ms = 10000, \
        .first_byte_timeout_ms = 600000, .idle_timeout_ms = 120000, .price = {-1, -1, -1, -1},    \
    }

/* A model behind an HTTP API. Texts are copied. Nothing is sent yet. */
RLM_API int rlm_model_new(rlm_loop *loop,
                          const struct rlm_model_options *options,
                          rlm_model **ret_model,
                          rlm_error **err);
/* A model that answers from a file of replies (the format stands in docs/scripted-model.md).
 * RLM_E_NOT_FOUND, or RLM_E_PARSE with the line. */
RLM_API int
rlm_model_new_scripted(rlm_loop *loop, const char *path, rlm_model **ret_model, rlm_error **err);
/* The same, of a text in memory, which is copied; `name` is what messages call it. RLM_E_PARSE. */
RLM_API int rlm_model_new_script(
    rlm_loop *loop, const char *name, struct rlm_str text, rlm_model **ret_model, rlm_error **err);
struct rlm_model_message {
    const char *role; /* "system" (the first only), "user" or "assistant" */
    struct rlm_str text;
};

struct rlm_model_request {
    const struct rlm_model_message *messages;
    size_t n_messages;
    int max_output_tokens;
    const char *agent_id; /* who asks */
    int turn;             /* 1, 2, ...; 0: a prompt of llm_query */
};

/* A request under way at a model of the embedding program; answer it exactly once, at once or any time
 * later, on the loop's thread. It is gone with its answer, and with its model at the latest: no answer after
 * rlm_model_free. */
typedef struct rlm_model_call rlm_model_call;

struct rlm_custom_model_options {
    size_t size;
    const char *name; /* as records and views show it */
    /* The request is borrowed until it returns. */
    void (*chat)(void *arg, rlm_model_call *call, const struct rlm_model_request *request);
    void *arg;
    struct rlm_price price; /* all negative: the built-in table by name */
    bool
        one_at_a_time; /* a run has one call of such models under way, the others are not reserved yet:
                               for a program that cannot hold a reply to max_output_tokens (no more than
                               one then passes what was reserved for it), or is for one thread */
};

#define RLM_CUSTOM_MODEL_OPTIONS_INIT                                               \
    {                                                                               \
        .size = sizeof(struct rlm_custom_model_options), .price = {-1, -1, -1, -1}, \
    }

struct rlm_model_reply {
    struct rlm_str text;
    const char *finish_reason; /* "stop", "length", ...; NULL: "stop" */
    int64_t
        input_tokens; /* all that is billed as input; negative: unknown, an estimate is charged */
    int64_t cached_tokens; /* of the input */
    int64_t output_tokens; /* negative: unknown */
};

/* A model that the embedding program answers for. */
RLM_API int rlm_model_new_custom(rlm_loop *loop,
                                 const struct rlm_custom_model_options *options,
                                 rlm_model **ret_model,
                                 rlm_error **err);
/* A piece of a reply that is being streamed: shown as it comes, counted against what was reserved. False
 * when no more is wanted: what came so far is the reply, or nobody waits any more. */
RLM_API bool rlm_model_call_delta(rlm_model_call *call, struct rlm_str piece);
RLM_API void rlm_model_call_return(rlm_model_call *call, const struct rlm_model_reply *reply);
/* `code`: RLM_E_RATE_LIMIT, RLM_E_UNREACHABLE, RLM_E_TIMEOUT and RLM_E_SERVER are tried again, with the
 * engine's back-off; RLM_E_CONTEXT is asked again with the oldest turns left out; others fail the call. */
RLM_API void rlm_model_call_fail(rlm_model_call *call, enum rlm_code code, const char *message);
/* `cancelled` is called if the call is given up before its answer. It may give the answer, which must
 * still be given and is then dropped. */
RLM_API void
rlm_model_call_on_cancel(rlm_model_call *call, void (*cancelled)(void *arg), void *arg);
/* A model for replays, where none is asked: it has a name and no server. */
RLM_API int
rlm_model_new_recorded(rlm_loop *loop, const char *name, rlm_model **ret_model, rlm_error **err);
/* No chat may be under way. NULL allowed. */
RLM_API void rlm_model_free(rlm_model *m);
/* Asks the server whether it is there and knows the model; completes on the loop. `problem` is NULL
 * when all is well. `done` comes once. */
RLM_API int rlm_model_check(rlm_model *m,
                            void (*done)(void *arg, const rlm_error *problem),
                            void *arg,
                            rlm_error **err);

/* ---- JSON Schema ----------------------------------------------------------------------------- */

/* Whether a schema is one that the engine knows (docs/json-schema.md), and whether a value fits it; a value
 * whose `ptr` is NULL is not looked at. RLM_E_PARSE (no JSON), RLM_E_SCHEMA with the place and what was
 * expected there, RLM_E_LIMIT, RLM_E_NOMEM. */
RLM_API int rlm_json_check(struct rlm_str schema_json, struct rlm_str value_json, rlm_error **err);

/* ---- tools ----------------------------------------------------------------------------------- */

struct rlm_tool_limits {
    int64_t max_calls;        /* in a run; 0: no limit */
    int64_t timeout_ms;       /* of one call; 0: 600,000 */
    int64_t max_result_bytes; /* 0: 64 MiB */
};

/* A call under way; answer it exactly once, at once or later, on the loop's thread. It is gone with its answer,
 * and with its flow at the latest: no answer after rlm_flow_free. */
typedef struct rlm_tool_call rlm_tool_call;

/* Called with the arguments as a JSON object that fits the tool's schema: at most 64 MiB, however large
 * texts are. */
typedef void (*rlm_tool_callback)(void *arg, rlm_tool_call *call, struct rlm_str arguments_json);

struct rlm_tool_options {
    size_t size;
    const char *name;            /* a Python identifier */
    const char *description;     /* for the model: one paragraph */
    const char *parameters_json; /* a JSON schema of type object; its properties in order are the
                                     positional parameters */
    rlm_tool_callback run;       /* NULL only with `source` */
    void *arg;
    bool idempotent; /* may run again when a run is resumed */
    struct rlm_tool_limits limits;
    bool is_async; /* agents write `await name(...)`, and may have many calls under way */
    /* Arguments and results are in the encoding of values of docs/protocol.md, which keeps tuples, bytes and
     * the like. Else both are plain JSON: tuples and sets come as arrays, and an argument that JSON has
     * no form for is a TypeError in the agent's code. */
    bool encoded;
    /* How models are shown the parameters: "(path, *, lines=10)"; NULL: the names in parameters_json. */
    const char *signature;
    /* Python that defines a function of this name, an `async def` if is_async: the tool runs inside of each
     * session, in a namespace of its own, in which this text is executed when the session opens; its
     * tracebacks name it "<tool NAME>". The host has no part in its calls: `run` is NULL, `idempotent` and
     * limits are not set, no gate is asked. At most 256 KiB. An empty text: the runtime's sessions have
     * the tool already. */
    const char *source;
};

#define RLM_TOOL_OPTIONS_INIT                   \
    {                                           \
        .size = sizeof(struct rlm_tool_options) \
    }

/* Whether a flow could take the tool, so that what is wrong with it is told where it is made: the errors of
 * rlm_flow_add_tool, but for a name that another tool has. */
RLM_API int rlm_tool_check(const struct rlm_tool_options *tool, rlm_error **err);
/* Answers with a JSON value. What is no JSON becomes an error in the agent's code. */
RLM_API void rlm_tool_call_return(rlm_tool_call *call, struct rlm_str value_json);
/* Raises HostCallError with this message in the agent's code. */
RLM_API void rlm_tool_call_fail(rlm_tool_call *call, const char *message);
/* Who called: the agent's id. */
RLM_API const char *rlm_tool_call_agent_id(const rlm_tool_call *call);
/* `cancelled` is called if the call is given up (time limit, end of the run) before its answer; the
 * answer must still be given and is then dropped. */
RLM_API void rlm_tool_call_on_cancel(rlm_tool_call *call, void (*cancelled)(void *arg), void *arg);

/* ---- runtimes -------------------------------------------------------------------------------- */

typedef struct rlm_runtime rlm_runtime;

/* Sessions as plain child processes of any Python from 3.8 on. No isolation: agent code can do what
 * the user can do. */
struct rlm_subprocess_options {
    size_t size;
    const char *python;            /* NULL: "python3" of PATH */
    const char *working_directory; /* NULL: the caller's */
    const char *const *env; /* "NAME=VALUE"..., NULL-terminated, added to PATH, HOME, LANG and TZ */
    int spare;              /* workers kept started ahead; each is used once */
};

#define RLM_SUBPROCESS_OPTIONS_INIT                   \
    {                                                 \
        .size = sizeof(struct rlm_subprocess_options) \
    }

RLM_API int rlm_runtime_new_subprocess(rlm_loop *loop,
                                       const struct rlm_subprocess_options *options,
                                       rlm_runtime **ret_runtime,
                                       rlm_error **err);
/* Sessions behind a command that passes a byte stream on: `ssh -T HOST`, `kubectl exec -i POD --`, `unshare -n`. At
 * its far end it starts a Python of 3.8 or newer, and nothing of ours need be there. What it writes to its standard
 * output before the worker speaks ends the session, which says what it was; so does its end, with what it wrote to
 * its standard error. */
struct rlm_command_options {
    size_t size;
    /* NULL-terminated. In the first argument that contains "{worker}" the line of shell that starts the worker
     * stands in its place, as ssh wants it; without one the words of that line stand behind the last. */
    const char *const *argv;
    const char *python;            /* on the far side; NULL: "python3" */
    const char *working_directory; /* on the far side; NULL: where the command leads */
    const char *const *env;        /* of the command: as of rlm_subprocess_options */
};

#define RLM_COMMAND_OPTIONS_INIT                   \
    {                                              \
        .size = sizeof(struct rlm_command_options) \
    }

/* RLM_E_INVAL (no command, or a wrong `env`), RLM_E_LIMIT, RLM_E_NOMEM. */
RLM_API int rlm_runtime_new_command(rlm_loop *loop,
                                    const struct rlm_command_options *options,
                                    rlm_runtime **ret_runtime,
                                    rlm_error **err);

/* Sessions over byte streams that the embedding program provides: at the far end of each runs the worker,
 * wherever the program has started it (rlm_worker_text), and speaks docs/protocol.md. */
typedef struct rlm_stream rlm_stream; /* of one session, from `connect` until `closed` */

/* What a stream is for; borrowed until `connect` returns. */
struct rlm_stream_session {
    const char *agent_id;
    int depth;
    const char *working_directory; /* NULL: none was asked for */
};

/* The callbacks come on the loop, and not inside calls of rlm_stream_...; they may call these, and else
 * nothing of this header. */
struct rlm_stream_options {
    size_t size;
    const char *name;              /* NULL: "stream"; what runs and messages call the runtime */
    const char *effects;           /* what code can do to the world: "none", or NULL: "outside" */
    const char *killed;            /* how a kill reads: NULL: "its worker was killed" */
    const char *working_directory; /* handed to `connect`; NULL: none */
    bool passes_descriptors; /* `to_fd` is a Unix socket of this machine: big inputs go as files */
    /* A session begins: answered, at once or later, by rlm_stream_connected or rlm_stream_fail. The
     * session's time limit for opening runs meanwhile. */
    void (*connect)(void *arg, rlm_stream *stream, const struct rlm_stream_session *session);
    /* The worker shall end at once, whatever it does. The descriptors are closed after it. May be NULL. */
    void (*kill)(void *arg, rlm_stream *stream);
    /* The session is over and the descriptors are closed: the last that is heard of the stream. May be NULL. */
    void (*closed)(void *arg, rlm_stream *stream);
    void *arg;
};

#define RLM_STREAM_OPTIONS_INIT                   \
    {                                             \
        .size = sizeof(struct rlm_stream_options) \
    }

/* RLM_E_INVAL, RLM_E_NOMEM. */
RLM_API int rlm_runtime_new_stream(rlm_loop *loop,
                                   const struct rlm_stream_options *options,
                                   rlm_runtime **ret_runtime,
                                   rlm_error **err);
/* From `from_fd` comes what the worker says, `to_fd` takes what it is told: sockets or pipes, or one
 * socket that is both. They are the stream's from now on, and are closed by it in every case. */
RLM_API void rlm_stream_connected(rlm_stream *stream, int from_fd, int to_fd);
/* There is no worker for it; the session's opening fails with this text. */
RLM_API void rlm_stream_fail(rlm_stream *stream, struct rlm_str why);
/* The worker's program: Python 3.8 or newer, the standard library. Run it in a module of its own that has
 * `protocol = (RFD, WFD)`, the descriptors it hears and speaks on, and it serves one session. */
RLM_API struct rlm_str rlm_worker_text(void);

/* Sessions that the embedding program runs itself, or those of another runtime that it wraps. Each session is a
 * backend; the engine asks it to open, then to start cells and to resume them, one question at a time,
 * and each is answered, at once or any time later, on the loop's thread:
 *
 *     open     rlm_backend_opened
 *     start    rlm_backend_finished, or rlm_backend_suspended while host calls are unanswered
 *     resume   as start; its results are those that came since the last question
 *
 * or by rlm_backend_fail, which ends the session: the code under way becomes an error_output, and the next
 * runs in a session of a new backend. `step` numbers the questions; an answer to one that is over is passed
 * over. While a cell is suspended, resume comes when there are results; a backend without an inner session
 * gets it every 100 ms, an inner session says when it wants it. No clock runs against a backend, but after
 * done() was accepted one without an inner session has 2 s from resume to the end of its cell.
 *
 * JSON is that of docs/protocol.md, and what a backend says is checked as the frames of a worker are. Values
 * that stand as {"$blob": HASH} are read with rlm_backend_read; a text of 64 KiB or more becomes such a blob. */
typedef struct rlm_backend rlm_backend; /* from `open` until rlm_backend_closed */

/* Whose session it is; borrowed until `open` returns. */
struct rlm_backend_session {
    const char *agent_id;
    int depth;
    struct rlm_str open_json; /* the payload of `open`: inputs, tools, limits */
};

/* What came of rlm_backend_open_inner, rlm_backend_inner_start or rlm_backend_inner_resume. */
enum rlm_inner_outcome {
    RLM_INNER_READY,     /* the payload of `ready` */
    RLM_INNER_FINISHED,  /* that of `finished`, with "clock" when a time limit ended the cell */
    RLM_INNER_SUSPENDED, /* that of `suspended` */
    RLM_INNER_DIED,      /* {"reason", "message", "output"} */
};

/* The callbacks come on the loop, also inside calls of this header that let a run go on. They may call what
 * begins with rlm_backend_, and else nothing of this header. */
struct rlm_backend_options {
    size_t size;
    const char *name;    /* NULL: "custom" */
    const char *effects; /* what code can do to the world: "none", or NULL: "outside" */
    void (*open)(void *arg,
                 rlm_backend *backend,
                 uint64_t step,
                 const struct rlm_backend_session *session);
    void (*start)(void *arg, rlm_backend *backend, uint64_t step, struct rlm_str code);
    /* `results_json`: an array of RESULTs, in the order in which they came. */
    void (*resume)(void *arg, rlm_backend *backend, uint64_t step, struct rlm_str results_json);
    /* The session is over, whatever it does; the inner session has ended, and answers are passed over. To be
     * answered by rlm_backend_closed. */
    void (*close)(void *arg, rlm_backend *backend);
    /* Of the inner session; NULL: no backend opens one. */
    void (*inner)(void *arg,
                  rlm_backend *backend,
                  enum rlm_inner_outcome outcome,
                  struct rlm_str json);
    void *arg;
};

#define RLM_BACKEND_OPTIONS_INIT                   \
    {                                              \
        .size = sizeof(struct rlm_backend_options) \
    }

/* RLM_E_INVAL, RLM_E_NOMEM. */
RLM_API int rlm_runtime_new_custom(rlm_loop *loop,
                                   const struct rlm_backend_options *options,
                                   rlm_runtime **ret_runtime,
                                   rlm_error **err);
/* What the program keeps with it; NULL until it is set. */
RLM_API void rlm_backend_set_data(rlm_backend *backend, void *data);
RLM_API void *rlm_backend_data(const rlm_backend *backend);
RLM_API void rlm_backend_opened(rlm_backend *backend, uint64_t step);
/* {"output", "omitted", "error", "clock", "notes", "bound", "unbound"}; none but "output" need be there. */
RLM_API void
rlm_backend_finished(rlm_backend *backend, uint64_t step, struct rlm_str finished_json);
/* {"calls": [CALL...], "pending": [ID...]}: `calls` are new, with ids that ascend in the session; an unanswered
 * call that `pending` does not name is given up. Without "pending" none is. */
RLM_API void
rlm_backend_suspended(rlm_backend *backend, uint64_t step, struct rlm_str suspended_json);
/* `why` is shown to the model. If the inner session has died in this step, its death is told instead. */
RLM_API void rlm_backend_fail(rlm_backend *backend, uint64_t step, struct rlm_str why);
/* Answers `close`: the backend is gone. */
RLM_API void rlm_backend_closed(rlm_backend *backend);
/* The text or bytes of a `$blob` of this session; the caller frees them. RLM_E_NOT_FOUND, RLM_E_IO. */
RLM_API int rlm_backend_read(rlm_backend *backend,
                             struct rlm_str hash,
                             char **ret_bytes,
                             size_t *ret_len,
                             bool *ret_is_text,
                             rlm_error **err);

/* Opens a session of another runtime of the same loop, with what this one was opened with. Its own limits
 * hold while its code runs, and no clock while the backend has the word. Each of these three has one outcome,
 * told by `inner` and never inside the call; the next is asked for after it. RLM_E_INVAL: it is not
 * the time for it, or `runtime` is itself a custom one; RLM_E_SESSION: the inner session has ended. */
RLM_API int rlm_backend_open_inner(rlm_backend *backend, rlm_runtime *runtime, rlm_error **err);
RLM_API int rlm_backend_inner_start(rlm_backend *backend, struct rlm_str code, rlm_error **err);
RLM_API int
rlm_backend_inner_resume(rlm_backend *backend, struct rlm_str results_json, rlm_error **err);
/* Ends it; no outcome comes of what is under way. Without it, the end of the backend does. */
RLM_API void rlm_backend_inner_close(rlm_backend *backend);

/* No session may be open. NULL allowed. */
RLM_API void rlm_runtime_free(rlm_runtime *r);

/* ---- flows ----------------------------------------------------------------------------------- */

/* What holds for a whole tree of agents. */
struct rlm_limits {
    int max_depth;         /* 2: the root's depth is 0; 0: no sub-agents; at most 64 */
    int max_iters;         /* 20: model replies of one agent; a follow-up has its own */
    int child_max_iters;   /* 0: as max_iters */
    int64_t max_budget;    /* tokens of the tree, in and out; 0: not capped */
    int64_t max_cost_nano; /* 1e-9 US dollars of the tree; 0: not capped */
    int64_t max_time_ms;   /* time in which the engine runs the tree, the taking in of its inputs
                                  included; 0: not capped */
    int max_output_length; /* 4,000 characters of a cell's output shown to the model; 0: all that is kept */
    int max_query_chars;   /* 2,000: the query of a sub-agent */
    int max_messages;      /* 0: not capped; else at least 4 */
    int max_output_tokens; /* 8,192: of one model reply */
    int64_t
        request_timeout_ms;  /* a model call from its start to the whole reply; 0: what its server's
                                   own limits say. One that takes longer fails, and is not tried again */
    int64_t exec_timeout_ms; /* 120,000: a cell, while it waits for no host call */
    int64_t cpu_time_ms;     /* 300,000: a cell */
    int workers;             /* 8: model calls in flight */
    int max_live;            /* 64: agents with a session that is executing or about to */
    int max_agents;          /* 1,000: agents of a run */
    int64_t max_input_bytes; /* 4 GiB: of one input, or one file of a directory that is an input */
};

#define RLM_LIMITS_INIT                                                                            \
    {                                                                                              \
        .max_depth = 2, .max_iters = 20, .max_output_length = 4000, .max_query_chars = 2000,       \
        .max_output_tokens = 8192, .exec_timeout_ms = 120000, .cpu_time_ms = 300000, .workers = 8, \
        .max_live = 64, .max_agents = 1000, .max_input_bytes = INT64_C(4) << 30,                   \
    }

typedef struct rlm_flow rlm_flow;

struct rlm_flow_options {
    size_t size;
    struct rlm_limits limits;
    rlm_model *model;          /* "default"; borrowed: outlives the flow */
    rlm_runtime *runtime;      /* borrowed: outlives the flow */
    const char *system_prompt; /* replaces the engine's own; NULL: that one */
};

#define RLM_FLOW_OPTIONS_INIT                                              \
    {                                                                      \
        .size = sizeof(struct rlm_flow_options), .limits = RLM_LIMITS_INIT \
    }

/* Policy and environment of runs: checks the limits (RLM_E_INVAL names the faulty one). */
RLM_API int rlm_flow_new(rlm_loop *loop,
                         const struct rlm_flow_options *options,
                         rlm_flow **ret_flow,
                         rlm_error **err);
/* Another model that specs and llm_query may name. Borrowed. */
RLM_API int rlm_flow_add_model(rlm_flow *flow, const char *name, rlm_model *model, rlm_error **err);
/* The model that sub-agents get when their spec names none ("default" unless set). RLM_E_NOT_FOUND. */
RLM_API int rlm_flow_set_child_model(rlm_flow *flow, const char *name, rlm_error **err);
/* A tool that agent code can call: it runs here, on the host, or in the session. Before the first run.
 * RLM_E_INVAL (a name that is no identifier or one of the engine's), RLM_E_EXISTS, RLM_E_SCHEMA. */
RLM_API int rlm_flow_add_tool(rlm_flow *flow, const struct rlm_tool_options *tool, rlm_error **err);
struct rlm_flow_hooks;
/* What is asked before an agent acts: see "gates". Copied. RLM_E_INVAL while a run exists. */
RLM_API int rlm_flow_set_hooks(rlm_flow *flow, const struct rlm_flow_hooks *hooks, rlm_error **err);
/* No run may be left. NULL allowed. */
RLM_API void rlm_flow_free(rlm_flow *flow);
/* The system prompt as an agent of that depth gets it; the caller frees it. */
RLM_API char *rlm_flow_system_prompt(const rlm_flow *flow, int depth);

/* What the engine's own system prompt consists of, in this order, with a blank line between. */
enum rlm_prompt_section {
    RLM_PROMPT_ROLE,
    RLM_PROMPT_FORMAT,  /* of a reply */
    RLM_PROMPT_SESSION, /* what is there without an import */
    RLM_PROMPT_EXAMPLES,
    RLM_PROMPT_TOOLS,    /* of the flow; may be empty */
    RLM_PROMPT_MODELS,   /* that may be named; empty where there is one */
    RLM_PROMPT_SECTIONS, /* how many there are */
};

/* A section as an agent of that depth gets it, without a newline at its end; the caller frees it. `flow` may
 * be NULL: what holds for every flow, for an agent that may launch others. NULL: no memory. */
RLM_API char *
rlm_flow_prompt_section(const rlm_flow *flow, int depth, enum rlm_prompt_section section);

/* The code that a flow finds in a model's reply, and would run: the first block of Python that is not blank,
 * or all of a reply that is code alone. 0, and the caller frees it; 1: there is none, `*ret_code` is NULL and
 * `*ret_len` 0. RLM_E_NOMEM. */
RLM_API int rlm_reply_code(struct rlm_str reply, char **ret_code, size_t *ret_len, rlm_error **err);

/* ---- runs ------------------------------------------------------------------------------------ */

enum rlm_input_kind {
    RLM_INPUT_TEXT,  /* value: the text itself */
    RLM_INPUT_BYTES, /* value: the bytes themselves */
    RLM_INPUT_JSON,  /* value: a JSON text */
    RLM_INPUT_FILE,  /* path; text if it is UTF-8 or `encoding` is given, else bytes. A pipe or a
                            device is read to its end */
    RLM_INPUT_DIRECTORY, /* path: a mapping of names to contents, read at first access */
};

struct rlm_input {
    const char *name;
    enum rlm_input_kind kind;
    struct rlm_str value;
    const char *path;
    const char *encoding; /* of a file: "utf-8" or "latin-1"; NULL: as above */
};

/* What becomes of a session that has ended while its agent has not: the run was stopped, or the worker
 * died. To restore it is to run its cells again, with the recorded answers to their host calls. */
enum rlm_restore_mode {
    RLM_RESTORE_AUTO,   /* restored where its effects stay inside (a sandbox), else new */
    RLM_RESTORE_REPLAY, /* restored: the user's word that cells may run again */
    RLM_RESTORE_FRESH,  /* new; the model is told which variables are gone */
};

struct rlm_run_options {
    size_t size;
    struct rlm_str query;
    const struct rlm_input *inputs;
    size_t n_inputs;
    const char *output_schema; /* JSON schema of the answer; NULL: any text */
    const char *journal;       /* a path that does not exist yet; NULL: in memory */
    bool sync;                 /* each step waits until its records are on disk */
    enum rlm_restore_mode restore;
    const char *program; /* a JSON object that is kept with the run for the program that made it:
                                  no secrets; NULL: none */
    bool keep_sessions;  /* the root's session stays open when the run ends, for rlm_run_ask */
};

#define RLM_RUN_OPTIONS_INIT                   \
    {                                          \
        .size = sizeof(struct rlm_run_options) \
    }

typedef struct rlm_run rlm_run;

enum rlm_event_type {
    /* changes of the graph: the public classes */
    RLM_EVENT_GRAPH_CREATED, /* graph */
    RLM_EVENT_APPEND_NODE,   /* graph, node */
    RLM_EVENT_INSERT_NODE,
    RLM_EVENT_REPLACE_NODE,
    RLM_EVENT_REMOVE_NODE,
    RLM_EVENT_ADD_CHILD, /* graph: the child */
    RLM_EVENT_REMOVE_CHILD,
    /* what passes and is not kept */
    RLM_EVENT_STATE,  /* graph: its agent's state changed */
    RLM_EVENT_DELTA,  /* graph, text: a piece of a reply that is being streamed */
    RLM_EVENT_NOTICE, /* text: a warning or news for people */
};

struct rlm_event {
    enum rlm_event_type type;
    rlm_graph *graph; /* of REMOVE_NODE: the agent; of REMOVE_CHILD: the child, still there */
    const struct rlm_node
        *node; /* of REMOVE_NODE: the one that is gone; its seq is where it stood */
    struct rlm_str text;
    bool subtree; /* REMOVE_NODE: and all that followed it */
};

/* What an agent is doing now. */
enum rlm_agent_state {
    RLM_AGENT_READY,     /* about to take its next step */
    RLM_AGENT_QUEUED,    /* waits for its turn: a width, a budget or a pause of the provider */
    RLM_AGENT_ASKING,    /* a model call is in flight */
    RLM_AGENT_RUNNING,   /* its code runs, or its session starts */
    RLM_AGENT_RESTORING, /* its session is brought back to where it was */
    RLM_AGENT_WAITING,   /* its code waits for sub-agents, a model or a tool */
    RLM_AGENT_GATED,     /* it waits for the answer of a gate */
    RLM_AGENT_FINISHED,
};

/* Called on the loop's thread; everything is borrowed until they return. Either may be NULL. */
struct rlm_run_events {
    void (*event)(void *arg, rlm_run *run, const struct rlm_event *event);
    void (*ended)(void *arg, rlm_run *run); /* once, the last */
};

/* Starts a run; it goes on as the loop turns. Inputs are taken in before the first model call, on the
 * pool. */
RLM_API int rlm_run_start(rlm_flow *flow,
                          const struct rlm_run_options *options,
                          const struct rlm_run_events *events,
                          void *arg,
                          rlm_run **ret_run,
                          rlm_error **err);
struct rlm_resume_options {
    size_t size;
    const char *journal; /* of the run that shall go on */
    struct rlm_str
        query; /* a follow-up for a run that has ended: its root is asked this next; empty: none */
    bool cut;  /* where it is damaged before its end: go on from there, and lose the rest */
    bool sync;
    enum rlm_restore_mode restore;
    const char *program; /* as in rlm_run_options; NULL: what was kept stays */
    bool keep_sessions;  /* as in rlm_run_options */
};

#define RLM_RESUME_OPTIONS_INIT                   \
    {                                             \
        .size = sizeof(struct rlm_resume_options) \
    }

/* Goes on with a run that was stopped or killed, from whatever its journal holds; limits and models are
 * the flow's. What was paid for is used, answered host calls are not made again, a model call whose
 * reply was lost stays charged and is made again. A run that a limit or a failure ended goes on with
 * a follow-up that says so. RLM_E_NOT_FOUND, RLM_E_PARSE, RLM_E_VERSION, RLM_E_BUSY (a living process
 * holds it; the message names it), RLM_E_CORRUPT (unless `cut`), RLM_E_INVAL (it has been answered and
 * nothing more is asked, or it has not ended and more is asked). */
RLM_API int rlm_flow_resume(rlm_flow *flow,
                            const struct rlm_resume_options *options,
                            const struct rlm_run_events *events,
                            void *arg,
                            rlm_run **ret_run,
                            rlm_error **err);
struct rlm_replay_options {
    size_t size;
    const char *journal; /* of the recorded run; it is only read */
    bool execute;        /* run all cells again, also those whose effects may reach outside */
};

#define RLM_REPLAY_OPTIONS_INIT                   \
    {                                             \
        .size = sizeof(struct rlm_replay_options) \
    }

/* What a replay has found. Texts live as long as the run. */
struct rlm_replay_report {
    size_t nodes, calls; /* compared */
    size_t cells_run,
        cells_not_run;     /* not run: their calls and output were taken from the record */
    size_t outputs_differ; /* cells that printed something else, but for addresses of objects */
    const char *first_output_agent_id; /* of the first of these; NULL: none */
    int64_t first_output_cell;
    bool diverged; /* the rest: of the first difference, which ended the replay */
    const char *agent_id;
    int turn;
    int64_t cell; /* 0: between cells */
    const char *what;
    struct rlm_str recorded, replayed;
};

/* Runs a recorded run again, without a model, a tool or a file of its inputs, and compares each step with
 * the recorded one. The flow has the recorded limits and names of models and tools. The run's reason is
 * that of the recorded one, "diverged", or "end of the recording" where that was stopped. Errors as of
 * rlm_graph_load, and RLM_E_CORRUPT. */
RLM_API int rlm_flow_replay(rlm_flow *flow,
                            const struct rlm_replay_options *options,
                            const struct rlm_run_events *events,
                            void *arg,
                            rlm_run **ret_run,
                            rlm_error **err);
/* NULL: the run is none of rlm_flow_replay. */
RLM_API const struct rlm_replay_report *rlm_run_replay_report(const rlm_run *run);
/* Tells the members of the object that was kept with a run as `program`, the newest one: texts, and the
 * texts of arrays one by one. Takes no lock. RLM_E_NOT_FOUND, RLM_E_PARSE, RLM_E_VERSION, RLM_E_IO. */
RLM_API int
rlm_run_read_program(const char *journal,
                     void (*member)(void *arg, struct rlm_str key, struct rlm_str value),
                     void *arg,
                     rlm_error **err);
/* Turns the loop until the run has ended. 0: it ended (rlm_run_reason says how). */
RLM_API int rlm_run_wait(rlm_run *run, rlm_error **err);
/* Asks the root of a run that has ended (how ever) something more: the same run goes on, under the limits
 * that it had, max_time and max_iters counted anew, and `ended` comes again. With `keep_sessions` its
 * variables are there, unless its code was cut off; else as after rlm_flow_resume. RLM_E_BUSY (it has
 * not ended), RLM_E_INVAL (its root has not: it was stopped; it failed of its journal, its inputs or memory; it
 * is a replay; the query is empty). */
RLM_API int rlm_run_ask(rlm_run *run, struct rlm_str query, rlm_error **err);
/* Lets go of the session that a run which has ended has kept. */
RLM_API void rlm_run_close_sessions(rlm_run *run);
/* Puts a copy of `node` at the end of an agent's trajectory while it waits for a gate of exec_turn or
 * next_step; its metadata say "by": "program". A done_output ends the agent with its result.
 * RLM_E_NOT_FOUND (no such agent), RLM_E_BUSY (its code runs, or its model is being asked), RLM_E_INVAL (it
 * has ended, or waits for nothing). */
RLM_API int rlm_run_append(rlm_run *run,
                           const char *agent_id,
                           const struct rlm_node *node,
                           const struct rlm_node **ret_node,
                           rlm_error **err);
/* Every unfinished agent waits for a gate, or for agents below it that do. */
RLM_API bool rlm_run_is_held(const rlm_run *run);
/* Ends an agent and its descendants as "terminated" (NULL: the root). RLM_E_NOT_FOUND. */
RLM_API int rlm_run_terminate(rlm_run *run, const char *agent_id, rlm_error **err);
/* Stops the run where it is: calls are cancelled and settled, sessions ended, nothing is added to the
 * graph. `ended` follows; the reason is "interrupted". From then on the journal is free for rlm_flow_resume. */
RLM_API void rlm_run_stop(rlm_run *run);
/* Stops it if it has not ended; then the graph, too, is gone. Of a run that never had a graph (an input
 * was refused) nothing is kept. NULL allowed. */
RLM_API void rlm_run_free(rlm_run *run);

RLM_API bool rlm_run_has_ended(const rlm_run *run);
RLM_API rlm_graph *rlm_run_graph(rlm_run *run);
RLM_API enum rlm_agent_state rlm_run_agent_state(const rlm_run *run, const rlm_graph *g);
/* The answer (JSON text under a schema); valid if the reason is "answered". */
RLM_API struct rlm_str rlm_run_answer(const rlm_run *run);
/* "answered", "max_iters", "budget", "cost", "time", "terminated", "failed", "interrupted",
 * "awaiting_approval" (rlm_gate_postpone); "" before. */
RLM_API const char *rlm_run_reason(const rlm_run *run);
/* What went wrong, for people; "" if nothing did. */
RLM_API const char *rlm_run_message(const rlm_run *run);
/* What a run failed of that could not go on: an input that was refused (then there is no graph), the
 * journal, memory. NULL: it did not. Borrowed. */
RLM_API const rlm_error *rlm_run_error(const rlm_run *run);
/* Of the whole tree, failed and repeated calls included. */
RLM_API struct rlm_usage rlm_run_usage(const rlm_run *run);
RLM_API const char *rlm_run_path(const rlm_run *run); /* of the journal; NULL: in memory */
/* 0: what the run wrote is what its path names (or it is in memory). RLM_E_NOT_FOUND: the run was removed
 * or replaced while it was written, and is lost; RLM_E_IO: its path cannot be looked at. */
RLM_API int rlm_run_check_kept(const rlm_run *run, rlm_error **err);
RLM_API uint64_t rlm_run_disk_bytes(const rlm_run *run);

/* ---- runs as things -------------------------------------------------------------------------- */

enum rlm_run_state {
    RLM_RUN_RUNNING,    /* a living process writes it */
    RLM_RUN_UNFINISHED, /* stopped or killed: rlm_flow_resume goes on with it */
    RLM_RUN_ENDED,      /* the reason says how */
    RLM_RUN_DAMAGED,    /* the problem says where; what could be read is filled in */
};

/* What a list of runs shows of one. Texts are never NULL, but `problem` is when there is none. */
struct rlm_run_glance {
    size_t size;
    enum rlm_run_state state;
    char *query;  /* its first 400 bytes */
    char *reason; /* as rlm_run_reason; of one that was killed: "" */
    char *problem;
    int64_t started_us; /* microseconds since 1970; 0: unknown */
    int64_t changed_us; /* when something was last written */
    struct rlm_usage usage;
    size_t agents;
    uint64_t disk_bytes;
};

#define RLM_RUN_GLANCE_INIT                   \
    {                                         \
        .size = sizeof(struct rlm_run_glance) \
    }

/* Looks at a run without loading it: of one that has ended only the first and the last record are read.
 * A damaged one is no error. RLM_E_NOT_FOUND, RLM_E_PARSE (no directory), RLM_E_IO. */
RLM_API int rlm_run_glance(const char *journal, struct rlm_run_glance *ret_glance, rlm_error **err);
/* Frees what a glance holds. */
RLM_API void rlm_run_glance_deinit(struct rlm_run_glance *glance);
/* Removes a run from the disk. RLM_E_BUSY (a living process holds it), RLM_E_NOT_FOUND, RLM_E_PARSE (no
 * run), RLM_E_INVAL (a link), RLM_E_EXISTS (other files lie there; they stay), RLM_E_IO. */
RLM_API int rlm_run_remove(const char *journal, rlm_error **err);
enum rlm_export_format {
    RLM_EXPORT_JSON,   /* one document */
    RLM_EXPORT_SQLITE, /* a database */
    RLM_EXPORT_PYTHON, /* the directory that the Python project of the same name saves */
};

/* Writes a run in another form (docs/runs.md). `path` does not exist; of JSON it may be a pipe, or "-": the
 * standard output. Of a damaged run what can be read is written. `*ret_note` (may be NULL; free it)
 * says what is missing, else it is NULL. RLM_E_EXISTS, RLM_E_UNSUPPORTED (no libsqlite3), RLM_E_IO, and
 * those of rlm_graph_load. */
RLM_API int rlm_run_export(const char *journal,
                           enum rlm_export_format format,
                           const char *path,
                           char **ret_note,
                           rlm_error **err);
/* Writes a graph in the form RLM_EXPORT_PYTHON; an input that stands in a blob is named, not written.
 * `path` does not exist. RLM_E_EXISTS, RLM_E_IO. */
RLM_API int rlm_graph_save(const rlm_graph *root, const char *path, rlm_error **err);
/* Where rlm_run_export, rlm_run_pack, rlm_run_unpack and rlm_run_fork make `path` until it is whole, in this
 * process: what a program removes when it is ended by a signal meanwhile. The caller frees it. NULL: no
 * memory. */
RLM_API char *rlm_part_path(const char *path);
/* Packs a run into one file, a plain tar archive; `path` does not exist, or it is a pipe, or "-": the
 * standard output. A run that is being written is packed as it is. RLM_E_EXISTS, RLM_E_CORRUPT (a blob is
 * damaged), and those of rlm_graph_load. */
RLM_API int rlm_run_pack(const char *journal, const char *path, rlm_error **err);
/* Makes a run of a pack (`path` "-": the standard input), all or nothing. `journal` does not exist.
 * RLM_E_NOT_FOUND, RLM_E_EXISTS, RLM_E_PARSE (cut off, or it holds what no pack does), RLM_E_CORRUPT (a
 * blob is not what its name says), RLM_E_VERSION, RLM_E_IO. */
RLM_API int rlm_run_unpack(const char *path, const char *journal, rlm_error **err);

/* ---- gates ----------------------------------------------------------------------------------- */

/* A question before an agent acts. A hook gets it and answers it exactly once, at once or any time later,
 * on the loop's thread. Until then no clock of the cell or call runs, max_time stands still where
 * all agents wait for gates, and everything else goes on. If the agent ends first, the answer must be
 * given all the same and is dropped. The journal keeps who answered what, when, and what was shown.
 * The gate is gone with its answer, and with its flow at the latest: no answer after rlm_flow_free. */
typedef struct rlm_gate rlm_gate;

/* `who` (all three): whose answer it is, for the record; NULL: not said. */
RLM_API void rlm_gate_allow(rlm_gate *gate, const char *who);
/* Of exec_turn: this code runs in place of the one proposed, and the model is told so. Of other gates it
 * is as rlm_gate_reject. */
RLM_API void rlm_gate_rewrite(rlm_gate *gate, const char *who, struct rlm_str code);
/* Of exec_turn: the code does not run, and the text is what the model is shown (an error_output
 * "rejected"). Of host_call: HostCallError with this text in the agent's code. Of model_call: an
 * llm_query gets a failure "refused", an agent fails. */
RLM_API void rlm_gate_reject(rlm_gate *gate, const char *who, struct rlm_str text);
/* Of exec_turn: the code does not run; what rlm_run_append has put into the graph meanwhile stands in its
 * place. Of other gates, and where nothing was appended, it is as rlm_gate_reject. */
RLM_API void rlm_gate_skip(rlm_gate *gate, const char *who);
/* Nobody here can answer: stops the run as rlm_run_stop does, with the reason "awaiting_approval" and `why`
 * as its message. The question is asked again when the run is resumed. */
RLM_API void rlm_gate_postpone(rlm_gate *gate, const char *why);
/* `cancelled` is called once if the agent or the run ends before the answer, of a replay's gate when the flow
 * is freed. It may give the answer. */
RLM_API void rlm_gate_on_cancel(rlm_gate *gate, void (*cancelled)(void *arg), void *arg);

/* Each may be NULL: all is allowed. `g` is the agent's graph. With `replay` the recorded decision stands
 * whatever is answered, and nothing runs that did not run then: rlm_gate_allow agrees with it, an
 * answer that would have let other code run (or none) is a difference that ends the replay. */
struct rlm_flow_hooks {
    size_t size;
    void *arg;
    /* Before the code of a reply is handed to a session. */
    void (*exec_turn)(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay);
    /* Before a model call is reserved and sent, once for all its attempts. `call_json`: {"model", "turn" (0: a
     * prompt of llm_query), "messages": number, "input_tokens": at most, "prompt": of llm_query}. Not
     * in a replay, which makes none. */
    void (*model_call)(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str call_json);
    /* Before a host call of agent code is performed. `arguments_json`: {"args": [...], "kwargs": {...}}. */
    void (*host_call)(void *arg,
                      rlm_gate *gate,
                      rlm_graph *g,
                      struct rlm_str name,
                      struct rlm_str arguments_json,
                      bool replay);
    /* Before a turn's messages are reserved and sent, once they are built: `messages_json` is [{"role",
     * "content"}...], `final`: it is the agent's last turn. rlm_gate_rewrite with such an array sends that in
     * their place; what is sent is then not compared in a replay. Not in a replay, and not journaled. */
    void (*messages)(
        void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str messages_json, bool final);
    /* Before the agent's next step, once for each node that has come: the agent goes on when it is allowed
     * (whatever the answer is). So a run is stepped. Not in a replay, and not journaled. */
    void (*next_step)(void *arg, rlm_gate *gate, rlm_graph *g);
    /* A change of a graph has been journaled (the types of the public classes). Not in a replay. */
    void (*event_committed)(void *arg, rlm_run *run, const struct rlm_event *event);
};

#define RLM_FLOW_HOOKS_INIT                   \
    {                                         \
        .size = sizeof(struct rlm_flow_hooks) \
    }

/* Regular expressions (PCRE2) for rules on what is asked; a search is bounded in steps. */
typedef struct rlm_regex rlm_pattern;
/* RLM_E_PARSE with the offset and the reason, RLM_E_LIMIT for a pattern that is too long. */
RLM_API int rlm_pattern_new(struct rlm_str pattern, rlm_pattern **ret_pattern, rlm_error **err);
/* 1: found somewhere in the text, 0: not; RLM_E_LIMIT when the search was given up, RLM_E_NOMEM. */
RLM_API int rlm_pattern_search(rlm_pattern *pattern, struct rlm_str text, rlm_error **err);
RLM_API void rlm_pattern_free(rlm_pattern *pattern); /* NULL allowed */

/* ---- views ----------------------------------------------------------------------------------- */

/* An event or node as one line of JSON (no newline at the end); the caller frees it. NULL: no memory. */
RLM_API char *rlm_event_json(const struct rlm_event *event);
RLM_API char *rlm_node_json(const rlm_graph *g, const struct rlm_node *node);

struct rlm_view_options {
    size_t size;
    int width;     /* columns; 0: not clipped */
    bool color;    /* ANSI escapes */
    rlm_run *run;  /* a living run, for states; NULL: a graph at rest */
    int max_lines; /* of the tree; 0: all */
    const char *
        journal; /* path of the run, for what stands in no node (approvals of an agent's code); or NULL */
};

#define RLM_VIEW_OPTIONS_INIT                   \
    {                                           \
        .size = sizeof(struct rlm_view_options) \
    }

/* The tree of agents as text: state, turns, tokens, cost. The caller frees it. NULL: no memory. */
RLM_API char *rlm_view_tree(const rlm_graph *root, const struct rlm_view_options *options);
/* One agent's trajectory, node by node, and one node in full. */
RLM_API char *rlm_view_agent(const rlm_graph *g, const struct rlm_view_options *options);
RLM_API char *rlm_view_node(const rlm_graph *g,
                            const struct rlm_node *node,
                            const struct rlm_view_options *options);
/* Where the money went: usage by agent and by turn, dearest first. */
RLM_API char *rlm_view_usage(const rlm_graph *root, const struct rlm_view_options *options);
/* When the agents did what, as bars: a line for each, or of `agent` (NULL: all) a line for each step. `journal`
 * is the path of the run, from which come the times of calls and questions, and those in which the run was
 * stopped, which are left out; NULL: nodes alone have times. `json`: an object {"started_us", "total_us",
 * "stops": [{"at_us", "left_out_us"}], "agents": [{"agent_id", "spans": [{"kind", "turn", "from_us", "to_us",
 * "node"}]}]}; a kind is "model", "code", "tools", "waiting" (for sub-agents, or for the session in which a
 * reply's code is to run), "approval" or "rewound", `node` the one that ended it, or null. The caller frees the
 * text. RLM_E_NOMEM and those of rlm_graph_load. */
RLM_API int rlm_view_timeline(const rlm_graph *root,
                              const rlm_graph *agent,
                              const char *journal,
                              bool json,
                              const struct rlm_view_options *options,
                              char **ret_text,
                              rlm_error **err);
/* The conversation of one agent as its model saw it at its last turn, with the reply; `json`: as an object
 * {"agent_id", "turn", "as_sent", "messages": [{"role", "content"}], "reply"}. It says whether what was
 * sent was this, byte for byte. The caller frees the text. RLM_E_NOT_FOUND and those of rlm_graph_load. */
RLM_API int rlm_view_conversation(const char *journal,
                                  const char *agent_id,
                                  bool json,
                                  const struct rlm_view_options *options,
                                  char **ret_text,
                                  rlm_error **err);
/* How two runs differ: agents that only one has, and for each other the first node that differs. 1: they
 * do. Times, ids and usage are not compared. The caller frees the text. RLM_E_NOMEM, RLM_E_LIMIT. */
RLM_API int rlm_view_diff(const rlm_graph *a,
                          const rlm_graph *b,
                          const struct rlm_view_options *options,
                          char **ret_text,
                          rlm_error **err);
/* The run as one HTML file that needs no other: tree, trajectories, timeline, search. `journal` as for
 * rlm_view_timeline; `note` (may be NULL) is shown on top. Long texts are cut in the middle, and say so.
 * The caller frees it. RLM_E_NOMEM, RLM_E_LIMIT and those of rlm_graph_load. */
RLM_API int rlm_view_html(const rlm_graph *root,
                          const char *journal,
                          const char *note,
                          char **ret_html,
                          size_t *ret_len,
                          rlm_error **err);
/* An event as one line of text, without a newline; at most 200 columns unless `width` says otherwise.
 * Options may be NULL. */
RLM_API char *rlm_view_event(const struct rlm_event *event, const struct rlm_view_options *options);
/* Text of a model or agent as one line that is harmless on a terminal: escape sequences and control
 * characters are gone, ends of lines are blanks. Every view does this. Options may be NULL. */
RLM_API char *rlm_view_text(struct rlm_str text, const struct rlm_view_options *options);
/* Code as a person should see it before it runs, for exec_turn: nothing is left out, and no line can be taken
 * for one of the program's. Each line stands behind its number ("   7 | "); one longer than `width` goes on
 * behind "     : ". What a terminal does not show for what it is (controls, zero-width and bidi
 * characters, blanks that are not plain ones, bytes that are not UTF-8) is written as <U+200B> or <0xFF>, and
 * the bar of such a line is a "!". `*ret_hidden` (may be NULL) counts them. Options may be NULL. The caller
 * frees the text. NULL: no memory. */
RLM_API char *
rlm_view_code(struct rlm_str code, const struct rlm_view_options *options, size_t *ret_hidden);

/* ---- conformance of runtimes ----------------------------------------------------------------- */

/* One thing that every runtime must do: a run whose model is scripted, and whose agents try it from inside.
 * Its answer is "ok", or says what was wrong. */
struct rlm_conformance_check {
    const char *name;    /* "yield" */
    const char *promise; /* what must hold, in words */
    const char *script;  /* of the model; NULL: what is looked at behind all runs */
    const char *reason;  /* for which its run must end instead; NULL: none */
    bool
        takes_text; /* it has the inputs "text" (lines "line %010d\n", numbered from 0 to 65,535 and
                            again from 0) and "size" (its length, a multiple of 16) */
    bool
        own_process; /* it ends its worker, or writes to its descriptors: not where sessions are threads of
                         the embedding program */
    int max_iters; /* 0, here and below: the default */
    int64_t exec_timeout_ms;
    int64_t max_time_ms;
};

/* All but the last of what rlm_runtime_check does, for who runs them in another way. */
RLM_API const struct rlm_conformance_check *rlm_conformance_checks(size_t *ret_n);

struct rlm_conformance_options {
    size_t size;
    size_t text_bytes; /* of the big input; 0: 64 MiB */
    bool in_process;   /* leaves out the checks with `own_process` */
    /* After each check: `wrong` says what was not as promised; NULL: nothing. May be NULL. */
    void (*checked)(void *arg, const struct rlm_conformance_check *check, const char *wrong);
    void *arg;
};

#define RLM_CONFORMANCE_OPTIONS_INIT                   \
    {                                                  \
        .size = sizeof(struct rlm_conformance_options) \
    }

/* Checks a runtime, which nothing else uses meanwhile: some twenty runs, one behind the other, and at last
 * that no descriptor and no child process of this process is left of them. 0, and how many checks failed;
 * errors are those of what could not be begun (RLM_E_NOMEM, RLM_E_INVAL). */
RLM_API int rlm_runtime_check(rlm_loop *loop,
                              rlm_runtime *runtime,
                              const struct rlm_conformance_options *options,
                              size_t *ret_failed,
                              rlm_error **err);

#ifdef __cplusplus
}
#endif

#endif

/* A port: requests of the engine to the Python code that drives a run.
 *
 * The engine's thread puts requests in; a descriptor becomes readable when the first one comes. Python
 * takes them all at once. A request becomes a tuple whose first member names its kind (port.c says what
 * follows). One that asks for an answer carries an Answer (answer.h).
 */
#pragma once

#include "engine.h"

struct answer;
struct backend;

enum request_kind {
    REQUEST_CHAT,      /* ("chat", answer, model, messages, max_output_tokens, agent_id, turn) */
    REQUEST_TOOL,      /* ("tool", answer, index, arguments, agent_id) */
    REQUEST_EXEC_TURN, /* ("exec_turn", answer, agent_id, code, replay) */
    REQUEST_MESSAGES,  /* ("messages", answer, agent_id, messages, final) */
    REQUEST_NEXT_STEP, /* ("next_step", answer, agent_id) */
    REQUEST_CANCEL,    /* ("cancel", answer): nobody waits for that answer any more */
    REQUEST_EVENT,     /* ("event", text): a line of JSON, as `rlmflow run --json` prints it */
    REQUEST_BACKEND,   /* ("backend", backend, question, step, text) (backend.h) */
    REQUEST_ENDED,     /* ("ended",) */
};

/* Of a backend; the text is the agent's id, code, results, nothing, an outcome (whose number is the step). */
enum backend_question {
    BACKEND_OPEN,
    BACKEND_START,
    BACKEND_RESUME,
    BACKEND_CLOSE,
    BACKEND_INNER,
};

struct message {
    const char *role; /* a literal */
    char *text;
    size_t len;
};

/* Texts are owned. */
struct request {
    struct request *next;
    enum request_kind kind;
    struct answer *answer;
    struct backend *backend;
    enum backend_question question;
    uint64_t step;
    long index; /* of the model or tool */
    struct message *messages;
    size_t n_messages;
    int max_output_tokens, turn;
    char agent_id[256];
    char *text;
    size_t text_len;
    bool replay; /* of messages: final */
};

typedef struct port port;

port *port_new(void); /* NULL with an exception */
port *port_ref(port *p);
void port_unref(port *p);
int port_fd(const port *p);
/* Nobody takes any more: what is in it, and what comes, is dropped. (Requests hold answers, and those the
 * port.) */
void port_close(port *p);

/* Any thread, without the GIL. Takes the request; NULL is passed over. */
void port_put(port *p, struct request *take_r);
struct request *request_new(enum request_kind kind, const char *agent_id);
/* Copies a text; false: no memory. */
bool request_set_text(struct request *r, struct rlm_str text);
void request_free(struct request *r);

/* A list of tuples, with the GIL. */
PyObject *port_take(port *p);

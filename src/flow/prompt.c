#include "flow/prompt.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>

enum { PROMPT_MAX = 64 * 1024 * 1024, PREVIEW_CHARS = 120, FILES_SHOWN = 12 };

const char rlm_prompt_final[] =
    "This is your last turn. Reply with one ```repl block that calls done(answer) with the best "
    "answer you have now; nothing can follow it.";

static const char role[] =
    "You answer a task by writing Python. Your code runs in a REPL session that keeps its "
    "variables; what it prints comes back to you as the next message, and then you write the "
    "next code. First look at the data, then compute, and when you have seen the right result, "
    "end with `done(answer)`.";

static const char format[] =
    "Each reply is one code block that starts with ```repl and ends with ```. Only the first "
    "block of a reply runs. You see at most a few thousand characters of what it prints, so do "
    "not read the data through: print a few lines to learn its form, then search, count and "
    "compute with code.";

static const char session[] =
    "In the session, without any import:\n"
    "- `INPUTS`: the inputs by name, each also a variable of that name. They hold the real data, "
    "which may be huge: read it from there, never make it up, and do not give these names new "
    "values.\n"
    "- `done(answer)`: ends your work with this answer.\n"
    "- `await llm_query(prompt)`: the reply (str) of a language model that sees nothing but the "
    "prompt: `await llm_query(\"Polite or rude? One word.\\n\" + letter)`. For reading, judging "
    "and summarising; counting is for code. `await llm_query_batched([prompt, ...])`: a list of "
    "replies, many at once.\n";

static const char delegation[] =
    "- `await launch_subagents(specs)`: starts agents like you, each with a session of its own, "
    "that know only their query and inputs: `await launch_subagents([{\"query\": \"Which port "
    "does `part` name?\", \"inputs\": {\"part\": part}} for part in parts])`. All run at once; "
    "the result is the list of their answers (str) in the order of the specs. For parts that "
    "need several steps each. Keep queries short and pass data through inputs.\n";

static const char session_end[] =
    "- A part that failed stands in its place as a `Failure`, a str with `.reason`; check with "
    "`isinstance(x, Failure)`.\n"
    "- `budget()`: what you may still spend. Files: `read_file, read_lines, line_count, "
    "write_file, append_file, edit_file, ls, grep`.\n"
    "\n"
    "Top-level `await` works.";

static const char examples[] =
    "Example of a task done in two replies: \"How many days of `weather` had more than 10 mm of "
    "rain, and which was the wettest?\" The first reply only looks, at lines from all over the "
    "text:\n"
    "\n"
    "```repl\n"
    "lines = weather.splitlines()\n"
    "print(len(lines))\n"
    "for line in lines[::len(lines) // 5 + 1]:\n"
    "    print(line[:200])\n"
    "```\n"
    "\n"
    "What it printed:\n"
    "\n"
    "8031\n"
    "# station 14\n"
    "2005-05-26 wind=3 rain=3.5mm\n"
    "2009-10-19 wind=7 rain=0mm\n"
    "2014-03-14 wind=5 rain=12.1mm\n"
    "2018-08-07 wind=1 rain=0mm\n"
    "\n"
    "Now the form is known. The second reply computes over the whole data and answers:\n"
    "\n"
    "```repl\n"
    "rain = {}\n"
    "for line in lines:\n"
    "    if \"rain=\" in line:\n"
    "        rain[line.split()[0]] = float(line.split(\"rain=\")[1].rstrip(\"m\"))\n"
    "wet = [day for day in rain if rain[day] > 10]\n"
    "wettest = max(rain, key=rain.get)\n"
    "print(len(wet), wettest)\n"
    "done(f\"{len(wet)} days; the wettest was {wettest} with {rain[wettest]} mm\")\n"
    "```";

static void put_tools(const rlm_flow *flow, struct rlm_buf *out)
{
    for (size_t i = 0; i < flow->tools.list.len; i++) {
        const struct rlm_tool *tool = flow->tools.list.items[i];
        rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
        const rlm_json *schema = NULL;
        rlm_buf_adds(out, i ? "\n" : "Tools of this run:\n");
        rlm_buf_addf(out, "- `%s%s", tool->is_async ? "await " : "", tool->name);
        if (tool->signature) {
            rlm_buf_addf(out, "%s`: %s", tool->signature, tool->description);
            continue;
        }
        rlm_buf_adds(out, "(");
        if (arena && rlm_json_parse(arena, rlm_str_of(tool->parameters_json), &schema, NULL) == 0) {
            const rlm_json *properties = rlm_json_get(schema, "properties");
            for (uint32_t p = 0; rlm_json_is(properties, RLM_JSON_OBJECT) && p < properties->count;
                 p++) {
                rlm_buf_addf(out, "%s%.*s", p ? ", " : "", RLM_FMT(properties->members[p].key));
            }
        }
        rlm_buf_addf(out, ")`: %s", tool->description);
    }
}

static void
put_section(const rlm_flow *flow, int depth, enum rlm_prompt_section section, struct rlm_buf *out)
{
    switch (section) {
    case RLM_PROMPT_ROLE:
        rlm_buf_adds(out, role);
        break;
    case RLM_PROMPT_FORMAT:
        rlm_buf_adds(out, format);
        break;
    case RLM_PROMPT_SESSION:
        rlm_buf_adds(out, session);
        rlm_buf_adds(out, !flow || depth < flow->limits.max_depth ? delegation : "");
        rlm_buf_adds(out, session_end);
        break;
    case RLM_PROMPT_EXAMPLES:
        rlm_buf_adds(out, examples);
        break;
    case RLM_PROMPT_TOOLS:
        if (flow) {
            put_tools(flow, out);
        }
        break;
    case RLM_PROMPT_MODELS:
        if (flow && flow->models.len > 1) {
            rlm_buf_adds(out, "Models that specs and llm_query may name (`model=`): ");
            rlm_flow_put_model_names(flow, out);
        }
        break;
    case RLM_PROMPT_SECTIONS:
        break;
    }
}

char *rlm_prompt_section(const rlm_flow *flow, int depth, enum rlm_prompt_section section)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(PROMPT_MAX);
    put_section(flow, depth, section, &out);
    return rlm_buf_take(&out);
}

char *rlm_prompt_system(const rlm_flow *flow, int depth)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(PROMPT_MAX);
    if (flow->system_prompt) {
        return rlm_strdup(flow->system_prompt);
    }
    for (int s = 0; s < RLM_PROMPT_SECTIONS; s++) {
        rlm_auto_buf struct rlm_buf part = RLM_BUF(PROMPT_MAX);
        put_section(flow, depth, (enum rlm_prompt_section)s, &part);
        if (part.len) {
            rlm_buf_addf(&out, "%s%.*s\n", out.len ? "\n" : "", RLM_FMT(rlm_buf_str(&part)));
        }
    }
    return rlm_buf_take(&out);
}

/* ---- the list of inputs ---- */

static void add_count(struct rlm_buf *out, uint64_t n)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) {
            rlm_buf_addc(out, ',');
        }
        rlm_buf_addc(out, digits[i]);
    }
}

/* The beginning of a text on one line, quoted as JSON does; true if that is all of it. No more than
 * that: what stands here is what small models copy into their code instead of looking at the data. */
static bool add_preview(struct rlm_buf *out, rlm_str text, bool whole)
{
    size_t end = rlm_utf8_offset(text, PREVIEW_CHARS);
    struct rlm_json_writer w = {.buf = out};
    whole = whole && end == text.len;
    rlm_buf_adds(out, whole ? ": " : ", begins with ");
    rlm_json_put_str(&w, rlm_str_sub(text, 0, end));
    return whole;
}

static void
add_blob(const struct rlm_agent *agent, const struct rlm_blob *blob, struct rlm_buf *out)
{
    if (blob->type == RLM_BLOB_BYTES) {
        rlm_buf_adds(out, "bytes, ");
        add_count(out, blob->size_bytes);
        rlm_buf_adds(out, " bytes (not UTF-8 text)");
        return;
    }
    rlm_auto_buf struct rlm_buf head = RLM_BUF(64 * 1024);
    rlm_buf_adds(out, "str, ");
    add_count(out, blob->chars);
    rlm_buf_adds(out, " characters");
    if (rlm_blobs_read_range(agent->run->blobs, rlm_str_of(blob->id), 0, (size_t)PREVIEW_CHARS * 4,
                             &head, NULL) == 0) {
        add_preview(out, rlm_buf_str(&head), false);
    }
}

static void add_directory(const rlm_json *dir, rlm_str name, struct rlm_buf *out)
{
    const rlm_json *files = rlm_json_get(dir, "files");
    uint32_t n = rlm_json_is(files, RLM_JSON_ARRAY) ? files->count : 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += (uint64_t)rlm_json_int(rlm_json_at(rlm_json_at(files, i), 1), 0);
    }
    /* The loop is shown because models take a directory for a path. */
    rlm_buf_addf(out,
                 "the files of a directory as a dict (for file, content in %.*s.items(): ...), ",
                 RLM_FMT(name));
    add_count(out, n);
    rlm_buf_adds(out, " files, ");
    add_count(out, bytes);
    rlm_buf_adds(out, " bytes:");
    for (uint32_t i = 0; i < n && i < FILES_SHOWN; i++) {
        rlm_str file = rlm_json_text(rlm_json_at(rlm_json_at(files, i), 0), RLM_STR(""));
        rlm_buf_addf(out, "%s %.*s", i ? "," : "", RLM_FMT(file));
    }
    rlm_buf_adds(out, n > FILES_SHOWN ? ", ..." : "");
}

/* True if the value stands there whole. */
static bool
add_value(const struct rlm_agent *agent, const struct rlm_json_member *m, struct rlm_buf *out)
{
    const rlm_json *value = &m->value;
    struct rlm_json_writer w = {.buf = out};
    const struct rlm_blob *blob =
        rlm_blobs_find(agent->run->blobs, rlm_json_text(rlm_json_get(value, "$blob"), RLM_STR("")));
    if (blob) {
        add_blob(agent, blob, out);
    } else if (rlm_json_get(value, "$dir")) {
        add_directory(rlm_json_get(value, "$dir"), m->key, out);
    } else if (rlm_json_get(value, "$bytes")) {
        rlm_buf_addf(out, "bytes, about %zu bytes",
                     rlm_json_text(rlm_json_get(value, "$bytes"), RLM_STR("")).len / 4 * 3);
    } else if (value->type == RLM_JSON_STRING) {
        rlm_buf_adds(out, "str, ");
        add_count(out, rlm_utf8_count(value->text));
        rlm_buf_adds(out, " characters");
        return add_preview(out, value->text, true);
    } else if (value->type == RLM_JSON_ARRAY || value->type == RLM_JSON_OBJECT) {
        rlm_buf_addf(out, "%s of %u", value->type == RLM_JSON_ARRAY ? "list" : "dict",
                     value->count);
    } else {
        rlm_json_put(&w, value);
        return true;
    }
    return false;
}

int rlm_prompt_task(const struct rlm_agent *agent, rlm_str query, struct rlm_buf *out)
{
    const rlm_graph *g = agent->graph;
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *inputs;
    if (!arena || rlm_json_parse(arena, g->inputs, &inputs, NULL) < 0) {
        return RLM_E_NOMEM;
    }
    rlm_buf_adds(out, "Task: ");
    rlm_buf_add_str(out, query);
    rlm_buf_adds(out, "\n");
    if (inputs->count) {
        rlm_buf_adds(out, "\nInputs, in INPUTS and as variables:\n");
    }
    bool unseen = false;
    for (uint32_t i = 0; i < inputs->count; i++) {
        const struct rlm_json_member *m = &inputs->members[i];
        rlm_buf_addf(out, "- %.*s: ", RLM_FMT(m->key));
        unseen |= !add_value(agent, m, out);
        rlm_buf_adds(out, "\n");
    }
    if (g->output_schema.len) {
        rlm_buf_adds(out,
                     "\nThe answer given to done() must be a value that fits this JSON Schema:\n");
        rlm_buf_add_str(out, g->output_schema);
        rlm_buf_adds(out, "\n");
    }
    int max_iters = rlm_step_max_iters(&agent->run->flow->limits, g->depth);
    rlm_buf_addf(out, "\nYou have %d turns.", max_iters);
    if (unseen && max_iters > 1 &&
        !agent->run->flow->system_prompt) { /* the user's own has no example */
        rlm_buf_adds(out, " The first one only looks at the inputs, as in the example.");
    }
    return out->status;
}

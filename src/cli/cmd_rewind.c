#include "cli/commands.h"
#include "cli/program.h"
#include "cli/text.h"

#include <stdlib.h>

static int run(struct options *o)
{
    char *path = NULL, *place = NULL;
    rlm_graph *root = NULL, *g;
    const struct rlm_node *node;
    rlm_error *err = NULL;
    int code = split_place(o->arguments[0], &path, &place);
    if (code != 0) {
        return code;
    }
    int r = rlm_graph_open(path, &root, &err);
    if (r == 0 && (r = rlm_graph_find(root, place, &g, &node, &err)) == 0) {
        r = rlm_graph_rewind(g, node->id, &err);
    }
    if (r < 0) {
        code = text_fail(err);
    } else {
        char *program = program_word();
        text_say("%s %s node %u of %s (%s); go on with: %s resume %s", path,
                 r > 0 ? "ends already with" : "ends now with", (unsigned)node->seq,
                 rlm_graph_agent_id(g), rlm_node_type_tag(node->type), program, path);
        free(program);
    }
    rlm_graph_free(root);
    free(place);
    free(path);
    return code;
}

const struct command cmd_rewind = {
    .name = "rewind",
    .bit = FOR_REWIND,
    .summary = "Removes from a run what came after a node.",
    .usage = "RUN@NODE",
    .description =
        "NODE is a node's id, AGENT:SEQ, AGENT:turnN (after the agent's Nth reply and its code), or SEQ or\n"
        "turnN of the root. What its agent did after it is removed, with the sub-agents that it launched\n"
        "then; agents above it go back to where they waited for it. `rlmflow resume` goes on from there.\n"
        "What was spent stays counted. To keep the run and go on in a new one: `rlmflow run --from`.\n",
    .example = "  rlmflow rewind errors-in-the-log@turn3\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};

/* A complete program that runs an agent over a file: minimal QUERY FILE MODEL
 * The model is one of OPENAI_BASE_URL's (with OPENAI_API_KEY), or a script of replies, "script:FILE". */
#include <rlmflow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct rlm_model_options model_options = RLM_MODEL_OPTIONS_INIT;
    struct rlm_subprocess_options runtime_options = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options flow_options = RLM_FLOW_OPTIONS_INIT;
    struct rlm_run_options run_options = RLM_RUN_OPTIONS_INIT;
    rlm_loop *loop;
    rlm_flow *flow;
    rlm_run *run;
    rlm_error *err = NULL;
    if (argc != 4) {
        return fprintf(stderr, "usage: minimal QUERY FILE MODEL\n"), 2;
    }
    struct rlm_input input = {.name = "text", .kind = RLM_INPUT_FILE, .path = argv[2]};
    model_options.name = argv[3];
    model_options.base_url = getenv("OPENAI_BASE_URL");
    model_options.key = getenv("OPENAI_API_KEY");
    run_options.query = (struct rlm_str){argv[1], strlen(argv[1])};
    run_options.inputs = &input, run_options.n_inputs = 1;
    int script = strncmp(argv[3], "script:", 7) == 0;
    if (rlm_loop_new(&loop, &err) ||
        (script ? rlm_model_new_scripted(loop, argv[3] + 7, &flow_options.model, &err)
                : rlm_model_new(loop, &model_options, &flow_options.model, &err)) ||
        rlm_runtime_new_subprocess(loop, &runtime_options, &flow_options.runtime, &err) ||
        rlm_flow_new(loop, &flow_options, &flow, &err) ||
        rlm_run_start(flow, &run_options, NULL, NULL, &run, &err) || rlm_run_wait(run, &err)) {
        return fprintf(stderr, "%s\n", rlm_error_message(err)), 1;
    }
    struct rlm_str answer = rlm_run_answer(run);
    printf("%s: %.*s %s\n", rlm_run_reason(run), (int)answer.len, answer.ptr, rlm_run_message(run));
    int failed = strcmp(rlm_run_reason(run), "answered") != 0;
    return rlm_run_free(run), failed; /* and, in a longer program, flow, runtime, model and loop */
}

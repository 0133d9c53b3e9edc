/* A complete program that runs an agent: minimal QUERY FILE [MODEL]
 *
 * The model is OPENAI_BASE_URL's (with OPENAI_API_KEY), or "script:FILE".
 */
#include <rlmflow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    rlm_loop *loop = NULL;
    rlm_model *model = NULL;
    rlm_runtime *runtime = NULL;
    rlm_flow *flow = NULL;
    rlm_run *run = NULL;
    rlm_error *err = NULL;
    struct rlm_model_options m = RLM_MODEL_OPTIONS_INIT;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    struct rlm_run_options r = RLM_RUN_OPTIONS_INIT;
    m.name = argc > 3 ? argv[3] : "gpt-4o-mini";
    m.base_url = getenv("OPENAI_BASE_URL");
    m.key = getenv("OPENAI_API_KEY");
    int scripted = strncmp(m.name, "script:", 7) == 0;
    struct rlm_input text = {"text", RLM_INPUT_FILE, {0}, argc > 2 ? argv[2] : "/etc/services", NULL};
    r.query.ptr = argc > 1 ? argv[1] : "How many lines does the text have?";
    r.query.len = strlen(r.query.ptr);
    r.inputs = &text, r.n_inputs = 1;
    if (rlm_loop_new(&loop, &err) || (scripted ? rlm_model_new_scripted(loop, m.name + 7, &model, &err)
                                               : rlm_model_new(loop, &m, &model, &err)) ||
        rlm_runtime_new_subprocess(loop, &s, &runtime, &err) ||
        (f.model = model, f.runtime = runtime, rlm_flow_new(loop, &f, &flow, &err)) ||
        rlm_run_start(flow, &r, NULL, NULL, &run, &err) || rlm_run_wait(run, &err)) {
        fprintf(stderr, "%s\n", rlm_error_message(err));
        return 1;
    }
    struct rlm_str answer = rlm_run_answer(run);
    printf("%s: %.*s %s\n", rlm_run_reason(run), (int)answer.len, answer.ptr, rlm_run_message(run));
    rlm_run_free(run), rlm_flow_free(flow), rlm_runtime_free(runtime), rlm_model_free(model), rlm_loop_free(loop);
    return 0;
}

/* Checks that sessions behind a command keep every promise of a runtime: check_runtime COMMAND [ARG...]
 * As in: check_runtime ssh -T HOST {worker}. Your own runtime takes the place of the one that is made here. */
#include <rlmflow.h>
#include <stdio.h>

static void tell(void *arg, const struct rlm_conformance_check *check, const char *wrong)
{
    printf("%-12s %s\n", check->name, wrong ? wrong : "ok");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct rlm_command_options options = RLM_COMMAND_OPTIONS_INIT;
    struct rlm_conformance_options check_options = RLM_CONFORMANCE_OPTIONS_INIT;
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_error *err = NULL;
    size_t failed;
    if (argc < 2) {
        return fprintf(stderr, "usage: check_runtime COMMAND [ARG...]\n"), 2;
    }
    options.argv = (const char *const *)argv + 1;
    check_options.checked = tell;
    if (rlm_loop_new(&loop, &err) || rlm_runtime_new_command(loop, &options, &runtime, &err) ||
        rlm_runtime_check(loop, runtime, &check_options, &failed, &err)) {
        return fprintf(stderr, "%s\n", rlm_error_message(err)), 1;
    }
    rlm_runtime_free(runtime);
    rlm_loop_free(loop);
    return failed != 0;
}

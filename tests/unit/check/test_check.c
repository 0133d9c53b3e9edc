/* The conformance of runtimes: a sound runtime passes, and what is wrong is told of the right check. */
#include "base/str.h"
#include "harness.h"
#include "rlmflow.h"

#include <fcntl.h>
#include <string.h>

struct told {
    char passed[1000], failed[1000], wrong[1000]; /* names; what the last failure said */
    int opens;                                    /* descriptors that are lost after each check */
};

static void on_checked(void *arg, const struct rlm_conformance_check *check, const char *wrong)
{
    struct told *told = arg;
    char *names = wrong ? told->failed : told->passed;
    size_t len = strlen(names);
    snprintf(names + len, sizeof told->passed - len, "%s ", check->name);
    if (wrong) {
        snprintf(told->wrong, sizeof told->wrong, "%s", wrong);
    }
    for (int i = 0; i < told->opens; i++) {
        CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
    }
}

static size_t check(const char *python, struct told *told)
{
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_error *err = NULL;
    struct rlm_subprocess_options options = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_conformance_options check_options = RLM_CONFORMANCE_OPTIONS_INIT;
    size_t failed;
    options.python = python;
    check_options.text_bytes = 4 << 20;
    check_options.checked = on_checked;
    check_options.arg = told;
    CHECK(rlm_loop_new(&loop, &err) == 0);
    CHECK(rlm_runtime_new_subprocess(loop, &options, &runtime, &err) == 0);
    CHECK_INT(rlm_runtime_check(loop, runtime, &check_options, &failed, &err), 0);
    rlm_runtime_free(runtime);
    rlm_loop_free(loop);
    return failed;
}

TEST(subprocess_keeps_every_promise)
{
    struct told told = {0};
    size_t failed = check("/usr/bin/python3", &told);
    CHECK_STR(rlm_str_of(told.failed), "");
    CHECK_STR(rlm_str_of(told.passed),
              "start resume many wake yield give_up children time_limit flood descriptors unicode "
              "input exit death done close leaks ");
    CHECK_INT(failed, 0);
}

TEST(a_runtime_that_opens_nothing_fails_all_but_the_leaks)
{
    struct told told = {0};
    size_t failed = check("/nonexistent/python3", &told), n;
    rlm_conformance_checks(&n);
    CHECK_INT(failed, n);
    CHECK_STR(rlm_str_of(told.passed), "leaks ");
    CHECK(strstr(told.wrong, "/nonexistent/python3"));
}

TEST(descriptors_that_are_lost_are_a_leak)
{
    struct told told = {.opens = 1};
    CHECK_INT(check("/usr/bin/python3", &told), 1);
    CHECK_STR(rlm_str_of(told.failed), "leaks ");
    CHECK(strstr(told.wrong, "descriptors"));
}
